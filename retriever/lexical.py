"""BM25 through bm25s: the baseline row of every table, over the passages of the same index."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.base import Hit, Retrieved
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.search.base import clip_k, order_rows

if TYPE_CHECKING:
    import bm25s


@dataclass(frozen=True, slots=True)
class BM25Settings:
    """BM25's parameters; the defaults are Anserini's (k1 = 0.9, b = 0.4).

    Attributes:
        k1: Term-frequency saturation.
        b: Length normalisation, in [0, 1].
        stemmer: "none", or a Snowball language such as "english", for passages and questions alike.
    """

    k1: float = 0.9
    b: float = 0.4
    stemmer: str = "none"

    def __post_init__(self) -> None:
        if self.k1 < 0:
            raise RetrieverError(f"k1 must be at least 0, got {self.k1}")
        if not 0 <= self.b <= 1:
            raise RetrieverError(f"b must be between 0 and 1, got {self.b}")
        if self.stemmer != "none":
            import Stemmer

            if self.stemmer not in Stemmer.algorithms():
                raise RetrieverError(
                    f"stemmer must be none or one of {', '.join(Stemmer.algorithms())}, got {self.stemmer!r}"
                )


class BM25Retriever:
    """Ranks passages by BM25 (Lucene's form). Passages that share no word with the question are not returned.

    The term matrix is built on first use (all passages pass through memory as tokens once) and kept in a folder of its own
    inside the index.

    Args:
        name: What people call this retriever.
        index: Where the passages are.
        settings: BM25's parameters.
    """

    def __init__(self, name: str, index: Index, settings: BM25Settings | None = None) -> None:
        self.name = name
        self.index = index
        self.settings = settings or BM25Settings()
        self._matrix = self._load_or_build()

    @property
    def fingerprint(self) -> str:
        """Of the passages and the parameters."""
        content = json.dumps([self.index.fingerprint, asdict(self.settings)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def notes(self) -> list[str]:
        """Nothing to warn of."""
        return []

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        """See `Retriever.retrieve`; fewer than k hits where fewer passages share a word with the question."""
        started = time.perf_counter()
        k = clip_k(k, len(self.index))
        vocabulary = self._matrix.vocab_dict
        hits = []
        for tokens in self._tokenize(list(questions)):
            known = [token for token in tokens if token in vocabulary]
            hits.append(self._rank(np.asarray(self._matrix.get_scores(known)), k) if known else [])
        return Retrieved(hits, {"encode": 0.0, "search": time.perf_counter() - started})

    def _rank(self, scores: np.ndarray, k: int) -> list[Hit]:
        rows = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        rows = rows[order_rows(scores[rows], rows)][:k]
        return [
            Hit(place + 1, self.index.passage(int(row)), float(scores[row]), row=int(row))
            for place, row in enumerate(rows)
            if scores[row] > 0
        ]

    def _tokenize(self, texts: list[str]) -> list[list[str]]:
        """Tokens of passages and questions: one function, since a query stemmed otherwise than its index finds nothing."""
        import bm25s

        stemmer = None
        if self.settings.stemmer != "none":
            import Stemmer

            stemmer = Stemmer.Stemmer(self.settings.stemmer)
        # One-letter words stay ("Vitamin C"), and stop words too: BM25 already gives them next to no weight.
        tokens: Any = bm25s.tokenize(
            texts, token_pattern=r"(?u)\b\w+\b", stopwords=[], stemmer=stemmer, return_ids=False, show_progress=False
        )
        return tokens

    def _load_or_build(self) -> bm25s.BM25:
        import bm25s

        settings = self.settings
        folder = self.index.folder / f"bm25-{settings.stemmer}-k1_{settings.k1:g}-b_{settings.b:g}"
        if not folder.is_dir():
            passages = self.index.passages()
            matrix = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
            matrix.index(self._tokenize([f"{p.title} {p.text}" for p in passages]), show_progress=False)
            _save_atomically(matrix, folder)
        try:
            return bm25s.BM25.load(str(folder), mmap=True)
        except (OSError, ValueError, KeyError) as error:
            raise RetrieverError(f"cannot read {folder}: {error}; delete that folder, it is built anew") from error


def _save_atomically(matrix: bm25s.BM25, folder: Path) -> None:
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(exist_ok=True)
        matrix.save(str(temporary), show_progress=False)
        temporary.rename(folder)
    except OSError as error:
        # Another process may have been quicker, and its matrix is the same.
        if not folder.is_dir():
            raise RetrieverError(f"cannot write {folder}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
