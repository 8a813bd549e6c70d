"""The evaluations of a sweep: one encoder after the other, each searched as it was trained, and what its norms say.

Passage vectors are most of the work. They lie in indexes in the data folder, which every evaluation here shares, are made
in files that a kill cannot take back, and are made once for each encoder and corpus.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from eval.data.datasets import content_hash
from eval.errors import EvalError
from eval.sweep import RANKING, UNTRAINED, Evaluated, Norms
from eval.sweep_pairs import PairValues
from eval.view import RunView
from rag_app.adapters import find_adapter
from rag_app.bench import ReaderSlot
from rag_app.config import Config
from rag_app.config_checks import unknown
from rag_app.config_tables import EncoderConfig, RetrieverConfig, Similarity
from rag_app.errors import ConfigError
from rag_app.evaluate import run
from rag_app.experiment import Experiment, open_experiment
from rag_app.progress import Log, StepProgress, stages
from rag_app.reader import reader_folder
from rag_app.stores import Stores, open_corpus
from rag_app.sweep.norms import Marked, all_norms, marked_passages, pair_values
from rag_app.weight_hashes import model_hash, weights_hash
from rag_app.weights import resolve
from retriever.encoder import Encoder
from retriever.index import Index
from retriever.shards import write_json


@dataclass(frozen=True, slots=True)
class Candidate:
    """An encoder to evaluate.

    Attributes:
        trained_for: A similarity, or `UNTRAINED`.
        seed: Of its training.
        encoder: How it is loaded.
        first: It is of the first seed, or untrained: evaluated on every data set.
    """

    trained_for: str
    seed: int
    encoder: EncoderConfig
    first: bool = True

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
        whole: The data sets with all of their questions, of which some may be asked.
        marked: By data set.
    """

    config: Config
    ranking: Experiment
    reading: Experiment | None
    in_domain: tuple[str, ...]
    corpora: Mapping[str, str]
    whole: Experiment
    marked: Mapping[str, Marked]

    @classmethod
    def of(cls, config: Config, in_domain: Sequence[str], log: Log) -> Plan:
        """Read the data sets, and see that the reader's weights are there where one is needed.

        Raises:
            ConfigError: [sweep] names a data set that [eval.datasets] lacks or leaves none for further seeds, or there are
                several readers or k.
            EvalError: A data set cannot be read.
            WeightsError: The reader's weights cannot be had.
        """
        inside = tuple(in_domain) or config.sweep.in_domain
        named = (("in_domain", inside), ("read", config.sweep.read), ("first_seed_only", config.sweep.first_seed_only))
        for setting, names in named:
            for name in names:
                if name not in config.eval.datasets:
                    raise ConfigError(f"sweep.{setting}: {unknown('data set', name, config.eval.datasets)}")
        if len(config.eval.readers) > 1 or len(config.eval.k) > 1:
            raise ConfigError("a sweep reads with one reader and one k: keep one each in eval.readers and eval.k")
        ranking = open_experiment(_asking(config, read=False), [], log)
        if not ranking.datasets:
            raise ConfigError("a sweep ranks passages: name a data set with questions in [eval.datasets]")
        if not _without(ranking, config.sweep.first_seed_only).datasets:
            raise ConfigError("sweep.first_seed_only leaves further seeds nothing to rank: take a data set out of it")
        reading = None
        if config.sweep.read:
            reading = open_experiment(_asking(config, read=True), [], log)
            reader_folder(config, log)
        corpora = {name: corpus_mark(config, corpus) for name, corpus in ranking.corpora.items()}
        whole = open_experiment(_asking(config, read=False, n=0), [], _silent) if config.eval.n else ranking
        return cls(config, ranking, reading, inside, corpora, whole, marked_passages(whole, corpora))

    @property
    def questions(self) -> list[str]:
        """Every text that is asked, or could be by another draw: what must not be trained on."""
        asked = [question.question for own in self.whole.datasets for question in own.questions]
        pairs = [text for own in self.whole.pairs for pair in own.pairs for text in (pair.text1, pair.text2)]
        return [*asked, *pairs]

    def asked(self, experiment: Experiment, one: Candidate) -> Experiment:
        """What of an experiment a candidate is evaluated on."""
        return experiment if one.first else _without(experiment, self.config.sweep.first_seed_only)


