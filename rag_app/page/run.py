"""Running a comparison: retrieval on both sides, then both answers at once, as snapshots to be shown."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from rag_app.answers import Answer
from rag_app.errors import USER_ERRORS, ConfigError
from rag_app.page.compare import Side, badge, describe_side, sentence
from rag_app.pipeline import Pipeline

MOST_PASSAGES = 20
LONGEST_QUESTION = 2000
"""Characters; a longer one is a document pasted by mistake."""

NO_READER = "There is no reader to answer"
Stage = Literal["waiting", "answering", "done"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A comparison as far as it has come.

    Attributes:
        question: As asked, stripped.
        sides: What is compared.
        answers: One a side; passages are there from the first snapshot on.
        stages: How far each answer is.
    """

    question: str
    sides: tuple[Side, Side]
    answers: tuple[Answer, Answer]
    stages: tuple[Stage, Stage] = ("waiting", "waiting")

    def to_json(self) -> dict[str, Any]:
        """The object `magrag ask --json` prints, with what the page says about the two sides."""
        return {
            "question": self.question,
            "answers": [answer.to_json() for answer in self.answers],
            "badge": badge(*self.sides)[0],
            "summary": sentence(self.sides, self.answers),
        }


def run_comparison(pipeline: Pipeline, question: str, names: tuple[str, str], k: int) -> Iterator[Snapshot]:
    """Ask both retrievers; each snapshot replaces the one before.

    The first snapshot has the passages of both sides, retrieved one after the other so that each is timed alone. The
    answers then stream side by side. What goes wrong on one side is that answer's `error`; the other side goes on.
    Closing the iterator stops the generation.

    Args:
        pipeline: Shared by everybody; nothing of this call is kept in it.
        question: What to answer.
        names: Retrievers, "closed-book" among them.
        k: Passages a side, 1 to `MOST_PASSAGES`.

    Raises:
        ConfigError: The question or k cannot be used.
    """
    question = question.strip()
    if not question:
        raise ConfigError("the question is empty: type one, or choose an example")
    if len(question) > LONGEST_QUESTION:
        raise ConfigError(f"the question has {len(question)} characters; shorten it to at most {LONGEST_QUESTION}")
    if not 1 <= k <= MOST_PASSAGES:
        raise ConfigError(f"passages a side must be between 1 and {MOST_PASSAGES}, got {k}")
    prepared = [_retrieve(pipeline, question, name, int(k)) for name in names]
    snapshot = Snapshot(question, (prepared[0][0], prepared[1][0]), (prepared[0][1], prepared[1][1]))
    for side in (0, 1):
        if snapshot.answers[side].error:
            snapshot = _update(snapshot, side, snapshot.answers[side], "done")
    yield snapshot
    waiting = [side for side in (0, 1) if snapshot.stages[side] == "waiting"]
    if not waiting:
        return
    error = _load_reader(pipeline)
    if error:
        for side in waiting:
            snapshot = _update(snapshot, side, replace(snapshot.answers[side], error=error), "done")
        yield snapshot
        return
    yield from _read(pipeline, snapshot, waiting)


def _retrieve(pipeline: Pipeline, question: str, name: str, k: int) -> tuple[Side, Answer]:
    try:
        side = describe_side(pipeline, name)
        return side, pipeline.search([question], name, k)[0]
    except Exception as error:  # noqa: BLE001 - whatever it is, the visitor reads a line and the other side goes on
        return Side(name, "unknown"), Answer(name, error=_in_words(error))


def _load_reader(pipeline: Pipeline) -> str | None:
    """Once for both sides, before the threads: two failing attempts would take twice as long."""
    try:
        pipeline.generator.start()
    except Exception as error:  # noqa: BLE001 - as above
        return f"{NO_READER}: {_in_words(error)}"
    return None


def _read(pipeline: Pipeline, snapshot: Snapshot, waiting: list[int]) -> Iterator[Snapshot]:
    """Stream the answers of the waiting sides, a thread each, merged in the order in which they come."""
    items: queue.SimpleQueue[tuple[int, Answer | None]] = queue.SimpleQueue()
    stop = threading.Event()

    def read(side: int, found: Answer) -> None:
        latest = found
        try:
            with contextlib.closing(pipeline.stream(snapshot.question, found)) as answers:
                for latest in answers:
                    items.put((side, latest))
                    if stop.is_set():
                        return
        except Exception as error:  # noqa: BLE001 - as above
            items.put((side, replace(latest, error=_in_words(error))))
        finally:
            items.put((side, None))

    for side in waiting:
        threading.Thread(target=read, args=(side, snapshot.answers[side]), name=f"read-{side}", daemon=True).start()
    reading = set(waiting)
    try:
        while reading:
            for side, answer in _drain(items):
                if answer is None:
                    reading.discard(side)
                    snapshot = _update(snapshot, side, snapshot.answers[side], "done")
                else:
                    snapshot = _update(snapshot, side, answer, "answering")
            yield snapshot
    finally:
        stop.set()


def _drain(items: queue.SimpleQueue[tuple[int, Answer | None]]) -> Iterator[tuple[int, Answer | None]]:
    """At least one item, and all that have come meanwhile: a slow viewer skips steps and lags behind none."""
    yield items.get()
    with contextlib.suppress(queue.Empty):
        while True:
            yield items.get_nowait()


def _update(snapshot: Snapshot, side: int, answer: Answer, stage: Stage) -> Snapshot:
    answers, stages = list(snapshot.answers), list(snapshot.stages)
    answers[side], stages[side] = answer, stage
    return replace(snapshot, answers=(answers[0], answers[1]), stages=(stages[0], stages[1]))


def _in_words(error: Exception) -> str:
    """One line for people; what nobody foresaw also goes to the log, with its traceback."""
    line = " ".join(str(error).split())
    if isinstance(error, USER_ERRORS):
        return line
    _log.error("unexpected error in a comparison", exc_info=error)
    return f"unexpected {type(error).__name__}: {line}; the terminal shows where"
