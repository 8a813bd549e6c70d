"""Sentence pairs of a sweep: Spearman's correlation as the mean over seeds, with paired intervals of the differences.

Pairs are what is drawn: a resample takes the same pairs for all trainings and seeds, so that a difference of two means over
seeds is resampled as its parts are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import numpy.typing as npt

from eval.data.pairs import RESAMPLES, draws, rank_correlations, spearman
from eval.errors import EvalError
from eval.significance import LEVEL

SYSTEMS = ("cosine", "dot")
"""The similarities that treat both sides of a pair alike and have no parameter to choose."""


@dataclass(frozen=True, slots=True)
class PairValues:
    """One encoder on one set of sentence pairs.

    Attributes:
        golds: [n] people's scores.
        scores: [n] similarities, by each of `SYSTEMS`.
    """

    golds: Sequence[float]
    scores: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class PairChange:
    """A difference of two correlations, each the mean over its seeds.

    Attributes:
        difference: In [-2, 2].
        interval: Paired bootstrap over pairs; None with fewer than 3 of them.
    """

    difference: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class PairRow:
    """One training on one set of sentence pairs: Spearman's correlation, the mean over its seeds.

    Attributes:
        dataset: The set.
        trained_for: A similarity, or untrained.
        scored_by: One of `SYSTEMS`.
        n: Pairs.
        value: In [-1, 1].
        interval: Bootstrap over pairs; None with fewer than 3 of them.
        by_seed: In the order of the seeds, without those whose scores are all the same.
        against_cosine: Against the training by cosine, scored alike; None for that one itself, and for the untrained.
        against_untrained: Against the untrained encoder, scored by cosine; None for that one itself.
    """

    dataset: str
    trained_for: str
    scored_by: str
    n: int
    value: float
    interval: tuple[float, float] | None
    by_seed: list[float]
    against_cosine: PairChange | None = None
    against_untrained: PairChange | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    row: PairRow
    resampled: npt.NDArray[np.float64] | None


def pair_rows(
    trainings: Mapping[str, Sequence[Mapping[str, PairValues]]], *, untrained: str, baseline: str, seed: int
) -> list[PairRow]:
    """The figures of all trainings on all sets.

    Args:
        trainings: By what was trained for, a seed's values by data set; a set may be missing for some seeds.
        untrained: The key of the untrained encoder, which names the sets.
        baseline: The key of the training by cosine.
        seed: Of the bootstrap.
    """
    rows: list[PairRow] = []
    for dataset in trainings[untrained][0]:
        found: dict[tuple[str, str], _Found] = {}
        for trained, members in trainings.items():
            sets = [one[dataset] for one in members if dataset in one]
            for system in SYSTEMS:
                if (own := _found(dataset, trained, system, sets, seed)) is not None:
                    found[trained, system] = own
        start = found.get((untrained, "cosine"))
        for (trained, system), own in found.items():
            alike = None if trained in (untrained, baseline) else found.get((baseline, system))
            rows.append(
                replace(
                    own.row,
                    against_cosine=_change(own, alike),
                    against_untrained=_change(own, None if own is start else start),
                )
            )
    return rows


def _found(dataset: str, trained: str, system: str, sets: Sequence[PairValues], seed: int) -> _Found | None:
    """None where no seed's scores can be ranked."""
    values, scores = [], []
    for own in sets:
        try:
            values.append(spearman(own.scores[system], own.golds, resamples=0).value)
        except EvalError:  # all of its scores are the same
            continue
        scores.append(own.scores[system])
    if not values:
        return None
    golds = sets[0].golds
    resampled = _resampled(scores, golds, seed) if len(golds) > 2 else None
    row = PairRow(dataset, trained, system, len(golds), fmean(values), _interval(resampled), values)
    return _Found(row, resampled)


def _change(own: _Found, other: _Found | None) -> PairChange | None:
    if other is None:
        return None
    changes = None if own.resampled is None or other.resampled is None else own.resampled - other.resampled
    return PairChange(own.row.value - other.row.value, _interval(changes))


def _resampled(scores: Sequence[Sequence[float]], golds: Sequence[float], seed: int) -> npt.NDArray[np.float64]:
    """[RESAMPLES] means over seeds of the correlation; nan where one of a resample's columns is constant."""
    columns = [np.asarray(own, dtype=np.float64) for own in scores]
    gold = np.asarray(golds, dtype=np.float64)
    found = [
        np.mean([rank_correlations(column[drawn], gold[drawn]) for column in columns], axis=0)
        for drawn in draws(len(golds), seed, RESAMPLES)
    ]
    return np.concatenate(found)


def _interval(values: npt.NDArray[np.float64] | None) -> tuple[float, float] | None:
    if values is None or np.isnan(values).all():
        return None
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(values, [tail, 1 - tail])
    return float(low), float(high)
