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
from rag_app.once import Once

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
        self._held: Once[tuple[object, ...], Opened] = Once()
        self._recent: OrderedDict[tuple[object, ...], None] = OrderedDict()

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
        key = (name, *(_stamp(path / file) for file in (RUN, PREDICTIONS, CORPUS, PAIRS, METRICS)))
        # Two visitors who look at the same run read it once.
        opened = self._held.get(key, lambda: _read(path))
        with self._lock:
            self._recent[key] = None
            self._recent.move_to_end(key)
            while len(self._recent) > HELD:
                self._held.drop(self._recent.popitem(last=False)[0])
        return opened


def _read(path: Path) -> Opened:
    view = RunView.open(path)
    return view, figures(view)


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when a file does; zeros where it is not there."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
