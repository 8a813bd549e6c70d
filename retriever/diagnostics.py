"""What the norms of passages say: whether relevant ones are longer, how much norms vary, and how far that is text length.

Norms are those before any normalisation. Length is the main confounder of magnitude, so `length_correlation` belongs beside
every claim about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
"""Of intervals."""


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
    return _pearson(np.asarray(norms, dtype=np.float64), np.log(np.asarray(lengths, dtype=np.float64)))


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
    if not (_varies(first) and _varies(second)):
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def _varies(values: np.ndarray) -> bool:
    """By more than rounding does."""
    return len(values) > 1 and bool(values.std() > 1e-6 * abs(values.mean()))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts in bins of equal width; a bin has its lower edge and not its upper one, but for the last, which has both.

    Attributes:
        edges: One more than there are bins.
        counts: Of each bin.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


def histogram(norms: npt.ArrayLike, bins: int = 30) -> Histogram:
    """How norms spread, from the smallest to the largest; no bins without norms."""
    values = np.asarray(norms, dtype=np.float64)
    if not len(values):
        return Histogram((), ())
    counts, edges = np.histogram(values, bins)
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


def partial_correlation(first: npt.ArrayLike, second: npt.ArrayLike, control: npt.ArrayLike) -> float:
    """Pearson's correlation of what straight lines in a third variable leave of two.

    It is (r12 − r13 r23) / sqrt((1 − r13²) (1 − r23²)) (Yule 1907).

    Args:
        first: [n].
        second: [n].
        control: [n]; where it does not vary, the plain correlation is returned.

    Returns:
        NaN where one of the two does not vary, or follows from the control alone.
    """
    a, b, c = (np.asarray(values, dtype=np.float64) for values in (first, second, control))
    plain = _pearson(a, b)
    if not _varies(c):
        return plain
    with_a, with_b = _pearson(a, c), _pearson(b, c)
    left = (1 - with_a**2) * (1 - with_b**2)
    # Also where a correlation is NaN.
    if not left > 1e-12:
        return math.nan
    return float((plain - with_a * with_b) / math.sqrt(left))


def correlation_interval(r: float, n: int, level: float = LEVEL, *, controls: int = 0) -> tuple[float, float] | None:
    """Of Pearson's correlation by Fisher's z, whose deviation is 1 / sqrt(n − 3); None where that says nothing.

    Args:
        r: The correlation.
        n: What it is over.
        level: Of the interval.
        controls: Variables that a partial correlation holds constant; each takes one from n (Fisher 1924).
    """
    n -= controls
    if n <= 3 or not math.isfinite(r) or abs(r) >= 1:
        return None
    half = NormalDist().inv_cdf((1 + level) / 2) / math.sqrt(n - 3)
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def effect_interval(effect: Effect, level: float = LEVEL) -> tuple[float, float] | None:
    """Of Cohen's d by its large-sample variance (n1 + n2) / (n1 n2) + d² / (2 (n1 + n2)) (Hedges and Olkin 1985)."""
    if not math.isfinite(effect.value):
        return None
    n1, n2 = effect.relevant, effect.others
    deviation = math.sqrt((n1 + n2) / (n1 * n2) + effect.value**2 / (2 * (n1 + n2)))
    half = NormalDist().inv_cdf((1 + level) / 2) * deviation
    return effect.value - half, effect.value + half


def chance_longer(relevant: npt.ArrayLike, others: npt.ArrayLike) -> float:
    """Share of pairs in which the relevant passage has the longer vector; 0.5 is chance, NaN where a side is empty.

    Equal ones count half: it is Mann and Whitney's U over n1 n2.
    """
    first, second = (np.asarray(norms, dtype=np.float64) for norms in (relevant, others))
    if not len(first) or not len(second):
        return math.nan
    second = np.sort(second)
    below, upto = (np.searchsorted(second, first, side=side) for side in ("left", "right"))
    return float((below + upto).mean() / 2 / len(second))


def without_length(norms: npt.ArrayLike, lengths: npt.ArrayLike, fitted: npt.ArrayLike) -> np.ndarray:
    """What a straight line in log length leaves of norms.

    Args:
        norms: [n].
        lengths: [n] tokens, 1 or more.
        fitted: [n] bool; the passages that the line is fitted to, by least squares.

    Returns:
        Residuals [n] of all; norms less their mean where the fitted lengths do not vary.
    """
    values, logs = np.asarray(norms, dtype=np.float64), np.log(np.asarray(lengths, dtype=np.float64))
    mask = np.asarray(fitted, dtype=bool)
    slope, height = trend(values[mask], logs[mask])
    return np.asarray(values - height - slope * logs)


