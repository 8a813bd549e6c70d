"""What the systems of an evaluation share, and the systems: every retriever with every reader and every k.

Every data set has a pipeline over its own corpus. They share the encoders, one reader at a time and the stage cache.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from eval.base import RankedPassage, Record
from eval.data.datasets import Question
from eval.data.sources import DataSet
from eval.ranking import deepest_cutoff
from generator.base import Generator
from rag_app.answers import Answer
from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK, GeneratorConfig
from rag_app.errors import ConfigError
from rag_app.pipeline import Pipeline
from rag_app.progress import StepProgress
from rag_app.prompt import prompt_sha256
from rag_app.reader import load_reader
from rag_app.stages import StageCache
from rag_app.stores import Stores
from retriever.base import Hit, IndexedRetriever
from retriever.encoder import Encoder
from retriever.runfile import bind_questions

_UNSHARED = {"eval", "page", "sweep", "prompt", "decoding", "generator"}
"""Tables that change nothing in what is retrieved with."""


class ReaderSlot:
    """One loaded reader at a time, since two may not fit into memory; several evaluations may share it.

    Args:
        log: Told, in a line, of each long step before it starts.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._loading = threading.RLock()
        self._held: tuple[GeneratorConfig, str, Generator] | None = None

    def get(self, config: Config) -> Generator:
        """The configuration's reader; another one that was there is closed."""
        with self._loading:
            wanted = (config.generator, config.data_dir)
            if self._held is None or self._held[:2] != wanted:
                self.close()
                self._held = (*wanted, load_reader(config, self._log))
            return self._held[2]

    def close(self) -> None:
        """Free the reader."""
        with self._loading:
            if self._held is not None:
                self._held[2].close()
                self._held = None


class _Lent(ReaderSlot):
    """The reader of a pipeline that goes on with it. It is loaded when first asked for, and other ones in its place never are."""

    def __init__(self, pipeline: Pipeline, log: Callable[[str], None]) -> None:
        super().__init__(log)
        self._pipeline = pipeline

    def get(self, config: Config) -> Generator:
        if config.generator != self._pipeline.config.generator:
            raise ConfigError(
                "beside other work an evaluation can only ask the reader that is loaded: leave out [eval.readers]"
            )
        return self._pipeline.generator


def _same_stores(config: Config, corpus: tuple[str, str], other: Config) -> bool:
    """Whether another pipeline retrieves over that corpus as this evaluation would; a TREC run is bound to its questions."""
    if any(config.retrievers[name].kind == "trec_run" for name in config.used_retrievers()):
        return False
    return config.over(*corpus).model_dump(exclude=_UNSHARED) == other.model_dump(exclude=_UNSHARED)


class Bench:
    """What the systems of an evaluation share.

    Args:
        config: With [eval] filled in.
        corpora: The corpus, and the index's folder or "", by data set.
        questions: The ids of each data set's questions by their text, for rankings that were made elsewhere.
        log: Told, in a line, of each long step before it starts.
        progress: Told of (what, done, total) during long steps.
        slot: Holds the reader, where others go on with it; its own otherwise.
        beside: A pipeline at work, whose encoders and reader are used too, and over its own corpus its indexes.
    """

    def __init__(
        self,
        config: Config,
        corpora: Mapping[str, tuple[str, str]],
        questions: Mapping[str, Mapping[str, str]],
        log: Callable[[str], None],
        progress: StepProgress | None,
        slot: ReaderSlot | None = None,
        beside: Pipeline | None = None,
    ) -> None:
        self.readers = {name: config.overridden(settings) for name, settings in config.eval.readers.items()}
        self.readers = self.readers or {"": config}
        self.log = log
        self._questions = questions
        self._bound: set[tuple[str, str]] = set()
        self._stages = StageCache(config.resolved_data_dir()) if config.eval.cache else None
        self._slot = slot or (ReaderSlot(log) if beside is None else _Lent(beside, log))
        self._own_slot = slot is None
        self._fingerprints: dict[str, str] = {}
        encoders: dict[str, Encoder] = {} if beside is None else beside.stores.encoders
        self._encoders = Stores(config, log, progress, encoders)
        self.pipelines: dict[tuple[str, str], Pipeline] = {}
        for dataset, corpus in corpora.items():
            if beside is not None and _same_stores(config, corpus, beside.config):
                stores = beside.stores
            else:
                stores = Stores(config.over(*corpus, dataset=dataset), log, progress, encoders)
            for reader, own in self.readers.items():
                self.pipelines[dataset, reader] = Pipeline(
                    own.over(*corpus, dataset=dataset),
                    log=log,
                    progress=progress,
                    stores=stores,
                    generator=partial(self.generator, reader),
                    stages=self._stages,
                )

    def generator(self, reader: str) -> Generator:
        """A reader; another one that was loaded is closed."""
        return self._slot.get(self.readers[reader])

    def reader_fingerprint(self, reader: str) -> str:
        """Of a reader, which is made for it once."""
        if reader not in self._fingerprints:
            self._fingerprints[reader] = self.generator(reader).fingerprint
        return self._fingerprints[reader]

    def retriever(self, dataset: str, name: str) -> IndexedRetriever:
        """A retriever over a data set's corpus."""
        found = self.pipelines[dataset, next(iter(self.readers))].retriever(name)
        if (dataset, name) not in self._bound:
            bind_questions(found, self._questions[dataset])
            self._bound.add((dataset, name))
        return found

    def encoder(self, name: str) -> Encoder:
        """An encoder by itself, for what needs no corpus."""
        return self._encoders.encoder(name)

    def close(self) -> None:
        """Free the cache, and the reader where nobody else goes on with it."""
        if self._own_slot:
            self._slot.close()
        if self._stages is not None:
            self._stages.close()


