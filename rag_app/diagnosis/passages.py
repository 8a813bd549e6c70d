"""What the norms of a configuration's corpus say under one of its encoders: figures gathered from index and questions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from rag_app.config import Config
from rag_app.errors import USER_ERRORS, ConfigError
from rag_app.experiment import Experiment, open_experiment, question_sets
from rag_app.pipeline import Pipeline
from rag_app.sweep.norms import Marked, marked_passages
from retriever.diagnostics import Diagnosis, diagnose
from retriever.encoder import Encoder
from retriever.index import Index

SAMPLE = 20_000
"""Passages whose tokens are counted, drawn from a larger corpus; norms are of all."""

_AT_ONCE = 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """An encoder's norms over the configuration's corpus.

    Attributes:
        encoder: Its name in the configuration.
        model: What it is.
        trained_for: The similarity that it was trained for; None where nobody says.
        corpus: Name or place of the corpus.
        datasets: The data sets whose marks tell relevant passages from others; () where there are none.
        unmarked: Why there are none, in a phrase; "" where there are.
        figures: What the norms say.
    """

    encoder: str
    model: str
    trained_for: str | None
    corpus: str
    datasets: tuple[str, ...]
    unmarked: str
    figures: Diagnosis


def diagnose_encoder(
    pipeline: Pipeline, name: str, *, sample: int = SAMPLE, asked: Experiment | None = None
) -> Diagnosed:
    """Look at the index that a configured encoder made of the corpus; it is built where there is none yet.

    Args:
        pipeline: Over the corpus; its encoders and indexes are used.
        name: Of the encoder in the configuration.
        sample: So many passages have their tokens counted at most, beside those that are marked.
        asked: Whose questions mark passages of this corpus; those of [eval.datasets] over it where None.

    Raises:
        ConfigError: No such encoder, or an empty corpus.
        RetrieverError: Corpus, index or encoder cannot be used, or the index was made by another encoder.
    """
    config = pipeline.config
    config.encoder(name)
    index, encoder = pipeline.index(name), pipeline.encoder(name)
    index.check_encoder(encoder)
    if not len(index):
        raise ConfigError(f"{config.corpus} holds no passages, so there is nothing to measure")
    index.check_vectors()
    marked, datasets, unmarked = _marked(config) if asked is None else _marks_of(asked, config)
    relevant, others = np.zeros(len(index), dtype=bool), np.ones(len(index), dtype=bool)
    relevant[list(index.find(marked.own).values())] = True
    others[list(index.find(marked.anyone).values())] = False
    if datasets and not relevant.any():
        datasets, unmarked = (), "none of the passages that the questions mark is in this corpus"
    fair = np.zeros(len(index), dtype=bool)
    if len(index) <= sample:
        fair[:] = True
    else:
        fair[np.random.default_rng(0).choice(len(index), sample, replace=False)] = True
    rows = np.flatnonzero(fair | relevant)
    lengths = _lengths(index, encoder, rows)
    figures = diagnose(
        index.norms(), rows, lengths, relevant, others, sampled=fair[rows], limit=encoder.spec.passage_max_tokens
    )
    place = config.index.path or config.corpus
    return Diagnosed(name, encoder.name, encoder.spec.trained_for, place, datasets, unmarked, figures)


def _lengths(index: Index, encoder: Encoder, rows: np.ndarray) -> np.ndarray:
    """Tokens of some passages, as they are encoded."""
    passages = index.passages() if len(rows) == len(index) else (index.passage(row) for row in rows.tolist())
    counts = []
    while batch := list(islice(passages, _AT_ONCE)):
        counts.append(encoder.passage_lengths(batch))
    return np.concatenate(counts)


def configured_questions(config: Config) -> Experiment | str:
    """All questions of [eval.datasets] that lie on this machine, and the demo's; or why there are none, in a phrase.

    What would have to come from the hub is left out: looking at norms fetches nothing. So is a set that cannot be read: the
    log says why, since visitors of the page see the phrase and have no business with this machine's paths.
    """

    def opened(names: Iterable[str]) -> Experiment:
        chosen = {"datasets": {name: tables[name] for name in names}, "n": 0}
        settings = config.eval.model_copy(update=chosen)
        return open_experiment(config.model_copy(update={"eval": settings}), [], lambda line: None)

    tables, readable = question_sets(config), []
    if not tables:
        return _MISSING
    with contextlib.suppress(*USER_ERRORS):
        return opened(tables)
    for name in tables:
        try:
            opened([name])
            readable.append(name)
        except USER_ERRORS as error:
            _log.warning("the questions of %s are left out: %s", name, error)
    if not readable:
        return f"the questions of {', '.join(tables)} cannot be read; the terminal says why"
    return opened(readable)


_MISSING = "no questions with marked passages are known over this corpus: name a data set that has, in [eval.datasets]"


def _marked(config: Config) -> tuple[Marked, tuple[str, ...], str]:
    """Passages that questions over this corpus mark, of which data sets, and why of none."""
    whole = configured_questions(config)
    if isinstance(whole, str):
        return Marked(frozenset(), frozenset()), (), whole
    return _marks_of(whole, config)


def _marks_of(whole: Experiment, config: Config) -> tuple[Marked, tuple[str, ...], str]:
    own = config.corpus, config.index.path
    found = {
        name: marks
        for name, marks in marked_passages(whole, {name: str(place) for name, place in whole.corpora.items()}).items()
        if whole.corpora[name] == own and marks.own
    }
    if not found:
        return Marked(frozenset(), frozenset()), (), _MISSING
    relevant = frozenset[str]().union(*(marks.own for marks in found.values()))
    anyone = frozenset[str]().union(*(marks.anyone for marks in found.values()))
    return Marked(relevant, anyone), tuple(found), ""
