"""Run systems over questions into an evaluation folder, which a second start resumes.

    result = run_evaluation(questions, [closed_book, cosine, qnorm], "runs/nq", config=config, seed=0)
    print(result.table)

The folder holds run.json (configuration, systems' fingerprints, hash of the questions, rules, seed, versions, revision,
hardware), predictions.jsonl (one line for each system and question, on disk as soon as its batch is computed), and, once every question
has its line, metrics.json and report.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval.base import Answerer, RankedPassage, Record
from eval.datasets import Question, content_hash, default_rule
from eval.environment import describe_environment
from eval.errors import EvalError
from eval.folder import METRICS, REPORT, Row, RunFolder, differences
from eval.metrics import get_rule, has_answer
from eval.report import markdown_report, text_table
from eval.summary import Metrics, mean_seconds, summarise

FORMAT = 1

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished evaluation.

    Attributes:
        path: Its folder.
        metrics: The figures, as in metrics.json.
        table: The same for a terminal.
        kept: Answers that an earlier start had left.
        computed: Answers of this start.
    """

    path: Path
    metrics: Metrics
    table: str
    kept: int
    computed: int


def run_evaluation(
    questions: Sequence[Question],
    systems: Sequence[Answerer],
    out: str | Path,
    *,
    config: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    on_message: Callable[[str], None] | None = None,
    batch_size: int = 32,
    rule: str = "",
    source: Mapping[str, Any] | None = None,
    retry_errors: bool = False,
) -> RunResult:
    """Ask every system every question, store the answers, score them and write the report.

    Batches are fixed by the questions' positions. Where an earlier start was killed within a batch, the whole batch is
    asked again and only the rows that were missing are stored: answers that depend on their neighbours in a batch (as
    vLLM's may in the last digit) are then the same as those of a run without a kill.

    Args:
        questions: With unique ids.
        systems: With unique names; the first one is what the others are compared with.
        out: A folder that is absent, empty, or holds this same run unfinished (or finished: then nothing is asked).
        config: Every setting that can change an answer, as JSON values; a resume with another one is refused.
        seed: Of the bootstrap; recorded.
        progress: Called with (answers there are, answers there will be) at the start and after each one.
        on_message: Called with a line for people, now and then.
        batch_size: Questions that a system gets at once.
        rule: Name of the scoring rule for all; "" takes each data set's own (`eval.datasets.default_rule`).
        source: What to record of the data file (`eval.datasets.describe_source`), or of several by path; not compared,
            for the questions are.
        retry_errors: Ask again the questions for which an earlier start stored an error.

    Raises:
        EvalError: Nothing to do, names or ids twice, an unknown rule, a folder of something else (`RunFolder`), or a
            system that breaks its contract. Whatever a system raises is passed on; the answers so far are kept.
    """
    say = on_message or (lambda line: None)
    _check(questions, systems, batch_size)
    names = [system.name for system in systems]
    rules = {q.dataset: get_rule(rule or default_rule(q.dataset)).name for q in questions}
    manifest = {
        "format": FORMAT,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dict(config or {}),
        "systems": {system.name: system.fingerprint for system in systems},
        "baseline": names[0],
        "questions": len(questions),
        "questions_sha256": content_hash(questions),
        "source": dict(source or {}),
        "rules": rules,
        "seed": seed,
        "batch_size": batch_size,
        "environment": describe_environment(),
    }
    total = len(systems) * len(questions)
    with RunFolder(out, manifest, {question.id for question in questions}) as folder:
        if folder.resumed:
            if retry_errors and (again := folder.drop_errors()):
                say(f"{again} questions that had ended in an error are asked again")
            say(f"resuming {folder.path}: {len(folder.rows)} of {total} answers are there")
            for changed in differences(folder.manifest.get("environment"), manifest["environment"]):
                say(f"not made under the same conditions throughout: {changed}")
        kept = len(folder.rows)
        if kept < total:
            folder.remove(METRICS, REPORT)
        if progress is not None:
            progress(kept, total)
        for system in systems:
            try:
                _ask(system, questions, folder, batch_size, rules, total, progress, say)
            except BaseException:
                say(f"{len(folder.rows)} of {total} answers are kept in {folder.path}: run the same again to go on")
                raise
        metrics = summarise(questions, names, folder.rows, rules, seed)
        folder.write(METRICS, json.dumps(metrics.to_json(), indent=2, ensure_ascii=False) + "\n")
        folder.write(REPORT, markdown_report(metrics, folder.manifest, mean_seconds(folder.rows.values())))
        return RunResult(folder.path, metrics, text_table(metrics), kept, len(folder.rows) - kept)


