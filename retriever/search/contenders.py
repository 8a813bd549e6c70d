"""Which passages can be among the k best at all, whatever γd: few enough to keep, and enough to rank exactly.

With a positive cosine the score cos · ‖d‖^(1−γd) grows with both cosine and norm for every γd in [0, 1]. A passage that k
others surpass in both is therefore never among the k best, and all others are contenders: the k-skyband of (cosine, norm)
(Papadias, Tao, Fu and Seeger, TODS 2005). One pass over the index finds them; re-ranking them needs neither index nor encoder.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from retriever.encoder import Vectors
from retriever.search.base import clip_k, order_rows
from retriever.similarity import score_parts

if TYPE_CHECKING:
    from retriever.index import Index

CHUNK_ROWS = 65_536
_BLOCK = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Contenders:
    """Rows with what decides their rank for one question.

    Attributes:
        rows: [n] int64, rising.
        cosines: [n] float32.
        norms: [n] float32.
    """

    rows: np.ndarray
    cosines: np.ndarray
    norms: np.ndarray

    def rank(self, gamma_d: float, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions [k] of the k best under γd, and their scores [k] without the question's norm, which moves none."""
        scores = score_parts(self.cosines, np.ones(1, dtype=np.float32), self.norms, 1.0, gamma_d)
        order = order_rows(scores, self.rows)[:k]
        return order, scores[order]


def find_contenders(index: Index, query: Vectors, k: int, *, nearest: int = 0, rows: Sequence[int] = ()) -> Contenders:
    """The passages that are among the k best under some γd in [0, 1].

    Args:
        index: All of it is scored, once.
        query: One question's vector (units [1, dim], norms [1]).
        k: So deep is every ranking of theirs exact.
        nearest: So many of the largest cosines are kept too, contenders or not.
        rows: Kept in any case.
    """
    k = clip_k(k, len(index))
    best = Contenders(np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.float32))
    for first, units, norms in index.chunks(CHUNK_ROWS):
        cosines = units.astype(np.float32, copy=False) @ query.units[0]
        numbers = np.arange(first, first + len(norms), dtype=np.int64)
        parts = ((best.rows, numbers), (best.cosines, cosines), (best.norms, norms))
        best = _keep(Contenders(*(np.concatenate(part) for part in parts)), k, nearest)
    missing = sorted({int(row) for row in rows} - set(best.rows.tolist()))
    if missing:
        units, norms = index.vectors(missing)
        parts = ((best.rows, np.array(missing)), (best.cosines, units @ query.units[0]), (best.norms, norms))
        best = Contenders(*(np.concatenate(part) for part in parts))
    order = np.argsort(best.rows)
    return Contenders(best.rows[order], best.cosines[order], best.norms[order])


def _keep(all_: Contenders, k: int, nearest: int) -> Contenders:
    """Those of `all_` that fewer than k others surpass, and the nearest."""
    order = np.lexsort((all_.rows, -all_.norms, -all_.cosines))
    cosines, norms = all_.cosines[order], all_.norms[order]
    positive = int(np.count_nonzero(cosines > 0))
    kept = _surpassed_by_few(cosines[:positive], norms[:positive], k)
    if positive < k:
        # Below zero a longer vector makes a score worse, and every positive cosine comes first.
        left = _surpassed_by_few(cosines[positive:], -norms[positive:], k - positive)
        kept = np.concatenate([kept, left + positive])
    places = np.union1d(kept, np.arange(min(nearest, len(order))))
    return Contenders(*(values[order][places] for values in (all_.rows, all_.cosines, all_.norms)))


def _surpassed_by_few(cosines: np.ndarray, norms: np.ndarray, k: int) -> np.ndarray:
    """Positions of the points that fewer than k others surpass in both values.

    Equal in one value is not surpassed: at γd = 1 equal cosines are ordered by row. Of points that are equal in both, the
    first k are enough.

    Args:
        cosines: [n], falling.
        norms: [n]; those of equal cosine fall too.
        k: At least 1.
    """
    largest: list[float] = []  # the k largest norms of greater cosines, the least of them first
    waiting: list[float] = []  # norms of the present cosine, which do not yet count
    kept: list[int] = []
    present, equal = np.inf, 0
    for start in range(0, len(cosines), _BLOCK):
        block = slice(start, start + _BLOCK)
        # What falls short of the bound here does so later too, and cannot raise it.
        bound = largest[0] if len(largest) == k else -np.inf
        for offset in np.flatnonzero(norms[block] >= bound).tolist():
            place = start + offset
            cosine, norm = float(cosines[place]), float(norms[place])
            if cosine != present:
                for value in waiting:
                    heapq.heappush(largest, value)
                    if len(largest) > k:
                        heapq.heappop(largest)
                waiting, present = [], cosine
            equal = equal + 1 if waiting and waiting[-1] == norm else 0
            waiting.append(norm)
            if equal < k and not (len(largest) == k and norm < largest[0]):
                kept.append(place)
    return np.array(kept, dtype=np.int64)
