"""Things that several threads use and that are made once each, when first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class Once(Generic[Key, Made]):
    """Values by key. Whoever asks for one that is being made waits for that one, and for no other. Thread-safe.

    Making one may ask for others, of this kind or another, as long as none needs itself.
    """

    def __init__(self) -> None:
        self._made: dict[Key, Made] = {}
        self._making: dict[Key, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """The value of a key; `make` makes it where there is none yet, and again where it raised the last time."""
        with self._lock:
            if key in self._made:
                return self._made[key]
            own = self._making.setdefault(key, threading.Lock())
        with own:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def drop(self, key: Key) -> None:
        """Let go of a value; it is made again when asked for."""
        with self._lock:
            self._made.pop(key, None)
            self._making.pop(key, None)

    def values(self) -> list[Made]:
        """Those that are there."""
        return list(self._made.values())
