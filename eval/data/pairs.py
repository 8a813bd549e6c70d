"""Sentence pairs with gold similarities, and how well a similarity orders them.

Scored by Spearman's rank correlation, as the STS benchmark and MTEB's STS tasks are: the scores' scale does not matter,
so norm-aware similarities need no calibration to be compared.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eval.data.jsonl import SUFFIXES, read_rows
from eval.errors import EvalError
from eval.significance import LEVEL

# Each resample is ranked anew, which costs far more than a mean; 2,000 settle percentile limits to about a tenth of
# the interval's width (Efron and Tibshirani 1993, chapter 19, ask for 1,000 or more).
RESAMPLES = 2_000
_DRAWS_AT_ONCE = 1_000_000
_NAMES = ({"text1": "text1", "text2": "text2"}, {"text1": "sentence1", "text2": "sentence2"})


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences and how similar people find them; the scale is the data set's own."""

    text1: str
    text2: str
    score: float


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rho in [-1, 1], its bootstrap interval (None below 3 pairs), and the number of pairs."""

    value: float
    interval: tuple[float, float] | None
    n: int


def read_pairs(path: Path, columns: Mapping[str, str] | None = None) -> list[Pair]:
    """Read {text1, text2, score} or {sentence1, sentence2, score} from JSONL, or from TSV with such a header.

    Args:
        path: .jsonl, .jsonl.gz, .json, or else TSV in UTF-8, whose quotation marks are text.
        columns: Other names of text1, text2 and score.

    Raises:
        EvalError: Names file and line: a field is missing, a text is empty, or a score is no finite number.
    """
    return to_pairs(read_rows(path) if path.name.endswith(SUFFIXES) else _tsv_rows(path), str(path), columns or {})


def to_pairs(rows: Iterable[tuple[str, dict[str, Any]]], origin: str, columns: Mapping[str, str]) -> list[Pair]:
    """The pairs in (place, row) pairs.

    Raises:
        EvalError: As `read_pairs`; `origin` is named where there are no rows.
    """
    pairs = []
    for where, row in rows:
        names = next((names for names in _NAMES if names["text1"] in row), _NAMES[0])
        values = []
        for field in ("text1", "text2", "score"):
            column = columns.get(field) or names.get(field, field)
            if column not in row:
                raise EvalError(f'{where}: "{column}" is missing: a pair is {{text1, text2, score}}')
            values.append(row[column])
        for value in values[:2]:
            if not isinstance(value, str) or not value.strip():
                raise EvalError(f"{where}: both texts of a pair must be strings that are not empty")
        pairs.append(Pair(values[0], values[1], _score(values[2], where)))
    if not pairs:
        raise EvalError(f"{origin}: holds no sentence pairs")
    return pairs


def is_pair(row: Mapping[str, Any]) -> bool:
    """Whether a row looks like a sentence pair."""
    return "score" in row and any(set(names.values()) <= set(row) for names in _NAMES)


def spearman(
    scores: Sequence[float], golds: Sequence[float], seed: int = 0, *, resamples: int = RESAMPLES, level: float = LEVEL
) -> Correlation:
    """Spearman's rho, ties given their mean rank, with a percentile bootstrap interval over pairs.

    Args:
        scores: [n] a system's similarities.
        golds: [n] people's.
        seed: The same seed and n resample the same pairs, for any system.
        resamples: How many times n pairs are drawn with replacement; those with all scores or golds equal, which have
            no correlation, are left out.
        level: Between the (1 - level) / 2 quantiles.

    Raises:
        EvalError: Different lengths, fewer than 2 pairs, a value that is not finite, or all scores (or golds) equal.
    """
    table = [np.asarray(scores, dtype=np.float64), np.asarray(golds, dtype=np.float64)]
    n = len(table[0])
    if n != len(table[1]) or n < 2:
        raise EvalError(f"a rank correlation needs 2 or more pairs of scores, got {n} scores and {len(table[1])} golds")
    if not all(np.isfinite(column).all() for column in table):
        raise EvalError("cannot rank scores that are not finite numbers: look for nan in them")
    for name, column in zip(("scores", "golds"), table, strict=True):
        if column.min() == column.max():
            raise EvalError(f"all {n:,} {name} are {column[0]:g}: what is constant has no rank correlation")
    value = float(rank_correlations(*(column[None] for column in table))[0])
    if n < 3:
        return Correlation(value, None, n)
    found = [rank_correlations(*(column[drawn] for column in table)) for drawn in draws(n, seed, resamples)]
    return Correlation(value, _interval(found, level), n)


def spearman_difference(
    scores: Sequence[float],
    baseline: Sequence[float],
    golds: Sequence[float],
    seed: int = 0,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Correlation:
    """Spearman's rho of a system minus that of a baseline on the same pairs, with its paired bootstrap interval.

    Args:
        scores: [n] the system's similarities.
        baseline: [n] the baseline's.
        golds: [n] people's.
        seed: As in `spearman`.
        resamples: As in `spearman`.
        level: As in `spearman`.

    Raises:
        EvalError: As `spearman`.
    """
    own, other = (spearman(values, golds, resamples=0) for values in (scores, baseline))
    if own.n < 3:
        return Correlation(own.value - other.value, None, own.n)
    columns = [np.asarray(values, dtype=np.float64) for values in (scores, baseline, golds)]
    found = []
    for drawn in draws(own.n, seed, resamples):
        a, b, gold = (column[drawn] for column in columns)
        found.append(rank_correlations(a, gold) - rank_correlations(b, gold))
    return Correlation(own.value - other.value, _interval(found, level), own.n)


def draws(n: int, seed: int, resamples: int) -> Iterator[npt.NDArray[np.int32]]:
    """[m, n] positions of n pairs drawn with replacement, in blocks of bounded size, `resamples` rows in all."""
    rng = np.random.default_rng(seed)
    at_once = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, at_once):
        yield rng.integers(0, n, size=(min(at_once, resamples - start), n), dtype=np.int32)


def _interval(found: Sequence[npt.NDArray[np.float64]], level: float) -> tuple[float, float] | None:
    if not found:
        return None
    tail = (1 - level) / 2
    low, high = np.nanquantile(np.concatenate(found), [tail, 1 - tail])
    return float(low), float(high)


def rank_correlations(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[m] Pearson's correlation of the ranks, for each row of two [m, n] tables; nan where a row is constant."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    a, b = (rankdata(table, axis=1) - (table.shape[1] + 1) / 2 for table in (first, second))
    with np.errstate(invalid="ignore"):
        rho: npt.NDArray[np.float64] = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return rho


def _score(value: Any, where: str) -> float:
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise EvalError(f"{where}: a score must be a finite number, got {value!r}")
    return score


def _tsv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)
            for row in reader:
                yield (
                    f"{path}, line {reader.line_num}",
                    {k: v for k, v in row.items() if k is not None and v is not None},
                )
    except UnicodeDecodeError as error:
        raise EvalError(f"{path}: invalid UTF-8 ({error.reason}): save the file as UTF-8") from None
    except csv.Error as error:
        raise EvalError(f"{path}: not a tab-separated table: {error}") from None
    except OSError as error:
        raise EvalError(f"{path}: cannot be read: {error.strerror or error}") from None
