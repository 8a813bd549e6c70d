"""What an encoder says of passages and sentence pairs beside its rankings: norms, and scores of each pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from eval.data.datasets import Question
from eval.data.sources import PairSet
from eval.sweep import Norms
from eval.sweep_pairs import SYSTEMS, PairValues
from rag_app.config import Config
from rag_app.experiment import Experiment
from rag_app.pairs import EncodedPairs
from rag_app.progress import Log, StepProgress
from rag_app.stores import Stores
from retriever.diagnostics import cohens_d, length_correlation, variation
from retriever.encoder import Encoder
from retriever.index import Index
from retriever.similarity import similarity_from_name

_PASSAGES_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Marked:
    """Passages that questions mark, whether they are asked or not.

    Attributes:
        own: Ids of those that are relevant to a question of the data set.
        anyone: Ids of those that a question of any data set over the same corpus marks in any way.
    """

    own: frozenset[str]
    anyone: frozenset[str]


def marked_passages(whole: Experiment, corpora: Mapping[str, str]) -> dict[str, Marked]:
    """By data set, from all questions of all of them."""
    anyone: dict[str, set[str]] = {}
    for own in whole.datasets:
        anyone.setdefault(corpora[own.name], set()).update(*(marked_ids(question) for question in own.questions))
    return {
        own.name: Marked(
            frozenset(id for question in own.questions for id, grade in question.relevance.items() if grade > 0),
            frozenset(anyone[corpora[own.name]]),
        )
        for own in whole.datasets
    }


def marked_ids(question: Question) -> set[str]:
    """Passages that a question marks in any way but as irrelevant."""
    return {*(id for id, grade in question.qrels.items() if grade > 0), *question.supporting_ids, *question.gold_ids}


def all_norms(
    config: Config,
    marked: Mapping[str, Marked],
    asked: Experiment,
    name: str,
    encoders: dict[str, Encoder],
    lengths: dict[str, np.ndarray],
    log: Log,
    progress: StepProgress,
) -> dict[str, Norms]:
    """What an encoder's norms say on each data set.

    Args:
        config: The evaluation's.
        marked: By data set.
        asked: The data sets, over whose corpora there are indexes.
        name: Of the encoder in the configuration.
        encoders: Those that are loaded, by name; kept, as `Stores` does.
        lengths: In tokens, by corpus; kept, since a training does not change the tokenizer.
        log: Told, in a line, of what takes long.
        progress: Told of (what, done, total).
    """
    found = {}
    for dataset in asked.datasets:
        stores = Stores(config.over(*asked.corpora[dataset.name], dataset=dataset.name), log, progress, encoders)
        index = stores.index(name)
        key = index.manifest["corpus"]
        if key not in lengths:
            log(f"counting the tokens of {len(index):,} passages of {dataset.name}")
            encoder = stores.encoder(name)
            passages, counts = index.passages(), []
            while batch := list(islice(passages, _PASSAGES_AT_ONCE)):
                counts.append(encoder.passage_lengths(batch))
            lengths[key] = np.concatenate(counts)
        found[dataset.name] = _norms_of(marked[dataset.name], index, lengths[key])
    return found


def _norms_of(marked: Marked, index: Index, lengths: np.ndarray) -> Norms:
    norms = index.norms()
    relevant, others = np.zeros(len(norms), dtype=bool), np.ones(len(norms), dtype=bool)
    relevant[list(index.find(marked.own).values())] = True
    others[list(index.find(marked.anyone).values())] = False
    effect = cohens_d(norms[relevant], norms[others])
    return Norms(
        effect.value,
        effect.reason,
        effect.relevant,
        effect.others,
        variation(norms),
        length_correlation(norms, lengths),
    )


def pair_values(sets: Sequence[PairSet], stores: Stores, name: str) -> dict[str, PairValues]:
    """Every pair's scores, which differences between trainings are resampled from; as `rag_app.pairs` makes them."""
    found = {}
    for own in sets:
        encoded = EncodedPairs.of(own, stores.encoder(name))
        scores = {system: encoded.scores(similarity_from_name(system)) for system in SYSTEMS}
        found[own.name] = PairValues([pair.score for pair in own.pairs], scores)
    return found
