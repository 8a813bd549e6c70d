"""A lock whose waiters are served in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """For work in small steps by several threads, such as a question asked while a corpus is encoded.

    A `threading.Lock` would be taken again by the thread that has just let go of it, before any other wakes up, so that a
    long work would keep all others waiting to its end.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._taken = False

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()  # until the one before hands on
        except BaseException:  # Ctrl-C while waiting
            self._leave(turn)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hand_on()

    def _hand_on(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def _leave(self, turn: threading.Lock) -> None:
        """Give up waiting; where the turn has come meanwhile, it goes to the next."""
        with self._guard:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return
        self._hand_on()
