"""How far a score may be off by the choice of questions, and whether two systems differ.

The unit is the question. Intervals are percentile bootstraps (Efron and Tibshirani 1993, chapter 13); 0/1 outcomes of
two systems on the same questions are compared by McNemar's test in its exact, binomial form (McNemar 1947), not by a
t-test.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eval.errors import EvalError

RESAMPLES = 10_000
LEVEL = 0.95
# Questions drawn at once: bounds memory at about 32 MB whatever the number of questions.
_DRAWS_AT_ONCE = 2_000_000


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
    table = np.asarray(values, dtype=np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if not np.isfinite(table).all():
        raise EvalError("cannot resample scores that are not finite numbers: look for nan in them")
    n = len(table)
    if n < 2:
        return None
    rng = np.random.default_rng(seed)
    at_once = max(1, _DRAWS_AT_ONCE // n)
    means = []
    for start in range(0, resamples, at_once):
        drawn = rng.integers(0, n, size=(min(at_once, resamples - start), n), dtype=np.int32)
        means.append(np.stack([column[drawn].mean(axis=1) for column in table.T], axis=1))
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], axis=0)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]


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


def wins_losses(baseline: Sequence[bool], system: Sequence[bool]) -> tuple[int, int]:
    """How many questions the system alone has right, and how many the baseline alone.

    Raises:
        ValueError: They are of different length.
    """
    pairs = list(zip(baseline, system, strict=True))
    return sum(new and not old for old, new in pairs), sum(old and not new for old, new in pairs)
