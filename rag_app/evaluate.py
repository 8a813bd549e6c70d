"""An evaluation as the configuration's [eval] table describes it: data sets × retrievers × readers × k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eval.corpus import find_answerable
from eval.data.sources import DataSet
from eval.errors import EvalError
from eval.folder import RunFolder
from eval.run import RunResult, run_evaluation
from eval.view import CorpusFacts, CorpusSample
from rag_app.bench import Bench, ReaderSlot, make_systems
from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.experiment import Experiment
from rag_app.pairs import require_scorer, score_pairs
from rag_app.pipeline import Pipeline
from rag_app.progress import StepProgress
from rag_app.prompt import prompt_sha256
from retriever.index import Index

SAMPLED_PASSAGES = 1000
"""Of each corpus, for the plot of norms against lengths."""

STEPS = ("answers", "rankings")
"""What `run` counts as it asks; the second where no reader is asked."""

LARGEST_SCAN = 1_000_000
"""Passages; a larger corpus is not read through for answers, and reports don't tell whether it has them."""


def corpus_facts(bench: Bench, config: Config, dataset: DataSet) -> CorpusFacts:
    """What a run notes of a data set's corpus: which questions it can answer, and each encoder's sample of norms and lengths."""
    indexes: dict[str, tuple[Index, list[str]]] = {}
    for name in searching(config):
        index = bench.retriever(dataset.name, name).index
        indexes.setdefault(index.fingerprint, (index, []))[1].append(name)
    if not indexes:
        return CorpusFacts()
    index = next(iter(indexes.values()))[0]
    found = None
    if dataset.task == "qa" and dataset.rule and len(index) <= LARGEST_SCAN:
        found = find_answerable(dataset.questions, (p.text for p in index.passages()), dataset.rule)
    return CorpusFacts(found, [_sample(own, names) for own, names in indexes.values()])


def _sample(index: Index, names: list[str]) -> CorpusSample:
    rows = np.unique(np.linspace(0, len(index) - 1, SAMPLED_PASSAGES).round().astype(int)).tolist()
    words = [len(index.passage(row).text.split()) for row in rows]
    return CorpusSample(names, words, [float(norm) for norm in index.vectors(rows)[1]])


