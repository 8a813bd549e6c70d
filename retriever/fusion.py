"""Hybrid retrieval: several rankings of one corpus become one by reciprocal-rank fusion.

A passage's score is the sum over the rankings that hold it of 1 / (rrf_k + its rank there) (Cormack, Clarke and Buettcher,
SIGIR 2009, who take rrf_k = 60). Only ranks count, so scores of different kinds need no common scale.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from retriever.base import Hit, IndexedRetriever, Retrieved
from retriever.errors import RetrieverError
from retriever.search.base import clip_k


def reciprocal_rank_fusion(rankings: Sequence[Sequence[int]], rrf_k: int = 60) -> list[tuple[int, float]]:
    """Fuse rankings of rows, each best first and without repeats.

    Returns:
        (row, score), best first; equal scores are ordered by the best rank in any ranking, then by row.
    """
    ranks: defaultdict[int, list[int]] = defaultdict(list)
    for ranking in rankings:
        for rank, row in enumerate(ranking, 1):
            ranks[row].append(rank)
    # fsum rounds once, so that the same ranks in another order of rankings are the same score.
    fused = [(row, math.fsum(1 / (rrf_k + rank) for rank in own)) for row, own in ranks.items()]
    return sorted(fused, key=lambda entry: (-entry[1], min(ranks[entry[0]]), entry[0]))


class HybridRetriever:
    """Fuses the rankings of other retrievers.

    Its index is the first part's, and hits keep cosine and norms from parts that search that same index.

    Args:
        name: What people call this retriever.
        parts: At least two, over the same corpus.
        depth: Candidates asked of each part; more where more hits are wanted.
        rrf_k: How little the first ranks stand out.

    Raises:
        RetrieverError: Fewer than two parts, parts of different corpora, or a number out of range.
    """

    def __init__(self, name: str, parts: Sequence[IndexedRetriever], *, depth: int = 100, rrf_k: int = 60) -> None:
        if len(parts) < 2:
            raise RetrieverError(f"{name} fuses rankings, which takes at least two retrievers, got {len(parts)}")
        for setting, value in (("depth", depth), ("rrf_k", rrf_k)):
            if value < 1:
                raise RetrieverError(f"{setting} must be at least 1, got {value}")
        require_one_corpus(name, parts)
        self.name = name
        self.parts = tuple(parts)
        self.index = parts[0].index
        self._depth = depth
        self._rrf_k = rrf_k

    @property
    def fingerprint(self) -> str:
        """Of the parts and the settings."""
        content = ["rrf", self._rrf_k, self._depth, [part.fingerprint for part in self.parts]]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    @property
    def notes(self) -> list[str]:
        """The parts' notes."""
        return notes_of(self.parts)

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        """See `Retriever.retrieve`; fewer than k hits where the parts together found fewer."""
        k = clip_k(k, len(self.index))
        found = [part.retrieve(questions, max(k, self._depth)) for part in self.parts]
        started = time.perf_counter()
        hits = [self._fuse([part.hits[number] for part in found], k) for number in range(len(questions))]
        return Retrieved(hits, add_seconds([part.seconds for part in found], search=time.perf_counter() - started))

    def _fuse(self, rankings: Sequence[Sequence[Hit]], k: int) -> list[Hit]:
        known: dict[int, Hit] = {}
        for part, hits in zip(self.parts, rankings, strict=True):
            own_vectors = part.index.fingerprint == self.index.fingerprint
            for hit in hits:
                if own_vectors and (hit.row not in known or known[hit.row].norm is None):
                    known[hit.row] = hit
                else:
                    known.setdefault(hit.row, replace(hit, cosine=None, norm=None, query_norm=None))
        fused = reciprocal_rank_fusion([[hit.row for hit in hits] for hits in rankings], self._rrf_k)
        return [replace(known[row], rank=place, score=score) for place, (row, score) in enumerate(fused[:k], 1)]


def require_one_corpus(name: str, parts: Sequence[IndexedRetriever]) -> None:
    """Refuse parts whose rows are not the same passages.

    Raises:
        RetrieverError: Names the two parts and their indexes.
    """
    first = parts[0]
    for part in parts[1:]:
        if (part.index.manifest["corpus"], len(part.index)) != (first.index.manifest["corpus"], len(first.index)):
            raise RetrieverError(
                f"{name} puts {first.name} and {part.name} together, but their indexes {first.index.folder} and "
                f"{part.index.folder} hold different passages; index one corpus, in the same chunks, for both"
            )


def notes_of(parts: Sequence[IndexedRetriever]) -> list[str]:
    """The notes of all parts, each once."""
    return list(dict.fromkeys(note for part in parts for note in part.notes))


def add_seconds(parts: Sequence[dict[str, float]], **own: float) -> dict[str, float]:
    """Seconds by stage, summed over the parts and this retriever's own."""
    total: dict[str, float] = {}
    for seconds in (*parts, own):
        for stage, value in seconds.items():
            total[stage] = total.get(stage, 0.0) + value
    return total
