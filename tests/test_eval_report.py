"""Reports: the figures in every format, and a page that shows whatever a run holds as text and asks nothing of anybody."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Page
from scipy import stats

from eval.flips import flips
from eval.report import latex, tables
from eval.report.html import draw, html_report, norms
from eval.report.html.questions import question_data
from eval.report.text import latex_tables, markdown_report, text_table
from eval.summary import Comparison, Measured, Metrics, SystemMetrics
from eval.view import CorpusFacts, RunView
from tests.browser import open_browser
from tests.report_example import example, measured

HOSTILE = (
    """<script>alert(1)</script></script><img src=x onerror=alert(2)> "quoted" 'too' & &amp; <!-- \u202eleft שלום"""
)


def system(name: str, dataset: str = "nq", **changes: Any) -> SystemMetrics:
    own = SystemMetrics(
        system=name, dataset=dataset, task="qa", rule="squad", n=200, missing=0, em=50.0, em_interval=(43.0, 57.0), f1=60.25,
        f1_interval=(54.0, 66.0), contains=55.0, empty_matches=0, answer_words=2.0, gold_words=2.0, prompt_tokens=300.0,
        dropped=3, k=2, depth=3, hit=[40.0, 60.0, 80.0], hit_n=200, without_golds=0, recall_gold=[30.0, 45.0, 50.0],
        recall_gold_n=150, recall_supporting=[20.0, 25.0, 35.0], recall_supporting_n=180, all_supporting=[0.0, 10.0, 20.0],
        measures={"nDCG@10": Measured(0.41234, (0.35, 0.47), 180)}, causes={"correct": 100, "reader miss": 100, "no gold": 0},
    )  # fmt: skip
    return dataclasses.replace(own, **changes)


def pair(name: str, difference: float, p_holm: float | None, **changes: Any) -> Comparison:
    own = Comparison("base", name, "nq", "EM", 200, difference, (difference - 5, difference + 5), 30, 10, 160,
                     "McNemar exact", 0.00012, p_holm, False)  # fmt: skip
    return dataclasses.replace(own, **changes)


def retrieval(name: str, value: float, dataset: str = "scifact") -> SystemMetrics:
    return system(
        name, dataset, task="retrieval", rule=None, em=None, em_interval=None, f1=None, f1_interval=None, contains=None,
        answer_words=None, gold_words=None, prompt_tokens=None, k=0, hit=None, hit_n=0, recall_gold=None, recall_gold_n=0,
        recall_supporting=None, recall_supporting_n=0, all_supporting=None, causes=None, dropped=0,
        measures={"AP": Measured(value / 2, None, 1), "nDCG@10": Measured(value, (0.1, 0.9), 300)},
    )  # fmt: skip


def figures() -> Metrics:
    return Metrics(
        seed=5,
        systems=[system("base"), system("better", em=65.0, answer_words=9.0, missing=2), retrieval("base", 0.5)],
        comparisons=[
            pair("better", 15.0, 0.0004),
            pair("better", 0.0123, None, measure="nDCG@10", p=None, test="permutation"),
        ],
    )


def rows_of(table: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]


def test_the_terminal_shows_every_figure_in_its_column() -> None:
    shown = text_table(figures())
    blocks = shown.split("\n\n")
    assert blocks[:2] == [
        "Overview",
        "system  nq EM  scifact nDCG@10\nbase     50.0           0.5000\nbetter   65.0                -",
    ]
    assert blocks[2] == "nq (n = 200, rule squad)"
    assert rows_of(blocks[3]) == [
        ["system", "n", "missing", "empty", "EM", "F1", "contains", "words", "k", "hit@k", "EM at hit", "gold R@k", "supp. R@k", "all supp.@k",
         "dropped"],
        ["base", "200", "0", "0", "50.0 [43.0, 57.0]", "60.2 [54.0, 66.0]", "55.0", "2.0", "2", "60.0", "-", "45.0", "25.0", "10.0", "3"],
        ["better", "200", "2", "0", "65.0 [43.0, 57.0]", "60.2 [54.0, 66.0]", "55.0", "9.0", "2", "60.0", "-", "45.0", "25.0", "10.0",
         "3"],
    ]  # fmt: skip
    assert rows_of(blocks[4])[1] == ["base", "180", "0", "3", "0.4123 [0.3500, 0.4700]"]
    assert rows_of(blocks[5])[:2] == [
        ["system", "retrieval", "n", "@1", "@2", "@3"],
        ["base", "hit (answer string)", "200", "40.0", "60.0", "80.0"],
    ]
    assert rows_of(blocks[6])[1:] == [
        ["better - base", "EM", "McNemar exact", "200", "+15.0 [+10.0, +20.0]", "30", "160", "10", "<0.001", "<0.001"],
        ["better - base", "nDCG@10", "permutation", "200", "+0.0123 [-4.9877, +5.0123]", "30", "160", "10", "-", "-"],
    ]
    assert rows_of(blocks[7]) == [
        ["system", "correct", "reader miss"],
        ["base", "100", "100"],
        ["better", "100", "100"],
    ]
    assert blocks[8] == "scifact (n = 200, retrieval)"
    # A retrieval task has no answers; a measure of one question has no interval.
    assert rows_of(blocks[9]) == [["system", "n", "missing", "depth", "AP", "nDCG@10"],
                                  ["base", "300", "0", "3", "0.2500", "0.5000 [0.1000, 0.9000]"]]  # fmt: skip
    assert "better on nq: questions without an answer: 2 of 200" in blocks[-1]
    assert "answers have 9.0 words, the longest golds 2.0" in blocks[-1]
    assert "contains: a gold stands in the answer (not EM)" in blocks[-1]


def test_one_data_set_needs_no_overview_and_a_closed_book_has_no_retrieval() -> None:
    closed = system("closed", k=0, depth=0, hit=None, recall_gold=None, recall_supporting=None, all_supporting=None,
                    measures={})  # fmt: skip
    shown = text_table(Metrics(0, systems=[closed]))
    assert "Overview" not in shown and "@1" not in shown and "Ranking" not in shown
    assert rows_of(shown.split("\n\n")[1])[1][8:] == ["0", "-", "-", "-", "-", "3"]


@pytest.mark.parametrize(
    ("better", "p_holm", "bold"),
    [(65.0, 0.049, ["better"]), (65.0, 0.05, []), (65.0, None, []), (49.0, 0.001, [])],
)
def test_the_best_figure_is_bold_only_where_it_is_significantly_above_the_baseline(
    better: float, p_holm: float | None, bold: list[str]
) -> None:
    metrics = Metrics(0, systems=[system("base"), system("better", em=better), system("worse", em=10.0)],
                      comparisons=[pair("better", better - 50, p_holm), pair("worse", -40.0, 0.001)])  # fmt: skip
    table = tables.overview(metrics)
    assert [table.rows[row][0] for row, _ in table.best] == bold
    assert ("\\textbf{65.0}" in latex_tables(metrics)) == bool(bold)
    assert r"Holm-corrected p \textless{} 0.05" in latex_tables(metrics)


def test_another_measures_significance_makes_nothing_bold() -> None:
    metrics = Metrics(0, systems=[system("base"), system("better", em=65.0)],
                      comparisons=[pair("better", 15.0, 0.2), pair("better", 9.0, 0.001, measure="F1")])  # fmt: skip
    assert not tables.overview(metrics).best


def cells_of(markdown: str) -> list[list[str]]:
    """Rows of all tables, as a Markdown viewer reads them."""
    rows: list[list[str]] = []
    inside = False
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown):
        if token.type == "tr_open":
            rows.append([])
        inside = token.type in ("td_open", "th_open") or (inside and token.type == "inline")
        if token.type == "inline" and inside:
            assert all(child.type != "html_inline" for child in token.children or [])
            rows[-1].append("".join(child.content for child in token.children or []))
    return rows


def test_markdown_tables_read_back_as_they_were_whatever_the_names() -> None:
    names = ("a|b", "<script>alert(1)</script>", "c < d", "with\nline")
    metrics = Metrics(0, systems=[system(name, missing=1) for name in names])
    view = example(systems=2, datasets=1, n=4)
    report = markdown_report(view, metrics, {"a|b": {"search": 0.25}, "c < d": {"generate": 1.0}})
    kinds = {child.type for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(report)
             for child in [token, *(token.children or [])]}  # fmt: skip
    assert not kinds & {"html_block", "html_inline"}
    rows = cells_of(report)
    for name in ("a|b", "<script>alert(1)</script>", "c < d", "with line"):
        assert any(row[0] == name and len(row) == 15 for row in rows), name
    assert ["a|b", "0.250", "-"] in rows and ["c < d", "-", "1.000"] in rows


def test_the_report_says_what_it_was_made_with() -> None:
    view = example(systems=2, datasets=1, n=4)
    for text in (markdown_report(view, measured(view)), html_report(view, measured(view))):
        for part in ("ab8d2a4", "with changes", "NVIDIA H200", "vllm 0.32.0", "ab" * 32, "ef" * 32, "max_tokens 32",
                     "magrag eval --config configs/gpu.toml", view.manifest["datasets"]["nq"]["index"]):  # fmt: skip
            assert part in text, part


# What TeX prints for a control sequence; the rest stands for itself.
PRINTED = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textless": "<", "textgreater": ">",
           "textbar": "|", "textquotedbl": '"', "textasciigrave": "`"}  # fmt: skip


def typeset(source: str) -> str:
    """A little of TeX's mouth: what a cell prints."""
    printed, at = "", 0
    while at < len(source):
        sign = source[at]
        if sign == "\\":
            word = re.match(r"\\([A-Za-z]+)", source[at:])
            if word is None:
                assert source[at + 1] in "&%$#_{}", source[at:]
                printed, at = printed + source[at + 1], at + 2
            else:
                at += word.end()
                assert source[at : at + 2] == "{}", "a control word must end before the next letter"
                printed, at = printed + PRINTED[word[1]], at + 2
        elif source.startswith("{}", at):
            at += 2
        else:
            assert sign not in "&%$#_^~{}", source[at:]
            assert not source.startswith(("--", "''", "``"), at), "a ligature prints as one sign"
            printed, at = printed + sign, at + 1
    return printed


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]) | st.sampled_from("\\&%$#_{}~^<>|\"'`-[]*")))
def test_latex_prints_what_was_written(text: str) -> None:
    assert typeset(latex.escape(text)) == " ".join(text.split())


