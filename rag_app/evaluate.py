"""An evaluation as the configuration's [eval] table describes it: data sets × retrievers × readers × k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eval.corpus import find_answerable
from eval.data.pairs import spearman
from eval.data.sources import DataSet, PairSet
from eval.run import RunResult, run_evaluation
from eval.view import CorpusFacts, PairScore
from rag_app.bench import Bench, make_systems
from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.experiment import OWN_ID, Experiment
from rag_app.prompt import prompt_sha256
from rag_app.stores import StepProgress, Stores
from retriever.errors import RetrieverError
from retriever.similarity import require_symmetric, score_parts, similarity_from_name

SAMPLED_PASSAGES = 1000
"""Of each corpus, for the plot of norms against lengths."""

LARGEST_SCAN = 1_000_000
"""Passages; a larger corpus is not read through for answers, and reports don't tell whether it has them."""


def corpus_facts(bench: Bench, retrievers: Sequence[str], dataset: DataSet) -> CorpusFacts:
    """What a run notes of a data set's corpus: which questions it can answer, and a sample of norms and lengths."""
    searching = next((name for name in retrievers if name != CLOSED_BOOK), None)
    if searching is None:
        return CorpusFacts()
    index = bench.retriever(dataset.name, searching).index
    rows = np.unique(np.linspace(0, len(index) - 1, SAMPLED_PASSAGES).round().astype(int)).tolist()
    norms = index.vectors(rows)[1]
    words = [len(index.passage(row).text.split()) for row in rows]
    found = None
    if dataset.task == "qa" and dataset.rule and len(index) <= LARGEST_SCAN:
        found = find_answerable(dataset.questions, (p.text for p in index.passages()), dataset.rule)
    return CorpusFacts(found, words, [float(norm) for norm in norms])


def score_pairs(
    config: Config, sets: Sequence[PairSet], log: Callable[[str], None], progress: StepProgress | None
) -> list[PairScore]:
    """Spearman's correlation of every dense retriever on sets of sentence pairs.

    Sentences are encoded as queries on both sides, as E5 and its kin want it where the two are equals. A similarity that
    treats the sides differently is refused with the reason.
    """
    stores = Stores(config, log, progress)
    scores = []
    for pairs in sets:
        for name in config.eval.retrievers:
            if name == CLOSED_BOOK or config.retriever(name).kind != "dense":
                continue
            settings = config.retriever(name)
            similarity = similarity_from_name(settings.similarity, settings.gamma_q, settings.gamma_d)
            try:
                require_symmetric(similarity, pairs.name)
            except RetrieverError as error:
                scores.append(PairScore(pairs.name, name, len(pairs.pairs), None, None, str(error)))
                continue
            encoder = stores.encoder(settings.encoder)
            left = encoder.encode_queries([pair.text1 for pair in pairs.pairs])
            right = encoder.encode_queries([pair.text2 for pair in pairs.pairs])
            cosines = (left.units * right.units).sum(axis=1)
            values = score_parts(cosines, left.norms, right.norms, similarity.gamma_q, similarity.gamma_d)
            found = spearman(values.tolist(), [pair.score for pair in pairs.pairs], config.eval.seed)
            scores.append(PairScore(pairs.name, name, len(pairs.pairs), found.value, found.interval))
    return scores


def run(
    config: Config,
    experiment: Experiment,
    out: Path,
    *,
    log: Callable[[str], None],
    progress: StepProgress | None = None,
    retry_errors: bool = False,
    command: str = "",
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

    Raises:
        EvalError: A folder of another run, or one that cannot be written.
        RetrieverError: An index or encoder that cannot be used.
        GeneratorError: A reader that cannot be used, or died; the answers so far are kept.
    """
    settings = config.eval
    ids = {own.name: {q.question: q.meta.get(OWN_ID, q.id) for q in own.questions} for own in experiment.datasets}
    bench = Bench(config, experiment.corpora, ids, log, progress)
    searching = next((name for name in settings.retrievers if name != CLOSED_BOOK), None)
    pairs = experiment.pairs
    try:
        return run_evaluation(
            [
                _with_corpus(dataset, experiment.corpora[dataset.name], bench, searching)
                for dataset in experiment.datasets
            ],
            make_systems(config, bench, {dataset.name: dataset.task for dataset in experiment.datasets}),
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
            corpus_facts=lambda dataset: corpus_facts(bench, settings.retrievers, dataset),
            pair_sets=pairs,
            score_pairs=lambda: score_pairs(config, pairs, log, progress),
            progress=None if progress is None else lambda done, total: progress("answers", done, total),
            on_message=log,
            retry_errors=retry_errors,
        )
    finally:
        bench.close()


def _with_corpus(dataset: DataSet, corpus: tuple[str, str], bench: Bench, searching: str | None) -> DataSet:
    facts: dict[str, Any] = {"corpus": corpus[1] or corpus[0], "index": None}
    if searching is not None:
        facts["index"] = bench.retriever(dataset.name, searching).index.fingerprint
    return replace(dataset, source={**dataset.source, **facts})
