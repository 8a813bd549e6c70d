"""What a searcher is: unit vectors and norms in, ranked rows out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from retriever.encoder import Vectors
from retriever.errors import RetrieverError
from retriever.similarity import Similarity


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best rows of an index for each query, best first.

    Attributes:
        rows: [n, k] int64, row numbers in the index.
        scores: [n, k] float32, under the similarity asked for.
        cosines: [n, k] float32.
        norms: [n, k] float32, passage norms.
    """

    rows: np.ndarray
    scores: np.ndarray
    cosines: np.ndarray
    norms: np.ndarray


class Searcher(Protocol):
    """Ranks an index under any similarity of the family."""

    def search(self, queries: Vectors, similarity: Similarity, k: int) -> Ranking:
        """The min(k, corpus size) best rows for each query; those of equal score are listed by row."""
        ...


def clip_k(k: int, size: int) -> int:
    """k, or the whole corpus where that is smaller.

    Raises:
        RetrieverError: k below 1.
    """
    if k < 1:
        raise RetrieverError(f"k must be at least 1, got {k}")
    return min(k, size)


def order_rows(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Positions [n, k] that sort each line by falling score, then by rising row."""
    return np.lexsort((rows, -scores), axis=-1)
