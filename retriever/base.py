"""What every retriever is to its callers: a name, a fingerprint and ranked hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from retriever.passages import Passage

if TYPE_CHECKING:
    from retriever.index import Index


@dataclass(frozen=True, slots=True)
class Hit:
    """One ranked passage with the factors of its score.

    Attributes:
        rank: From 1.
        passage: The passage itself.
        score: The score that ranked it, under the retriever's own similarity.
        cosine: Cosine of query and passage vectors; None where there are no vectors (BM25).
        norm: Length of the passage vector before any normalisation; None where there is none.
        query_norm: Length of the query vector; None where there is none.
        row: Row of the passage in the retriever's index.
    """

    rank: int
    passage: Passage
    score: float
    cosine: float | None = None
    norm: float | None = None
    query_norm: float | None = None
    row: int = -1


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Hits for a batch of questions, in the order asked, and the seconds each stage took.

    Attributes:
        hits: One list a question, best first, at most k long.
        seconds: Wall seconds for the whole batch by stage ("encode", "search").
    """

    hits: list[list[Hit]]
    seconds: dict[str, float] = field(default_factory=dict)


class Retriever(Protocol):
    """Text in, ranked passages out."""

    name: str

    @property
    def fingerprint(self) -> str:
        """Changes whenever anything that can change the ranking changes."""
        ...

    @property
    def notes(self) -> list[str]:
        """What a person should know before reading anything into its ranking."""
        ...

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        """Rank the corpus for each question; k larger than the corpus gives the whole corpus."""
        ...


class IndexedRetriever(Retriever, Protocol):
    """A retriever whose passages are rows of an index, so that others can be put on top of it.

    Attributes:
        index: Where the passages of its hits are; a hit's norm, where it has one, is a norm of this index.
    """

    index: Index
