"""The page: what was run, how well each system did and why not better, and what it depends on.

It asks for nothing from anywhere: style, script, charts and data are in the file, and a content security policy forbids
the rest, so that not even a question with markup in it could make it ask.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from eval.causes import CAUSES
from eval.report import tables
from eval.report.html import draw
from eval.report.html.markup import details, items, scroller, table_html, text
from eval.report.html.norms import norms_html
from eval.report.html.questions import questions_html
from eval.report.provenance import provenance
from eval.summary import Comparison, Metrics, SystemMetrics, mean_seconds
from eval.view import RunView

# More measures than this are shown on demand.
_DRAWN = 2
# And of the warnings so many are shown at once.
_WARNINGS = 5
_HERE = Path(__file__).parent

_CAUSES = {
    "correct": "matches exactly",
    "alias near-miss": "right but for notation",
    "reader miss": "the answer was in the prompt",
    "prompt cut": "its passages were left out of the prompt for length",
    "retrieval miss": "none of the passages holds an answer",
    "no answer in corpus": "no passage of the corpus holds one",
    "no passages": "the reader was offered none",
    "missing": "an error in place of an answer",
    "no gold": "the question has no answer",
}


def html_report(view: RunView, metrics: Metrics) -> str:
    """The page of a run, as one file that opens without a network.

    Args:
        view: The run.
        metrics: Its figures (`eval.summary.summarise`).
    """
    sets = tables.by_dataset(metrics)
    flips = questions_html(view)
    seconds = tables.seconds_table(mean_seconds(view.rows.values()))
    return html_document(
        run_title(view),
        f'<a class="skip" href="#main">To the figures</a>'
        f'<header><h1>Evaluation</h1><p class="lead">{text(run_title(view))}</p>'
        f'<p class="how">{text(_made(view))}</p>{_navigation(sets, bool(flips))}</header><main id="main">'
        f"{figures_html(view, metrics)}{flips}"
        + (f'<section id="seconds"><h2>Time</h2>{table_html(seconds)}</section>' if seconds else "")
        + f"{_provenance(view)}</main>",
        with_script=bool(flips),
    )


def html_document(title: str, body: str, *, with_script: bool = False) -> str:
    """A page in the style of reports that asks nothing of any network; its policy forbids whatever is not in it.

    Args:
        title: Of its window.
        body: HTML.
        with_script: Whether the reports' script goes with it.
    """
    names = ("figures.css", "report.css", "report.js")
    figures, style, script = ((_HERE / name).read_text(encoding="utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{text(title)}</title><style>{figures}{style}</style></head><body>"
        f"{body}{f'<script>{script}</script>' if with_script else ''}</body></html>\n"
    )
    # Half of a surrogate pair, which no file can hold.
    return page.encode("utf-8", "replace").decode("utf-8")


def figures_html(view: RunView, metrics: Metrics) -> str:
    """The sections of a run's figures, for any page that has the styles of figures.css for them."""
    sets = tables.by_dataset(metrics)
    sections = [_dataset(view, metrics, systems, at) for at, systems in enumerate(sets.values(), start=1)]
    return f"{_patterns()}{_unfinished(metrics)}{_overview(metrics)}{''.join(sections)}"


def _unfinished(metrics: Metrics) -> str:
    """Before the first figure: that there will be others."""
    lines = [note for note in metrics.notes if note.startswith("UNFINISHED")]
    return "".join(f'<section role="note"><h2>Unfinished</h2><p>{text(line)}</p></section>' for line in lines)


def run_title(view: RunView) -> str:
    """What was run, in a line."""
    systems, sets = len(view.systems), len(view.datasets)
    return (f"{systems} system{'s' if systems != 1 else ''} on "
            f"{', '.join(view.datasets) if sets <= 3 else f'{sets} data sets'}"
            f"{f', {len(view.questions)} questions' if view.questions else ''}")  # fmt: skip


