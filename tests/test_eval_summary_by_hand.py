"""Figures of a few questions, worked out by hand: what is missing, how deep curves go, what has no figure."""

from __future__ import annotations

from typing import Any

import pytest

from eval.data.datasets import Question
from eval.summary import Measured, SystemMetrics, summarise
from tests.run_folders import row

RULES = {"nq": "squad", "hotpotqa": "hotpotqa"}


def keyed(*rows: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows by system and question, as a summary takes them."""
    return {(own["system"], own["id"]): own for own in rows}


def test_one_question_has_values_but_neither_interval_nor_p() -> None:
    questions = [Question("q1", "nq", "?", ("Paris",), ("d1",))]
    rows = keyed(row("a", "q1", "Lyon", "d2 d1"), row("b", "q1", "Paris", "d1 d2"))
    metrics = summarise(questions, ["a", "b"], rows, RULES, 0, measures=["RR@10"])
    assert metrics.systems[0].em_interval is None and metrics.systems[0].measures["RR@10"].interval is None
    assert [(c.measure, c.difference, c.interval, c.p, c.p_holm, c.wins) for c in metrics.comparisons] == [
        ("EM", 100.0, None, None, None, 1),
        ("F1", 100.0, None, None, None, 1),
        ("RR@10", 0.5, None, None, None, 1),
    ]


def test_a_data_set_without_judgments_has_no_ranking_measures_and_says_so() -> None:
    questions = [Question(f"q{number}", "nq", "?", ("Paris",)) for number in range(3)]
    rows = keyed(*(row("cosine", question.id, "Paris", "d1") for question in questions))
    metrics = summarise(questions, ["cosine"], rows, RULES, 0, measures=["AP", "R@3"])
    assert metrics.systems[0].measures == {}
    assert metrics.notes == ["nq: no passage is marked as relevant, so there are no ranking measures (AP, R@3)."]
    assert summarise(questions, ["cosine"], rows, RULES, 0).notes == []


def test_figures_of_sentence_pairs_are_their_measure_alone() -> None:
    measured = Measured(0.8, (0.7, 0.9), 50)
    own = SystemMetrics(system="cosine", dataset="sts-b", task="sts", n=50, measures={"Spearman": measured})
    assert (own.system, own.dataset, own.task, own.n, own.measures) == (
        "cosine", "sts-b", "sts", 50, {"Spearman": measured},
    )  # fmt: skip
    assert (own.rule, own.em, own.hit, own.causes, own.missing, own.k, own.depth) == (None, None, None, None, 0, 0, 0)


def test_missing_answers_and_rankings_count_nothing_but_an_error_keeps_its_passages() -> None:
    questions = [Question(f"q{number}", "nq", "?", ("Paris",), (f"d{number}",)) for number in range(1, 5)]
    rows = keyed(
        row("cosine", "q1", "Paris", "d1 x"),
        row("cosine", "q2", "", "x d2", error="prompt too long"),
        row("cosine", "q3", "", "", error="no vector"),
        row("b", "q1", "Paris", "d1"),
    )
    metrics = summarise(questions, ["cosine", "b"], rows, RULES, 0, measures=["RR@10", "R@1"])
    own, b = metrics.systems
    assert (own.n, own.missing, own.em, own.f1) == (4, 3, 25.0, 25.0)
    assert [(m.value, m.n) for m in own.measures.values()] == [(0.375, 4), (0.25, 4)]
    assert (b.missing, b.em, b.measures["RR@10"].value) == (3, 25.0, 0.25)
    assert own.recall_gold == [25.0, 50.0]


def test_a_retriever_that_fails_on_all_of_a_data_set_counts_0_there() -> None:
    questions = [Question("q1", "nq", "?", ("a",), ("d1",)), Question("q2", "hotpotqa", "?", ("a",), ("d1",))]
    rows = keyed(row("cosine", "q1", "a", "d1"), row("cosine", "q2", "", "", error="index is gone"))
    metrics = summarise(questions, ["cosine"], rows, RULES, 0, measures=["AP"])
    [own] = [own for own in metrics.systems if own.dataset == "hotpotqa"]
    assert own.measures["AP"].value == 0.0


def test_curves_go_to_the_recorded_depth_and_k_is_what_the_reader_got() -> None:
    questions = [
        Question("q1", "hotpotqa", "?", ("x",), (), ("d1", "d2")),
        Question("q2", "hotpotqa", "?", ("x",), (), ("d3", "d4")),
        Question("q3", "hotpotqa", "?", ("x",), (), ("d5",)),
        Question("q4", "hotpotqa", "?", ("x",)),
    ]
    rows = keyed(
        row("cosine", "q1", "x", "d1 e d2 f", k=2),
        row("cosine", "q2", "x", "d3 answer* e f", k=2),
        row("cosine", "q3", "x", "d5"),
        row("cosine", "q4", "x", "answer* d5"),
    )
    own = summarise(questions, ["cosine"], rows, RULES, 0).systems[0]
    assert (own.depth, own.k, own.recall_supporting_n) == (4, 2, 3)
    assert own.hit == [25.0, 50.0, 50.0, 50.0]
    # Both passages of q1 are there from 3 on, of q2 never; q3 needs one; q4 has none and does not count.
    assert own.all_supporting == pytest.approx([100 / 3, 100 / 3, 200 / 3, 200 / 3])
    assert own.recall_supporting == pytest.approx([200 / 3, 200 / 3, 250 / 3, 250 / 3])
    assert own.measures == {}


def test_em_at_hit_is_over_the_questions_whose_offered_passages_hold_an_answer() -> None:
    questions = [Question(str(n), "nq", "?", ("yes",)) for n in range(6)]
    questions.append(Question("none", "nq", "?", ()))
    rows = keyed(
        row("s", "0", "yes", "a* b c", k=2),
        row("s", "1", "no", "b a* c", k=2),
        row("s", "2", "yes", "b c a*", k=2),  # held by the third passage, and two were offered
        row("s", "3", "yes", "b"),
        row("s", "4", "", "a*", error="lost"),  # counts 0 as everywhere
        row("s", "5", "yes"),
        row("s", "none", "yes", "a*"),
    )
    [own] = summarise(questions, ["s"], rows, RULES, 0).systems
    assert (own.em_at_hit, own.em_at_hit_n) == (pytest.approx(100 / 3), 3)
    low, high = own.em_at_hit_interval or (0, 0)
    # Of three questions with values 1, 0, 0 a resample's mean is 0 with probability 8/27 and 1 with 1/27.
    assert (low, high) == (0, 100)
    [closed] = summarise(questions, ["s"], keyed(row("s", "5", "yes")), RULES, 0).systems
    assert (closed.em_at_hit, closed.em_at_hit_interval, closed.em_at_hit_n) == (None, None, 0)
