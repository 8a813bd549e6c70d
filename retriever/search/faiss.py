"""Search through FAISS. Only the flat (exhaustive) index so far: its ranking is the exact one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.encoder import Vectors
from retriever.errors import RetrieverError
from retriever.search.base import Ranking, clip_k, order_rows
from retriever.similarity import Similarity, score_parts

if TYPE_CHECKING:
    from retriever.index import Index

CHUNK_ROWS = 65_536


class FaissSearcher:
    """Inner-product search over unit vectors scaled by ‖d‖^(1−γd): for one query that ranks as the similarity does.

    The scaled vectors live in memory (rows × dim × 4 bytes) once for each γd that is asked for.

    Raises:
        RetrieverError: FAISS is not installed.
    """

    def __init__(self, index: Index) -> None:
        try:
            import faiss
        except ImportError as error:
            raise RetrieverError(
                "searcher faiss needs the faiss package; install faiss-cpu (or faiss-gpu), or set searcher to exact"
            ) from error
        self._faiss = faiss
        self._index = index
        self._flat: dict[float, Any] = {}

    def search(self, queries: Vectors, similarity: Similarity, k: int) -> Ranking:
        """See `Searcher.search`."""
        k = clip_k(k, len(self._index))
        _, rows = self._flat_for(similarity.gamma_d).search(np.ascontiguousarray(queries.units), k)
        if (rows < 0).any():
            # FAISS pads with -1, which as a Python index would be the last passage.
            raise RetrieverError(f"FAISS found fewer than {k} passages; rebuild the index, or set searcher to exact")
        units, norms = self._index.vectors(rows.ravel())
        cosines = np.einsum("nd,nkd->nk", queries.units, units.reshape(*rows.shape, -1)).astype(np.float32)
        norms = norms.reshape(rows.shape)
        scores = score_parts(cosines, queries.norms[:, None], norms, similarity.gamma_q, similarity.gamma_d)
        order = order_rows(scores, rows)
        return Ranking(*(np.take_along_axis(values, order, axis=1) for values in (rows, scores, cosines, norms)))

    def _flat_for(self, gamma_d: float) -> Any:
        if gamma_d not in self._flat:
            flat = self._faiss.IndexFlatIP(self._index.dim)
            for _, units, norms in self._index.chunks(CHUNK_ROWS):
                flat.add(score_parts(units.astype(np.float32), np.ones(1, np.float32), norms[:, None], 1, gamma_d))
            self._flat[gamma_d] = flat
        return self._flat[gamma_d]
