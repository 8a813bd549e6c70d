"""What an evaluation asks of a system: answer a batch of questions, each answer with its passages, matched by id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eval.datasets import Question
from retriever.base import Hit


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
        norm: Length of the passage's vector; None where there is none.
    """

    rank: int
    id: str
    title: str
    text: str
    score: float
    cosine: float | None = None
    norm: float | None = None

    @classmethod
    def from_hit(cls, hit: Hit) -> RankedPassage:
        """The same, from a retriever's hit."""
        passage = hit.passage
        return cls(hit.rank, passage.id, passage.title, passage.text, hit.score, hit.cosine, hit.norm)


@dataclass(frozen=True, slots=True)
class Record:
    """A system's answer to one question.

    Attributes:
        id: The question's id.
        prediction: The answer; taken as "" where there is an error.
        passages: All that were retrieved, best first, whether or not they went into the prompt; none for closed book.
        dropped: How many of them had to be left out of the prompt for length.
        prompt_tokens: Length of the prompt in tokens.
        seconds: Wall seconds by stage, this question's share of its batch.
        error: One line saying why there is no answer; such a question counts as missing.
    """

    id: str
    prediction: str
    passages: Sequence[RankedPassage] = ()
    dropped: int = 0
    prompt_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    error: str | None = None


class Answerer(Protocol):
    """A system under evaluation."""

    name: str

    @property
    def fingerprint(self) -> str:
        """Changes whenever anything that can change an answer changes."""
        ...

    def answer(self, batch: Sequence[Question]) -> Iterable[Record]:
        """Answer a batch, in any order; each record is stored as soon as it is yielded.

        A question that cannot be answered gets a Record with `error`; an exception ends the run, and what was yielded
        before is kept. The same batch must give the same answers when it is asked again after a kill.
        """
        ...