def _check(questions: Sequence[Question], systems: Sequence[Answerer], batch_size: int) -> None:
    if not questions:
        raise EvalError("there are no questions to ask: give at least one")
    if not systems:
        raise EvalError("there are no systems to evaluate: give at least one")
    if batch_size < 1:
        raise EvalError(f"batch_size must be at least 1, got {batch_size}")
    _check_unique("system", [system.name for system in systems], "give each its own name")
    _check_unique("question id", [question.id for question in questions], "ids must be unique over all files")


def _check_unique(what: str, names: Sequence[str], advice: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise EvalError(f"{what} {name!r} is there twice: {advice}")
        seen.add(name)


def _ask(
    system: Answerer,
    questions: Sequence[Question],
    folder: RunFolder,
    batch_size: int,
    rules: Mapping[str, str],
    total: int,
    progress: Progress | None,
    say: Callable[[str], None],
) -> None:
    """Store the answers that a system has not given yet."""
    for start in range(0, len(questions), batch_size):
        batch = questions[start : start + batch_size]
        if all((system.name, question.id) in folder.rows for question in batch):
            continue
        for record, question in _one_each(system, batch):
            row = _row(system.name, record, question, rules[question.dataset])
            before = folder.rows.get((system.name, question.id))
            if before is None:
                folder.append(row)
                if progress is not None:
                    progress(len(folder.rows), total)
            elif (
                row["error"] is None and before["error"] is None and _stored(row["prediction"]) != before["prediction"]
            ):
                say(f"{system.name} answered {question.id} otherwise when asked again: its answers are not repeatable")


def _one_each(system: Answerer, batch: Sequence[Question]) -> Iterator[tuple[Record, Question]]:
    """A system's records with their questions, in the order they come; then an error for each question without one."""
    waiting = {question.id: question for question in batch}
    for record in system.answer(batch):
        if record.id not in waiting:
            fault = "twice" if any(record.id == question.id for question in batch) else "without being asked"
            raise EvalError(
                f"system {system.name!r} answered {record.id!r} {fault}: it must give one record a question"
            )
        yield record, waiting.pop(record.id)
    for question in waiting.values():
        yield Record(question.id, "", error="the system gave no record for this question"), question


def _row(system: str, record: Record, question: Question, rule: str) -> Row:
    """What is stored of an answer: passages by id and factors of their score, without their text."""
    patterns = get_rule(rule).patterns
    return {
        "system": system,
        "id": record.id,
        "prediction": "" if record.error is not None else record.prediction,
        "error": record.error,
        "dropped": int(record.dropped),
        "prompt_tokens": int(record.prompt_tokens),
        "passages": [_passage(passage, question, patterns) for passage in record.passages],
        "seconds": {stage: _number(value) for stage, value in record.seconds.items()},
    }


def _passage(passage: RankedPassage, question: Question, patterns: bool) -> Row:
    return {
        "rank": int(passage.rank),
        "id": passage.id,
        "has_answer": has_answer(question.answers, passage.text, patterns=patterns),
        "score": _number(passage.score),
        "cosine": _number(passage.cosine),
        "norm": _number(passage.norm),
    }


def _number(value: float | None) -> float | None:
    """A plain float (numpy's are not JSON); None for what JSON has no number for."""
    if value is None or not math.isfinite(value):
        return None
    return float(value)


def _stored(text: str) -> str:
    """As the text is read back from the folder."""
    return text.encode("utf-8", "replace").decode("utf-8")