def _made(view: RunView) -> str:
    environment = view.manifest.get("environment") or {}
    git, version = environment.get("git"), (environment.get("packages") or {}).get("magrag")
    parts = [f"Started {str(view.manifest.get('started', '')).replace('T', ' ')}"]
    parts += [f"baseline {view.manifest['baseline']}"] if view.manifest.get("baseline") else []
    parts += [f"MagRAG {version}"] if version else []
    parts += [f"revision {git['commit'][:12]}{' with changes' if git['changed'] else ''}"] if git else []
    return " · ".join(parts)


def _navigation(sets: dict[str, list[SystemMetrics]], flips: bool) -> str:
    links = [("overview", "Overview"), *((f"set{at}", name) for at, name in enumerate(sets, start=1))]
    links += [("flips", "Questions that flip")] if flips else []
    links += [("provenance", "How it was made")]
    entries = "".join(f'<li><a href="#{anchor}">{text(name)}</a></li>' for anchor, name in links)
    return f'<nav aria-label="Contents"><ul>{entries}</ul></nav>'


def _overview(metrics: Metrics) -> str:
    note = tables.overview_note(metrics)
    return (
        '<section id="overview" aria-labelledby="overview-title"><h2 id="overview-title">Overview</h2>'
        + table_html(tables.overview(metrics), caption="Main figure of each system on each data set")
        + (f'<p class="how">{text(note)}</p>' if note else "")
        + _warnings(tables.warnings(metrics))
        + details("How to read the figures", items(tables.notes(metrics)))
        + "</section>"
    )


