"""What the norms of passages say: whether relevant ones are longer, how much norms vary, and how far that is text length.

Norms are those before any normalisation. Length is the main confounder of magnitude, so `length_correlation` belongs beside
every claim about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Effect:
    """Cohen's d.

    Attributes:
        value: NaN where it is undefined.
        relevant: Norms on the relevant side.
        others: Norms on the other.
        reason: Why it is undefined, in one line; "" where it is not.
    """

    value: float
    relevant: int
    others: int
    reason: str = ""


def cohens_d(relevant: npt.ArrayLike, others: npt.ArrayLike) -> Effect:
    """Difference of means over the pooled deviation, whose square is ((n1 − 1) s1² + (n2 − 1) s2²) / (n1 + n2 − 2) (Cohen 1988).

    Args:
        relevant: [n1] norms of passages that some query has for relevant.
        others: [n2] norms of passages that are relevant to no query.

    Returns:
        The effect; undefined with fewer than two norms on a side, or where neither side varies.
    """
    first, second = (np.asarray(norms, dtype=np.float64) for norms in (relevant, others))
    n1, n2 = len(first), len(second)
    if min(n1, n2) < 2:
        return Effect(math.nan, n1, n2, f"it needs two norms on each side, and there are {n1} and {n2}")
    pooled = ((n1 - 1) * first.var(ddof=1) + (n2 - 1) * second.var(ddof=1)) / (n1 + n2 - 2)
    # Norms that are all the same leave rounding noise, which must not become a denominator.
    if pooled <= (1e-6 * np.abs(np.concatenate([first, second])).max()) ** 2:
        return Effect(math.nan, n1, n2, "the norms of neither side vary")
    return Effect(float((first.mean() - second.mean()) / math.sqrt(pooled)), n1, n2)


def variation(norms: npt.ArrayLike) -> float:
    """Coefficient of variation: standard deviation (population) over mean; NaN without norms, or where their mean is 0."""
    values = np.asarray(norms, dtype=np.float64)
    if not len(values) or values.mean() == 0:
        return math.nan
    return float(values.std() / values.mean())


def length_correlation(norms: npt.ArrayLike, lengths: npt.ArrayLike) -> float:
    """Pearson's correlation of norm and log length.

    Args:
        norms: [n].
        lengths: [n] tokens, 1 or more.

    Returns:
        NaN where one of the two does not vary.
    """
    values, tokens = np.asarray(norms, dtype=np.float64), np.asarray(lengths, dtype=np.float64)
    if len(values) < 2 or values.std() <= 1e-6 * abs(values.mean()) or tokens.min() == tokens.max():
        return math.nan
    return float(np.corrcoef(values, np.log(tokens))[0, 1])
