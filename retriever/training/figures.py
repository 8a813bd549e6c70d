"""log.csv: a line a step, so that any spreadsheet shows how a training went."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from retriever.diagnostics import length_correlation, variation

LOG = "log.csv"
STEP_COLUMNS = (
    "step",
    "loss",
    "alpha",
    "gamma_q",
    "gamma_d",
    "norm_mean",
    "norm_cv",
    "norm_length_corr",
    "entropy",
    "learning_rate",
    "gradient_norm",
    "tokens_per_second",
)


class FigureLog:
    """The file of a training's figures.

    Args:
        folder: Of the training.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._columns: list[str] = []

    def begin(self, scores: Iterable[str]) -> None:
        """Start anew, with columns for development scores of these names."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._columns = [*STEP_COLUMNS, *scores]
        with self._path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(self._columns)

    def go_on(self, step: int, scores: Iterable[str]) -> bool:
        """Drop the lines after a step, which will be done again, and one that a kill broke.

        Args:
            step: The last whose line stays.
            scores: As in `begin`, for a new file where this one cannot be gone on with.

        Returns:
            Whether it could.
        """
        try:
            with self._path.open(encoding="utf-8", newline="") as file:
                header, *rows = list(csv.reader(file))
        except (OSError, ValueError, csv.Error):
            header, rows = [], []
        if header[:1] != ["step"]:
            self.begin(scores)
            return False
        self._columns = header
        kept = [row for row in rows if len(row) == len(header) and row[0].isdecimal() and int(row[0]) <= step]
        partial = self._path.with_name(f".{LOG}.partial")
        with partial.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *kept])
        partial.replace(self._path)
        return True

    def write(self, figures: Mapping[str, float]) -> None:
        """Add a line; what a step lacks stays empty."""
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow([_shown(figures.get(column)) for column in self._columns])


def norm_figures(norms: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
    """What the log says of passage norms.

    Args:
        norms: [m], before any normalisation.
        lengths: [m] tokens.

    Returns:
        Mean, coefficient of variation, and Pearson's correlation with the logarithm of the length (NaN where one of the
        two does not vary).
    """
    return {
        "norm_mean": float(norms.mean()),
        "norm_cv": variation(norms),
        "norm_length_corr": length_correlation(norms, lengths),
    }


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"