def run(
    config: Config,
    experiment: Experiment,
    out: Path,
    *,
    log: Callable[[str], None],
    progress: StepProgress | None = None,
    retry_errors: bool = False,
    command: str = "",
    slot: ReaderSlot | None = None,
    beside: Pipeline | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> RunResult:
    """Evaluate what [eval] names.

    Args:
        config: Retrievers, readers, k and measures.
        experiment: Data sets with their questions drawn, and their corpora.
        out: The run folder, new or to be resumed.
        log: Told, in a line, what goes on.
        progress: Told of (what, done, total).
        retry_errors: Ask again what an earlier start stored an error for.
        command: What a person typed, for the report.
        slot: Holds the reader for evaluations that follow; without it, the reader is freed at the end.
        beside: A pipeline at work, whose encoders, reader and indexes are used in place of others, and left as they are.
        stop: Asked before each batch; where it says yes, the run ends there, and the same call resumes it.

    Raises:
        Stopped: `stop` said yes.
        EvalError: A folder of another run, or one that cannot be written; sentence pairs alone, of which nothing can be scored.
        RetrieverError: An index or encoder that cannot be used.
        GeneratorError: A reader that cannot be used, or died; the answers so far are kept.
    """
    settings = config.eval
    ids = {own.name: {q.question: q.own_id for q in own.questions} for own in experiment.datasets}
    RunFolder.refuse_foreign(out)  # before anything takes time
    _refuse_equal_texts(config, experiment)
    bench = Bench(config, experiment.corpora, ids, log, progress, slot, beside)
    pairs = experiment.pairs
    step = "answers" if settings.read else "rankings"
    try:
        datasets = [_with_corpus(own, experiment.corpora[own.name], bench, config) for own in experiment.datasets]
        _say_notes(config, bench, datasets)
        if pairs and not datasets:
            require_scorer(config, bench, pairs)
        result = run_evaluation(
            datasets,
            make_systems(config, bench, datasets),
            out,
            config=config.fingerprintable(),
            measures=settings.measures,
            seed=settings.seed,
            batch_size=settings.batch_size,
            recheck=settings.recheck,
            facts={
                "prompt_sha256": {name: prompt_sha256(own.prompt) for name, own in bench.readers.items()},
                "command": command,
            },
            corpus_facts=lambda dataset: corpus_facts(bench, config, dataset),
            pair_sets=pairs,
            score_pairs=lambda: score_pairs(config, bench, pairs),
            progress=None if progress is None else lambda done, total: progress(step, done, total),
            on_message=log,
            retry_errors=retry_errors,
            stop=stop,
        )
        if not result.metrics.systems:
            raise EvalError(f"nothing was measured; {result.metrics.notes[0]}")
        return result
    finally:
        bench.close()


def _say_notes(config: Config, bench: Bench, datasets: Sequence[DataSet]) -> None:
    """What a person should know before reading anything into the retrievers' figures, each note once."""
    if not datasets:
        return
    notes = (note for name in searching(config) for note in bench.retriever(datasets[0].name, name).notes)
    for note in dict.fromkeys(notes):
        bench.log(note)


def _refuse_equal_texts(config: Config, experiment: Experiment) -> None:
    """A retriever is given texts, and a TREC run knows ids: two questions of one text cannot be told apart there.

    Raises:
        EvalError: There are such questions, and a TREC run among the retrievers.
    """
    runs = [name for name in config.used_retrievers() if config.retrievers[name].kind == "trec_run"]
    for dataset in experiment.datasets if runs else []:
        seen: dict[str, str] = {}
        for question in dataset.questions:
            other = seen.setdefault(question.question, question.id)
            if other != question.id:
                raise EvalError(
                    f"{dataset.name}: questions {other!r} and {question.id!r} have the same text, and {runs[0]} is a TREC "
                    "run, which ranks by id: evaluate it with ir_measures, or leave one of the questions out"
                )


def _with_corpus(dataset: DataSet, corpus: tuple[str, str], bench: Bench, config: Config) -> DataSet:
    """The data set with what is searched noted, and without marks that mean other passages.

    Raises:
        EvalError: A retrieval set of which the corpus has no judged passage.
    """
    place = corpus[1] or corpus[0]
    indexes = {name: bench.retriever(dataset.name, name).index for name in searching(config)}
    facts: dict[str, Any] = {
        "corpus": place,
        "index": ", ".join(dict.fromkeys(index.fingerprint for index in indexes.values())) or None,
    }
    marked = {id for q in dataset.questions for id in (*q.qrels, *q.supporting_ids, *q.gold_ids)}
    if not (indexes and marked):
        return replace(dataset, source={**dataset.source, **facts})
    found = next(iter(indexes.values())).find(marked)
    facts["marked_passages"], facts["marked_passages_in_corpus"] = len(marked), len(found)
    if found:
        return replace(dataset, source={**dataset.source, **facts})
    if dataset.rule is None:
        raise EvalError(
            f"{dataset.name}: none of its {len(marked):,} judged passages is in the corpus {place}: name its own, with "
            f"--corpus or eval.datasets.{dataset.name}.corpus"
        )
    bench.log(
        f"{dataset.name}: none of its {len(marked):,} marked passages is in {place}; recall and ranking measures are left out"
    )
    unmarked = [replace(question, supporting_ids=(), gold_ids=(), qrels={}) for question in dataset.questions]
    return replace(dataset, questions=unmarked, source={**dataset.source, **facts})


def searching(config: Config) -> list[str]:
    """The retrievers of [eval] that have passages, the first one first."""
    return [name for name in config.eval.retrievers if name != CLOSED_BOOK]
