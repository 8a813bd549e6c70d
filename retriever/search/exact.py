"""Exact search in torch: every passage is scored, a chunk at a time, on CPU or GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from retriever.encoder import Vectors
from retriever.search.base import Ranking, clip_k, order_rows
from retriever.similarity import Similarity, score_parts

if TYPE_CHECKING:
    from retriever.index import Index

CHUNK_ROWS = 65_536
"""Rows scored at once: 100 MB of 384-dimensional float32, whatever the size of the index."""

QUERY_ROWS = 256
"""Queries scored at once, so that the score matrix stays below 64 MB."""


class ExactSearcher:
    """Brute force over the memory-mapped shards; memory does not grow with the corpus.

    Args:
        index: An open index.
        device: A torch device name; "auto" takes a GPU where there is one.
    """

    def __init__(self, index: Index, device: str = "auto") -> None:
        import torch

        self._index = index
        self._device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)

    def search(self, queries: Vectors, similarity: Similarity, k: int) -> Ranking:
        """See `Searcher.search`."""
        k = clip_k(k, len(self._index))
        blocks = [
            self._search_block(
                Vectors(queries.units[start : start + QUERY_ROWS], queries.norms[start : start + QUERY_ROWS]),
                similarity,
                k,
            )
            for start in range(0, len(queries.norms), QUERY_ROWS)
        ]
        if not blocks:
            empty = np.zeros((0, k), dtype=np.float32)
            return Ranking(empty.astype(np.int64), empty, empty, empty)
        return Ranking(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))

    def _search_block(self, queries: Vectors, similarity: Similarity, k: int) -> tuple[np.ndarray, ...]:
        import torch

        units = torch.from_numpy(queries.units).to(self._device)
        query_norms = torch.from_numpy(queries.norms).to(self._device).unsqueeze(1)
        best: list[torch.Tensor] = []
        for first_row, chunk_units, chunk_norms in self._index.chunks(CHUNK_ROWS):
            passages = torch.from_numpy(chunk_units).to(self._device).float()
            norms = torch.from_numpy(chunk_norms).to(self._device)
            cosines = units @ passages.T
            scores = score_parts(cosines, query_norms, norms.unsqueeze(0), similarity.gamma_q, similarity.gamma_d)
            top, columns = scores.topk(min(k, scores.shape[1]), dim=1)
            found = [top, cosines.gather(1, columns), norms[columns], columns + first_row]
            if best:
                found = [torch.cat(pair, dim=1) for pair in zip(best, found, strict=True)]
                top, columns = found[0].topk(min(k, found[0].shape[1]), dim=1)
                found = [values.gather(1, columns) for values in found]
            best = found
        scores_np, cosines_np, norms_np, rows_np = (values.cpu().numpy() for values in best)
        order = order_rows(scores_np, rows_np)
        return tuple(np.take_along_axis(values, order, axis=1) for values in (rows_np, scores_np, cosines_np, norms_np))
