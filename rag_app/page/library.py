"""The runs that lie in the page's folder: their list, and a few of them held open, since reading one takes a while."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from eval.publish import figures
from eval.runs import RunSummary, list_runs
from eval.summary import Metrics
from eval.view import CORPUS, METRICS, PAIRS, PREDICTIONS, RUN, RunView
from rag_app.errors import ConfigError

HELD = 3
"""Runs held in memory; a run of thousands of questions takes some hundred MB."""

Opened = tuple[RunView, Metrics]


class Library:
    """Runs by the names of their folders. Thread-safe, and shared by all visitors.

    Args:
        folder: Where they lie; it need not be there yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[object, ...], Opened] = OrderedDict()

    def runs(self) -> list[RunSummary]:
        """All of them, newest first."""
        if not self.folder.is_dir():
            return []
        return [run for run in list_runs(self.folder) if run.path != self.folder]

    def open(self, name: str) -> Opened:
        """A run and its figures, which are computed where the run has not finished.

        Raises:
            ConfigError: No run of that name.
            EvalError: It is damaged.
        """
        if name not in {run.path.name for run in self.runs()}:
            raise ConfigError(f'there is no run "{name}" in {self.folder}')
        path = self.folder / name
        # One at a time: two visitors who look at the same run read it once.
        with self._lock:
            key = (name, *(_stamp(path / file) for file in (RUN, PREDICTIONS, CORPUS, PAIRS, METRICS)))
            if key not in self._held:
                view = RunView.open(path)
                self._held[key] = (view, figures(view))
            self._held.move_to_end(key)
            while len(self._held) > HELD:
                self._held.popitem(last=False)
            return self._held[key]


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when a file does; zeros where it is not there."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
