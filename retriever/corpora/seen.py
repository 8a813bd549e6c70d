"""Which strings have been met, remembered in 8 bytes each."""

from __future__ import annotations

import hashlib

import numpy as np

# New hashes wait here until they are merged into the sorted array. A Python set takes about 80 bytes a hash, so this
# bounds it to some 40 MB.
BUFFER = 1 << 19


class SeenStrings:
    """A set of strings that keeps only a 64-bit hash of each.

    21 million strings take 170 MB (twice that for a moment during a merge). The chance that two different ones are
    taken for the same is then about 1 in 80,000 for the whole corpus (n² / 2⁶⁵).
    """

    def __init__(self) -> None:
        self._sorted = np.empty(0, dtype=np.uint64)
        self._recent: set[int] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def add(self, text: str) -> bool:
        """Remember a string; False when it had been met before."""
        value = int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")
        if value in self._recent:
            return False
        # A plain int would make numpy convert the whole array.
        at = int(self._sorted.searchsorted(np.uint64(value)))
        if at < len(self._sorted) and int(self._sorted[at]) == value:
            return False
        self._recent.add(value)
        if len(self._recent) >= BUFFER:
            self._merge()
        return True

    def _merge(self) -> None:
        recent = np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent))
        recent.sort()
        # The stable sort is a merge sort: on two sorted runs it only merges.
        self._sorted = np.sort(np.concatenate([self._sorted, recent]), kind="stable")
        self._recent = set()