def trend(norms: npt.ArrayLike, logs: npt.ArrayLike) -> tuple[float, float]:
    """Slope and height of the least-squares line of norms in log length; slope 0 where lengths do not vary."""
    values, x = np.asarray(norms, dtype=np.float64), np.asarray(logs, dtype=np.float64)
    if not len(x):
        return 0.0, 0.0
    spread = x - x.mean()
    square = float(spread @ spread)
    slope = float(spread @ (values - values.mean()) / square) if square > 0 else 0.0
    return slope, float(values.mean() - slope * x.mean())


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the norms of a corpus say; NaN and None where a figure is undefined.

    Attributes:
        n: Passages.
        mean: Of all norms.
        deviation: Of all norms (population).
        low: The 5th percentile.
        median: The 50th.
        high: The 95th.
        cv: Coefficient of variation.
        histogram: Of all norms.
        sampled: Passages whose lengths were counted.
        limit: Tokens at which the encoder cuts; None where nobody says.
        at_limit: Share of these passages that have so many: all that goes by length takes what is longer for this long.
        length: Correlation of norm and log length, over these.
        length_interval: Its interval.
        line: Slope and height of norm in the natural logarithm of the length.
        points: (norm, tokens) of these, in the order of the corpus.
        effect: Cohen's d of relevant against other passages.
        effect_interval: Its interval.
        longer: Share of pairs in which the relevant one has the longer vector.
        apart: Cohen's d of what length leaves of the norms.
        apart_interval: Its interval.
        compared: Passages, relevant and others, whose lengths were counted.
        relevance: Correlation of norm and relevance (1 or 0) over these.
        relevance_interval: Its interval.
        partial: The same with log length held constant.
        partial_interval: Its interval.
        undefined: Why, in a phrase, by the name of each figure that is NaN or None; `effect` and `apart` have their own reasons.
    """

    n: int
    mean: float
    deviation: float
    low: float
    median: float
    high: float
    cv: float
    histogram: Histogram
    sampled: int
    limit: int | None
    at_limit: float
    length: float
    length_interval: tuple[float, float] | None
    line: tuple[float, float]
    points: list[tuple[float, int]]
    effect: Effect
    effect_interval: tuple[float, float] | None
    longer: float
    apart: Effect
    apart_interval: tuple[float, float] | None
    compared: int
    relevance: float
    relevance_interval: tuple[float, float] | None
    partial: float
    partial_interval: tuple[float, float] | None
    undefined: dict[str, str]


def diagnose(
    norms: npt.ArrayLike,
    rows: npt.ArrayLike,
    lengths: npt.ArrayLike,
    relevant: npt.ArrayLike,
    others: npt.ArrayLike,
    *,
    sampled: npt.ArrayLike | None = None,
    limit: int | None = None,
) -> Diagnosis:
    """All figures of a corpus under one encoder.

    Args:
        norms: [n], one or more.
        rows: [m] passages whose lengths were counted, ascending.
        lengths: [m] tokens of these.
        relevant: [n] bool; passages that some question has for relevant.
        others: [n] bool; passages that are relevant to no question.
        sampled: [m] bool; which of `rows` are a fair sample of the corpus, on which all rests that is about length; the
            others were counted because they are relevant. All of them where None.
        limit: Tokens at which texts were cut before they were counted.
    """
    values, places = np.asarray(norms, dtype=np.float64), np.asarray(rows, dtype=np.int64)
    tokens = np.asarray(lengths, dtype=np.int64)
    first, second = np.asarray(relevant, dtype=bool), np.asarray(others, dtype=bool)
    fair = np.ones(len(places), dtype=bool) if sampled is None else np.asarray(sampled, dtype=bool)
    counted = values[places]
    r = length_correlation(counted[fair], tokens[fair])
    effect = cohens_d(values[first], values[second])
    left = without_length(counted, tokens, fair)
    apart = cohens_d(left[first[places]], left[second[places] & fair])
    chosen = first[places] | (second[places] & fair)
    marks, logs = first[places][chosen], np.log(tokens[chosen])
    plain = _pearson(counted[chosen], marks.astype(np.float64))
    partial = partial_correlation(counted[chosen], marks, logs)
    low, median, high = (float(value) for value in np.percentile(values, (5, 50, 95)))
    found = Diagnosis(
        n=len(values),
        mean=float(values.mean()),
        deviation=float(values.std()),
        low=low,
        median=median,
        high=high,
        cv=variation(values),
        histogram=histogram(values),
        sampled=int(fair.sum()),
        limit=limit,
        at_limit=float((tokens[fair] >= limit).mean()) if limit and fair.any() else math.nan,
        length=r,
        length_interval=correlation_interval(r, int(fair.sum())),
        line=trend(counted[fair], np.log(tokens[fair])),
        points=list(zip(counted[fair].tolist(), tokens[fair].tolist(), strict=True)),
        effect=effect,
        effect_interval=effect_interval(effect),
        longer=chance_longer(values[first], values[second]),
        apart=apart,
        apart_interval=effect_interval(apart),
        compared=int(chosen.sum()),
        relevance=plain,
        relevance_interval=correlation_interval(plain, int(chosen.sum())),
        partial=partial,
        partial_interval=correlation_interval(partial, int(chosen.sum()), controls=1),
        undefined={},
    )
    related = _still({"norms": counted[fair], "lengths": np.log(tokens[fair])})
    judged = _still({"norms": counted[chosen], "marks": marks})
    few, alone = (
        "so few texts, or a correlation of 1 or -1, give no interval",
        "length alone tells the norms or the marks",
    )
    why = {
        "cv": "the mean of the norms is 0",
        "limit": "nobody says where texts were cut",
        "at_limit": "nobody says where texts were cut",
        "length": related,
        "length_interval": related or few,
        "effect_interval": effect.reason,
        "longer": f"it needs a passage on each side, and there are {int(first.sum())} and {int(second.sum())}",
        "apart_interval": apart.reason,
        "relevance": judged,
        "relevance_interval": judged or few,
        "partial": judged or alone,
        "partial_interval": judged or (alone if math.isnan(partial) else few),
    }
    found.undefined.update({name: reason for name, reason in why.items() if _unknown(getattr(found, name))})
    return found


def _still(series: dict[str, np.ndarray]) -> str:
    """Why two series have no correlation, in a phrase; "" where they have one."""
    n = min(map(len, series.values()))
    if n < 2:
        return f"it needs two texts, and there {'is' if n == 1 else 'are'} {n}"
    still = [name for name, values in series.items() if not _varies(values)]
    return f"{' and '.join(still)} do not vary" if still else ""


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
