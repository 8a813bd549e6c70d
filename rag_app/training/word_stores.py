"""Rankings by words alone: BM25 over a corpus as it is read, for who needs no vectors of it, and so no encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag_app.config import Config
from rag_app.progress import Log, StepProgress
from rag_app.stores import Stores, open_corpus
from retriever.training.pool import fingerprint_of, words_index

if TYPE_CHECKING:
    from retriever.encoder import Encoder
    from retriever.index import Index


def stores_for_ranking(
    config: Config,
    retriever: str,
    log: Log,
    progress: StepProgress | None = None,
    encoders: dict[str, Encoder] | None = None,
) -> Stores:
    """What a retriever ranks with where nothing but its rankings is wanted.

    Args:
        config: Names the corpus or an index.
        retriever: BM25, or one that stands on it alone, has no corpus encoded; an index that is named is ranked as ever.
        log: As for `Stores`.
        progress: As for `Stores`.
        encoders: As for `Stores`.
    """
    table = config.retriever(retriever)
    while table.kind in ("rerank", "iterative"):
        table = config.retriever((table.of or ())[0])
    kind = WordStores if table.kind == "bm25" and not config.index.path else Stores
    return kind(config, log, progress, encoders)


class WordStores(Stores):
    """Stores whose index has passages and no vectors. They lie in memory, as BM25's words do while its matrix is built.

    The matrix is kept in the data folder. Documents are cut by words.
    """

    def index(self, encoder_name: str) -> Index:
        """The passages of the corpus, whatever the encoder."""
        return self._indexes.get("", self._words_index)

    def _words_index(self) -> Index:
        self._log(f"reading {self.config.corpus}, which BM25 ranks by words, without an encoder")
        passages = list(open_corpus(self.config, None))
        folder = self.config.resolved_data_dir() / "words" / fingerprint_of(passages)
        folder.mkdir(parents=True, exist_ok=True)
        return words_index(passages, folder)
