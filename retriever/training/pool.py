"""BM25 over passages in memory, for mining: what words rank needs no vectors, and so no encoder."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from retriever.lexical import BM25Retriever, BM25Settings
from retriever.passages import Passage

if TYPE_CHECKING:
    from retriever.index import Index


def fingerprint_of(passages: Iterable[Passage]) -> str:
    """Of ids, titles and texts, in their order: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(f"{passage.id}\0{passage.title}\0{passage.text}\0".encode())
    return digest.hexdigest()[:16]


def words_index(passages: Sequence[Passage], folder: Path) -> Index:
    """Passages of unique ids as an index without vectors, which BM25 does not ask for; its matrix goes to `folder`."""
    return cast("Index", _Pool(passages, folder))


@contextmanager
def bm25_over(
    passages: Sequence[Passage], settings: BM25Settings | None = None, name: str = "bm25"
) -> Iterator[BM25Retriever]:
    """A BM25 retriever over passages; its term matrix lies in a temporary folder while the context lasts."""
    # On Windows the matrix is still mapped when the folder goes.
    with tempfile.TemporaryDirectory(prefix="magrag-bm25-", ignore_cleanup_errors=True) as folder:
        yield BM25Retriever(name, words_index(passages, Path(folder)), settings)


class _Pool:
    def __init__(self, passages: Sequence[Passage], folder: Path) -> None:
        self.folder = folder
        self._passages = passages

    def __len__(self) -> int:
        return len(self._passages)

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self._passages)

    def passage(self, row: int) -> Passage:
        return self._passages[row]

    def passages(self) -> Iterator[Passage]:
        return iter(self._passages)
