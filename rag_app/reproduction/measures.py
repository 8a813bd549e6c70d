"""A figure with its interval, and the rules by which figures decide a claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from eval.significance import LEVEL, bootstrap_interval

AGREES, DISAGREES, UNDECIDED = "agrees", "disagrees", "undecided"
NEEDS_GPU, NOT_RUN, NO_VERDICT = "needs a GPU", "not run yet", "no verdict"

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure.

    Attributes:
        name: What it is of, parts with "/" between them; claims choose by it.
        value: NaN where it is undefined.
        interval: Of 95 %; None where nothing can be said, and where a figure is exact.
        n: Questions, pairs of sentences, queries, pictures, captions or trainings that it rests on.
    """

    name: str
    value: float
    interval: tuple[float, float] | None = None
    n: int = 1

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; what is undefined is null."""
        value = self.value if math.isfinite(self.value) else None
        interval = list(self.interval) if self.interval is not None else None
        return {"name": self.name, "value": value, "interval": interval, "n": self.n}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Measure:
        """What `to_json` gave."""
        value = math.nan if kept["value"] is None else float(kept["value"])
        interval = None if kept["interval"] is None else (float(kept["interval"][0]), float(kept["interval"][1]))
        return cls(str(kept["name"]), value, interval, int(kept["n"]))

    def __str__(self) -> str:
        """As tables show it."""
        if not math.isfinite(self.value):
            return "undefined"
        shown = f"{self.value:.4g}"
        return shown if self.interval is None else f"{shown} [{self.interval[0]:.4g}, {self.interval[1]:.4g}]"


@dataclass(frozen=True, slots=True)
class Rule:
    """How a figure decides.

    Attributes:
        words: For the table.
        judge: From a figure to `AGREES`, `DISAGREES` or `UNDECIDED`.
    """

    words: str
    judge: Callable[[Measure], str]


def above(bound: float = 0.0) -> Rule:
    """The claim is that the figure is more than this."""
    words = f"agrees where the interval lies above {bound:g}, disagrees where it lies below"
    return Rule(words, lambda own: _side(own, lambda low, high: low > bound, lambda low, high: high < bound))


def below(bound: float = 0.0) -> Rule:
    """The claim is that the figure is less than this."""
    words = f"agrees where the interval lies below {bound:g}, disagrees where it lies above"
    return Rule(words, lambda own: _side(own, lambda low, high: high < bound, lambda low, high: low > bound))


def near(centre: float, margin: float) -> Rule:
    """The claim is that the figure is this, give or take a margin."""
    first, last = centre - margin, centre + margin
    words = f"agrees where the interval lies within {first:.9g} to {last:.9g}, disagrees where it lies outside"

    def inside(low: float, high: float) -> bool:
        return first <= low and high <= last

    return Rule(words, lambda own: _side(own, inside, lambda low, high: high < first or low > last))


def at_most(bound: float) -> Rule:
    """The claim is exact: the figure is no sample, and needs no interval."""
    words = f"agrees where the figure is at most {bound:g}, disagrees otherwise"
    return Rule(words, lambda own: AGREES if own.value <= bound else DISAGREES)


def _side(own: Measure, agrees: Callable[[float, float], bool], disagrees: Callable[[float, float], bool]) -> str:
    if own.interval is None or not math.isfinite(own.value):
        return UNDECIDED
    if agrees(*own.interval):
        return AGREES
    return DISAGREES if disagrees(*own.interval) else UNDECIDED


def together(verdicts: Sequence[str]) -> str:
    """What all of them say; undecided where they differ."""
    return verdicts[0] if len(set(verdicts)) == 1 else UNDECIDED


def mean_of(name: str, values: Sequence[float], seed: int = 0) -> Measure:
    """A mean over questions, with its bootstrap interval."""
    found = bootstrap_interval(list(values), seed)
    return Measure(name, fmean(values), None if found is None else found[0], len(values))


def share_of(name: str, after: Sequence[float], before: Sequence[float]) -> Measure:
    """One mean over another of the same questions, with its bootstrap interval over questions.

    Undefined where the second mean is 0, and without an interval where that of a resample is.
    """
    first, second = (np.asarray(values, dtype=np.float64) for values in (after, before))
    drawn = draws(len(first))
    with np.errstate(divide="ignore", invalid="ignore"):
        value, resampled = first.mean() / second.mean(), first[drawn].mean(axis=1) / second[drawn].mean(axis=1)
    interval = quantiles(resampled) if np.isfinite(resampled).all() else None
    return Measure(name, float(value) if math.isfinite(value) else math.nan, interval, len(first))


def draws(n: int) -> npt.NDArray[np.int64]:
    """[resamples, n] positions, drawn with replacement."""
    return np.random.default_rng(0).integers(n, size=(_RESAMPLES, n))


def quantiles(found: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The interval that a bootstrap's values make."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return float(low), float(high)


def mean_of_trainings(name: str, values: Sequence[float]) -> Measure:
    """A mean over seeds, with Student's interval: seeds are too few to resample."""
    n, centre = len(values), fmean(values)
    if n < 2:
        return Measure(name, centre, None, n)
    from scipy.stats import t  # type: ignore[import-untyped]

    half = float(t.ppf((1 + LEVEL) / 2, n - 1)) * stdev(values) / math.sqrt(n)
    return Measure(name, centre, (centre - half, centre + half), n)