def test_latex_tables_have_as_many_cells_as_columns_and_balanced_braces() -> None:
    metrics = Metrics(0, systems=[system("[5] & % _ # {x} \\alpha$"), system("*star"), system("plain")],
                      comparisons=[pair("*star", -1.5, 0.2)])  # fmt: skip
    source = latex_tables(metrics)
    assert re.sub(r"\\[{}]", "", source).count("{") == re.sub(r"\\[{}]", "", source).count("}")
    bodies = re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", source, re.S)
    assert len(bodies) == source.count(r"\begin{table}") == source.count(r"\caption{") >= 5
    for columns, body in bodies:
        assert body.count(r"\toprule") == body.count(r"\midrule") == body.count(r"\bottomrule") == 1
        lines = [line.strip() for line in body.splitlines() if line.strip().endswith("\\\\")]
        assert len(lines) >= 2
        for line in lines:
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
            # Either would be read as an argument of the line break before it.
            assert not line.startswith(("[", "*"))
    assert "$-$1.5 [$-$6.5, $+$3.5]" in source
    assert len(re.findall(r"\\label\{(.*?)\}", source)) == len(set(re.findall(r"\\label\{(.*?)\}", source)))


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=9),
    st.booleans(),
)
def test_scales_hold_their_values_and_have_few_round_marks(values: list[float], tight: bool) -> None:
    scale = draw.scale_for(values, tight=tight)
    slack = 1e-6 * (scale.high - scale.low)
    assert scale.low - slack <= min(values) and max(values) <= scale.high + slack
    assert 2 <= len(scale.marks) <= 12
    assert all(0 <= scale.at(value) <= 100 for value in values)
    assert all(scale.low - slack <= mark <= scale.high + slack for mark in scale.marks)
    assert len({scale.label(mark) for mark in scale.marks}) == len(scale.marks)


