"""Golds of questions that are known: the demo's own, and those of data sets that the configuration names by path."""

from __future__ import annotations

import logging
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eval.data.datasets import Question, read_questions
from eval.data.sources import DataSet, load_dataset
from eval.errors import EvalError
from eval.metrics import score_answer
from rag_app.config import Config
from rag_app.demo import QUESTIONS
from rag_app.experiment import dataset_spec
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
    """Golds by question. Shared by all visitors and only read; the files are read with the first question.

    Args:
        config: Names the corpus and the data sets. A data set that is not on this machine is passed over.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    def find(self, question: str) -> Golds | None:
        """The golds of a question that is written as in its data set, but for case and spaces."""
        return self._golds.get(_key(question))

    @cached_property
    def _golds(self) -> dict[str, Golds]:
        found: dict[str, Golds] = {}
        root = Path(self._config.eval.data).expanduser()
        for name, table in self._config.eval.datasets.items():
            if not table.path:
                continue
            try:
                loaded = load_dataset(dataset_spec(name, table, root, self._config.eval.rule))
            except EvalError as error:
                _log.warning("golds of %s are not shown: %s", name, error)
                continue
            if isinstance(loaded, DataSet) and loaded.rule is not None:
                _add(found, loaded.questions, loaded.rule)
        if self._config.corpus == "demo" and not self._config.index.path:
            _add(found, read_questions(QUESTIONS), "squad")
        return found


def _add(found: dict[str, Golds], questions: list[Question], rule: str) -> None:
    for question in questions:
        # Of a set that marks passages alone, an empty list of answers says nothing.
        if question.answers or question.kind == "unanswerable":
            found.setdefault(_key(question.question), Golds(question.answers, rule))


def _key(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
