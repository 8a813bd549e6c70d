"""Figures and comparisons of seeded rows against ir-measures, scipy and statsmodels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ir_measures  # type: ignore[import-untyped]
import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]
from statsmodels.stats.contingency_tables import mcnemar  # type: ignore[import-untyped]
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

import eval.ranking
from eval.causes import CAUSES
from eval.data.datasets import Question
from eval.errors import EvalError
from eval.metrics import score_answer
from eval.paired import Comparison, paired_comparisons, with_holm
from eval.summary import Metrics, SystemMetrics, summarise
from tests.run_folders import row

MEASURES = ("nDCG@10", "R@3", "RR@10", "AP")
RULES = {"nq": "squad", "hotpotqa": "hotpotqa", "scifact": None}
Rows = dict[tuple[str, str], dict[str, Any]]


def synthetic(seed: int = 0, n: int = 60) -> tuple[list[Question], Rows]:
    """Two question sets and a retrieval set; "cosine", "qnorm" and "bm25" with passages, "closed" without."""
    rng = np.random.default_rng(seed)
    words = ["alpha", "beta", "gamma", "delta epsilon", "zeta eta", "yes", "no"]
    questions: list[Question] = []
    rows: Rows = {}
    for dataset, size in (("nq", n), ("hotpotqa", n // 2), ("scifact", n // 3)):
        for number in range(size):
            id = f"{dataset}-{number}"
            docs = [f"{id}-d{place}" for place in range(15)]
            marked = tuple(rng.choice(docs[:8], 2, replace=False).tolist())
            question = Question(id, dataset, "?", (str(rng.choice(words)), "theta"))
            if dataset == "scifact":
                grades = {name: int(grade) for name, grade in zip(docs, rng.integers(0, 3, 8), strict=False)}
                question = replace(question, answers=(), qrels={**grades, f"{id}-unfound": 1})
            elif dataset == "hotpotqa":
                question = replace(question, supporting_ids=marked)
            elif number % 3:  # a third of nq is not judged
                question = replace(question, gold_ids=marked[:1])
            questions.append(question)
            for system, skill in (("cosine", 0.3), ("qnorm", 0.6), ("bm25", 0.3), ("closed", 0.2)):
                right = rng.random() < skill
                prediction = question.answers[0] if right and question.answers else f"{rng.choice(words)} of old"
                ids = [] if system == "closed" else rng.permutation(docs)[:12].tolist()
                if dataset != "scifact":
                    rows[system, id] = row(system, id, prediction, " ".join(ids), k=min(2, len(ids)))
                elif system != "closed":
                    rows[system, id] = row(system, id, "", " ".join(ids), k=0)
    return questions, rows


def of(metrics: Metrics, system: str, dataset: str) -> SystemMetrics:
    return next(own for own in metrics.systems if (own.system, own.dataset) == (system, dataset))


def comparison(metrics: Metrics, system: str, dataset: str, measure: str) -> Comparison:
    (found,) = (c for c in metrics.comparisons if (c.system, c.dataset, c.measure) == (system, dataset, measure))
    return found


def answer_oracle(questions: Sequence[Question], rows: Rows, system: str, measure: str) -> np.ndarray[Any, Any]:
    scores = [
        score_answer(rows[system, question.id]["prediction"], question.answers, RULES[question.dataset] or "")
        for question in questions
    ]
    return np.array([float(score.em) if measure == "EM" else score.f1 for score in scores], dtype=float)


def ranking_oracle(questions: Sequence[Question], rows: Mapping[Any, Any], system: str, measure: str) -> Any:
    """[judged] values of a measure by ir-measures, straight from the rows; without a ranking 0."""
    judged = {question.id: question.relevance for question in questions if question.relevance}
    ranked = {
        id: {passage["id"]: passage["score"] for passage in rows[system, id]["passages"]}
        for id in judged
        if (system, id) in rows
    }
    found = ir_measures.iter_calc([ir_measures.parse_measure(measure)], judged, ranked)
    values = {result.query_id: result.value for result in found}
    return np.array([values.get(id, 0.0) for id in judged])


@pytest.fixture(scope="module")
def run() -> tuple[list[Question], Rows, Metrics]:
    questions, rows = synthetic()
    return questions, rows, summarise(questions, ["cosine", "qnorm", "closed"], rows, RULES, 3, measures=MEASURES)


Run = tuple[list[Question], Rows, Metrics]


@pytest.mark.parametrize("dataset", RULES)
@pytest.mark.parametrize("system", ["cosine", "qnorm"])
def test_ranking_measures_are_those_of_ir_measures_over_the_judged_questions(
    run: Run, dataset: str, system: str
) -> None:
    questions, rows, metrics = run
    members = [question for question in questions if question.dataset == dataset]
    own = of(metrics, system, dataset)
    assert tuple(own.measures) == MEASURES
    for measure, measured in own.measures.items():
        values = ranking_oracle(members, rows, system, measure)
        assert (measured.value, measured.n) == (pytest.approx(values.mean(), abs=1e-12), len(values))
        theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
        tolerance = 0.15 * values.std() / np.sqrt(len(values))
        assert measured.interval == pytest.approx((theirs.low, theirs.high), abs=tolerance)
    assert of(metrics, "cosine", "nq").measures["AP"].n == 40  # of 60: the others have no judgments


def test_every_system_is_compared_with_the_first_on_every_data_set_by_every_measure_both_have(run: Run) -> None:
    _, _, metrics = run
    found = {(c.baseline, c.system, c.dataset, c.measure) for c in metrics.comparisons}
    expected = {("cosine", "qnorm", dataset, measure) for dataset in RULES for measure in MEASURES}
    expected |= {
        ("cosine", system, dataset, measure)
        for system in ("qnorm", "closed")
        for dataset in ("nq", "hotpotqa")
        for measure in ("EM", "F1")
    }
    assert found == expected and len(metrics.comparisons) == len(expected)


@pytest.mark.parametrize("measure", ["F1", *MEASURES])
def test_differences_intervals_and_permutation_p_agree_with_scipys(run: Run, measure: str) -> None:
    questions, rows, metrics = run
    members = [question for question in questions if question.dataset == "nq"]
    oracle = answer_oracle if measure == "F1" else ranking_oracle
    unit = 100 if measure == "F1" else 1
    changes = unit * (oracle(members, rows, "qnorm", measure) - oracle(members, rows, "cosine", measure))
    found = comparison(metrics, "qnorm", "nq", measure)
    assert (found.n, found.test) == (len(changes), "permutation")
    assert found.difference == pytest.approx(changes.mean(), abs=1e-10)
    counts = int((changes > 1e-12).sum()), int((changes < -1e-12).sum()), int((abs(changes) <= 1e-12).sum())
    assert (found.wins, found.losses, found.ties) == counts
    theirs = stats.bootstrap((changes,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    assert found.interval == pytest.approx((theirs.low, theirs.high), abs=0.15 * changes.std() / np.sqrt(len(changes)))
    p = stats.permutation_test((changes,), np.mean, permutation_type="samples", n_resamples=10_000, rng=2).pvalue
    assert found.p is not None and abs(found.p - p) < 5 * np.sqrt(2 * p * (1 - p) / 10_000) + 2e-4


@pytest.mark.parametrize("system", ["qnorm", "closed"])
@pytest.mark.parametrize("dataset", ["nq", "hotpotqa"])
def test_exact_match_is_compared_by_mcnemars_exact_test(run: Run, dataset: str, system: str) -> None:
    questions, rows, metrics = run
    members = [question for question in questions if question.dataset == dataset]
    before, after = (answer_oracle(members, rows, name, "EM") > 0 for name in ("cosine", system))
    table = [[int((before & after).sum()), int((before & ~after).sum())],
             [int((~before & after).sum()), int((~before & ~after).sum())]]  # fmt: skip
    found = comparison(metrics, system, dataset, "EM")
    assert (found.wins, found.losses, found.ties) == (table[1][0], table[0][1], table[0][0] + table[1][1])
    assert (found.test, found.p) == ("McNemar exact", pytest.approx(mcnemar(table, exact=True).pvalue, rel=1e-9))
    assert found.difference == pytest.approx(100 * (after.mean() - before.mean()), abs=1e-10)


def test_holm_is_over_all_comparisons_of_one_measure_in_the_whole_table(run: Run) -> None:
    _, _, metrics = run
    sizes = {}
    for measure in ("EM", "F1", *MEASURES):
        members = [c for c in metrics.comparisons if c.measure == measure]
        sizes[measure] = len(members)
        expected = multipletests([c.p for c in members], method="holm")[1]
        assert [c.p_holm for c in members] == pytest.approx(list(expected), rel=1e-12)
    assert sizes == {"EM": 4, "F1": 4, "nDCG@10": 3, "R@3": 3, "RR@10": 3, "AP": 3}


def test_rankings_that_are_the_same_are_one_hypothesis() -> None:
    def pair(system: str, p: float, difference: float, *, identical: bool = False) -> Comparison:
        return Comparison("cosine", system, "nq", "nDCG@10", 40, difference, (0.0, 0.1), 9, 3, 28, "permutation", p, None,
                          identical)  # fmt: skip

    # One retriever under three names, two others, and the baseline under another name.
    pairs = [pair(f"qnorm k={k}", 0.01, 0.05) for k in (1, 3, 5)]
    pairs += [pair("bm25", 0.04, -0.02), pair("hybrid", 0.5, 0.01), pair("cosine k=3", 1.0, 0.0, identical=True)]
    expected = multipletests([0.01, 0.04, 0.5], method="holm")[1]
    assert [own.p_holm for own in with_holm(pairs)] == pytest.approx(
        [expected[0]] * 3 + [expected[1], expected[2], 1.0]
    )


def test_rows_of_two_runs_compare_as_two_systems_of_one_run(run: Run) -> None:
    questions, rows, metrics = run
    found = []
    for system in ("qnorm", "closed"):
        for dataset, rule in RULES.items():
            members = [question for question in questions if question.dataset == dataset]
            sides = ({id: own for (name, id), own in rows.items() if name == wanted} for wanted in ("cosine", system))
            if (system, members[0].id) in rows:
                found += paired_comparisons("cosine", system, dataset, members, *sides, rule, 3, MEASURES)
    assert all(own.p_holm is None for own in found)

    def order(own: Comparison) -> tuple[str, str, str]:
        return own.system, own.dataset, own.measure

    assert sorted(with_holm(found), key=order) == [
        replace(own, p_holm=pytest.approx(own.p_holm)) for own in sorted(metrics.comparisons, key=order)
    ]
    assert paired_comparisons("cosine", "closed", "nq", [], {}, {}, "squad", 0, MEASURES) == []


def test_identical_systems_do_not_differ_by_any_measure() -> None:
    questions, rows = synthetic()
    rows |= {("twin", id): own | {"system": "twin"} for (system, id), own in rows.items() if system == "cosine"}
    metrics = summarise(questions, ["cosine", "twin"], rows, RULES, 0, measures=MEASURES)
    assert len(metrics.comparisons) == 2 * 2 + 3 * len(MEASURES)
    for found in metrics.comparisons:
        assert (found.difference, found.interval, found.p, found.p_holm) == (0.0, (0.0, 0.0), 1.0, 1.0)
        assert found.identical and (found.wins, found.losses, found.ties) == (0, 0, found.n)
    other = summarise(questions, ["cosine", "qnorm"], rows, RULES, 0, measures=MEASURES)
    assert not any(found.identical for found in other.comparisons)


def test_a_system_without_passages_has_no_ranking_measures_and_no_curves(run: Run) -> None:
    own = of(run[2], "closed", "nq")
    assert (own.measures, own.k, own.depth) == ({}, 0, 0)
    assert (own.hit, own.recall_gold, own.recall_supporting, own.all_supporting) == (None,) * 4
    assert own.em is not None and of(run[2], "cosine", "nq").hit is not None


def test_a_baseline_without_passages_leaves_ranking_measures_uncompared_and_says_so() -> None:
    questions, rows = synthetic()
    metrics = summarise(questions, ["closed", "cosine", "qnorm"], rows, RULES, 0, measures=MEASURES)
    assert {c.measure for c in metrics.comparisons} == {"EM", "F1"}
    assert of(metrics, "qnorm", "nq").measures
    assert [note for note in metrics.notes if note.startswith("nq: ")] == [
        "nq: ranking measures are over the 40 of 60 questions with marked passages.",
        "nq: closed, which the others are compared with, retrieves nothing: ranking measures are not compared; put a "
        "system with a retriever first to compare them.",
    ]


def test_a_system_that_was_not_asked_a_data_set_is_left_out_of_it_and_that_is_said(run: Run) -> None:
    metrics = run[2]
    assert [own.system for own in metrics.systems if own.dataset == "scifact"] == ["cosine", "qnorm"]
    assert metrics.notes == [
        "nq: ranking measures are over the 40 of 60 questions with marked passages.",
        "scifact: closed was not asked.",
    ]


def test_a_retrieval_task_has_no_figures_of_answers(run: Run) -> None:
    own = of(run[2], "cosine", "scifact")
    assert (own.task, own.rule, own.n, own.missing, own.depth, own.k) == ("retrieval", None, 20, 0, 12, 0)
    answers = (own.em, own.em_interval, own.f1, own.f1_interval, own.contains, own.answer_words, own.gold_words)
    assert answers == (None,) * 7
    assert (own.prompt_tokens, own.causes, own.without_golds, own.empty_matches) == (None, None, 0, 0)
    assert of(run[2], "cosine", "nq").task == "qa"


def test_causes_count_every_question_of_a_question_set_once(run: Run) -> None:
    questions, rows, metrics = run
    for own in metrics.systems:
        if own.task == "qa":
            assert own.causes is not None and tuple(own.causes) == CAUSES and sum(own.causes.values()) == own.n
            assert own.em == pytest.approx(100 * own.causes["correct"] / own.n)
    known = {question.id: False for question in questions}
    sure = summarise(questions, ["cosine"], rows, RULES, 0, answerable=known)
    before, after = of(metrics, "cosine", "nq").causes, of(sure, "cosine", "nq").causes
    assert before is not None and after is not None
    assert (before["no answer in corpus"], after["retrieval miss"]) == (0, 0)
    assert after["no answer in corpus"] > 0


@pytest.mark.parametrize("fault", [{}, {"AP": {"nq-1": 0.5}}, {"AP": {"nq-1": float("nan"), "nq-2": 0.5}}])
def test_a_measure_that_lacks_a_value_it_should_have_ends_the_summary(
    monkeypatch: pytest.MonkeyPatch, fault: dict[str, dict[str, float]]
) -> None:
    questions, rows = synthetic(n=3)
    monkeypatch.setattr(eval.ranking, "per_question", lambda measures, questions, rows: fault)
    with pytest.raises(ValueError, match="AP of question 'nq-[12]' must be a number, got"):
        summarise(questions[:3], ["cosine"], rows, RULES, 0, measures=["AP"])


def test_an_unknown_measure_is_refused() -> None:
    questions, rows = synthetic(n=6)
    with pytest.raises(EvalError, match="nDGC@10"):
        summarise(questions, ["cosine"], rows, RULES, 0, measures=["nDGC@10"])


def test_metrics_are_plain_json_without_nan(run: Run) -> None:
    metrics = run[2]
    read = json.loads(json.dumps(metrics.to_json(), allow_nan=False))
    assert read["systems"][0]["measures"]["AP"]["value"] == metrics.systems[0].measures["AP"].value
    assert read["notes"] == metrics.notes
    assert [own["p_holm"] for own in read["comparisons"]] == [own.p_holm for own in metrics.comparisons]


def test_figures_depend_on_the_seed_only_where_chance_is_drawn(run: Run) -> None:
    questions, rows, metrics = run
    names = ["cosine", "qnorm", "closed"]
    assert summarise(questions, names, rows, RULES, 3, measures=MEASURES) == metrics
    shuffled = dict(sorted(rows.items(), key=lambda item: item[0][1][::-1]))
    assert summarise(questions, names, shuffled, RULES, 3, measures=MEASURES) == metrics
    other = summarise(questions, names, rows, RULES, 4, measures=MEASURES)
    assert other != metrics
    assert [own.em for own in other.systems] == [own.em for own in metrics.systems]
    assert [c.difference for c in other.comparisons] == [c.difference for c in metrics.comparisons]
