"""BM25 over passages in memory, for mining: what words rank needs no vectors, and so no encoder."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from retriever.lexical import BM25Retriever, BM25Settings
from retriever.passages import Passage

if TYPE_CHECKING:
    from retriever.index import Index


class PassagePool:
    """Passages as rows, as far as BM25 asks an index for them.

    Args:
        passages: Ids must be unique; see `retriever.training.pairs.passages_of`.
        folder: Where the term matrix goes.
    """

    def __init__(self, passages: Sequence[Passage], folder: Path) -> None:
        self.folder = folder
        self._passages = passages

    def __len__(self) -> int:
        return len(self._passages)

    @property
    def fingerprint(self) -> str:
        """Of ids, titles and texts, in their order."""
        digest = hashlib.sha256()
        for passage in self._passages:
            digest.update(f"{passage.id}\0{passage.title}\0{passage.text}\0".encode())
        return digest.hexdigest()[:16]

    def passage(self, row: int) -> Passage:
        """The passage of one row."""
        return self._passages[row]

    def passages(self) -> Iterator[Passage]:
        """All of them, in row order."""
        return iter(self._passages)


@contextmanager
def bm25_over(
    passages: Sequence[Passage], settings: BM25Settings | None = None, name: str = "bm25"
) -> Iterator[BM25Retriever]:
    """A BM25 retriever over passages; its term matrix lies in a temporary folder while the context lasts."""
    # On Windows the matrix is still mapped when the folder goes.
    with tempfile.TemporaryDirectory(prefix="magrag-bm25-", ignore_cleanup_errors=True) as folder:
        # BM25 asks for no vectors, the one thing that a pool lacks of an index.
        index = cast("Index", PassagePool(passages, Path(folder)))
        yield BM25Retriever(name, index, settings)
