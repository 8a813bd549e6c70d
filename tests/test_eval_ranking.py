"""Ranking measures: by hand, by trec_eval's code called directly, and as the `ir_measures` command line prints them."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytrec_eval

from eval.data.datasets import Question
from eval.data.trec import write_qrels, write_run
from eval.errors import EvalError
from eval.ranking import applicable, deepest_cutoff, parse_measures, per_question


def question(id: str, **fields: Any) -> Question:
    return Question(id=id, dataset="d", question="?", answers=(), **fields)


def row(*passages: str, scores: list[float] | None = None) -> dict[str, Any]:
    scores = scores or [float(len(passages) - rank) for rank in range(len(passages))]
    return {"passages": [{"id": id, "score": score} for id, score in zip(passages, scores, strict=True)]}


def one(measure: str, qrels: dict[str, int], row: dict[str, Any]) -> float:
    return per_question([measure], [question("q", qrels=qrels)], {"q": row})[measure]["q"]


GRADED = {"a": 3, "b": 2, "c": 0, "d": 1, "e": 2}
# b, an unjudged one, a, c, d: gains 2 0 3 0 1; the ideal order has gains 3 2 2 1.
RANKED = row("b", "x", "a", "c", "d")


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("nDCG@10", (2 + 3 / 2 + 1 / math.log2(6)) / (3 + 2 / math.log2(3) + 2 / 2 + 1 / math.log2(5))),
        ("nDCG@3", (2 + 3 / 2) / (3 + 2 / math.log2(3) + 2 / 2)),
        ("AP", (1 / 1 + 2 / 3 + 3 / 5) / 4),
        ("MAP", (1 / 1 + 2 / 3 + 3 / 5) / 4),
        ("AP@3", (1 / 1 + 2 / 3) / 4),
        ("AP(rel=3)", 1 / 3),
        ("RR", 1.0),
        ("RR(rel=3)", 1 / 3),
        ("RR(rel=3)@3", 1 / 3),
        ("MRR(rel=3)@2", 0.0),
        ("RR@10", 1.0),
        ("R@3", 2 / 4),
        ("Recall@100", 3 / 4),
        ("R(rel=2)@3", 2 / 3),
        ("P@5", 3 / 5),
        ("Precision@10", 3 / 10),
        ("Success@1", 1.0),
        ("Success(rel=3)@2", 0.0),
        ("Rprec", 2 / 4),
    ],
)
def test_measures_have_their_hand_computed_values_on_graded_judgments(measure: str, expected: float) -> None:
    assert one(measure, GRADED, RANKED) == pytest.approx(expected, abs=1e-12)


def test_ndcg_takes_the_grade_itself_as_gain_as_trec_eval_does() -> None:
    # 2 ** grade - 1, which others use, would give (3 + 7 / log2 3) / (7 + 3 / log2 3).
    expected = (2 + 3 / math.log2(3)) / (3 + 2 / math.log2(3))
    assert one("nDCG@2", {"a": 3, "b": 2}, row("b", "a")) == pytest.approx(expected)


@pytest.mark.parametrize("measure", ["RR", "RR@10", "P@1", "nDCG@1", "AP", "Success@1"])
@pytest.mark.parametrize(
    "scores",
    [
        [1.0, 1.0, 1.0],
        [1.0 + 2e-9, 1.0 + 1e-9, 1.0],  # equal in trec_eval's 32 bits
        [0.1, 0.2, 0.3],  # a fused or second ranking need not fall
        [0.0, 0.0, -0.0],
        [-2.0, -2.0, -2.0],
    ],
)
@pytest.mark.parametrize("first", ["a", "z"])
def test_equal_scores_count_in_the_order_of_the_row_whatever_the_ids(
    measure: str, scores: list[float], first: str
) -> None:
    # trec_eval would rank z before a, the MS MARCO script a before z.
    others = [id for id in ("a", "m", "z") if id != first]
    assert one(measure, {first: 1}, row(first, *others, scores=scores)) == 1.0
    assert one(measure, {first: 1}, row(others[0], first, others[1], scores=scores)) < 1.0


def test_judgments_are_qrels_or_else_the_marked_passages() -> None:
    questions = [
        question("qrels", qrels={"a": 1}, gold_ids=("b",)),
        question("supporting", supporting_ids=("a", "b"), gold_ids=("c",)),
        question("gold", gold_ids=("b",)),
        question("none"),
    ]
    rows = {q.id: row("a", "c", "b") for q in questions}
    assert per_question(["R@1", "RR@10"], questions, rows) == {
        "R@1": {"qrels": 1.0, "supporting": 0.5, "gold": 0.0},
        "RR@10": {"qrels": 1.0, "supporting": 1.0, "gold": pytest.approx(1 / 3)},
    }


def test_judged_questions_without_row_or_passages_count_0() -> None:
    questions = [question(id, qrels={"a": 1}) for id in ("found", "empty", "absent")]
    for measure in ("nDCG@10", "RR@10"):
        rows = {"found": row("a"), "empty": row()}
        assert per_question([measure], questions, rows) == {measure: {"found": 1.0, "empty": 0.0, "absent": 0.0}}
        assert per_question([measure], questions, {}) == {measure: dict.fromkeys(("found", "empty", "absent"), 0.0)}
    assert per_question(["AP"], [], {}) == {"AP": {}}


def test_a_question_whose_judged_passages_are_all_irrelevant_counts_0() -> None:
    for measure in ("nDCG@10", "RR@10", "R@5", "AP"):
        assert one(measure, {"a": 0}, row("a")) == 0.0


def test_a_passage_ranked_twice_counts_where_it_is_first() -> None:
    assert one("AP", {"a": 1, "b": 1}, row("a", "a", "b")) == 1.0


def test_names_are_kept_as_given_and_two_names_of_one_measure_agree() -> None:
    got = per_question(["RR@10", "MRR@10", "R@5", "Recall@5"], [question("q", qrels=GRADED)], {"q": RANKED})
    assert list(got) == ["RR@10", "MRR@10", "R@5", "Recall@5"]
    assert got["RR@10"] == got["MRR@10"] and got["R@5"] == got["Recall@5"] == {"q": 0.75}
    assert [str(measure) for measure in parse_measures(["MRR@10", "MAP", "Recall@5"])] == ["RR@10", "AP", "R@5"]


def test_measures_that_trec_eval_gives_one_name_do_not_hide_each_other() -> None:
    # Asked for together, ir-measures would return one of the two as 0.
    names = ["IPrec@0.1", "IPrec@0.101"]
    got = per_question(names, [question("q", qrels={"a": 1})], {"q": row("a")})
    assert [got[name]["q"] for name in names] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ndcg@10", "no measure 'ndcg@10': did you mean 'nDCG@10'"),
        ("recal@5", "did you mean 'Recall@5'"),
        ("map", "did you mean 'MAP'"),
        ("hits@5", "no measure 'hits@5': write NAME@CUTOFF, as nDCG@10"),
        ("", "measure '' cannot be read: write NAME@CUTOFF"),
        ("nDCG@", "cannot be read"),
        ("nDCG@-1", "cannot be read"),
        ("P", "'P' needs a cutoff: write P@10"),
        ("Success", "'Success' needs a cutoff"),
        ("P@0", "must be a whole number from 1"),
        ("R@10000000000", "must be a whole number from 1"),
        ("nDCG@2.5", "must be a whole number from 1"),
        ("R(rel='x')@5", "cannot be computed: invalid param rel"),
        ("P(rel=0)@5", "cannot be computed: .*positive"),
        ("P(depth=3)@5", "cannot be computed: unsupported param"),
        ("NumRet", "is a count over all questions"),
        ("ERR@20", "'ERR@20' is not among those of trec_eval"),
        ("nDCG(dcg='exp-log2')@10", "is not among those of trec_eval"),
    ],
)
def test_a_measure_that_cannot_be_computed_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(EvalError, match=complaint):
        parse_measures(["AP", name])
    with pytest.raises(EvalError, match=complaint):
        per_question([name], [question("q", qrels={"a": 1})], {"q": row("a")})


def test_measures_given_as_one_string_are_refused() -> None:
    with pytest.raises(EvalError, match="list of names, got the string 'AP'"):
        parse_measures("AP")


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(EvalError, match="'b' has the score nan"):
        one("AP", {"a": 1}, row("a", "b", scores=[1.0, math.nan]))


def made_up(seed: int) -> tuple[list[Question], dict[str, dict[str, Any]]]:
    """60 questions with graded judgments over 40 passages; scores of few values, so that most are tied."""
    rng = random.Random(seed)
    corpus = [f"doc {n}" if n % 3 == 0 else f"d{n}" for n in range(40)]
    questions, rows = [], {}
    for number in range(60):
        id = f"q{number}" if number % 4 else f"question {number}"
        judged = rng.sample(corpus, rng.randint(1, 8))
        questions.append(question(id, qrels={document: rng.choice([0, 1, 1, 2, 3]) for document in judged}))
        ranked = rng.sample(corpus, 25)
        scores = sorted((rng.choice([0.3, 0.30000000001, 0.5, 0.7]) for _ in ranked), reverse=True)
        if number % 10 != 9:
            rows[id] = row(*ranked, scores=scores)
    return questions, rows


MEASURES = ["nDCG@10", "nDCG", "RR@10", "RR", "AP", "AP@5", "R@10", "R(rel=2)@5", "P@5", "Success@3", "Rprec", "Bpref"]


def test_means_equal_those_of_the_command_line_on_the_exported_files_with_ties(tmp_path: Path) -> None:
    questions, rows = made_up(seed=1)
    write_run(tmp_path / "a.run", questions, rows, "cosine")
    write_qrels(tmp_path / "a.qrels", {q.id: q.relevance for q in questions})
    command = [sys.executable, "-m", "ir_measures", str(tmp_path / "a.qrels"), str(tmp_path / "a.run"), *MEASURES]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    ours = per_question(MEASURES, questions, rows)
    means = {measure: sum(values.values()) / len(questions) for measure, values in ours.items()}
    assert printed.splitlines() == [f"{measure}\t{means[measure]:.4f}" for measure in MEASURES]
    assert all(len(values) == len(questions) for values in ours.values())
    # The scores themselves, ties and all, would have given other figures.
    raw = {id: {p["id"]: p["score"] for p in r["passages"]} for id, r in rows.items()}
    untouched = pytrec_eval.RelevanceEvaluator({q.id: q.qrels for q in questions}, {"map"}).evaluate(raw)
    assert f"{sum(v['map'] for v in untouched.values()) / len(questions):.4f}" != f"{means['AP']:.4f}"


def test_values_equal_trec_evals_own_where_no_scores_are_tied() -> None:
    questions, rows = made_up(seed=2)
    for r in rows.values():
        for rank, passage in enumerate(r["passages"]):
            passage["score"] = 1 / (rank + 60)
    names = {"nDCG@10": "ndcg_cut_10", "AP": "map", "RR": "recip_rank", "R@10": "recall_10", "P@5": "P_5"}
    evaluator = pytrec_eval.RelevanceEvaluator({q.id: q.qrels for q in questions}, set(names.values()))
    theirs = evaluator.evaluate({id: {p["id"]: p["score"] for p in r["passages"]} for id, r in rows.items()})
    ours = per_question(list(names), questions, rows)
    for name, theirs_name in names.items():
        assert {id: ours[name][id] for id in rows} == {id: values[theirs_name] for id, values in theirs.items()}


def test_a_grade_that_no_passage_has_makes_no_figure() -> None:
    one_grade = [Question("q", "scifact", "?", (), qrels={"a": 1, "b": 0})]
    two_grades = [*one_grade, Question("r", "dl", "?", (), qrels={"a": 2})]
    names = ["nDCG@10", "AP(rel=2)@100", "RR(rel=3)@10"]
    assert applicable(names, one_grade) == ["nDCG@10"]
    assert applicable(names, two_grades) == ["nDCG@10", "AP(rel=2)@100"]


def test_the_deepest_cutoff_is_how_many_passages_must_be_there() -> None:
    assert deepest_cutoff(["nDCG@10", "Recall@100", "MAP"]) == 100
    assert deepest_cutoff(["AP"]) == deepest_cutoff([]) == 0
