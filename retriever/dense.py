"""The dense retriever: an encoder, a similarity and an index."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence

from retriever.base import Hit, Retrieved
from retriever.encoder import Encoder
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.search.base import Searcher
from retriever.similarity import Similarity

CONSTANT_CV = 1e-4
"""Below this coefficient of variation norms are rounding noise, and keeping them cannot change a ranking."""


class DenseRetriever:
    """Ranks passages by a similarity of vectors.

    Args:
        name: What people call this retriever.
        encoder: Makes the query vectors; must be the one that made the index.
        similarity: Which magnitudes count.
        index: Unit vectors, norms and passages.
        searcher: Finds the best rows.

    Raises:
        RetrieverError: The encoder is not the index's, or the similarity keeps a magnitude that does not vary.
    """

    def __init__(self, name: str, encoder: Encoder, similarity: Similarity, index: Index, searcher: Searcher) -> None:
        index.check_encoder(encoder)
        if similarity.keeps_magnitude and len(index) > 1 and index.norm_stats["cv"] < CONSTANT_CV:
            raise RetrieverError(
                f"{similarity.name} keeps a magnitude, but all norms of {encoder.name} are {index.norm_stats['mean']:.4g}: "
                f"its last module {type(encoder.model[-1]).__name__} normalises; drop that module or use cosine"
            )
        self.name = name
        self.encoder = encoder
        self.similarity = similarity
        self.index = index
        self._searcher = searcher

    @property
    def fingerprint(self) -> str:
        """Of the index (and so of corpus and encoder) and the similarity; searchers are exact and change nothing."""
        content = json.dumps([self.index.fingerprint, self.similarity.describe()], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def notes(self) -> list[str]:
        """What a person should know before reading anything into this retriever's ranking."""
        trained, name, own = self.encoder.trained, self.encoder.spec.trained_for, self.similarity
        if name is None or own == trained or (trained is None and own.name == name):
            return []
        start = f"{self.encoder.name} was trained for {name if trained is None else trained}"
        by_direction = name in ("cosine", "dnorm")
        if by_direction and own.gamma_d < 1:
            return [
                f"{start}, which never trained its magnitudes: what {own} measures with them is mostly a bias towards some "
                "passage lengths"
            ]
        if not by_direction and own.gamma_d == 1:
            return [f"{start}, which ranks by passage norms too: {own} throws them away"]
        if trained is None:
            return []
        if own.gamma_d == trained.gamma_d:
            return [f"{start} and is searched by {own}: passages are ranked alike, but scores are others"]
        return [f"{start} and is searched by {own}, which weighs passage norms otherwise than its training did"]

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        """See `Retriever.retrieve`."""
        started = time.perf_counter()
        queries = self.encoder.encode_queries(questions)
        encoded = time.perf_counter()
        ranking = self._searcher.search(queries, self.similarity, k)
        hits = [
            [
                Hit(
                    rank=place + 1,
                    passage=self.index.passage(int(row)),
                    score=float(ranking.scores[number, place]),
                    cosine=float(ranking.cosines[number, place]),
                    norm=float(ranking.norms[number, place]),
                    query_norm=float(queries.norms[number]),
                    row=int(row),
                )
                for place, row in enumerate(rows)
            ]
            for number, rows in enumerate(ranking.rows)
        ]
        return Retrieved(hits, {"encode": encoded - started, "search": time.perf_counter() - encoded})
