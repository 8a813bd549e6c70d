"""Comparisons that nobody asked for: hits, sides and snapshots for the tests of what the page shows."""

from __future__ import annotations

from collections.abc import Sequence

from rag_app.answers import Answer
from rag_app.page.compare import Found, Side
from rag_app.page.golds import Golds
from rag_app.page.run import Snapshot, Stage
from retriever.base import Hit
from retriever.passages import Passage
from retriever.similarity import COSINE, QNORM, Similarity


def some_hits(ids: Sequence[str], norms: Sequence[float] | None = None) -> list[Hit]:
    """A ranking of passages with these ids and magnitudes, each of cosine 0.5."""
    lengths = norms or [2.0] * len(ids)
    return [
        Hit(place + 1, Passage(id, f"Title {id}", f"Text {id}"), 0.5 * norm, 0.5, norm, 6.0)
        for place, (id, norm) in enumerate(zip(ids, lengths, strict=True))
    ]


def dense(similarity: Similarity, encoder: str = "e1") -> Side:
    """A retriever of this similarity over the vectors of an encoder."""
    return Side(similarity.name, "dense", f"model {encoder}", encoder, similarity)


def found_from(hits: Sequence[Hit], percentiles: Sequence[float] = ()) -> Found:
    """What a search found: the rank of each passage, and percentiles of the magnitudes."""
    return Found({hit.passage.id: hit.rank for hit in hits}, tuple(percentiles))


def snapshot_of(
    left: Answer,
    right: Answer,
    sides: tuple[Side, Side] | None = None,
    *,
    stage: Stage = "done",
    question: str = "q?",
    golds: Golds | None = None,
) -> Snapshot:
    """Both sides at one stage; cosine against qnorm where no sides are given."""
    return Snapshot(
        question,
        sides or (dense(COSINE), dense(QNORM)),
        (left, right),
        (stage, stage),
        found=(found_from(left.hits), found_from(right.hits)),
        golds=golds,
    )
