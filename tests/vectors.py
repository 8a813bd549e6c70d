"""An encoder of random vectors, for tests of the index that are not about a model."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from retriever.encoder import Progress, Vectors
from retriever.passages import Passage


@dataclass
class RandomEncoder:
    """Gives each text a vector that depends on the text alone; `limit` raises once so many were encoded."""

    dim: int = 16
    name: str = "random"
    limit: int | None = None
    encoded: int = 0
    trained: None = None
    description: dict[str, Any] = field(default_factory=lambda: {"model": "random", "weights": "w1", "dim": 16})

    def encode_passages(self, passages: Sequence[Passage], progress: Progress | None = None) -> Vectors:
        if self.limit is not None and self.encoded + len(passages) > self.limit:
            raise KeyboardInterrupt
        self.encoded += len(passages)
        return self.encode_queries([p.text for p in passages])

    def encode_queries(self, queries: Sequence[str], progress: Progress | None = None) -> Vectors:
        rows = [np.random.default_rng(zlib.crc32(text.encode())) for text in queries]
        raw = np.array([rng.normal(size=self.dim) * rng.uniform(0.5, 4) for rng in rows], dtype=np.float32)
        return Vectors.from_raw(raw.reshape(len(queries), self.dim))


@dataclass
class ListCorpus:
    """Passages from a list."""

    items: list[Passage]
    print: str = "corpus-1"

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.items)

    def fingerprint(self) -> str:
        return self.print


def some_passages(n: int) -> list[Passage]:
    """n passages whose texts differ."""
    words = ["river", "tower", "engine", "poem", "comet", "harbour", "violin", "glacier"]
    return [
        Passage(
            f"p{i}", words[i % 8].title(), f"the {words[i % 8]} number {i} is near the {words[i // 8 % 8]}", {"i": i}
        )
        for i in range(n)
    ]