def evaluate_all(
    plan: Plan, candidates: Sequence[Candidate], out: Path, log: Log, progress: StepProgress, command: str
) -> list[Evaluated]:
    """Every candidate's evaluation, in their order: all rankings first, then all answers.

    What is there already and was made of the same weights, questions, passages and settings is taken as it is.

    Raises:
        EvalError: See `rag_app.evaluate.run`.
    """
    lengths: dict[str, np.ndarray] = {}
    norms: dict[str, dict[str, Norms]] = {}
    pairs: dict[str, dict[str, PairValues]] = {}

    def ranked(one: Candidate) -> str:
        return f"{one.name} on {', '.join(plan.asked(plan.ranking, one).names)}"

    for one in stages("ranking", candidates, ranked, log):
        norms[one.name], pairs[one.name] = _rank(plan, one, out / one.name, lengths, log, progress, command)
    readers = {
        one.name: asked
        for one in candidates
        if plan.reading is not None and (asked := plan.asked(plan.reading, one)).datasets
    }

    def read(one: Candidate) -> str:
        return f"{one.name} on {', '.join(readers[one.name].names)}"

    slot = ReaderSlot(log)
    try:
        for one in stages("reading", [one for one in candidates if one.name in readers], read, log):
            _read(plan, readers[one.name], one, out / one.name, slot, log, progress, command)
    finally:
        slot.close()
    return [
        Evaluated(
            one.trained_for,
            one.seed,
            RunView.open(out / one.name / "ranking"),
            RunView.open(out / one.name / "reading") if one.name in readers else None,
            norms[one.name],
            pairs[one.name],
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
) -> tuple[dict[str, Norms], dict[str, PairValues]]:
    config, asked = _config(plan.config, one, one.searched_by, read=False), plan.asked(plan.ranking, one)
    # Whose marks decide which passages are relevant to nobody.
    marks = content_hash([question for own in plan.whole.datasets for question in own.questions])
    mark, kept = _mark(plan, asked, one, config, log, marks), folder / "ranking.json"
    found = _kept(kept, mark, folder / "ranking", log)
    if found is None:
        run(config, asked, folder / "ranking", log=log, progress=progress, command=command)
        name, encoders = _encoder_name(plan.config, one), dict[str, Encoder]()
        figures = all_norms(config, plan.marked, asked, name, encoders, lengths, log, progress)
        scored = pair_values(asked.pairs, Stores(config, log, progress, encoders), name)
        found = {
            "norms": {name: asdict(own) for name, own in figures.items()},
            "pairs": {name: asdict(own) for name, own in scored.items()},
        }
        write_json(kept, {"of": mark, "found": found})
    return (
        {own.name: Norms(**found["norms"][own.name]) for own in asked.datasets},
        {own.name: PairValues(**found["pairs"][own.name]) for own in asked.pairs},
    )


def _read(
    plan: Plan,
    asked: Experiment,
    one: Candidate,
    folder: Path,
    slot: ReaderSlot,
    log: Log,
    progress: StepProgress,
    command: str,
) -> None:
    systems = one.searched_by[: 2 if one.trained_for == UNTRAINED else 1]
    config = _config(plan.config, one, systems, read=True)
    reader = reader_folder(config, _silent)  # with its adapter merged; a server's weights are not ours to see
    weights = None if reader is None else model_hash(reader, data_dir=config.resolved_data_dir())
    mark, kept = _mark(plan, asked, one, config, log, weights), folder / "reading.json"
    if _kept(kept, mark, folder / "reading", log) is None:
        run(config, asked, folder / "reading", log=log, progress=progress, command=command, slot=slot)
        write_json(kept, {"of": mark, "found": {}})


# --- configurations --------------------------------------------------------------------------------------------------


def _asking(config: Config, *, read: bool, n: int | None = None) -> Config:
    """The experiment with the data sets and the number of questions of one of the two evaluations, or n questions."""
    settings = config.eval
    measures = tuple(dict.fromkeys((RANKING, *settings.measures)))
    changes: dict[str, Any] = {"read": read, "measures": measures}
    if read:
        changes["n"] = config.sweep.n
        changes["datasets"] = {name: settings.datasets[name] for name in config.sweep.read}
    if n is not None:
        changes["n"] = n
    return config.model_copy(update={"eval": settings.model_copy(update=changes)})


def _without(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """The experiment without data sets of these names."""
    return replace(
        experiment,
        datasets=[own for own in experiment.datasets if own.name not in names],
        pairs=[own for own in experiment.pairs if own.name not in names],
        corpora={name: corpus for name, corpus in experiment.corpora.items() if name not in names},
    )


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


def corpus_mark(config: Config, corpus: tuple[str, str]) -> str:
    """What stands for the passages of a corpus, or of an index."""
    return Index(corpus[1]).fingerprint if corpus[1] else open_corpus(config.over(*corpus), None).fingerprint()


def _mark(plan: Plan, asked: Experiment, one: Candidate, config: Config, log: Log, further: str | None) -> str:
    """Changes with anything that may change the evaluation's figures; `further` is what only one of the two depends on."""
    data_dir, adapter = config.resolved_data_dir(), one.encoder.adapter
    folder = resolve(one.encoder.model, data_dir=data_dir, log=log, setting="encoder.model")
    content = [
        config.fingerprintable(),
        config.eval.seed,
        config.eval.measures,
        config.eval.batch_size,
        content_hash([question for own in asked.datasets for question in own.questions]),
        {own.name: own.source["sha256"] for own in asked.pairs},
        {own.name: plan.corpora[own.name] for own in asked.datasets},
        model_hash(folder, data_dir=data_dir),
        weights_hash(find_adapter(adapter, "encoder.adapter")) if adapter else None,
        further,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _kept(path: Path, mark: str, folder: Path, log: Log) -> dict[str, Any] | None:
    """What was noted of a finished evaluation; None where it is unfinished, or not there.

    One that was of something else is set aside under another name, since its folder is needed.
    """
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        before, found = str(noted["of"]), noted["found"]
    except (OSError, ValueError, KeyError, TypeError):
        before, found = "", None
    if before and before != mark and folder.is_dir():
        number = 1
        while (aside := folder.with_name(f"{folder.name}-{number}")).exists():
            number += 1
        folder.rename(aside)
        log(f"{folder} was evaluated with other weights, questions or settings: it is {aside.name} now, and made anew")
    if before != mark:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"of": mark, "found": None})
        return None
    try:
        return found if RunView.open(folder).finished else None
    except EvalError:
        return None


def _silent(line: str) -> None:
    """For what has been told already."""
