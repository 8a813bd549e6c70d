"""Run systems over data sets into an evaluation folder, which a second start resumes.

    result = run_evaluation([nq, hotpotqa], [closed_book, cosine, qnorm], "runs/first", config=config, seed=0)
    print(result.table)

The folder holds run.json (configuration, systems' fingerprints, data sets, hash of the questions, seed, versions, revision,
hardware), questions.jsonl, predictions.jsonl (one line for each system and question, on disk as soon as its batch is
computed), and, once every question has its line, corpus.json, metrics.json, the reports and trec/ (`eval.publish`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval.base import Answerer, RankedPassage, Record
from eval.data.datasets import Question, content_hash
from eval.data.sources import DataSet, PairSet
from eval.environment import describe_environment
from eval.errors import EvalError, Stopped, UsageError
from eval.folder import RunFolder, differences
from eval.metrics import get_rule, has_answer
from eval.publish import publish
from eval.ranking import parse_measures
from eval.summary import Metrics
from eval.view import (
    CORPUS,
    FORMAT,
    HTML,
    METRICS,
    NOTES,
    PAIRS,
    QUESTIONS,
    RECHECK,
    REPORT,
    CorpusFacts,
    PairScore,
    Recheck,
    Row,
    stored_corpora,
    stored_list,
    stored_questions,
)

Progress = Callable[[int, int | None], None]
Stop = Callable[[], bool]


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
    datasets: Sequence[DataSet],
    systems: Sequence[Answerer],
    out: str | Path,
    *,
    config: Mapping[str, Any] | None = None,
    measures: Sequence[str] = (),
    seed: int = 0,
    batch_size: int = 32,
    recheck: int = 0,
    facts: Mapping[str, Any] | None = None,
    corpus_facts: Callable[[DataSet], CorpusFacts] | None = None,
    pair_sets: Sequence[PairSet] = (),
    score_pairs: Callable[[], Sequence[PairScore]] = list,
    progress: Progress | None = None,
    on_message: Callable[[str], None] | None = None,
    retry_errors: bool = False,
    stop: Stop = lambda: False,
) -> RunResult:
    """Ask every system every question, store the answers, score them and write the reports.

    Batches are fixed by the questions' positions. Where an earlier start was killed within a batch, the whole batch is
    asked again and only the rows that were missing are stored: where a system computes all of it anew, answers that
    depend on their neighbours in a batch (as vLLM's may in the last digit) are those of a run without a kill. While a
    batch is read, the next one's passages are retrieved.

    Args:
        datasets: With unique names; question ids are unique over all of them.
        systems: With unique names; the first one is what the others are compared with.
        out: A folder that is absent, empty, or holds this same run unfinished (or finished: then nothing is asked).
        config: Every setting that can change an answer, as JSON values; a resume with another one is refused.
        measures: Ranking measures in ir-measures' grammar.
        seed: Of the bootstrap; recorded.
        batch_size: Questions that a system gets at once.
        recheck: Questions of each reader that are asked again at the end, in other batches; 0 asks none.
        facts: Further entries of run.json, which say how the run was made.
        corpus_facts: What to note of a data set's corpus, asked when all its answers are there.
        pair_sets: Sentence pairs, which are scored by `score_pairs`.
        score_pairs: Called once, when all answers are there.
        progress: Called with (answers there are, answers there will be) at the start and after each one.
        on_message: Called with a line for people, now and then.
        retry_errors: Ask again the questions for which an earlier start stored an error.
        stop: Asked before each batch; where it says yes, the run ends there, to be resumed by another start.

    Raises:
        Stopped: `stop` said yes.
        EvalError: Nothing to do, names or ids twice, an unknown measure, a folder of something else (`RunFolder`), or a
            system that breaks its contract. Whatever a system raises is passed on; the answers so far are kept.
    """
    say = on_message or (lambda line: None)
    _check(datasets, systems, batch_size, pair_sets)
    parse_measures(measures)
    questions = [question for dataset in datasets for question in dataset.questions]
    work = [(system, dataset) for system in systems for dataset in datasets if system.asks(dataset.name)]
    total = sum(len(dataset.questions) for _, dataset in work)
    described: list[DataSet | PairSet] = [*datasets, *pair_sets]
    manifest = {
        "format": FORMAT,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dict(config or {}),
        "systems": {system.name: system.fingerprint for system in systems},
        "baseline": systems[0].name if systems else "",
        "datasets": {own.name: _described(own) for own in described},
        "questions": len(questions),
        "answers": total,
        "questions_sha256": content_hash(questions),
        "measures": list(measures),
        "seed": seed,
        "batch_size": batch_size,
        **(facts or {}),
        "environment": describe_environment(),
    }
    with RunFolder(out, manifest, {question.id for question in questions}) as folder:
        if folder.resumed:
            if retry_errors and (again := folder.drop_errors()):
                say(f"{again} questions that had ended in an error are asked again")
            say(f"resuming {folder.path}: {len(folder.rows)} of {total} answers are there")
            _note_changes(folder, manifest["environment"], total, say)
        if not (folder.path / QUESTIONS).exists():
            folder.write(QUESTIONS, stored_questions(questions))
        kept = len(folder.rows)
        if kept < total:
            folder.remove(CORPUS, RECHECK, PAIRS, METRICS, REPORT, HTML)
        if progress is not None:
            progress(kept, total)
        try:
            for system, dataset in work:
                for record, question in _answers(system, dataset, folder, batch_size, say, stop):
                    folder.append(_row(system.name, record, question, dataset.rule))
                    if progress is not None:
                        progress(len(folder.rows), total)
            if recheck and not (folder.path / RECHECK).exists():
                folder.write(RECHECK, stored_list(_recheck(systems, datasets, folder, recheck, batch_size, stop)))
        except BaseException:
            say(f"{len(folder.rows)} of {total} answers are kept in {folder.path}: run the same again to go on")
            raise
        if corpus_facts is not None and not (folder.path / CORPUS).exists():
            folder.write(CORPUS, stored_corpora({dataset.name: corpus_facts(dataset) for dataset in datasets}))
        if pair_sets and not (folder.path / PAIRS).exists():
            folder.write(PAIRS, stored_list(score_pairs()))
        metrics, table = publish(folder)
        return RunResult(folder.path, metrics, table, kept, len(folder.rows) - kept)


def _check(
    datasets: Sequence[DataSet], systems: Sequence[Answerer], batch_size: int, pair_sets: Sequence[PairSet]
) -> None:
    for dataset in datasets:
        if not dataset.questions:
            raise EvalError(f"data set {dataset.name!r} holds no questions to ask: give at least one")
    if not datasets and not pair_sets:
        raise EvalError("there are no questions to ask: give a data set")
    if datasets and not systems:
        raise UsageError("there are no systems to evaluate: give at least one")
    if batch_size < 1:
        raise EvalError(f"batch_size must be at least 1, got {batch_size}")
    _check_unique("system", [system.name for system in systems], "give each its own name")
    names = [dataset.name for dataset in datasets] + [pairs.name for pairs in pair_sets]
    _check_unique("data set", names, "give each its own name")
    ids = [question.id for dataset in datasets for question in dataset.questions]
    _check_unique("question id", ids, "ids must be unique over all data sets of a run")


def _check_unique(what: str, names: Sequence[str], advice: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise EvalError(f"{what} {name!r} is there twice: {advice}")
        seen.add(name)


def _note_changes(folder: RunFolder, environment: Any, total: int, say: Callable[[str], None]) -> None:
    """Say under what other versions or hardware a run goes on, and keep it for the report."""
    changes = differences(folder.manifest.get("environment"), environment)
    for changed in changes:
        say(f"not made under the same conditions throughout: {changed}")
    if changes and len(folder.rows) < total:
        done = f"after {len(folder.rows)} of {total} answers the run went on under other conditions"
        before = json.loads(text) if (text := folder.read(NOTES)) else []
        folder.write(NOTES, json.dumps([*before, f"{done}: {'; '.join(changes)}"], ensure_ascii=False) + "\n")


def _described(dataset: DataSet | PairSet) -> dict[str, Any]:
    if isinstance(dataset, PairSet):
        return {"task": "sts", "rule": None, "lang": "", **dataset.source}
    rule = dataset.rule if dataset.task == "qa" else None
    return {"task": dataset.task, "rule": rule, "lang": dataset.lang, **dataset.source}


def _answers(
    system: Answerer, dataset: DataSet, folder: RunFolder, batch_size: int, say: Callable[[str], None], stop: Stop
) -> Iterator[tuple[Record, Question]]:
    """The answers of a system that the folder does not have yet, with their questions."""
    whole = [dataset.questions[start : start + batch_size] for start in range(0, len(dataset.questions), batch_size)]
    batches = [batch for batch in whole if any((system.name, question.id) not in folder.rows for question in batch)]
    with ThreadPoolExecutor(1, "retrieve") as ahead:
        found = [ahead.submit(system.retrieve, batch) for batch in batches[:1]]
        for number, batch in enumerate(batches):
            _end_if_asked(stop)
            current = found.pop().result()
            found = [ahead.submit(system.retrieve, following) for following in batches[number + 1 : number + 2]]
            for record, question in _one_each(system, batch, system.answer(batch, current)):
                before = folder.rows.get((system.name, question.id))
                if before is None:
                    yield record, question
                elif (
                    record.error is None
                    and before["error"] is None
                    and stored(record.prediction) != before["prediction"]
                ):
                    say(
                        f"{system.name} answered {question.id} otherwise when asked again: its answers are not repeatable"
                    )


def _one_each(
    system: Answerer, batch: Sequence[Question], records: Iterator[Record] | Any
) -> Iterator[tuple[Record, Question]]:
    """A system's records with their questions, in the order they come; then an error for each question without one."""
    waiting = {question.id: question for question in batch}
    for record in records:
        if record.id not in waiting:
            fault = "twice" if any(record.id == question.id for question in batch) else "without being asked"
            raise EvalError(
                f"system {system.name!r} answered {record.id!r} {fault}: it must give one record a question"
            )
        yield record, waiting.pop(record.id)
    for question in waiting.values():
        yield Record(question.id, "", error="the system gave no record for this question"), question


def _recheck(
    systems: Sequence[Answerer], datasets: Sequence[DataSet], folder: RunFolder, most: int, batch_size: int, stop: Stop
) -> list[Recheck]:
    """Ask each reader some questions once more: from the last to the first, in batches of half the size."""
    size = max(1, batch_size // 2)
    rechecks = []
    first: dict[str, Answerer] = {}
    for system in systems:
        if system.reader is not None:
            first.setdefault(system.reader, system)
    for system in reversed(first.values()):  # the last reader is the one that is still loaded
        asked = next((d.questions[:most] for d in datasets if d.task == "qa" and system.asks(d.name)), [])[::-1]
        differing = []
        for start in range(0, len(asked), size):
            _end_if_asked(stop)
            batch = asked[start : start + size]
            for record in system.answer(batch, system.retrieve(batch), fresh=True):
                before = folder.rows[system.name, record.id]
                answered = record.error is None and before["error"] is None  # a failure is no other answer
                if answered and stored(record.prediction) != before["prediction"]:
                    differing.append(record.id)
        if asked:
            rechecks.append(Recheck(system.name, system.reader or "", len(asked), sorted(differing)))
    return rechecks


def _end_if_asked(stop: Stop) -> None:
    if stop():
        raise Stopped("the evaluation was asked to stop")


def _row(system: str, record: Record, question: Question, rule: str | None) -> Row:
    """What is stored of an answer: passages by id and factors of their score, without their text."""
    patterns, lang = (False, "en") if rule is None else (get_rule(rule).patterns, get_rule(rule).lang)
    return {
        "system": system,
        "id": record.id,
        "prediction": "" if record.error is not None else record.prediction,
        "error": record.error,
        "k": int(record.k),
        "dropped": int(record.dropped),
        "cut": bool(record.cut),
        "prompt_tokens": int(record.prompt_tokens),
        "passages": [_passage(system, passage, question, patterns, lang) for passage in record.passages],
        "seconds": {stage: _number(value) for stage, value in record.seconds.items()},
    }


def _passage(system: str, passage: RankedPassage, question: Question, patterns: bool, lang: str) -> Row:
    # A rank that rests on no number is a defect of the retriever; a figure made from it would hide that.
    if not math.isfinite(passage.score):
        raise EvalError(f"system {system!r} gave passage {passage.id!r} of question {question.id!r} no finite score")
    return {
        "rank": int(passage.rank),
        "id": passage.id,
        "title": passage.title,
        "has_answer": has_answer(question.answers, passage.text, patterns=patterns, lang=lang),
        "score": float(passage.score),
        "cosine": _number(passage.cosine),
        "norm": _number(passage.norm),
        "percentile": _number(passage.percentile),
        "words": len(passage.text.split()),
    }


def _number(value: float | None) -> float | None:
    """A plain float (numpy's are not JSON); None for what JSON has no number for."""
    if value is None or not math.isfinite(value):
        return None
    return float(value)


def stored(text: str) -> str:
    """As a text is read back from the folder."""
    return text.encode("utf-8", "replace").decode("utf-8")
