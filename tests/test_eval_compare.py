"""Two runs side by side: common questions, paired figures, and whether answers repeat and why not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from eval.base import RankedPassage, Record
from eval.compare import RunComparison, SystemPair, compare_runs, parse_pair
from eval.data.datasets import Question
from eval.data.sources import DataSet
from eval.errors import EvalError
from eval.report.compare_text import comparison_markdown, comparison_text
from eval.run import run_evaluation
from eval.runs import list_runs
from eval.view import Recheck, RunView
from tests.run_folders import row, write_run

QUESTIONS = [
    Question("q1", "nq", "capital of France?", ("Paris",)),
    Question("q2", "nq", "author of Emma?", ("Jane Austen", "Austen")),
    Question("q3", "nq", "largest planet?", ("Jupiter",)),
    Question("q4", "nq", "which river?", ("Rhine",)),
]


def answers(system: str, *texts: str, passages: str = "p1* p2") -> list[dict[str, Any]]:
    return [row(system, question.id, text, passages) for question, text in zip(QUESTIONS, texts, strict=False)]


def first_run(path: Path, **changes: Any) -> RunView:
    rows = answers("cosine", "Paris", "Austen", "Mars", "Rhine") + answers("qnorm", "Paris", "Bronte", "Jupiter", "Po")
    return write_run(path / "a", QUESTIONS, ["cosine", "qnorm"], rows, **changes)


def second_run(path: Path, *texts: str, passages: str = "p1* p2", **changes: Any) -> RunView:
    rows = answers("cosine", *texts, passages=passages)
    return write_run(path / "b", QUESTIONS, ["cosine"], rows, **changes)


def only(comparison: RunComparison) -> SystemPair:
    (pair,) = comparison.pairs
    return pair


def test_figures_are_those_computed_by_hand(tmp_path: Path) -> None:
    # cosine: right, right, wrong, right; then right, wrong, right, right: one question better, one worse.
    comparison = compare_runs(first_run(tmp_path), second_run(tmp_path, "Paris", "Emma", "Jupiter", "the Rhine"))
    assert (comparison.common, comparison.only_first, comparison.only_second, comparison.changed) == (4, 0, 0, 0)
    pair = only(comparison)
    assert (pair.first, pair.second, pair.name, pair.dataset, pair.rule) == (
        "cosine",
        "cosine",
        "cosine",
        "nq",
        "squad",
    )
    assert (pair.n, pair.unasked, pair.em, pair.depth) == (4, 0, (75.0, 75.0), 2)
    # "the Rhine" is another string, though as right as the first.
    assert (pair.predictions_differ, pair.same_prompt, pair.rankings_differ) == (3, 3, 0)
    em, f1 = pair.comparisons
    assert (em.measure, em.baseline, em.system, em.difference, em.wins, em.losses, em.ties) == (
        "EM", "cosine (a)", "cosine (b)", 0.0, 1, 1, 2
    )  # fmt: skip
    assert (em.p, em.p_holm, f1.measure, f1.difference, f1.n) == (1.0, 1.0, "F1", 0.0, 4)
    assert [(flip.question.id, flip.a_correct) for flip in pair.flips] == [("q2", True), ("q3", False)]


def test_named_pairs_compare_other_systems_and_share_one_correction(tmp_path: Path) -> None:
    second = second_run(tmp_path, "Lyon", "Emma", "Mars", "Po")
    comparison = compare_runs(first_run(tmp_path), second, [("cosine", "cosine"), ("qnorm", "cosine")])
    own, other = comparison.pairs
    assert other.name == "qnorm:cosine" and (own.em, other.em) == ((75.0, 0.0), (50.0, 0.0))
    # Three losses of three: p = 2 / 8; two of two: 2 / 4. Holm: the smaller times 2, the larger at least that.
    p = [(pair.comparisons[0].p, pair.comparisons[0].p_holm) for pair in (own, other)]
    assert p == [(0.25, 0.5), (0.5, 0.5)]
    assert "the systems' fingerprints, mark of qnorm and mark of cosine" in other.explanation


def test_ranking_measures_that_both_runs_name_are_compared(tmp_path: Path) -> None:
    judged = [Question("q1", "nq", "a?", ("x",), gold_ids=("g",)), Question("q2", "nq", "b?", ("x",), gold_ids=("g",))]
    runs = [
        write_run(tmp_path / name, judged, ["s"], [row("s", "q1", "x", first), row("s", "q2", "x", "a b c g")],
                  measures=measures)
        for name, first, measures in (("a", "a g c", ["RR@10", "nDCG@10"]), ("b", "g a c", ["P@1", "RR@10"]))
    ]  # fmt: skip
    found = {own.measure: own for own in only(compare_runs(*runs)).comparisons}
    assert list(found) == ["EM", "F1", "RR@10"]
    # Reciprocal ranks 1/2 and 1/4, then 1 and 1/4.
    assert found["RR@10"].difference == pytest.approx((0.5 + 0) / 2) and found["RR@10"].wins == 1


def test_only_questions_that_are_the_same_in_both_are_compared(tmp_path: Path) -> None:
    changed = [
        QUESTIONS[3],
        Question("q1", "nq", "capital of France?", ("Paris", "Lutetia")),  # other golds
        Question("q2", "nq", "who wrote Emma?", ("Jane Austen", "Austen")),  # other text
        Question("q3", "nq", "largest planet?", ("Jupiter",), kind="easy"),
        Question("q9", "nq", "new?", ("x",)),
    ]
    rows = [row("cosine", question.id, "Jupiter", "p1* p2") for question in changed]
    comparison = compare_runs(first_run(tmp_path), write_run(tmp_path / "b", changed, ["cosine"], rows))
    assert (comparison.common, comparison.only_first, comparison.only_second, comparison.changed) == (2, 0, 1, 2)
    pair = only(comparison)
    assert (pair.n, pair.em) == (2, (50.0, 50.0))  # q3: Mars, Jupiter; q4: Rhine, Jupiter
    assert [flip.question.id for flip in pair.flips] == ["q3", "q4"]
    assert comparison.differences == [
        "questions were not all the same or in another order, so that batches were composed otherwise"
    ]


def test_golds_in_another_order_are_the_same_question(tmp_path: Path) -> None:
    turned = [Question("q2", "nq", "author of Emma?", ("Austen", "Jane Austen"))]
    other = write_run(tmp_path / "b", turned, ["cosine"], [row("cosine", "q2", "Austen")])
    assert compare_runs(first_run(tmp_path), other).common == 1


def test_runs_that_have_nothing_in_common_are_refused(tmp_path: Path) -> None:
    first = first_run(tmp_path)
    strange = [Question("x1", "nq", "capital of France?", ("Paris",))]
    with pytest.raises(EvalError, match="have no question in common"):
        compare_runs(first, write_run(tmp_path / "b", strange, ["cosine"], []))
    bm25 = write_run(tmp_path / "c", QUESTIONS, ["bm25"], answers("bm25", "Paris"))
    with pytest.raises(EvalError, match=r"no system in common \(cosine, qnorm against bm25\): name a pair"):
        compare_runs(first, bm25)
    with pytest.raises(EvalError, match="a has no system 'bm25': it has cosine, qnorm"):
        compare_runs(first, bm25, [("bm25", "bm25")])
    assert only(compare_runs(first, bm25, [("qnorm", "bm25")])).n == 1


def test_a_run_that_is_not_finished_is_compared_on_what_it_has(tmp_path: Path) -> None:
    comparison = compare_runs(first_run(tmp_path), second_run(tmp_path, "Paris", "Emma"))
    pair = only(comparison)
    assert (pair.n, pair.unasked, pair.em, len(pair.flips)) == (2, 2, (100.0, 50.0), 1)
    assert "cosine on nq: questions without a row in one of the runs, left out: 2" in comparison_text(comparison)


def test_a_run_that_has_not_begun_gives_no_figures(tmp_path: Path) -> None:
    comparison = compare_runs(first_run(tmp_path), second_run(tmp_path))
    pair = only(comparison)
    assert (pair.n, pair.unasked, pair.em, pair.comparisons, pair.flips) == (0, 4, None, [], [])
    assert pair.explanation == "there is no question that both have answered yet"
    assert pair.explanation in comparison_text(comparison)


def test_one_question_has_no_interval_and_no_p(tmp_path: Path) -> None:
    comparison = compare_runs(first_run(tmp_path), second_run(tmp_path, "Lyon"))
    em = only(comparison).comparisons[0]
    assert (em.n, em.difference, em.interval, em.p, em.p_holm) == (1, -100.0, None, None, None)
    line = next(line for line in comparison_text(comparison).splitlines() if "(b) - cosine (a)  EM" in line)
    assert line.split()[-6:] == ["-100.0", "0", "0", "1", "-", "-"]


def test_a_run_against_itself_is_alike_and_its_systems_can_be_paired(tmp_path: Path) -> None:
    run = first_run(tmp_path)
    comparison = compare_runs(run, RunView.open(tmp_path / "a" / ".." / "a"))
    assert comparison.same_folder and comparison.differences == []
    for pair in comparison.pairs:
        assert (pair.predictions_differ, pair.rankings_differ, pair.flips) == (0, 0, [])
        assert pair.explanation == "the same predictions and the same rankings"
        assert all(own.identical and own.p == 1.0 and own.difference == 0 for own in pair.comparisons)
    assert "both are the same run" in comparison_text(comparison)

    pair = only(compare_runs(run, run, [("cosine", "qnorm")]))
    em = pair.comparisons[0]
    # Right: cosine q1, q2, q4; qnorm q1, q3.
    assert (em.baseline, em.system, em.difference, em.wins, em.losses) == ("cosine", "qnorm", -25.0, 1, 2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config": {"k": 3}}, "config.k was 2, now 3"),
        ({"batch_size": 64}, "batch_size was 2, now 64"),
        ({"systems": {"cosine": "v2"}}, "the systems' fingerprints, mark of cosine and v2"),
        ({"prompt_sha256": {"cosine": "ab"}}, "prompt_sha256 was null, now {"),
        (
            {
                "environment": {
                    "python": "3.12",
                    "packages": {"torch": "2.9"},
                    "git": {"commit": "a" * 40, "changed": False},
                }
            },
            'environment.python was "3.11", now "3.12"',
        ),
        (
            {"datasets": {"nq": {"task": "qa", "rule": "nq_open", "lang": "en", "corpus": "demo", "index": "i2"}}},
            'datasets.nq.rule was "squad", now "nq_open"; datasets.nq.index was "i1", now "i2"',
        ),
    ],
)
def test_what_differs_between_the_runs_is_named_where_answers_do(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    comparison = compare_runs(first_run(tmp_path), second_run(tmp_path, "Paris", "Emma", "Mars", "Rhine", **changes))
    explanation = only(comparison).explanation
    assert explanation.startswith("not one configuration under the same conditions; what differs: ")
    assert reason in explanation


def test_long_lists_of_differences_are_cut_in_the_explanation_alone(tmp_path: Path) -> None:
    changes = {"config": {"k": 2, **{f"x{at}": at for at in range(7)}}}
    comparison = compare_runs(first_run(tmp_path), second_run(tmp_path, "Paris", "Emma", "Mars", "Rhine", **changes))
    assert only(comparison).explanation.endswith("config.x3 was not there, now 3 and 3 more")
    assert len(comparison.differences) == 7 and "config.x6" in comparison_text(comparison)


def test_where_the_questions_were_taken_from_is_no_difference(tmp_path: Path) -> None:
    facts = {"task": "qa", "rule": "squad", "lang": "en", "corpus": "demo", "index": "i1", "file": "elsewhere"}
    other = second_run(
        tmp_path, "Paris", "Emma", "Mars", "Rhine", datasets={"nq": facts}, started="2026-05-05T00:00:00"
    )
    assert compare_runs(first_run(tmp_path), other).differences == []


def test_equal_runs_with_other_answers_point_at_batching(tmp_path: Path) -> None:
    first = first_run(tmp_path)
    pair = only(compare_runs(first, second_run(tmp_path, "Paris", "Emma", "Mars", "Rhine")))
    assert (pair.predictions_differ, pair.same_prompt) == (1, 1)
    assert pair.explanation.startswith(
        "configuration, fingerprints and versions are equal; the likely reason is batching"
    )


def test_equal_runs_with_other_rankings_point_at_ties(tmp_path: Path) -> None:
    first = first_run(tmp_path)
    pair = only(compare_runs(first, second_run(tmp_path, "Paris", "Emma", "Mars", "Rhine", passages="p2 p1*")))
    assert (pair.predictions_differ, pair.same_prompt, pair.rankings_differ) == (1, 0, 4)
    assert "the likely reason is passages whose scores are equal but for their last digits" in pair.explanation


def test_code_that_is_in_no_commit_and_answers_asked_again_are_reported(tmp_path: Path) -> None:
    environment = {"git": {"commit": "a" * 40, "changed": True}}
    first_run(tmp_path, environment=environment)
    recheck = Recheck("cosine", "qwen", 32, ["q2", "q3"])
    (tmp_path / "a" / "recheck.json").write_text(json.dumps([asdict(recheck)]))
    second = second_run(tmp_path, "Paris", "Emma", "Mars", "Rhine", environment=environment)
    comparison = compare_runs(RunView.open(tmp_path / "a"), second)
    explanation = only(comparison).explanation
    assert "or the code itself, which in both runs had changes that are in no commit" in explanation
    assert "qwen, asked 32 questions again in other batches, changed 2 answers" in explanation
    assert comparison.rechecks == ["qwen, asked 32 questions again in other batches, changed 2 answers"]


def test_rankings_are_compared_as_deep_as_both_recorded_them(tmp_path: Path) -> None:
    first = first_run(tmp_path)
    deeper = second_run(tmp_path, "Paris", "Austen", "Mars", "Rhine", passages="p1* p2 p3 p4")
    pair = only(compare_runs(first, deeper))
    assert (pair.depth, pair.rankings_differ) == (2, 0)


def test_errors_differ_from_answers_but_not_from_one_another(tmp_path: Path) -> None:
    question = QUESTIONS[:2]
    first = write_run(tmp_path / "a", question, ["s"], [row("s", "q1", error="too long"), row("s", "q2", "")])
    second = write_run(tmp_path / "b", question, ["s"], [row("s", "q1", error="stopped"), row("s", "q2", error="x")])
    pair = only(compare_runs(first, second))
    assert (pair.predictions_differ, pair.em, pair.flips) == (1, (0.0, 0.0), [])


def test_data_sets_stand_apart_and_one_that_a_system_is_not_asked_is_left_out(tmp_path: Path) -> None:
    questions = [*QUESTIONS[:2], Question("r1", "beir", "find it", (), qrels={"p1": 1})]
    facts = {"nq": {"task": "qa", "rule": "squad"}, "beir": {"task": "retrieval", "rule": None}}
    rows = [row(system, id, "Paris", "" if system == "closed" else "p1* p2", k=0)
            for system in ("closed", "cosine") for id in ("q1", "q2", "r1") if (system, id) != ("closed", "r1")]  # fmt: skip
    runs = [write_run(tmp_path / name, questions, ["closed", "cosine"], rows, datasets=facts, measures=["RR@10"])
            for name in ("a", "b")]  # fmt: skip
    pairs = compare_runs(*runs).pairs
    assert [(pair.name, pair.dataset, pair.n, pair.em) for pair in pairs] == [
        ("closed", "nq", 2, (50.0, 50.0)), ("cosine", "nq", 2, (50.0, 50.0)), ("cosine", "beir", 1, None)
    ]  # fmt: skip
    assert [own.measure for own in pairs[2].comparisons] == ["RR@10"]


def test_a_rule_that_one_of_the_runs_lacks_leaves_answers_out(tmp_path: Path) -> None:
    second = second_run(
        tmp_path, "Paris", "Emma", "Mars", "Rhine", datasets={"nq": {"task": "retrieval", "rule": None}}
    )
    pair = only(compare_runs(first_run(tmp_path), second))
    assert (pair.rule, pair.em, pair.comparisons, pair.flips) == (None, None, [], [])


def test_text_markdown_and_json_say_the_same(tmp_path: Path) -> None:
    first = first_run(tmp_path)
    second = second_run(tmp_path, "Paris", "a|b <b>x</b>", "Jupiter", "Rhine", config={"k": 3})
    comparison = compare_runs(first, second)
    text, page = comparison_text(comparison), comparison_markdown(comparison)
    for part in (
        f"{tmp_path / 'a'} against {tmp_path / 'b'}",
        "common questions: 4 (only in the first run: 0; only in the second: 0; with another text or other golds: 0)",
        "config.k was 2, now 3",
        "cosine on nq: not one configuration under the same conditions",
        "only the first right: 1; mean norm percentile of the first answer passage: - in the first (n = 0)",
    ):
        assert part in text and part in page, part
    flip = next(line for line in text.splitlines() if line.startswith("author of Emma?"))
    assert [cell.strip() for cell in flip.split("  ") if cell.strip()] == [
        "author of Emma?", "Jane Austen | Austen", "first", "Austen", "a|b <b>x</b>", "reader miss", "1", "1"
    ]  # fmt: skip
    assert "| Austen | a\\|b &lt;b>x&lt;/b> | reader miss | 1 | 1 |" in page
    assert page.startswith("# Comparison of two runs\n") and page.endswith("|\n") is False

    value = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert value["first"] == str(tmp_path / "a") and value["differences"] == ["config.k was 2, now 3"]
    (pair,) = value["pairs"]
    assert (pair["em"], pair["predictions_differ"], pair["flip_counts"]["a_only"]["n"]) == ([75.0, 75.0], 2, 1)
    assert [flip["id"] for flip in pair["flips"]] == ["q2", "q3"]
    assert pair["comparisons"][0]["measure"] == "EM" and pair["flips"][0]["a"]["answer"]["id"] == "p1"


def test_many_flips_are_shown_in_part(tmp_path: Path) -> None:
    questions = [Question(f"q{at}", "nq", f"question {at}?", ("Paris",)) for at in range(13)]
    runs = [write_run(tmp_path / text, questions, ["s"], [row("s", question.id, text) for question in questions])
            for text in ("Paris", "Lyon")]  # fmt: skip
    text = comparison_text(compare_runs(*runs))
    assert "Flips of s on nq, the first 10 of 13" in text and "question 9?" in text and "question 10?" not in text


@pytest.mark.parametrize(
    ("text", "pair"), [("cosine", ("cosine", "cosine")), ("cosine:qnorm", ("cosine", "qnorm")), (" a : b ", ("a", "b"))]
)
def test_pairs_are_written_with_a_colon(text: str, pair: tuple[str, str]) -> None:
    assert parse_pair(text) == pair


@pytest.mark.parametrize("text", ["", ":", "a:", ":b"])
def test_half_a_pair_is_refused(text: str) -> None:
    with pytest.raises(EvalError, match="written FIRST:SECOND"):
        parse_pair(text)


def test_an_error_is_shown_in_place_of_its_answer(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, QUESTIONS[:1], ["s"], [row("s", "q1", text, error=error)])
            for name, text, error in (("a", "Paris", None), ("b", "", "prompt too long"))]  # fmt: skip
    assert "(prompt too long)  missing" in comparison_text(compare_runs(*runs))


class Forgetful:
    """Answers rightly, but for questions that it is told to forget."""

    name, fingerprint, reader = "s", "v1", ""

    def __init__(self, *forgotten: str) -> None:
        self.forgotten = forgotten

    def asks(self, dataset: str) -> bool:
        return True

    def retrieve(self, batch: Sequence[Question]) -> None:
        return None

    def answer(self, batch: Sequence[Question], found: Any, *, fresh: bool = False) -> Iterable[Record]:
        for question in batch:
            text = "no idea" if question.id in self.forgotten else question.answers[0]
            yield Record(question.id, text, [RankedPassage(1, "p1", "t", f"so {text}", 1.0)], k=1)


def test_runs_of_an_evaluation_are_compared_as_those_written_by_hand(tmp_path: Path) -> None:
    data = [DataSet("nq", "qa", QUESTIONS, "squad", "", {})]
    for name, forgotten in (("a", ()), ("b", ()), ("c", ("q2",))):
        run_evaluation(data, [Forgetful(*forgotten)], tmp_path / name, config={"k": 1})
    a, b, c = (RunView.open(tmp_path / name) for name in "abc")
    same = compare_runs(a, b)
    assert (only(same).explanation, same.differences) == ("the same predictions and the same rankings", [])
    pair = only(compare_runs(a, c))
    assert (pair.n, pair.em, pair.predictions_differ, pair.same_prompt) == (4, (100.0, 75.0), 1, 1)
    assert "the likely reason is batching" in pair.explanation
    (flip,) = pair.flips
    assert (flip.question.id, flip.a_correct, flip.b.cause) == ("q2", True, "retrieval miss")
    assert {found.name: (found.state, found.em) for found in list_runs(tmp_path)} == {
        "a": ("finished", {"nq": {"s": 100.0}}), "b": ("finished", {"nq": {"s": 100.0}}),
        "c": ("finished", {"nq": {"s": 75.0}}),
    }  # fmt: skip
