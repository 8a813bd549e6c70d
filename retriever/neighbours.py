"""How vectors lie and what rankings make of it: anisotropy, hubness, and how far two rankings agree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


def anisotropy(blocks: Iterable[np.ndarray]) -> float:
    """Length of the mean of unit vectors: 1 where all point one way, about 1 / sqrt(n) where directions are spread evenly.

    Its square is the mean cosine over all ordered pairs, a vector with itself included.

    Args:
        blocks: [m, dim] unit vectors, in parts of any size.

    Returns:
        NaN where there are none.
    """
    total: np.ndarray | None = None
    n = 0
    for block in blocks:
        part = np.asarray(block, dtype=np.float64).sum(axis=0)
        total = part if total is None else total + part
        n += len(block)
    return float(np.linalg.norm(total) / n) if total is not None and n else math.nan


@dataclass(frozen=True, slots=True)
class Hubness:
    """How unevenly passages occur in rankings (Radovanović, Nanopoulos and Ivanović, JMLR 2010).

    N_k of a passage is the number of queries that have it among their k best. In that paper the points are their own
    queries; here the queries are those at hand.

    Attributes:
        skewness: Of N_k over passages (population, not corrected); NaN where N_k does not vary.
        chance: What it would be if each query drew its k passages at random: N_k is then binomial.
        most: The largest N_k.
        never: Share of passages that no query has among its k best.
        reason: Why the skewness is undefined, in a phrase; "" where it is not.
    """

    skewness: float
    chance: float
    most: int
    never: float
    reason: str = ""


def hubness(rows: npt.ArrayLike, n: int) -> Hubness:
    """Of rankings.

    Args:
        rows: [queries, k] rows of the index, each at most once a query.
        n: Rows of the index.
    """
    ranked = np.asarray(rows, dtype=np.int64)
    counts = np.bincount(ranked.ravel(), minlength=n).astype(np.float64)
    share = ranked.shape[1] / n if n else 0.0
    variance = len(ranked) * share * (1 - share)
    centred = counts - counts.mean() if n else counts
    spread = float(np.sqrt((centred**2).mean())) if n else 0.0
    return Hubness(
        skewness=float((centred**3).mean() / spread**3) if spread > 0 else math.nan,
        chance=(1 - 2 * share) / math.sqrt(variance) if variance > 0 else math.nan,
        most=int(counts.max()) if n else 0,
        never=float((counts == 0).mean()) if n else math.nan,
        reason="" if spread > 0 else "every passage is ranked for equally many questions",
    )


def overlap(first: npt.ArrayLike, second: npt.ArrayLike) -> np.ndarray:
    """Share [queries] of the k best under one ranking that another has among its k best too, whatever their order.

    Args:
        first: [queries, k] rows of the index, each at most once a query.
        second: [queries, k] rows of the same.
    """
    a, b = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    return np.array([len(np.intersect1d(x, y)) / a.shape[1] for x, y in zip(a, b, strict=True)])
