"""From the answers of a run to everything that is read: figures, tables, report.html, TREC files.

All of it is made from what lies in the folder, so a newer version can publish an old run again without asking a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from eval.data.jsonl import parse_object
from eval.data.pairs import RESAMPLES as PAIR_RESAMPLES
from eval.data.trec import write_qrels, write_run
from eval.errors import EvalError
from eval.folder import RunFolder
from eval.report.html import html_report
from eval.report.text import markdown_report, text_table
from eval.summary import Comparison, Measured, Metrics, SystemMetrics, mean_seconds, summarise
from eval.view import HTML, METRICS, REPORT, TREC, PairScore, Recheck, RunView


def publish(folder: RunFolder) -> tuple[Metrics, str]:
    """Write metrics.json, report.md, report.html and trec/ from the other files of a run folder.

    Of an unfinished run the reports say so, and there is no metrics.json.

    Returns:
        The figures, and the table for a terminal.

    Raises:
        EvalError: A file of the folder is damaged, or a measure cannot be computed.
    """
    view = RunView.open(folder.path)
    metrics = measure(view)
    if view.finished:
        folder.write(METRICS, json.dumps(metrics.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    folder.write(REPORT, markdown_report(view, metrics, mean_seconds(view.rows.values())))
    folder.write(HTML, html_report(view, metrics))
    _write_trec(view)
    return metrics, text_table(metrics)


def figures(view: RunView) -> Metrics:
    """The figures of a run: those that lie in its folder, else as `measure`."""
    try:
        return Metrics.from_json(parse_object((view.path / METRICS).read_bytes(), METRICS))
    except (OSError, EvalError, KeyError, TypeError, AttributeError):
        # Not finished, or written by another version.
        return measure(view)


def measure(view: RunView) -> Metrics:
    """The figures of a run."""
    manifest = view.manifest
    metrics = summarise(
        view.questions,
        view.systems,
        view.rows,
        view.rules,
        manifest["seed"],
        measures=manifest["measures"],
        answerable=view.answerable,
    )
    metrics.systems.extend(_pair_metrics(score) for score in view.pairs if score.spearman is not None)
    metrics.comparisons.extend(_pair_comparison(score) for score in view.pairs if score.difference is not None)
    if any(score.interval for score in view.pairs):
        metrics.notes.append(
            f"Spearman's intervals are over pairs, {PAIR_RESAMPLES:,} resamples; its differences have no test."
        )
    metrics.notes.extend(
        f"{score.dataset}: {score.system} was refused: {score.refused}" for score in view.pairs if score.refused
    )
    metrics.notes.extend(_repeatability(view.rechecks))
    metrics.notes.extend(view.remarks)
    metrics.notes.extend(_marks(manifest["datasets"]))
    if uncut := [name for name in manifest["measures"] if "@" not in name]:
        metrics.notes.append(
            f"{', '.join(uncut)}: without a cutoff, so over the passages that were recorded (column depth)."
        )
    if view.unscored:
        metrics.notes.insert(0, f"UNFINISHED: sentence pairs that were not scored: {', '.join(view.unscored)}.")
    if len(view.rows) < manifest["answers"]:
        there = f"{len(view.rows):,} of {manifest['answers']:,} answers"
        metrics.notes.insert(0, f"UNFINISHED: {there} are there; the others count 0 in every figure.")
    return metrics


def _marks(datasets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where passages that questions mark are not in the corpus that was searched."""
    notes = []
    for name, facts in datasets.items():
        marked, found = facts.get("marked_passages", 0), facts.get("marked_passages_in_corpus", 0)
        if found == 0 < marked:
            notes.append(f"{name}: none of its {marked:,} marked passages is in the corpus; they were left out.")
        elif found < marked:
            notes.append(
                f"{name}: {marked - found:,} of {marked:,} marked passages are not in the corpus; they count as not found."
            )
    return notes


def _pair_metrics(score: PairScore) -> SystemMetrics:
    assert score.spearman is not None
    interval = (score.interval[0], score.interval[1]) if score.interval else None
    measured = Measured(score.spearman, interval, score.n)
    return SystemMetrics(
        system=score.system, dataset=score.dataset, task="sts", n=score.n, measures={"Spearman": measured}
    )


def _pair_comparison(score: PairScore) -> Comparison:
    """The difference with its interval; there is no test of two correlations here, and no question is won or lost."""
    assert score.difference is not None
    interval = score.difference_interval
    return Comparison(
        baseline=score.baseline,
        system=score.system,
        dataset=score.dataset,
        measure="Spearman",
        n=score.n,
        difference=score.difference,
        interval=(interval[0], interval[1]) if interval else None,
        wins=None,
        losses=None,
        ties=None,
        test="none",
        p=None,
        p_holm=None,
        identical=score.difference == 0,
    )


def _repeatability(rechecks: Iterable[Recheck]) -> list[str]:
    notes = []
    for recheck in rechecks:
        reader = f"reader {recheck.reader}: " if recheck.reader else ""
        said = f"{reader}{recheck.asked} questions of {recheck.system} were asked again in other batches; "
        if not recheck.differing:
            notes.append(said + "all answers were the same.")
            continue
        notes.append(
            f"{said}{len(recheck.differing)} answers differ ({', '.join(recheck.differing[:5])}): sums in a batch are "
            "rounded in another order than alone, so such answers change with their neighbours; float32 or, on a GPU, "
            "generator.batch_invariant=true avoids it."
        )
    return notes


def _write_trec(view: RunView) -> None:
    for dataset in view.datasets:
        # Under their own ids, so that the set's official judgments and other people's runs fit.
        own = {question.id: question for question in view.questions if question.dataset == dataset}
        questions = [replace(question, id=question.own_id) for question in own.values()]
        judged = {question.id: question.relevance for question in questions if question.relevance}
        if judged:
            write_qrels(view.path / TREC / f"{dataset}.qrels", judged)
        for system in view.systems:
            rows = {q.own_id: row for id, q in own.items() if (row := view.rows.get((system, id))) is not None}
            if any(row["passages"] for row in rows.values()):
                write_run(view.path / TREC / f"{dataset}.{'_'.join(system.split())}.run", questions, rows, system)
