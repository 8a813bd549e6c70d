"""Evaluating a pipeline's retrievers: each becomes a row of `eval.run`'s table, closed book among them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from eval.base import RankedPassage, Record
from eval.datasets import Question, describe_source, read_questions, subset
from eval.errors import EvalError
from eval.run import RunResult, run_evaluation
from rag_app.config import CLOSED_BOOK
from rag_app.pipeline import Pipeline


class PipelineRow:
    """One retriever with the pipeline's reader, as an evaluation asks it.

    Args:
        pipeline: Loads retriever and reader when first asked.
        name: The retriever, or "closed-book".
        k: Passages a question; the retriever's own where None.
    """

    def __init__(self, pipeline: Pipeline, name: str, k: int | None) -> None:
        self.name = name
        self._pipeline = pipeline
        self._k = k

    @property
    def fingerprint(self) -> str:
        """Of retriever, k, prompt, decoding and reader."""
        config = self._pipeline.config
        parts = {
            "retriever": None if self.name == CLOSED_BOOK else self._pipeline.retriever(self.name).fingerprint,
            "k": None if self.name == CLOSED_BOOK else self._k or config.retriever(self.name).k,
            "prompt": config.prompt.model_dump(),
            "decoding": config.decoding.model_dump(),
            "reader": self._pipeline.generator.fingerprint,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def answer(self, batch: Sequence[Question]) -> Iterator[Record]:
        """See `eval.base.Answerer.answer`."""
        answers = self._pipeline.answer([question.question for question in batch], self.name, self._k)
        for question, answer in zip(batch, answers, strict=True):
            yield Record(
                id=question.id,
                prediction=answer.answer,
                passages=[RankedPassage.from_hit(hit) for hit in answer.hits],
                dropped=answer.dropped,
                prompt_tokens=answer.prompt_tokens,
                seconds=answer.timings,
                error=answer.error,
            )


def run(
    pipeline: Pipeline,
    files: Sequence[Path],
    out: Path,
    retrievers: Sequence[str],
    *,
    n: int | None = None,
    k: int | None = None,
    retry_errors: bool = False,
) -> RunResult:
    """Evaluate retrievers on question files.

    Args:
        pipeline: With corpus or index, reader and prompt configured.
        files: Questions with answers; ids must be unique over all of them.
        out: The run folder, new or to be resumed.
        retrievers: Names; the first is what the others are compared with.
        n: Questions drawn from each file with the configuration's eval.seed; all where None.
        k: Passages a question, for every retriever; each one's own where None.
        retry_errors: Ask again what an earlier start stored an error for.

    Raises:
        EvalError: A bad question file, or a folder of another run.
    """
    settings, progress = pipeline.config.eval, pipeline.progress
    for name in retrievers:
        if name != CLOSED_BOOK:
            pipeline.config.retriever(name)
    read = {file: read_questions(file) for file in files}
    _require_unique(files, read)
    drawn = {file: subset(questions, n or len(questions), settings.seed) for file, questions in read.items()}
    return run_evaluation(
        [question for questions in drawn.values() for question in questions],
        [PipelineRow(pipeline, name, k) for name in retrievers],
        out,
        config=pipeline.config.fingerprintable() | {"n": n, "k": k},
        seed=settings.seed,
        progress=None if progress is None else lambda done, total: progress("answers", done, total),
        on_message=pipeline.log,
        batch_size=settings.batch_size,
        rule=settings.rule,
        retry_errors=retry_errors,
        source={
            "index": pipeline.config.index.path,
            **{str(file): describe_source(file, read[file], drawn[file], settings.seed) for file in files},
        },
    )


def _require_unique(files: Sequence[Path], read: dict[Path, list[Question]]) -> None:
    """Rows of a run are found by their id, so one id in two files would be one row.

    Raises:
        EvalError: Names both files.
    """
    if len(read) < len(files):
        raise EvalError("a question file is named twice; name each once")
    seen: dict[str, Path] = {}
    for file, questions in read.items():
        for question in questions:
            if question.id in seen:
                raise EvalError(
                    f"question id {question.id!r} is in {seen[question.id]} and in {file}; evaluate files that share ids "
                    "in runs of their own"
                )
            seen[question.id] = file
