"""Golds of questions that are known: the demo's own, and those of data sets that the configuration names by path."""

from __future__ import annotations

import logging
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.data.datasets import Question
from eval.data.sources import DataSet, load_dataset
from eval.errors import EvalError
from eval.metrics import score_answer
from rag_app.config import Config
from rag_app.experiment import dataset_spec, question_sets
from rag_app.prompt import NO_ANSWER

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Golds:
    """What is known of a question.

    Attributes:
        answers: Any of them is right; () when the corpus has none.
        rule: How answers are compared (`eval.metrics`).
    """

    answers: tuple[str, ...]
    rule: str = "squad"


@dataclass(frozen=True, slots=True)
class Mark:
    """One answer against the golds.

    Attributes:
        right: Exact Match; of a question without answer, whether the reader said so.
        f1: In [0, 1]; None where it is not defined.
    """

    right: bool
    f1: float | None = None

    def to_json(self) -> dict[str, Any]:
        """{em, f1}."""
        return {"em": self.right, "f1": self.f1}


def mark_answer(answer: str, golds: Golds) -> Mark:
    """Exact Match and F1 under the golds' own rule."""
    if not any(gold.strip() for gold in golds.answers):
        return Mark(declines(answer))
    score = score_answer(answer, golds.answers, golds.rule)
    return Mark(score.em, score.f1)


def declines(answer: str) -> bool:
    """Whether the answer is that there is none."""
    return _key(answer).rstrip(".") == _key(NO_ANSWER).rstrip(".")


class GoldBook:
    """Golds by question. Shared by all visitors and only read; the files are read when it is made.

    Args:
        config: Names the corpus and the data sets. A data set that is not on this machine is passed over.
    """

    def __init__(self, config: Config) -> None:
        self._golds: dict[str, Golds] = {}
        for name, table in question_sets(config).items():
            try:
                loaded = load_dataset(dataset_spec(name, table, Path(config.eval.data).expanduser(), config.eval.rule))
            except EvalError as error:
                _log.warning("golds of %s are not shown: %s", name, error)
                continue
            if isinstance(loaded, DataSet) and loaded.rule is not None:
                _add(self._golds, loaded.questions, loaded.rule)

    def find(self, question: str) -> Golds | None:
        """The golds of a question that is written as in its data set, but for case and spaces."""
        return self._golds.get(_key(question))


def _add(found: dict[str, Golds], questions: list[Question], rule: str) -> None:
    for question in questions:
        # Of a set that marks passages alone, an empty list of answers says nothing.
        if question.answers or question.kind == "unanswerable":
            found.setdefault(_key(question.question), Golds(question.answers, rule))


def _key(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
