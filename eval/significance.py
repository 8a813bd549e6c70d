"""How far a score may be off by the choice of questions, and whether two systems differ.

The unit is the question. Intervals are percentile bootstraps (Efron and Tibshirani 1993, chapter 13). 0/1 outcomes of
two systems on the same questions are compared by McNemar's test in its exact, binomial form (McNemar 1947), other
scores by the paired sign-flip permutation test on their mean difference (Fisher 1935; Smucker, Allan and Carterette
2007 on retrieval measures), neither by a t-test. Several comparisons at once are adjusted by Holm's step-down (1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eval.errors import EvalError

RESAMPLES = 10_000
LEVEL = 0.95
# Numbers drawn at once: bounds memory to a few MB whatever the number of questions, and stays in the processor's cache.
_DRAWS_AT_ONCE = 100_000
# Sums of the same differences in another order differ by rounding, at most about n * 2e-16 of the sum of their
# magnitudes. Resamples this close to the observed sum are ties with it.
_ROUNDING = 1e-10


def bootstrap_interval(
    values: npt.ArrayLike, seed: int, *, resamples: int = RESAMPLES, level: float = LEVEL
) -> list[tuple[float, float]] | None:
    """Percentile intervals for the means of columns, from the same resamples of questions.

    Args:
        values: [n, m] float, one row a question and one column a measure (or [n]: one measure).
        seed: The same seed and n give the same resamples, so a paired difference is resampled as its two parts are.
        resamples: How many times n questions are drawn with replacement.
        level: Between the (1 - level) / 2 quantiles.

    Returns:
        (low, high) for each column; None when n < 2, where nothing can be said.

    Raises:
        EvalError: A value is not finite.
    """
    table = _finite(values)
    if table.ndim == 1:
        table = table[:, None]
    n = len(table)
    if n < 2:
        return None
    rng = np.random.default_rng(seed)
    at_once = max(1, _DRAWS_AT_ONCE // n)
    means = []
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        drawn = rng.integers(0, n, size=(size, n), dtype=np.int32) + np.arange(size, dtype=np.int64)[:, None] * n
        # [size, n]: how often each question was drawn. One count serves all columns.
        times = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        means.append(times @ table / n)
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], axis=0)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def measure_intervals(values: Mapping[str, Mapping[str, float]], seed: int) -> dict[str, tuple[float, float] | None]:
    """`bootstrap_interval` of each measure's mean, where measures may be over different questions.

    Args:
        values: Value by measure and question id. Measures over the same questions in the same order share resamples.
        seed: Of the bootstrap.

    Raises:
        EvalError: A value is not finite.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for measure, own in values.items():
        groups.setdefault(tuple(own), []).append(measure)
    intervals: dict[str, tuple[float, float] | None] = {}
    for members in groups.values():
        columns = np.array([list(values[measure].values()) for measure in members], dtype=np.float64).T
        found = bootstrap_interval(columns, seed)
        intervals.update(zip(members, found, strict=True) if found else dict.fromkeys(members))
    return {measure: intervals[measure] for measure in values}


def mcnemar_p(wins: int, losses: int) -> float:
    """Two-sided exact McNemar p: how likely a split of the differing questions is at least this uneven, were it chance.

    Args:
        wins: Questions that only the one system has right.
        losses: Questions that only the other has right.

    Returns:
        min(1, 2 P[X <= min(wins, losses)]) with X binomial(wins + losses, 1/2); 1.0 when they never differ.
    """
    n = wins + losses
    ways = 1
    total = 0
    # In whole numbers: a floating-point binomial underflows for the thousands of questions of a full test set.
    for hits in range(min(wins, losses) + 1):
        total += ways
        ways = ways * (n - hits) // (hits + 1)
    p: float = 2 * total / 2**n
    return min(1.0, p)


def permutation_p(differences: npt.ArrayLike, seed: int, *, resamples: int = RESAMPLES) -> float | None:
    """Two-sided p of the paired sign-flip permutation test on the mean difference.

    Were the two systems alike, each question's difference could as well have had the other sign. p is the share of sign
    patterns whose mean is at least as far from 0 as the observed one: of all patterns where these are at most
    `resamples`, else (count + 1) / (resamples + 1) over random ones, which counts the observed pattern among them.

    Args:
        differences: [n] float, one a question.
        seed: Of the random patterns.
        resamples: How many random patterns.

    Returns:
        None when n < 2, where nothing can be said; 1.0 when no question differs.

    Raises:
        EvalError: A difference is not finite.
    """
    values = _finite(differences)
    if len(values) < 2:
        return None
    # The sign of a 0 changes nothing: without them p is the same, and more often exact.
    values = values[values != 0]
    n = len(values)
    if n == 0:
        return 1.0
    exact = 2**n <= resamples
    patterns = 2**n if exact else resamples
    total, magnitude = values.sum(), np.abs(values).sum()
    least = abs(total) - _ROUNDING * magnitude
    rng = np.random.default_rng(seed)
    at_once = max(1, _DRAWS_AT_ONCE // n)
    flipped: npt.NDArray[np.integer[Any]]  # [size, n], 0 or 1
    count = 0
    for start in range(0, patterns, at_once):
        size = min(at_once, patterns - start)
        if exact:
            flipped = np.arange(start, start + size)[:, None] >> np.arange(n) & 1
        else:
            width = math.ceil(n / 8)
            drawn = np.frombuffer(rng.bytes(size * width), dtype=np.uint8).reshape(size, width)
            flipped = np.unpackbits(drawn, axis=1, count=n)
        count += int(np.count_nonzero(np.abs(total - 2 * (flipped @ values)) >= least))
    return count / patterns if exact else (count + 1) / (patterns + 1)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment, which keeps the chance of any false claim among them below the level.

    The i-th smallest of m values becomes the largest (m - j + 1) p_j of j = 1 ... i, at most 1.

    Args:
        p_values: None where there was no test; it stays None and does not count.

    Raises:
        EvalError: A p is not in [0, 1].
    """
    tested = sorted((p, position) for position, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for smaller, (p, position) in enumerate(tested):
        if not 0 <= p <= 1:
            raise EvalError(f"p values must be in [0, 1], got {p}")
        largest = max(largest, min(1.0, (len(tested) - smaller) * p))
        adjusted[position] = largest
    return adjusted


def _finite(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    table = np.asarray(values, dtype=np.float64)
    if not np.isfinite(table).all():
        raise EvalError("cannot resample scores that are not finite numbers: look for nan in them")
    return table
