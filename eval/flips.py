"""Flips: the questions that one of two systems has right and the other wrong, and what stood behind either answer.

A retriever that favours long vectors (or short ones) shows here: the norm percentile of the first passage with an
answer, on the side that won and on the side that lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from eval.causes import CORRECT, NEAR_MISS, Row, answer_passages, cause_of, near_miss_reason
from eval.data.datasets import Question
from eval.errors import EvalError
from eval.view import RunView


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """The best-ranked passage that holds an answer (for yes and no golds: that is marked).

    Attributes:
        rank: From 1, to the recorded depth: it may be below the k that the reader got.
        id: In its corpus.
        title: May be empty.
        norm: Length of its vector; None where there is none.
        percentile: Of the norm in the corpus, 0 to 100; None where there is no norm.
    """

    rank: int
    id: str
    title: str
    norm: float | None
    percentile: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One system's part in a flip.

    Attributes:
        prediction: Its answer; "" where there is an error.
        error: Why it has none, or None.
        cause: Of `eval.causes.CAUSES`; "correct" on exactly one side of a flip.
        near_miss: Which notation would have matched; None unless the cause is "alias near-miss".
        answer: Where an answer first stands in its ranking; None where it does not.
    """

    prediction: str
    error: str | None
    cause: str
    near_miss: str | None
    answer: FirstAnswer | None

    @property
    def correct(self) -> bool:
        """Exact Match."""
        return self.cause == CORRECT


@dataclass(frozen=True, slots=True)
class Flip:
    """A question that two systems differ on.

    Attributes:
        question: With its golds.
        a: The first system's side.
        b: The second's.
    """

    question: Question
    a: Side
    b: Side

    @property
    def dataset(self) -> str:
        """The data set's name."""
        return self.question.dataset

    @property
    def a_correct(self) -> bool:
        """Whether it is the first system that has it right."""
        return self.a.correct

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        question = self.question
        return {
            "id": question.id,
            "dataset": question.dataset,
            "question": question.question,
            "answers": list(question.answers),
            "a_correct": self.a_correct,
            "a": asdict(self.a),
            "b": asdict(self.b),
        }


@dataclass(frozen=True, slots=True)
class FlipGroup:
    """The flips of one direction.

    Attributes:
        n: How many.
        a_percentile: Mean norm percentile of the first answer passages in the first system's rankings; None where no
            flip has one with a norm.
        a_n: Over how many flips.
        b_percentile: The same in the second system's rankings.
        b_n: Over how many flips.
    """

    n: int
    a_percentile: float | None
    a_n: int
    b_percentile: float | None
    b_n: int


@dataclass(frozen=True, slots=True)
class FlipCounts:
    """All flips of two systems, by direction.

    Attributes:
        a_only: The first system alone is right.
        b_only: The second system alone is right.
        both: The two together.
    """

    a_only: FlipGroup
    b_only: FlipGroup
    both: FlipGroup


def flips(view: RunView, a: str, b: str) -> list[Flip]:
    """The flips between two systems of a run, in the order of the questions.

    Questions that either system was not asked yet (an unfinished run) are left out; one that ended in an error was
    asked, and is wrong.

    Raises:
        EvalError: No such system.
    """
    for name in (a, b):
        require_system(view, name)
    rows_a, rows_b = rows_of(view, a), rows_of(view, b)
    return find_flips(view.questions, rows_a, rows_b, view.rules, view.answerable, view.answerable)


def find_flips(
    questions: Sequence[Question],
    rows_a: Mapping[str, Row],
    rows_b: Mapping[str, Row],
    rules: Mapping[str, str | None],
    answerable_a: Mapping[str, bool],
    answerable_b: Mapping[str, bool],
) -> list[Flip]:
    """The flips between any two sets of rows, in the order of the questions.

    Args:
        questions: Of any data sets.
        rows_a: The first system's, by question id.
        rows_b: The second's; a question that either lacks is left out.
        rules: By data set; None where there are no answers, and so no flips.
        answerable_a: Whether the corpus of the first system holds an answer, by question id, where somebody looked.
        answerable_b: The same of the second's.
    """
    found = []
    for question in questions:
        rule, row_a, row_b = rules[question.dataset], rows_a.get(question.id), rows_b.get(question.id)
        if rule is None or row_a is None or row_b is None:
            continue
        cause_a = cause_of(question, row_a, rule, answerable_a.get(question.id))
        cause_b = cause_of(question, row_b, rule, answerable_b.get(question.id))
        if (cause_a == CORRECT) != (cause_b == CORRECT):
            sides = (_side(question, row, cause, rule) for row, cause in ((row_a, cause_a), (row_b, cause_b)))
            found.append(Flip(question, *sides))
    return found


def count_flips(found: Sequence[Flip]) -> FlipCounts:
    """How many flips go each way, and how long the answer passages' vectors are in them."""
    a_only = [flip for flip in found if flip.a_correct]
    b_only = [flip for flip in found if not flip.a_correct]
    return FlipCounts(_group(a_only), _group(b_only), _group(found))


def rows_of(view: RunView, system: str) -> dict[str, Row]:
    """A system's rows by question id."""
    return {id: row for (name, id), row in view.rows.items() if name == system}


def require_system(view: RunView, name: str) -> None:
    """Nothing, where the run has a system of that name.

    Raises:
        EvalError: It has not; the message lists those that it has.
    """
    if name not in view.systems:
        raise EvalError(f"{view.path} has no system {name!r}: it has {', '.join(view.systems)}")


def _side(question: Question, row: Row, cause: str, rule: str) -> Side:
    prediction = row["prediction"]
    reason = near_miss_reason(prediction, question.answers, rule) if cause == NEAR_MISS else None
    passage = next(answer_passages(question, row), None)
    first = None
    if passage is not None:
        first = FirstAnswer(**{field: passage[field] for field in ("rank", "id", "title", "norm", "percentile")})
    return Side(prediction, row["error"], cause, reason, first)


def _group(found: Sequence[Flip]) -> FlipGroup:
    a_known, b_known = _percentiles([flip.a for flip in found]), _percentiles([flip.b for flip in found])
    return FlipGroup(len(found), _mean(a_known), len(a_known), _mean(b_known), len(b_known))


def _percentiles(sides: Sequence[Side]) -> list[float]:
    answers = [side.answer for side in sides if side.answer is not None]
    return [answer.percentile for answer in answers if answer.percentile is not None]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