def _warnings(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    rest = details(f"{len(lines) - _WARNINGS} more", items(lines[_WARNINGS:])) if len(lines) > _WARNINGS else ""
    return (
        '<div class="warnings" role="note"><h3>Before believing a figure</h3>'
        + items(lines[:_WARNINGS])
        + rest
        + "</div>"
    )


def _dataset(view: RunView, metrics: Metrics, systems: Sequence[SystemMetrics], number: int) -> str:
    dataset = systems[0].dataset
    names = list(dict.fromkeys(own.system for own in metrics.systems))
    pairs = [pair for pair in metrics.comparisons if pair.dataset == dataset]
    facts = view.manifest.get("datasets", {}).get(dataset) or {}
    how = [f"{systems[0].n} questions", f"rule {systems[0].rule}" if systems[0].rule else systems[0].task]
    how += [f"{name} {facts[key]}" for key, name in (("corpus", "corpus"), ("lang", "language")) if facts.get(key)]
    parts = [
        f'<section id="set{number}" aria-labelledby="set{number}-title"><h2 id="set{number}-title">{text(dataset)}</h2>'
        f'<p class="how">{text(" · ".join(how))}</p>',
        _measures(metrics, systems),
        _differences(metrics, pairs),
        _curves(systems, names),
        _causes(systems),
        norms_html(view, dataset, [own.system for own in systems]),
    ]
    exact = [table for table in (tables.answers(systems), tables.rankings(systems), tables.curves(systems)) if table]
    if exact:
        parts.append(details("All figures", "".join(table_html(table) for table in exact)))
    return "".join(parts) + "</section>"


def _measures(metrics: Metrics, systems: Sequence[SystemMetrics]) -> str:
    """Each measure with its interval, drawn."""
    drawn = []
    for measure in tables.measures_of(systems):
        found = [(own.system, tables.figures(own)[measure]) for own in systems if measure in tables.figures(own)]
        ends = [end for _, measured in found for end in (*(measured.interval or ()), measured.value)]
        scale = draw.scale_for(ends)
        n = {measured.n for _, measured in found}
        rows = "".join(
            f'<tr><th scope="row">{text(name)}</th><td>{draw.track(scale, measured.value, measured.interval)}</td>'
            f'<td class="figure"><b>{tables.number(measured.value, measure)}</b> '
            + (f"<span>{tables.brackets(measured.interval, measure)}</span>" if measured.interval else "")
            + "</td></tr>"
            for name, measured in found
        )
        unit = ", percent" if measure in ("EM", "F1") else ""
        title = f"{measure}{unit}, n = {min(n)}" + (f" to {max(n)}" if len(n) > 1 else "")
        drawn.append(
            f'<figure><table class="drawn"><caption>{text(title)}</caption><thead class="hidden"><tr>'
            f'<th scope="col">system</th><th scope="col">drawn</th><th scope="col">figure [{100 * metrics.level:g} % '
            f"interval]</th></tr></thead><tbody>{rows}</tbody>"
            f'<tfoot aria-hidden="true"><tr><td></td><td>{draw.axis(scale)}</td><td></td></tr></tfoot></table></figure>'
        )
    return _first_ones(f"Figures with {100 * metrics.level:g} % intervals", drawn, "grid")


def _differences(metrics: Metrics, pairs: Sequence[Comparison]) -> str:
    """Differences from the baseline against zero, drawn."""
    drawn = []
    for measure in dict.fromkeys(pair.measure for pair in pairs):
        own = [pair for pair in pairs if pair.measure == measure]
        ends = [end for pair in own for end in (*(pair.interval or ()), pair.difference)]
        scale = draw.scale_for(ends, include=(0.0,))
        rows = "".join(_difference(metrics, pair, scale) for pair in own)
        title = f"{measure} minus {own[0].baseline}'s{', points' if measure in ('EM', 'F1') else ''}; {own[0].test}"
        head = "".join(f'<th scope="col" class="figure">{name}</th>'
                       for name in ("difference", "wins", "ties", "losses", "p", "p (Holm)"))  # fmt: skip
        drawn.append(
            scroller(
                f'<table class="drawn paired"><caption>{text(title)}</caption><thead><tr><th scope="col">system</th>'
                f'<th scope="col"><span class="hidden">drawn</span></th>{head}</tr></thead><tbody>{rows}</tbody>'
                f'<tfoot aria-hidden="true"><tr><td></td><td>{draw.axis(scale, "+")}</td><td colspan="6"></td></tr></tfoot>'
                "</table>",
                title,
            )
        )
    if not drawn:
        return ""
    note = f'<p class="how">A filled dot: p (Holm) below {tables.alpha(metrics):g}; a ring: not.</p>'
    return _first_ones("Differences, paired by question", drawn, "stack", note)


def _difference(metrics: Metrics, pair: Comparison, scale: draw.Scale) -> str:
    sure = tables.significant(metrics, pair)
    value = f"{pair.difference:+.{tables.digits(pair.measure)}f}"
    interval = f" <span>{tables.brackets(pair.interval, pair.measure, '+')}</span>" if pair.interval else ""
    same = " <small>no question differs</small>" if pair.identical else ""
    cells = "".join(f'<td class="figure">{text(cell)}</td>'
                    for cell in (*tables.won(pair), tables.p_value(pair.p), tables.p_value(pair.p_holm)))  # fmt: skip
    return (
        f'<tr><th scope="row">{text(pair.system)}{same}</th>'
        f"<td>{draw.track(scale, pair.difference, pair.interval, filled=sure, zero=True)}</td>"
        f'<td class="figure"><b>{value}</b>{interval}</td>{cells}</tr>'
    )


def _first_ones(title: str, drawn: Sequence[str], kind: str, note: str = "") -> str:
    if not drawn:
        return ""
    first, rest = "".join(drawn[:_DRAWN]), "".join(drawn[_DRAWN:])
    more = (
        details(
            f"{len(drawn) - _DRAWN} more measures" if len(drawn) > _DRAWN + 1 else "one more measure",
            f'<div class="{kind}">{rest}</div>',
        )
        if rest
        else ""
    )
    return f'<h3>{text(title)}</h3>{note}<div class="{kind}">{first}</div>{more}'


def _curves(systems: Sequence[SystemMetrics], names: Sequence[str]) -> str:
    """Hits and recall by depth."""
    charts: dict[str, list[tuple[int, list[float]]]] = {}
    asked: dict[str, int] = {}
    series: dict[int, str] = {}
    for own in systems:
        for what, curve, n in tables.curves_of(own):
            at = names.index(own.system)
            charts.setdefault(what, []).append((at, curve))
            asked[what], series[at] = max(n, asked.get(what, 0)), own.system
    if not charts:
        return ""
    offered = {own.k for own in systems if own.k}
    k = offered.pop() if len(offered) == 1 else 0
    drawn = "".join(
        f"<figure><figcaption>{text(what)}, percent, n = {asked[what]}</figcaption>"
        f"{draw.line_chart(lines, f'{what} by number of passages; the figures are in the table of all figures', k)}</figure>"
        for what, lines in charts.items()
    )
    marked = '<p class="how">k: passages offered to the reader.</p>' if k else ""
    return f'<h3>Hits and recall by depth</h3>{marked}{draw.legend(list(series.items()))}<div class="grid small">{drawn}</div>'


def _causes(systems: Sequence[SystemMetrics]) -> str:
    """What became of the questions, as stacked bars."""
    shown = tables.causes_that_occur(systems)
    if not shown:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{text(own.system)}</th>'
        f"<td>{draw.bar([(_pattern(name), name, own.causes.get(name, 0)) for name in shown])}</td>"
        + "".join(f'<td class="figure">{own.causes.get(name, 0)}</td>' for name in shown)
        + "</tr>"
        for own in systems
        if own.causes
    )
    head = "".join(f'<th scope="col" class="figure">{text(name)}</th>' for name in shown)
    entries = "".join(
        f'<li><svg class="swatch" width="22" height="14" aria-hidden="true"><rect class="part" width="22" height="14" '
        f'fill="url(#cause{_pattern(name)})"/></svg><b>{text(name)}</b>&nbsp;– {text(_CAUSES.get(name, ""))}</li>'
        for name in shown
    )
    title = "Questions by what became of them"
    table = (
        f'<table class="drawn causes"><caption>{title}</caption><thead><tr><th scope="col">system</th>'
        f'<th scope="col"><span class="hidden">drawn</span></th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    )
    return f'<h3>Why questions were missed</h3><ul class="legend wide">{entries}</ul>{scroller(table, title)}'


def _pattern(cause: str) -> int:
    return CAUSES.index(cause)


def _patterns() -> str:
    """Fills of the causes: colour and hatching, so that either is enough."""
    hatches = {
        "alias near-miss": "M-2 2l4-4M0 8l8-8M6 10l4-4",
        "prompt cut": "M2 2h0M6 6h0",
        "no answer in corpus": "M-2 2l4-4M0 8l8-8M6 10l4-4M-2 6l4 4M0 0l8 8M6-2l4 4",
        "no passages": "M0 2h8M0 6h8",
        "missing": "M2 0v8M6 0v8",
    }
    patterns = "".join(
        f'<pattern id="cause{at}" width="8" height="8" patternUnits="userSpaceOnUse"><rect class="cause{at}" width="8" '
        f'height="8"/><path class="hatch hatch{at}" d="{hatches.get(name, "")}"/></pattern>'
        for at, name in enumerate(CAUSES)
    )
    return f'<svg class="defs" width="0" height="0" aria-hidden="true"><defs>{patterns}</defs></svg>'


def _provenance(view: RunView) -> str:
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in provenance(view.manifest))
    return (
        '<section id="provenance" aria-labelledby="provenance-title"><h2 id="provenance-title">How it was made</h2>'
        f'<dl>{rows}</dl><p class="how">The whole configuration is in run.json, every answer in predictions.jsonl.</p></section>'
    )
