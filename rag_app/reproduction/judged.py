"""Judged sets cut to a pool, and trainings that are compared on them question by question."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from eval.scores import ranking_values
from eval.sweep import RANKING, UNTRAINED, Sweep
from eval.view import RunView
from rag_app.config import Config
from rag_app.config_tables import DataSetConfig, EncoderConfig, EvalConfig
from rag_app.progress import Log, StepProgress
from rag_app.reproduction.measures import Measure, mean_of
from rag_app.reproduction.settings import ReproduceConfig
from rag_app.stores import load_configured_encoder
from rag_app.sweep.run import EVALUATIONS, sweep
from rag_app.training.config import TrainConfig
from retriever.diagnostics import Effect, effect_interval
from retriever.encoder import Encoder
from retriever.shards import write_json_lines, write_text

_SEED = 0
"""Of pools and intervals; trainings have seeds of their own."""


def compare(
    settings: ReproduceConfig,
    config: TrainConfig,
    out: Path,
    similarities: Sequence[str],
    seeds: Sequence[int],
    sets: Path,
    log: Log,
    progress: StepProgress,
) -> Sweep:
    """Train and rank, or go on with it.

    Args:
        settings: Has the judged sets.
        config: The training.
        out: Folder of the sweep.
        similarities: What is trained for.
        seeds: Of the trainings.
        sets: Folder that the cut sets are written to; experiments share it.
        log: Told, in a line, of what is done.
        progress: Told of (what, done, total).
    """
    tables = {name: DataSetConfig(path=str(_cut(settings, name, sets))) for name in settings.sets}
    asking = EvalConfig(datasets=tables, retrievers=("cosine",), depth=10, measures=(RANKING,), seed=_SEED, read=False)
    experiment = Config().model_copy(update={"data_dir": config.data_dir, "eval": asking})
    return sweep(config, out, similarities=similarities, seeds=seeds, experiment=experiment, log=log, progress=progress)


def question_values(out: Path, trained_for: str, seeds: Sequence[int], dataset: str) -> dict[str, float]:
    """nDCG@10 by question of trainings of a sweep, each searched as it was trained: the mean over seeds."""
    found = []
    for seed in seeds:
        view = RunView.open(out / EVALUATIONS / f"{trained_for}-{seed}" / "ranking")
        questions = [own for own in view.questions if own.dataset == dataset]
        rows = {own.id: row for own in questions if (row := view.rows.get((trained_for, own.id)))}
        found.append(ranking_values([RANKING], questions, rows)[RANKING])
    return {id: fmean(own[id] for own in found) for id in found[0]}


def gains(out: Path, trained_for: str, seeds: Sequence[int], dataset: str) -> dict[str, float]:
    """By question, what a training is ahead of the one by cosine."""
    own, cosine = (question_values(out, name, seeds, dataset) for name in (trained_for, "cosine"))
    return {id: value - cosine[id] for id, value in own.items()}


def change_of(name: str, after: Mapping[str, float], before: Mapping[str, float]) -> Measure:
    """A paired mean difference over questions."""
    return mean_of(name, [value - before[id] for id, value in after.items()], _SEED)


def sweep_measures(found: Sweep, start: str) -> list[Measure]:
    """Of every training of a sweep: nDCG@10, its difference from the training by cosine, and Cohen's d of norms."""
    measures = []
    for row in found.rows:
        name = f"{row.dataset}/{start}/{row.trained_for}"
        if row.trained_for == UNTRAINED:
            name += f" by {row.searched_by}"
        measures.append(Measure(f"{name}/{RANKING}", row.value, row.interval, row.n))
        if row.against_cosine is not None:
            change = row.against_cosine
            measures.append(Measure(f"{name} - cosine/{RANKING}", change.difference, change.interval, change.n))
    for own in found.norms:
        effect = Effect(own.norms.d, own.norms.relevant, own.norms.others)
        name = f"{own.dataset}/{start}/{own.trained_for}/Cohen's d"
        measures.append(Measure(name, effect.value, effect_interval(effect), effect.relevant + effect.others))
    return measures


def load_encoder(table: EncoderConfig, data_dir: str, log: Log) -> Encoder:
    """An encoder that stands in no configuration."""
    config = Config().model_copy(update={"encoders": {"encoder": table}, "data_dir": data_dir})
    return load_configured_encoder("encoder", config, log, table="encoder")


def _cut(settings: ReproduceConfig, name: str, sets: Path) -> Path:
    """A judged set with its marked passages and a pool of others, as a BEIR folder; made once."""
    from rag_app.training.dev import read_dev_set

    table = settings.sets[name]
    mark = hashlib.sha256(json.dumps(table.model_dump(), sort_keys=True).encode()).hexdigest()[:8]
    folder = sets / f"{name}-{mark}"
    if (folder / "qrels" / "test.tsv").is_file():
        return folder
    corpus = settings.path(table.corpus) if table.corpus else ""
    placed = table.model_copy(update={"path": settings.path(table.path), "corpus": corpus})
    own = read_dev_set(name, placed, _SEED, table="sets")
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write_json_lines(folder / "corpus.jsonl", ({"_id": p.id, "title": p.title, "text": p.text} for p in own.passages))
    write_json_lines(folder / "queries.jsonl", ({"_id": q.id, "text": q.question} for q in own.questions))
    rows = [f"{q.id}\t{id}\t{grade}" for q in own.questions for id, grade in q.relevance.items()]
    write_text(folder / "qrels" / "test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder
