"""One value for each question and measure: what means, intervals and tests are made of.

`Values` maps a measure to its value for each question, by question id and in [0, 1]: "EM" and "F1" for answers, and
ranking measures under their ir-measures names. A question that got no answer counts 0 everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.data.datasets import Question
from eval.metrics import get_rule, score_answer

EM, F1 = "EM", "F1"

Row = Mapping[str, Any]
Values = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """One system's answer to one question, scored.

    Attributes:
        question: The question.
        missing: There is no answer: an error, or no row.
        em: Exact Match, False when missing.
        f1: In [0, 1], 0.0 when missing; None under a rule without F1.
        contains: A gold stands in the answer; not Exact Match.
        empty_match: EM holds with nothing left of prediction and gold (see `eval.metrics`).
        words: White-space separated words of the answer.
        gold_words: The same of the longest gold.
    """

    question: Question
    missing: bool
    em: bool
    f1: float | None
    contains: bool
    empty_match: bool
    words: int
    gold_words: int


def is_missing(row: Row | None) -> bool:
    """Whether a question ended without a result: no row, or one with an error."""
    return row is None or row.get("error") is not None


def score_question(question: Question, row: Row | None, rule: str) -> QuestionScore:
    """Score a stored row; None is a missing answer."""
    gold_words = max((len(answer.split()) for answer in question.answers), default=0)
    if row is None or is_missing(row):
        f1 = None if get_rule(rule).f1_style is None else 0.0
        return QuestionScore(question, True, False, f1, False, False, 0, gold_words)
    prediction = row["prediction"]
    score = score_answer(prediction, question.answers, rule)
    words = len(prediction.split())
    return QuestionScore(question, False, score.em, score.f1, score.contains, score.empty_match, words, gold_words)


def answer_values(scores: Sequence[QuestionScore]) -> Values:
    """EM, and F1 where the rule has one."""
    values: Values = {EM: {score.question.id: float(score.em) for score in scores}}
    f1 = {score.question.id: score.f1 for score in scores if score.f1 is not None}
    return values | {F1: f1} if f1 else values


def ranking_values(measures: Sequence[str], questions: Sequence[Question], rows: Mapping[str, Row]) -> Values:
    """Ranking measures of one system over the judged questions, in the questions' order; {} when none is judged.

    Args:
        measures: ir-measures names; those that do not fit the questions' grades are left out (`eval.ranking.applicable`).
        questions: Of one data set.
        rows: The system's rows by question id; a judged question without one counts 0.

    Raises:
        EvalError: An unknown measure.
        ValueError: A measure, or its value for a judged question, is lacking or not finite; a table must not hide that.
    """
    judged = [question.id for question in questions if question.relevance]
    if not measures or not judged:
        return {}
    from eval.ranking import applicable, per_question

    fitting = applicable(measures, questions)
    found = per_question(fitting, questions, rows)
    values: Values = {}
    for measure in fitting:
        own = found.get(measure, {})
        for id in judged:
            if id not in own or not math.isfinite(own[id]):
                raise ValueError(f"{measure} of question {id!r} must be a number, got {own.get(id)}")
        values[measure] = {id: float(own[id]) for id in judged}
    return values


def has_passages(rows: Iterable[Row | None]) -> bool:
    """Whether a system retrieves at all: one that never has a passage (closed book) has no ranking measures."""
    return any(row is not None and (row["passages"] or row["k"]) for row in rows)
