"""The figures of a run in the terminal, Markdown and LaTeX: right cells, and names that stay what they are."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from eval.report import latex, tables
from eval.report.html import html_report
from eval.report.text import latex_tables, markdown_report, text_table
from eval.summary import Comparison, Measured, Metrics, SystemMetrics
from eval.view import CorpusFacts
from tests.report_example import example, measured


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
