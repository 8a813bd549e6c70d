"""The evaluations of a sweep: one encoder after the other, each searched as it was trained, and what its norms say.

Passage vectors are most of the work. They lie in indexes in the data folder, which every evaluation here shares, are made
in files that a kill cannot take back, and are made once for each encoder and corpus.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from eval.data.datasets import content_hash
from eval.data.sources import DataSet
from eval.errors import EvalError
from eval.sweep import RANKING, UNTRAINED, Evaluated, Norms
from eval.view import RunView
from rag_app.adapters import find_adapter
from rag_app.bench import ReaderSlot
from rag_app.config import Config
from rag_app.config_checks import unknown
from rag_app.config_tables import EncoderConfig, RetrieverConfig, Similarity
from rag_app.errors import ConfigError
from rag_app.evaluate import run
from rag_app.experiment import Experiment, open_experiment
from rag_app.reader import reader_folder
from rag_app.stores import StepProgress, Stores, open_corpus
from rag_app.weights import model_hash, resolve, weights_hash
from retriever.diagnostics import cohens_d, length_correlation, variation
from retriever.encoder import Encoder
from retriever.index import Index
from retriever.shards import write_json

Log = Callable[[str], None]

_PASSAGES_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Candidate:
    """An encoder to evaluate.

    Attributes:
        trained_for: A similarity, or `UNTRAINED`.
        seed: Of its training.
        encoder: How it is loaded.
    """

    trained_for: str
    seed: int
    encoder: EncoderConfig

    @property
    def name(self) -> str:
        """Of its folder."""
        return UNTRAINED if self.trained_for == UNTRAINED else f"{self.trained_for}-{self.seed}"

    @property
    def searched_by(self) -> tuple[str, ...]:
        """Its own similarity, and the two symmetric ones, which sentence pairs need and which rank from the same index."""
        own = "cosine" if self.trained_for == UNTRAINED else self.trained_for
        return tuple(dict.fromkeys((own, "cosine", "dot")))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked.

    Attributes:
        config: The experiment.
        ranking: All of its data sets.
        reading: Those whose answers are scored; None where there are none.
        in_domain: Names of data sets.
        corpora: What stands for each data set's passages, by name.
    """

    config: Config
    ranking: Experiment
    reading: Experiment | None
    in_domain: tuple[str, ...]
    corpora: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config, in_domain: Sequence[str], log: Log) -> Plan:
        """Read the data sets, and see that the reader's weights are there where one is needed.

        Raises:
            ConfigError: [sweep] names a data set that [eval.datasets] lacks, or there are several readers or k.
            EvalError: A data set cannot be read.
            WeightsError: The reader's weights cannot be had.
        """
        inside = tuple(in_domain) or config.sweep.in_domain
        for setting, names in (("in_domain", inside), ("read", config.sweep.read)):
            for name in names:
                if name not in config.eval.datasets:
                    raise ConfigError(f"sweep.{setting}: {unknown('data set', name, config.eval.datasets)}")
        if len(config.eval.readers) > 1 or len(config.eval.k) > 1:
            raise ConfigError("a sweep reads with one reader and one k: keep one each in eval.readers and eval.k")
        ranking = open_experiment(_asking(config, read=False), [], log)
        if not ranking.datasets:
            raise ConfigError("a sweep ranks passages: name a data set with questions in [eval.datasets]")
        reading = None
        if config.sweep.read:
            reading = open_experiment(_asking(config, read=True), [], log)
            reader_folder(config, log)
        corpora = {name: _corpus_mark(config, corpus) for name, corpus in ranking.corpora.items()}
        return cls(config, ranking, reading, inside, corpora)


def evaluate_all(
    plan: Plan, candidates: Sequence[Candidate], out: Path, log: Log, progress: StepProgress, command: str
) -> list[Evaluated]:
    """Every candidate's evaluation, in their order: all rankings first, then all answers.

    What is there already and was made of the same weights, questions, passages and settings is taken as it is.

    Raises:
        EvalError: See `rag_app.evaluate.run`.
    """
    lengths: dict[str, np.ndarray] = {}
    norms = {}
    for number, one in enumerate(candidates, start=1):
        log(f"ranking {number} of {len(candidates)}: {one.name}")
        norms[one.name] = _rank(plan, one, out / one.name, lengths, log, progress, command)
    slot = ReaderSlot(log)
    try:
        for number, one in enumerate(candidates, start=1) if plan.reading else ():
            log(f"reading {number} of {len(candidates)}: {one.name}")
            _read(plan, one, out / one.name, slot, log, progress, command)
    finally:
        slot.close()
    return [
        Evaluated(
            one.trained_for,
            one.seed,
            RunView.open(out / one.name / "ranking"),
            RunView.open(out / one.name / "reading") if plan.reading else None,
            norms[one.name],
        )
        for one in candidates
    ]


def _rank(
    plan: Plan,
    one: Candidate,
    folder: Path,
    lengths: dict[str, np.ndarray],
    log: Log,
    progress: StepProgress,
    command: str,
) -> dict[str, Norms]:
    config = _config(plan.config, one, one.searched_by, read=False)
    mark, kept = _mark(plan, plan.ranking, one, config, log), folder / "norms.json"
    found = _kept(kept, mark, folder / "ranking")
    if found is None:
        run(config, plan.ranking, folder / "ranking", log=log, progress=progress, command=command)
        figures = _norms(config, plan.ranking, _encoder_name(plan.config, one), lengths, log, progress)
        found = {name: asdict(own) for name, own in figures.items()}
        write_json(kept, {"of": mark, "found": found})
    return {own.name: Norms(**found[own.name]) for own in plan.ranking.datasets}