class System:
    """One retriever, one reader and one k: a row of every table (`eval.base.Answerer`).

    Args:
        name: In tables.
        bench: What it shares with the others.
        retriever: Its name, or "closed-book".
        reader: Its name, "" for the configuration's own.
        k: Passages that are offered to the reader.
        depth: Passages that are retrieved and recorded.
        ranks: Whether it takes part in retrieval sets.
        datasets: All of the evaluation.
    """

    def __init__(
        self,
        name: str,
        bench: Bench,
        retriever: str,
        reader: str,
        k: int,
        depth: int,
        *,
        ranks: bool,
        datasets: Sequence[DataSet],
    ) -> None:
        self.name = name
        self.reader = reader
        self._bench = bench
        self._retriever = retriever
        self._k = k
        self._depth = max(k, depth)
        self._tasks = {own.name: own.task for own in datasets if own.task == "qa" or ranks}
        # The same for all questions of a set, so that no ranking depends on what shares its batch.
        self._excluded = {own.name: max(len(q.excluded_ids) for q in own.questions) for own in datasets}
        self._fingerprint: str | None = None

    @property
    def fingerprint(self) -> str:
        """Of retriever and index of each data set, k, depth, prompt, decoding and reader."""
        if self._fingerprint is None:
            closed = self._retriever == CLOSED_BOOK
            config = self._bench.readers[self.reader]
            reads = "qa" in self._tasks.values()
            parts = {
                "retrievers": {
                    dataset: None if closed else self._bench.retriever(dataset, self._retriever).fingerprint
                    for dataset in self._tasks
                },
                "k": self._k,
                "depth": self._depth,
                "prompt": prompt_sha256(config.prompt) if reads else None,
                "decoding": config.decoding.model_dump() if reads else None,
                "reader": self._bench.reader_fingerprint(self.reader) if reads else None,
            }
            self._fingerprint = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
        return self._fingerprint

    def asks(self, dataset: str) -> bool:
        """See `eval.base.Answerer.asks`."""
        return dataset in self._tasks

    def retrieve(self, batch: Sequence[Question]) -> list[Answer]:
        """See `eval.base.Answerer.retrieve`."""
        k = self._depth + self._excluded[batch[0].dataset]
        found = self._pipeline(batch).search([question.question for question in batch], self._retriever, k)
        return [_without(answer, q.excluded_ids, self._depth) for answer, q in zip(found, batch, strict=True)]

    def answer(self, batch: Sequence[Question], found: Sequence[Answer], *, fresh: bool = False) -> Iterator[Record]:
        """See `eval.base.Answerer.answer`."""
        reads = self._tasks[batch[0].dataset] == "qa"
        pipeline = self._pipeline(batch)
        answers = found
        if reads:
            answers = pipeline.read([question.question for question in batch], found, self._k, fresh=fresh)
        for question, answer in zip(batch, answers, strict=True):
            yield Record(
                id=question.id,
                prediction=answer.answer,
                passages=self._ranked(question.dataset, answer.hits),
                k=min(self._k, len(answer.hits)) if reads else 0,
                dropped=answer.dropped,
                cut=answer.cut,
                prompt_tokens=answer.prompt_tokens,
                seconds=answer.timings,
                error=answer.error,
            )

    def _pipeline(self, batch: Sequence[Question]) -> Pipeline:
        return self._bench.pipelines[batch[0].dataset, self.reader]

    def _ranked(self, dataset: str, hits: Sequence[Hit]) -> list[RankedPassage]:
        if not hits:
            return []
        index = self._bench.retriever(dataset, self._retriever).index
        # A word-based retriever's hits have no norm, but their passages have one in the index it shares.
        norms = [hit.norm if hit.norm is not None else float(index.vectors([hit.row])[1][0]) for hit in hits]
        percentiles = index.norm_percentiles(norms)
        return [
            RankedPassage(
                rank=hit.rank,
                id=hit.passage.id,
                title=hit.passage.title,
                text=hit.passage.text,
                score=hit.score,
                cosine=hit.cosine,
                norm=norm,
                percentile=float(percentile),
            )
            for hit, norm, percentile in zip(hits, norms, percentiles, strict=True)
        ]


def _without(answer: Answer, excluded: Sequence[str], depth: int) -> Answer:
    """The ranking without some passages, cut to depth, ranks counted anew."""
    kept = [hit for hit in answer.hits if hit.passage.id not in excluded][:depth]
    return replace(answer, hits=[replace(hit, rank=rank) for rank, hit in enumerate(kept, start=1)])


def make_systems(config: Config, bench: Bench, datasets: Sequence[DataSet]) -> list[System]:
    """Every retriever with every reader and every k, the first retriever's first.

    Names say no more than is needed to tell them apart.
    """
    settings = config.eval
    # Where nothing is read, readers and k change nothing.
    reads = any(dataset.task == "qa" for dataset in datasets)
    readers = list(bench.readers) if reads else list(bench.readers)[:1]
    systems: list[System] = []
    for reader in readers:
        for name in settings.retrievers:
            closed = name == CLOSED_BOOK
            if closed and not reads:
                bench.log(f"no row for {name}: nothing is read")
                continue
            ks = [0] if closed else list(settings.k) or [config.retriever(name).k]
            for k in ks if reads else ks[:1]:
                label = name + (f" k={k}" if len(ks) > 1 and reads else "") + (f" {reader}" if len(readers) > 1 else "")
                # Nor do they on a retrieval set among question sets: one row a retriever.
                ranks = not closed and reader == readers[0] and k == ks[0]
                depth = 0 if closed else max(settings.depth, deepest_cutoff(settings.measures))
                systems.append(System(label, bench, name, reader, k, depth, ranks=ranks, datasets=datasets))
    return systems
