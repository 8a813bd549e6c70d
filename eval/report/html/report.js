// Chooses which flips are shown. Everything is put in as text, never as HTML.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);
  const [from, to, set, kind, search, found, count, more] =
    ["from", "to", "set", "kind", "search", "found", "count", "more"].map(by);
  const PAGE = 25;
  let flips = [];
  let shown = 0;

  const make = (tag, properties, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element) element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
  const figure = (value, digits) => (value === null ? "–" : value.toFixed(digits));

  const answer = (side, name) => {
    const [prediction, correct, cause, rank, percentile, , error] = side;
    const said = error ? "no answer: " + error : prediction || "(empty)";
    const facts = [data.causes[cause]];
    facts.push(rank ? "answer at " + rank : "no answer passage found");
    if (rank && percentile !== null) facts.push("percentile " + figure(percentile, 1));
    return make("td", { className: correct ? "right" : "wrong" },
      make("span", { className: "who" }, name),
      make("span", { className: "said" },
        make("span", { className: "mark", role: "img", "aria-label": correct ? "right" : "wrong" }, correct ? "✓" : "✗"),
        make("span", { dir: "auto" }, said)),
      make("small", {}, facts.join(" · ")));
  };

  const ranking = (side, name) => {
    const rows = side[5].map(([at, score, holds], index) => {
      const [title, norm, percentile] = data.passages[at];
      return make("tr", { className: holds ? "holds" : "" },
        make("td", { className: "figure" }, String(index + 1)),
        make("th", { scope: "row", dir: "auto" }, title, holds ? make("b", {}, " holds an answer") : ""),
        make("td", { className: "figure" }, figure(score, 3)),
        make("td", { className: "figure" }, figure(norm, 3)),
        make("td", { className: "figure" }, figure(percentile, 1)));
    });
    if (!rows.length) return make("p", { className: "how" }, name + ": no passages");
    const head = ["", "passage", "score", "norm", "percentile"].map((title, at) =>
      make("th", { scope: "col", className: at === 1 ? "" : "figure" }, title));
    return make("div", { className: "scroll", role: "region", tabIndex: 0, "aria-label": "Passages of " + name },
      make("table", {}, make("caption", {}, name), make("thead", {}, make("tr", {}, ...head)),
        make("tbody", {}, ...rows)));
  };

  const entry = ([dataset, question, golds, sides]) => {
    const pair = [[sides[+from.value], data.systems[+from.value]], [sides[+to.value], data.systems[+to.value]]];
    const rankings = make("details", {}, make("summary", {}, "Passages"));
    rankings.addEventListener("toggle", () => {
      if (rankings.children.length === 1) {
        rankings.append(make("div", { className: "both" }, ...pair.map(([side, name]) => ranking(side, name))));
      }
    });
    return make("tbody", {},
      make("tr", {},
        make("th", { scope: "row" },
          make("span", { dir: "auto" }, question),
          make("small", { dir: "auto" }, golds.join(" | ") || "no answer"),
          data.datasets.length > 1 ? make("small", { className: "set" }, data.datasets[dataset]) : ""),
        ...pair.map(([side, name]) => answer(side, name))),
      make("tr", { className: "rankings" }, make("td", { colSpan: 3 }, rankings)));
  };

  const showMore = () => {
    const table = found.firstElementChild;
    if (table) table.append(...flips.slice(shown, shown + PAGE).map(entry));
    shown = Math.min(flips.length, shown + PAGE);
    more.hidden = shown >= flips.length;
    more.textContent = `Show ${Math.min(PAGE, flips.length - shown)} more of ${flips.length - shown}`;
  };

  const update = () => {
    const [a, b, words] = [+from.value, +to.value, search.value.trim().toLowerCase()];
    const tally = { won: 0, lost: 0 };
    flips = data.questions.filter(([dataset, question, golds, sides]) => {
      const [before, after] = [sides[a], sides[b]];
      if (!before || !after || before[1] === after[1]) return false;
      if (set.value !== "" && dataset !== +set.value) return false;
      const text = [question, ...golds, before[0], after[0]].join("\n").toLowerCase();
      if (words && !text.includes(words)) return false;
      const outcome = after[1] ? "won" : "lost";
      tally[outcome] += 1;
      return !kind.value || kind.value === outcome;
    });
    count.textContent = a === b ? "Choose two different systems."
      : `${data.systems[b]} against ${data.systems[a]}: ${tally.won} won, ${tally.lost} lost` +
        (words ? ` of the questions with “${search.value.trim()}”.` : ".");
    shown = 0;
    const head = ["Question, golds", data.systems[a], data.systems[b]].map((title) => make("th", { scope: "col" }, title));
    found.replaceChildren(...(flips.length
      ? [make("table", { className: "flips" }, make("thead", {}, make("tr", {}, ...head)))] : []));
    showMore();
  };

  by("controls").hidden = count.hidden = false;
  by("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const control of [from, to, set, kind]) control.addEventListener("change", update);
  search.addEventListener("input", update);
  more.addEventListener("click", showMore);
  update();
})();