def _read(
    plan: Plan, one: Candidate, folder: Path, slot: ReaderSlot, log: Log, progress: StepProgress, command: str
) -> None:
    assert plan.reading is not None
    systems = one.searched_by[: 2 if one.trained_for == UNTRAINED else 1]
    config = _config(plan.config, one, systems, read=True)
    mark, kept = _mark(plan, plan.reading, one, config, log), folder / "reading.json"
    if _kept(kept, mark, folder / "reading") is None:
        run(config, plan.reading, folder / "reading", log=log, progress=progress, command=command, slot=slot)
        write_json(kept, {"of": mark, "found": {}})


# --- configurations --------------------------------------------------------------------------------------------------


def _asking(config: Config, *, read: bool) -> Config:
    """The experiment with the data sets and the number of questions of one of the two evaluations."""
    settings = config.eval
    measures = tuple(dict.fromkeys((RANKING, *settings.measures)))
    changes: dict[str, Any] = {"read": read, "measures": measures}
    if read:
        changes["n"] = config.sweep.n
        changes["datasets"] = {name: settings.datasets[name] for name in config.sweep.read}
    return config.model_copy(update={"eval": settings.model_copy(update=changes)})


def _config(config: Config, one: Candidate, similarities: Sequence[str], *, read: bool) -> Config:
    """The experiment with this one encoder, and a retriever for each similarity, called by it."""
    name, asking = _encoder_name(config, one), _asking(config, read=read)
    return asking.model_copy(
        update={
            "encoders": {name: one.encoder},
            "retrievers": {
                own: RetrieverConfig(kind="dense", encoder=name, similarity=cast(Similarity, own))
                for own in similarities
            },
            "page": config.page.model_copy(update={"retrievers": tuple(similarities[:1])}),
            "eval": asking.eval.model_copy(update={"retrievers": tuple(similarities)}),
        }
    )


def _encoder_name(config: Config, one: Candidate) -> str:
    """The untrained encoder goes by the name it has in the experiment, under which its indexes may be there already."""
    if one.trained_for != UNTRAINED:
        return one.name
    return next((name for name, own in config.encoders.items() if own == one.encoder), one.name)


# --- what is there already -------------------------------------------------------------------------------------------


def _corpus_mark(config: Config, corpus: tuple[str, str]) -> str:
    return Index(corpus[1]).fingerprint if corpus[1] else open_corpus(config.over(*corpus), None).fingerprint()


def _mark(plan: Plan, experiment: Experiment, one: Candidate, config: Config, log: Log) -> str:
    """Changes with anything that may change the evaluation's figures."""
    data_dir, adapter = config.resolved_data_dir(), one.encoder.adapter
    folder = resolve(one.encoder.model, data_dir=data_dir, log=log, setting="encoder.model")
    content = [
        config.fingerprintable(),
        config.eval.seed,
        config.eval.measures,
        config.eval.batch_size,
        content_hash([question for own in experiment.datasets for question in own.questions]),
        {own.name: own.source["sha256"] for own in experiment.pairs},
        {own.name: plan.corpora[own.name] for own in experiment.datasets},
        model_hash(folder, data_dir=data_dir),
        weights_hash(find_adapter(adapter, "encoder.adapter")) if adapter else None,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _kept(path: Path, mark: str, folder: Path) -> dict[str, Any] | None:
    """What was noted of a finished evaluation; None where it is unfinished or was another."""
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        done = noted["of"] == mark and RunView.open(folder).finished
    except (OSError, ValueError, KeyError, TypeError, EvalError):
        return None
    return noted["found"] if done else None


# --- norms -----------------------------------------------------------------------------------------------------------


def _norms(
    config: Config, experiment: Experiment, name: str, lengths: dict[str, np.ndarray], log: Log, progress: StepProgress
) -> dict[str, Norms]:
    """What the encoder's norms say on each data set.

    `lengths` are kept by corpus, since a training does not change the tokenizer.
    """
    encoders: dict[str, Encoder] = {}
    found = {}
    for dataset in experiment.datasets:
        stores = Stores(config.over(*experiment.corpora[dataset.name], dataset=dataset.name), log, progress, encoders)
        index = stores.index(name)
        key = index.manifest["corpus"]
        if key not in lengths:
            log(f"counting the tokens of {len(index):,} passages of {dataset.name}")
            encoder = stores.encoder(name)
            passages, counts = index.passages(), []
            while batch := list(islice(passages, _PASSAGES_AT_ONCE)):
                counts.append(encoder.passage_lengths(batch))
            lengths[key] = np.concatenate(counts)
        found[dataset.name] = _norms_of(dataset, index, lengths[key])
    return found


def _norms_of(dataset: DataSet, index: Index, lengths: np.ndarray) -> Norms:
    marked = {id for question in dataset.questions for id, grade in question.relevance.items() if grade > 0}
    norms = index.norms()
    relevant = np.zeros(len(norms), dtype=bool)
    relevant[list(index.find(marked).values())] = True
    effect = cohens_d(norms[relevant], norms[~relevant])
    return Norms(
        effect.value,
        effect.reason,
        effect.relevant,
        effect.others,
        variation(norms),
        length_correlation(norms, lengths),
    )
