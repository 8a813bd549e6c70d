"""Scoring a file of predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.data.datasets import read_questions
from eval.errors import EvalError, UsageError
from eval.score import score_file
from eval.summary import summarise


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    golds = {"q1": ["Paris"], "q2": ["Jane Austen"], "q3": ["the year 1914"]}
    rows = [{"id": id, "dataset": "nq", "question": "?", "answers": answers} for id, answers in golds.items()]
    return write(tmp_path / "questions.jsonl", *rows)


def test_scores_are_percentages_over_all_golds_and_missing_ones_count_nothing(tmp_path: Path, questions: Path) -> None:
    predictions = write(
        tmp_path / "p.jsonl", {"id": "q2", "prediction": "Austen"}, {"id": "q1", "prediction": "paris!"}
    )
    score = score_file(questions, predictions)
    # EM 1, 0, missing; F1 1, 2/3, missing: not rounded.
    assert score == {
        "n": 3,
        "missing": 1,
        "em": pytest.approx(100 / 3, abs=1e-12),
        "f1": pytest.approx(100 * (1 + 2 / 3) / 3, abs=1e-12),
        "contains": pytest.approx(100 / 3, abs=1e-12),
        "empty_matches": 0,
        "rule": "squad",
    }


def test_a_missing_prediction_counts_nothing_even_where_the_gold_is_empty(tmp_path: Path) -> None:
    golds = write(tmp_path / "questions.jsonl", {"id": "q1", "question": "?", "answers": [""]})
    assert score_file(golds, write(tmp_path / "p.jsonl"), "squad_v2")["em"] == 0
    assert score_file(golds, write(tmp_path / "p.jsonl", {"id": "q1", "prediction": ""}), "squad_v2")["em"] == 100
    failed = write(tmp_path / "p.jsonl", {"id": "q1", "prediction": "", "error": "too long"})
    assert (score_file(golds, failed, "squad_v2")["em"], score_file(golds, failed, "squad_v2")["missing"]) == (0, 1)


def test_the_rule_asked_for_is_used_and_named(tmp_path: Path) -> None:
    golds = write(
        tmp_path / "questions.jsonl", {"id": "q1", "dataset": "nq", "question": "?", "answers": ["Beyonc\u00e9"]}
    )
    predictions = write(tmp_path / "p.jsonl", {"id": "q1", "prediction": "Beyonce\u0301"})
    assert score_file(golds, predictions)["em"] == 0
    assert {key: score_file(golds, predictions, "nq_open")[key] for key in ("em", "rule")} == {
        "em": 100,
        "rule": "nq_open",
    }
    assert score_file(golds, predictions, "curatedtrec")["f1"] is None


def test_an_unknown_rule_is_wrong_usage_whatever_the_files_hold(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no scoring rule 'sqad': did you mean 'squad'"):
        score_file(tmp_path / "absent.jsonl", tmp_path / "absent.jsonl", "sqad")


def test_questions_of_several_sets_are_each_scored_by_their_own_rule(tmp_path: Path) -> None:
    rows = [{"id": name, "dataset": name, "question": "?", "answers": ["yes it is"]} for name in ("nq", "hotpotqa")]
    golds = write(tmp_path / "questions.jsonl", *rows)
    predictions = write(tmp_path / "p.jsonl", *({"id": name, "prediction": "yes"} for name in ("nq", "hotpotqa")))
    score = score_file(golds, predictions)
    assert (score["f1"], score["rule"]) == (25.0, "squad, hotpotqa")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"id": "q9", "prediction": "x"}, "id 'q9' is not in "),
        ({"id": "q1", "prediction": "x"}, "id 'q1' was already predicted at "),
        ({"id": "q2"}, '"prediction" is missing'),
        ({"prediction": "x"}, '"id" is missing'),
        ({"id": "q2", "prediction": None}, '"prediction" must be a string, got None'),
        ({"id": 2, "prediction": "x"}, '"id" must be a string, got 2'),
        ("q2", "must be a JSON object"),
    ],
)
def test_a_bad_prediction_is_named_by_file_and_line(tmp_path: Path, questions: Path, bad: Any, message: str) -> None:
    predictions = write(tmp_path / "p.jsonl", {"id": "q1", "prediction": "Paris"}, bad)
    with pytest.raises(EvalError) as caught:
        score_file(questions, predictions)
    assert str(caught.value).startswith(f"{predictions}, line 2: ") and message in str(caught.value)


def test_the_rows_of_a_run_score_as_the_run_did(tmp_path: Path, questions: Path) -> None:
    shared = {"error": None, "k": 0, "dropped": 0, "cut": False, "prompt_tokens": 9, "passages": [], "seconds": {}}
    rows = [
        {"system": system, "id": id, "prediction": text, **shared}
        for system, text in (("a", "Austen"), ("b", "Paris"))
        for id in ("q1", "q2", "q3")
    ]
    rows[1] |= {"prediction": "", "error": "too long"}
    predictions = write(tmp_path / "predictions.jsonl", *rows)
    stored = {(row["system"], row["id"]): row for row in rows}
    metrics = summarise(read_questions(questions), ["a", "b"], stored, {"nq": "squad"}, 0)
    for own in metrics.systems:
        score = score_file(questions, predictions, system=own.system)
        assert (score["em"], score["f1"], score["missing"]) == (own.em, own.f1, own.missing)
    assert [own.missing for own in metrics.systems] == [1, 0]
    with pytest.raises(EvalError, match="already predicted at .*, or name the system to score"):
        score_file(questions, predictions)
    with pytest.raises(EvalError, match="no line of system 'c'"):
        score_file(questions, predictions, system="c")
