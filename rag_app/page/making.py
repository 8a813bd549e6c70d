"""Making a corpus while somebody watches: progress as snapshots, and an end when nobody does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from rag_app.errors import in_words
from rag_app.gathering import Step
from rag_app.shelf import Added

LOOK_EVERY_S = 0.3


@dataclass(frozen=True, slots=True)
class Making:
    """How far it is.

    Attributes:
        step: The latest; None before the first.
        seconds: Since this stage, with this encoder, began.
        added: The corpus, at the end.
        error: Why there is none, at the end, in one line.
    """

    step: Step | None
    seconds: float
    added: Added | None = None
    error: str = ""

    @property
    def rate(self) -> float | None:
        """Passages a second; None before the first are done."""
        return self.step.done / self.seconds if self.step and self.step.done and self.seconds > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds that the stage will still take at that rate; None where that cannot be told."""
        if self.step is None or self.step.total is None or not self.rate:
            return None
        return max(0, self.step.total - self.step.done) / self.rate


def run_making(make: Callable[[Callable[[Step], None]], Added]) -> Generator[Making, None, None]:
    """Make a corpus in a thread of its own and tell how far it is.

    Closing the iterator, which Gradio does when the visitor cancels or leaves, ends the work at its next step, a batch
    later at the most (or a file, where one is being read), and nothing of it is kept.

    Args:
        make: Does the work; what it is given is told of each step, and ends it by raising.
    """
    state = _State()
    threading.Thread(target=state.work, args=(make,), name="making", daemon=True).start()
    try:
        while not state.finished.wait(LOOK_EVERY_S):
            yield state.now()
        yield state.now()
    finally:
        state.left.set()


class _Left(Exception):
    """Nobody is watching any more."""


class _State:
    def __init__(self) -> None:
        self.left = threading.Event()
        self.finished = threading.Event()
        self._last: tuple[Step | None, float] = (None, time.monotonic())
        self._added: Added | None = None
        self._error = ""

    def work(self, make: Callable[[Callable[[Step], None]], Added]) -> None:
        try:
            self._added = make(self._step)
        except _Left:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the visitor reads a line
            self._error = in_words(error, "making a corpus")
        finally:
            self.finished.set()

    def now(self) -> Making:
        step, began = self._last
        return Making(step, time.monotonic() - began, self._added, self._error)

    def _step(self, step: Step) -> None:
        if self.left.is_set():
            raise _Left
        last, began = self._last
        goes_on = last is not None and last.stage == step.stage and (step.stage == "reading" or last.what == step.what)
        self._last = (step, began if goes_on else time.monotonic())
