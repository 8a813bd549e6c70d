"""Score a file of predictions, whoever made it."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from eval.datasets import default_rule, read_questions
from eval.errors import EvalError
from eval.jsonl import read_rows
from eval.metrics import get_rule
from eval.summary import score_question


def score_file(
    questions_path: str | Path, predictions_path: str | Path, rule: str = "", *, system: str = ""
) -> dict[str, Any]:
    """Score lines of {id, prediction} against a question file.

    Denominators are all questions of the file; one without a prediction, or whose line has an "error", counts 0 and as
    missing. Scores are percentages and not rounded, as the official scripts print them; papers give one decimal, which
    is what tables should show.

    Args:
        questions_path: See `eval.datasets.read_questions`.
        predictions_path: A .jsonl, .jsonl.gz or .json (list) file; other fields are ignored, so predictions.jsonl of a
            run will do.
        rule: "" takes the data set's own.
        system: Score only the lines with this "system" (a run of several systems has several lines for each question).

    Returns:
        n, missing, em, f1 (None under a rule without F1), contains (not Exact Match), empty_matches (see
        `eval.metrics`) and rule.

    Raises:
        EvalError: Names the line: unknown id, id twice, missing field or wrong type; or the file; or the rule; or a
            system that has no line.
    """
    questions = read_questions(questions_path)
    rules = {question.dataset: get_rule(rule or default_rule(question.dataset)).name for question in questions}
    known = {question.id for question in questions}
    rows: dict[str, dict[str, Any]] = {}
    lines: dict[str, str] = {}
    for where, row in read_rows(predictions_path):
        if system and row.get("system") != system:
            continue
        name = _identifier(row, where)
        if name not in known:
            raise EvalError(f"{where}: id {name!r} is not in {questions_path}: score the questions that were asked")
        if name in rows:
            hint = "" if system or "system" not in row else ", or name the system to score"
            raise EvalError(f"{where}: id {name!r} was already predicted at {lines[name]}: keep one{hint}")
        rows[name], lines[name] = row, where
    if system and not rows:
        raise EvalError(f"{predictions_path}: has no line of system {system!r}: check the name")
    scores = [score_question(question, rows.get(question.id), rules[question.dataset]) for question in questions]
    f1 = [score.f1 for score in scores if score.f1 is not None]
    return {
        "n": len(scores),
        "missing": sum(score.missing for score in scores),
        "em": 100 * fmean(score.em for score in scores),
        "f1": 100 * fmean(f1) if len(f1) == len(scores) else None,
        "contains": 100 * fmean(score.contains for score in scores),
        "empty_matches": sum(score.empty_match for score in scores),
        "rule": ", ".join(dict.fromkeys(rules.values())),
    }


def _identifier(row: dict[str, Any], where: str) -> str:
    for field in ("id", "prediction"):
        if field not in row:
            raise EvalError(f'{where}: "{field}" is missing')
        if not isinstance(row[field], str):
            raise EvalError(f'{where}: "{field}" must be a string, got {row[field]!r}')
    name: str = row["id"]
    return name
