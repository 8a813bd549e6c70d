"""Score a file of predictions, whoever made it."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from eval.data.datasets import default_rule, read_questions
from eval.data.jsonl import read_rows
from eval.errors import EvalError, UsageError
from eval.metrics import get_rule, rule_with_language
from eval.scores import score_question


def score_file(
    questions_path: str | Path, predictions_path: str | Path, rule: str = "", *, system: str = ""
) -> dict[str, Any]:
    """Score lines of {id, prediction} against a question file.

    Denominators are all questions of the file; one without a prediction, or whose line has an "error", counts 0 and as
    missing. Scores are percentages and not rounded, as the official scripts print them; papers give one decimal, which
    is what tables should show.

    Args:
        questions_path: See `eval.data.datasets.read_questions`.
        predictions_path: A .jsonl, .jsonl.gz or .json (list) file; other fields are ignored, so predictions.jsonl of a
            run will do.
        rule: "" takes the data set's own, for the language of each question.
        system: Score only the lines with this "system" (a run of several systems has several lines for each question).

    Returns:
        n, missing, em, f1 (None under a rule without F1), contains (not Exact Match), empty_matches (see
        `eval.metrics`) and rule.

    Raises:
        UsageError: There is no such rule.
        EvalError: Names the line: unknown id, id twice, missing field or wrong type; or the file; or a system that has
            no line.
    """
    if rule:
        try:
            get_rule(rule)
        except EvalError as error:
            raise UsageError(str(error)) from None
    questions = read_questions(questions_path)
    rules = [rule or rule_with_language(default_rule(question.dataset), question.lang) for question in questions]
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
    scores = [
        score_question(question, rows.get(question.id), own) for question, own in zip(questions, rules, strict=True)
    ]
    f1 = [score.f1 for score in scores if score.f1 is not None]
    return {
        "n": len(scores),
        "missing": sum(score.missing for score in scores),
        "em": 100 * fmean(score.em for score in scores),
        "f1": 100 * fmean(f1) if len(f1) == len(scores) else None,
        "contains": 100 * fmean(score.contains for score in scores),
        "empty_matches": sum(score.empty_match for score in scores),
        "rule": ", ".join(dict.fromkeys(rules)),
    }


def _identifier(row: dict[str, Any], where: str) -> str:
    for field in ("id", "prediction"):
        if field not in row:
            raise EvalError(f'{where}: "{field}" is missing')
        if not isinstance(row[field], str):
            raise EvalError(f'{where}: "{field}" must be a string, got {row[field]!r}')
    name: str = row["id"]
    return name
