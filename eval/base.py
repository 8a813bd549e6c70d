"""What an evaluation asks of a system: answer a batch of questions, each answer with its passages, matched by id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eval.data.datasets import Question


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """One passage that was retrieved for a question.

    Attributes:
        rank: From 1.
        id: In its corpus.
        title: May be empty.
        text: Looked through for the answer, not stored.
        score: What ranked it.
        cosine: Cosine of the question's and the passage's vectors; None where there are none (BM25).
        norm: Length of the passage's vector in the index, whatever ranked it; None where there is none.
        percentile: Share of the corpus whose norm is at most this one, 0 to 100; None where there is none.
    """

    rank: int
    id: str
    title: str
    text: str
    score: float
    cosine: float | None = None
    norm: float | None = None
    percentile: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A system's answer to one question.

    Attributes:
        id: The question's id.
        prediction: The answer; taken as "" where there is an error.
        passages: All that were retrieved, best first, whether or not they went into the prompt; none for closed book.
        k: How many of them, from the first, were offered to the reader.
        dropped: How many of these had to be left out of the prompt for length, from the last.
        cut: The last one that stayed was shortened.
        prompt_tokens: Length of the prompt in tokens.
        seconds: Wall seconds by stage, this question's share of its batch.
        error: One line saying why there is no answer; such a question counts as missing.
    """

    id: str
    prediction: str
    passages: Sequence[RankedPassage] = ()
    k: int = 0
    dropped: int = 0
    cut: bool = False
    prompt_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None


class Answerer(Protocol):
    """A system under evaluation: something that finds passages, and something that reads them."""

    name: str

    @property
    def fingerprint(self) -> str:
        """Changes whenever anything that can change an answer changes."""
        ...

    @property
    def reader(self) -> str | None:
        """Name of the reader, which systems share; "" where it needs none. None where nothing is read."""
        ...

    def asks(self, dataset: str) -> bool:
        """Whether it takes part in a data set: without passages there is nothing to say on a retrieval set."""
        ...

    def retrieve(self, batch: Sequence[Question]) -> Any:
        """What `answer` needs of the retriever for a batch; called ahead, in a thread of its own, while others are read."""
        ...

    def answer(self, batch: Sequence[Question], found: Any, *, fresh: bool = False) -> Iterable[Record]:
        """Answer a batch, in any order; each record is stored as soon as it is yielded.

        A question that cannot be answered gets a Record with `error`; an exception ends the run, and what was yielded
        before is kept. The same batch must give the same answers when it is asked again after a kill.

        Args:
            batch: Questions of one data set.
            found: What `retrieve` gave for this batch.
            fresh: Compute the answers even if they are known from before.
        """
        ...
