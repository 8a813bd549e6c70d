"""Making a corpus while somebody watches: one after the other, progress as snapshots, and an end when nobody does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from rag_app.errors import in_words
from rag_app.gathering import Step
from rag_app.shelf import Added
from retriever.turns import Turns

LOOK_EVERY_S = 0.3


@dataclass(frozen=True, slots=True)
class Making:
    """How far it is.

    Attributes:
        step: The latest; None before the first.
        seconds: Since this stage, with this encoder, began.
        waiting: For its turn.
        cancelled: Somebody asked for its end, which comes with the next step.
        ended: Nothing more will come: `added` or `error` is set, or else it was cancelled and nothing is kept.
        added: The corpus.
        error: Why there is none, in one line.
    """

    step: Step | None
    seconds: float
    waiting: bool = False
    cancelled: bool = False
    ended: bool = False
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


class Work:
    """A corpus that is made in a thread of its own.

    Args:
        make: Does the work; what it is given is told of each step, and ends it by raising.
        turns: Shared by all works, of which one goes on at a time.
    """

    def __init__(self, make: Callable[[Callable[[Step], None]], Added], turns: Turns) -> None:
        self._make, self._turns = make, turns
        self._left = threading.Event()
        self._waiting, self._ended = True, False
        self._last: tuple[Step | None, float] = (None, time.monotonic())
        self._added: Added | None = None
        self._error = ""
        threading.Thread(target=self._work, name="making", daemon=True).start()

    def cancel(self) -> None:
        """Have it end: at once where it waits, else at its next step, a batch later at the most (or a file, where one is read)."""
        self._left.set()

    def now(self) -> Making:
        """How far it is at this moment."""
        ended = self._ended or (self._waiting and self._left.is_set())
        step, began = self._last
        return Making(
            step,
            time.monotonic() - began,
            self._waiting,
            self._left.is_set(),
            ended,
            self._added,
            self._error,
        )

    async def watch(self) -> AsyncGenerator[Making, None]:
        """How far it is, until it ends. Closing this, which Gradio does when the visitor leaves, cancels it."""
        try:
            while not (making := self.now()).ended:
                yield making
                await asyncio.sleep(LOOK_EVERY_S)
            yield making
        finally:
            self.cancel()

    def _work(self) -> None:
        try:
            with self._turns:
                if self._left.is_set():
                    return
                self._waiting = False
                self._added = self._make(self._step)
        except _Left:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the visitor reads a line
            self._error = in_words(error, "making a corpus")
        finally:
            self._ended = True

    def _step(self, step: Step) -> None:
        if self._left.is_set():
            raise _Left
        last, began = self._last
        goes_on = last is not None and last.stage == step.stage and (step.stage == "reading" or last.what == step.what)
        self._last = (step, began if goes_on else time.monotonic())


class _Left(Exception):
    """Nobody is watching any more."""
