"""Hard negatives by a retriever of the configuration, over the pairs' own passages or over a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rag_app.config import Config
from rag_app.errors import ConfigError
from rag_app.out_folder import check_file
from rag_app.progress import Log, StepProgress
from rag_app.training.word_stores import stores_for_ranking
from retriever.corpora.writing import write_passages
from retriever.lexical import BM25Settings
from retriever.passages import Passage
from retriever.training.masking import known_positives
from retriever.training.mining import MiningReport, MiningSettings, answers_from, mine
from retriever.training.pairs import TrainingPair, passages_of
from retriever.training.pool import bm25_over, fingerprint_of
from retriever.wording import counted

if TYPE_CHECKING:
    from retriever.encoder import Encoder


def mine_pairs(
    pairs: Sequence[TrainingPair],
    config: Config,
    retriever: str,
    settings: MiningSettings,
    *,
    log: Log,
    progress: StepProgress | None = None,
    known: Sequence[TrainingPair] = (),
    own_passages: bool = True,
    reserved: Sequence[Passage] = (),
    encoders: dict[str, Encoder] | None = None,
) -> tuple[list[TrainingPair], MiningReport]:
    """Fill up the negatives of pairs.

    Args:
        pairs: What to find negatives for.
        config: Where the retriever is described. BM25 needs no encoder; any other keeps its index in the data folder.
        retriever: Its name.
        settings: How many, and what is left out.
        log: Told, in a line, of each long step before it starts.
        progress: Told of (what, done, total).
        known: Further pairs, whose positives and answers are known of the same queries too; none is made a result.
        own_passages: Rank the passages of the pairs; otherwise the configuration's corpus or index.
        reserved: Passages that must not become negatives.
        encoders: Those of the configuration that are loaded already, by name.

    Returns:
        As `retriever.training.mining.mine`.

    Raises:
        ConfigError: No such retriever, or a ranking made elsewhere, which knows other questions.
        RetrieverError: A passage id stands for two texts, or an encoder or index cannot be used.
    """
    table = config.retriever(retriever)
    if table.kind == "trec_run":
        raise ConfigError(f"retrievers.{retriever} is a ranking made elsewhere, and ranks no training queries")
    positives = known_positives([*pairs, *known])
    pairs = answers_from(pairs, known)
    tell = None if progress is None else lambda done, total: progress("queries", done, total)
    if own_passages and table.kind == "bm25":
        passages = passages_of(pairs)
        log(f"ranking the pairs' own {counted(len(passages), 'passage')} by {retriever}")
        with bm25_over(passages, BM25Settings(table.k1, table.b, table.stemmer), retriever) as words:
            return mine(pairs, words, settings, tell, known=positives, reserved=reserved)
    if own_passages:
        config = _over_own(passages_of(pairs), config, log)
    ranker = stores_for_ranking(config, retriever, log, progress, encoders).retriever(retriever)
    for note in ranker.notes:
        log(note)
    mined, report = mine(pairs, ranker, settings, tell, known=positives, reserved=reserved)
    if not own_passages and 2 * report.beyond > report.ranked:
        log(
            f"most positives ({report.beyond:,} of {report.ranked:,}) are not among the first {settings.depth} passages of the "
            "corpus: if their texts are cut or written otherwise there, some may have become negatives of their own "
            "queries; take the corpus that they are from, and name what ends a title with --title-separator"
        )
    return mined, report


def _over_own(passages: Sequence[Passage], config: Config, log: Log) -> Config:
    """The configuration over a file of these passages in the data folder, so that their index is made but once."""
    path = config.resolved_data_dir() / "mining" / f"pairs-{fingerprint_of(passages)}.jsonl"
    log(f"ranking the pairs' own {counted(len(passages), 'passage')}, kept in {path}")
    if not path.is_file():
        write_passages(path, passages)
    return config.over_own_file(path)


def check_out(out: Path, source: str) -> None:
    """Refuse, before anything takes time, a file that cannot or should not be written.

    Raises:
        ConfigError: A folder, a place that cannot be written to, or the file that is read.
    """
    check_file(out, "the mined pairs")
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise ConfigError(f"{out} is the file that is read: name another for the mined pairs")