def test_dots_and_whiskers_stand_where_the_axis_says() -> None:
    scale = draw.scale_for([12.0, 71.0])
    drawn, axis = draw.track(scale, 37.0, (20.0, 55.0)), draw.axis(scale)
    marks = [(float(x), float(label)) for x, label in re.findall(r'x="([\d.]+)%"[^>]*>(-?[\d.]+)<', axis)]
    slope = stats.linregress(*zip(*marks, strict=True))
    dot, whisker = (
        re.search(r'<circle[^>]*cx="([\d.]+)%"', drawn),
        re.search(r'whisker" x1="([\d.]+)%" x2="([\d.]+)%"', drawn),
    )
    assert dot and whisker and len(marks) >= 3
    read = [slope.intercept + slope.slope * float(x) for x in (dot[1], whisker[1], whisker[2])]
    assert read == pytest.approx([37.0, 20.0, 55.0], abs=0.05)


def test_bars_are_as_long_as_their_counts() -> None:
    widths = [
        float(width) for width in re.findall(r'width="([\d.]+)%"', draw.bar([(0, "a", 3), (1, "b", 0), (2, "c", 1)]))
    ]
    assert widths == [75.0, 25.0]
    assert "<rect" not in draw.bar([(0, "a", 0)])


def test_correlations_are_those_of_scipy_and_constant_norms_have_none() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 9, 60).tolist(), rng.normal(size=60).tolist()
    assert norms.ranks(x) == stats.rankdata(x).tolist()
    assert norms.correlation(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert norms.correlation(norms.ranks(x), norms.ranks(y)) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert norms.correlation((1 + 1e-7 * rng.normal(size=60)).tolist(), y) is None
    assert norms.correlation([1.0], [2.0]) is None


class Elements(HTMLParser):
    """Ids, tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize(("systems", "datasets"), [(1, 1), (2, 1), (8, 12)])
def test_the_page_has_scoped_headers_unique_ids_and_no_address(systems: int, datasets: int) -> None:
    view = example(systems=systems, datasets=datasets, n=12)
    page = html_report(view, measured(view))
    elements = Elements(page).found
    assert {attributes.get("scope") for tag, attributes in elements if tag == "th"} <= {"row", "col"}
    ids = Counter(attributes["id"] for _, attributes in elements if "id" in attributes)
    assert ids.most_common(1)[0][1] == 1
    for tag, attributes in elements:
        for name in ("src", "href", "action", "srcset", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or (tag, value) == ("link", "data:,"), (tag, value)
            assert value is None or not value.startswith("#") or value[1:] in ids
    assert "http:" not in page.replace("http-equiv", "") and "https:" not in page and "@import" not in page
    captions = [tag for tag, _ in elements].count("caption")
    assert captions == [tag for tag, _ in elements].count("table")


def hostile_view() -> RunView:
    """A run in which everything that a person or a model writes is markup."""
    view = example(systems=3, datasets=1, n=20)
    rename = {name: f"{name} {HOSTILE}" for name in view.systems}
    view.manifest["systems"] = {rename[name]: "1" for name in view.systems}
    view.manifest["command"] = HOSTILE
    questions = [dataclasses.replace(q, question=f"{q.id} {HOSTILE}", answers=(HOSTILE,)) for q in view.questions]
    rows = {}
    for number, ((name, id), row) in enumerate(view.rows.items()):
        passages = [{**passage, "title": f"{passage['id']} {HOSTILE}"} for passage in row["passages"]]
        said = {"prediction": HOSTILE if number % 3 else f"no {HOSTILE}", "error": None, "passages": passages}
        rows[rename[name], id] = {**row, **said, "system": rename[name]}
    rows[rename["qnorm"], "nq-0"]["error"] = HOSTILE
    return dataclasses.replace(view, questions=questions, rows=rows)


def test_the_data_of_the_page_cannot_end_its_script() -> None:
    view = hostile_view()
    page = html_report(view, measured(view))
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert embedded and "<" not in embedded[1]
    assert json.loads(embedded[1]) == json.loads(json.dumps(question_data(view)))
    # The only scripts are the data and the page's own.
    assert [dict(attributes) for tag, attributes in Elements(page).found if tag == "script"] == [
        {"type": "application/json", "id": "data"}, {}]  # fmt: skip
    rest = page.replace(embedded[0], "")
    assert (
        "<img" not in rest and "onerror=alert(2)>" not in rest and "<script>alert" not in rest and "\u202e" not in rest
    )


def test_half_a_surrogate_pair_does_not_keep_the_page_from_being_written(tmp_path: Path) -> None:
    view = example(systems=2, datasets=1, n=20)
    view = dataclasses.replace(view, questions=[dataclasses.replace(q, question="half \ud83d") for q in view.questions])
    (tmp_path / "report.html").write_text(html_report(view, measured(view)), encoding="utf-8")


def test_only_questions_on_which_systems_differ_are_in_the_page_and_their_sides_are_right() -> None:
    view = example(systems=3, datasets=2, n=60)
    data = question_data(view)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        expected = Counter(
            (flip.question.question, flip.b.correct) for flip in flips(view, view.systems[a], view.systems[b])
        )
        found = Counter(
            (question, bool(sides[b][1])) for _, question, _, sides in data["questions"] if sides[a][1] != sides[b][1]
        )
        assert found == expected and len(found) > 1
    assert data["found"] == len(data["questions"]) < len(view.questions)
    flip = flips(view, "cosine", "qnorm")[0]
    side = next(sides[1] for _, text, _, sides in data["questions"] if text == flip.question.question)
    row = view.rows["qnorm", flip.question.id]
    assert [data["passages"][at][1] for at, _, _ in side[5]] == [round(p["norm"], 4) for p in row["passages"][:10]]
    if flip.b.answer is not None:
        assert side[3] == flip.b.answer.rank and side[4] == pytest.approx(flip.b.answer.percentile, abs=0.05)


def test_sentence_pairs_and_unfinished_corpora_have_a_place_in_the_report() -> None:
    view = example(systems=2, datasets=2, n=12)
    view = dataclasses.replace(view, corpora={"nq": CorpusFacts()})
    view.manifest["datasets"]["stsb"] = {"task": "sts", "rule": None, "lang": "en"}
    metrics = measured(view)
    scored = {"Spearman": Measured(0.8203, (0.8, 0.84), 1379)}
    metrics.systems.append(dataclasses.replace(retrieval("qnorm", 0.5, "stsb"), task="sts", depth=0, measures=scored))
    for shown in (
        text_table(metrics),
        markdown_report(view, metrics),
        latex_tables(metrics),
        html_report(view, metrics),
    ):
        assert "0.8203" in shown and "stsb" in shown and "Spearman" in shown
    assert "corpus sample" not in html_report(view, metrics)


def test_a_large_run_stays_below_three_megabytes() -> None:
    view = example(systems=5, datasets=1, n=478)
    assert len(view.rows) == 2390
    assert len(html_report(view, measured(view)).encode()) < 3_000_000


COLOUR = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out_from_what_is_behind_them(dark: bool) -> None:
    style = (Path(draw.__file__).parent / "report.css").read_text()
    light, _, rest = style.partition("@media (prefers-color-scheme: dark)")
    colours = dict(COLOUR.findall(rest.partition("\n}\n")[0] if dark else light))
    assert len(colours) > 25

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(colours[one]), luminance(colours[other])))
        return (high + 0.05) / (low + 0.05)

    for ink in ("ink", "soft", "accent", "bad"):
        for paper in ("page", "card"):
            assert contrast(ink, paper) >= 4.5, (ink, paper)
    assert contrast("warn-ink", "warn") >= 4.5
    for line in (*(f"s{at}" for at in range(draw.SERIES)), "accent"):
        assert contrast(line, "card") >= 3, line


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def show(browser: Browser, folder: Path, view: RunView, **settings: Any) -> tuple[Page, list[str], list[str]]:
    """The page as a browser shows it, what it asked for, and what went wrong."""
    path = folder / "report.html"
    path.write_text(html_report(view, measured(view)), encoding="utf-8")
    page = browser.new_context(**settings).new_page()
    requests: list[str] = []
    faults: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.goto(path.as_uri())
    return page, [url for url in requests if url not in (path.as_uri(), "data:,")], faults


@pytest.mark.browser
@pytest.mark.e2e
def test_hostile_text_is_shown_and_nothing_of_it_runs(browser: Browser, tmp_path: Path) -> None:
    view = hostile_view()
    page, requests, faults = show(browser, tmp_path, view)
    page.locator(".flips summary").first.click()
    page.locator(".both table").first.wait_for()
    plain = HOSTILE.replace("\u202e", "")
    said = page.locator(".flips .said").all_inner_texts()
    assert said and all(plain in text.replace("\u202e", "") for text in said)
    assert plain in page.locator(".both tbody th").first.inner_text().replace("\u202e", "")
    assert plain in page.locator("#overview tbody th").first.inner_text()
    # A direction of its own for each text: what follows it on the page keeps its own.
    assert page.locator(".flips > tbody > tr > th > span").first.get_attribute("dir") == "auto"
    assert page.locator("img").count() == 0
    assert (requests, faults) == ([], [])


@pytest.mark.browser
@pytest.mark.e2e
def test_flips_are_chosen_filtered_and_searched(browser: Browser, tmp_path: Path) -> None:
    view = example(systems=4, datasets=2, n=60)
    page, requests, faults = show(browser, tmp_path, view)
    page.locator("#from").select_option(label="qnorm")
    page.locator("#to").select_option(label="closed-book")
    found = flips(view, "qnorm", "closed-book")
    won = sum(flip.b.correct for flip in found)
    assert page.locator("#count").inner_text() == f"closed-book against qnorm: {won} won, {len(found) - won} lost."
    page.locator("#kind").select_option(label="won")
    page.locator("#set").select_option(label="hotpotqa")
    here = [flip for flip in found if flip.b.correct and flip.dataset == "hotpotqa"]
    assert page.locator(".flips > tbody").count() == min(25, len(here))
    page.locator("#kind").select_option(label="won and lost")
    page.locator("#set").select_option(label="all")
    assert page.locator(".flips > tbody").count() == 25 < len(found)
    page.get_by_role("button", name="Show").click()
    assert page.locator(".flips > tbody").count() == min(50, len(found))
    page.get_by_label("Search").fill("NOETHER")
    wanted = [flip for flip in found if "Noether" in flip.question.question]
    assert 0 < len(wanted) < len(found) and page.locator(".flips > tbody").count() == min(25, len(wanted))
    page.get_by_label("Search").fill("nothing has this")
    assert page.locator(".flips").count() == 0 and "0 won, 0 lost" in page.locator("#count").inner_text()
    page.get_by_label("Search").fill("")
    page.locator("#to").select_option(label="qnorm")
    assert page.locator("#count").inner_text() == "Choose two different systems."
    assert (requests, faults) == ([], [])


@pytest.mark.browser
@pytest.mark.e2e
def test_without_script_the_page_is_whole(browser: Browser, tmp_path: Path) -> None:
    view = example(systems=3, datasets=1, n=30)
    page, requests, _ = show(browser, tmp_path, view, java_script_enabled=False)
    assert page.locator("table.plain tbody tr").count() == question_data(view)["found"] > 3
    assert page.locator("table.plain").inner_text().count("✓") > 3
    assert not page.locator("#controls").is_visible() and page.locator(".track").first.is_visible()
    assert requests == []


@pytest.mark.browser
@pytest.mark.e2e
@pytest.mark.parametrize(("systems", "datasets"), [(8, 12), (1, 1)])
@pytest.mark.parametrize("width", [380, 900, 2000])
def test_every_width_shows_all_without_overlap(
    browser: Browser, tmp_path: Path, width: int, systems: int, datasets: int
) -> None:
    view = example(systems=systems, datasets=datasets, n=12)
    page, _, faults = show(browser, tmp_path, view, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    clipped = page.evaluate("""() => [...document.querySelectorAll("svg text")].filter((text) => {
        const box = text.getBoundingClientRect(), around = text.closest("svg").getBoundingClientRect();
        return box.width && (box.left < around.left - 12 || box.right > around.right + 12 || box.bottom > around.bottom + 4);
    }).map((text) => text.textContent)""")
    assert clipped == []
    touching = page.evaluate("""() => [...document.querySelectorAll("svg.axis, svg.chart")].filter((svg) => {
        const boxes = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect()).filter((box) => box.width);
        return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
            && a.top < b.bottom - 2 && b.top < a.bottom - 2));
    }).map((svg) => svg.textContent)""")
    assert touching == []
    outside = page.evaluate("""() => [...document.querySelectorAll("section *")].filter((element) => {
        if (element.closest(".scroll, svg, .hidden") || !element.getClientRects().length) return false;
        return element.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
    }).map((element) => element.outerHTML.slice(0, 90))""")
    assert outside == []
    assert faults == []


@pytest.mark.browser
@pytest.mark.e2e
def test_the_keyboard_reaches_everything_and_print_leaves_the_controls_out(browser: Browser, tmp_path: Path) -> None:
    view = example(systems=3, datasets=1, n=30)
    page, _, _ = show(browser, tmp_path, view, viewport={"width": 700, "height": 900})
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "(document.activeElement.id || document.activeElement.className || document.activeElement.tagName)"
        )
        if here == "BODY":
            break
        reached.add(here)
    assert {"skip", "A", "scroll", "SUMMARY", "from", "to", "search"} <= reached
    # Whatever is too wide for the window is in a region that can be scrolled, hence focused.
    assert page.evaluate("""() => [...document.querySelectorAll(".scroll")].every((element) => element.tabIndex === 0
        && element.getAttribute("aria-label"))""")
    page.emulate_media(media="print")
    assert not page.locator("#controls").is_visible() and page.locator(".flips").is_visible()


def test_questions_beyond_the_limit_are_said_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.report.html.questions.QUESTIONS", 3)
    view = example(systems=3, datasets=1, n=30)
    page = html_report(view, measured(view))
    assert re.search(r"The page holds the first 3 of \d+ such questions; predictions\.jsonl has all\.", page)


def test_a_question_of_another_data_set_has_no_part_in_a_plot() -> None:
    view = example(systems=1, datasets=2, n=10)
    points = re.findall(r'class="first" d="([^"]*)"', html_report(view, measured(view)))
    assert [path.count("M") for path in points] == [10, 10]
