"""Running a comparison: retrieval on both sides, then both answers at once, as snapshots to be shown."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rag_app.answers import Answer
from rag_app.errors import ConfigError, in_words
from rag_app.page.compare import Found, Side, badge, describe_side, moves, sentence
from rag_app.page.dial import Candidates, find_candidates
from rag_app.page.golds import Golds, mark_answer
from rag_app.pipeline import Pipeline
from retriever.base import Hit
from retriever.index import Index

MOST_PASSAGES = 20
LONGEST_QUESTION = 2000
"""Characters; a longer one is a document pasted by mistake."""

DEPTH = 50
"""How deep a ranking is looked at, to say where a passage of the other side stands in it."""

NO_READER = "There is no reader to answer"
Stage = Literal["waiting", "answering", "done"]

DOING = "a comparison"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A comparison as far as it has come.

    Attributes:
        question: As asked, stripped.
        k: Passages a side.
        sides: What is compared.
        answers: One a side; passages are there from the first snapshot on.
        found: What else is known of each side's ranking.
        golds: Of a question that is known.
        stages: How far each answer is.
        candidates: For dial and plots, from the second snapshot on; one for each index that is searched by vectors.
    """

    question: str
    sides: tuple[Side, Side]
    answers: tuple[Answer, Answer]
    stages: tuple[Stage, Stage] = ("waiting", "waiting")
    k: int = 3
    found: tuple[Found, Found] = (Found(), Found())
    golds: Golds | None = None
    candidates: tuple[Candidates, ...] = ()

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.stages == ("done", "done")

    def to_json(self) -> dict[str, Any]:
        """The object `magrag ask --json` prints, with what the page says about the two sides."""
        return {
            "question": self.question,
            "golds": None if self.golds is None else list(self.golds.answers),
            "answers": [self._side_to_json(side) for side in (0, 1)],
            "badge": badge(*self.sides)[0],
            "summary": sentence(self.sides, self.answers, self.found),
        }

    def _side_to_json(self, side: int) -> dict[str, Any]:
        answer, similarity = self.answers[side], self.sides[side].similarity
        told = answer.to_json()
        against = moves(answer.hits, self.found[1 - side].ranks)
        percentiles = self.found[side].percentiles or (None,) * len(answer.hits)
        for passage, move, percentile in zip(told["passages"], against, percentiles, strict=True):
            passage |= {"percentile": percentile, "rank_on_the_other_side": move.there or None}
        scored = self.golds is not None and self.stages[side] == "done" and not answer.error
        return told | {
            "encoder": self.sides[side].encoder,
            "similarity": None if similarity is None else similarity.describe(),
            "prompt": answer.prompt,
            "score": mark_answer(answer.answer, self.golds).to_json() if scored and self.golds else None,
        }


def run_comparison(
    pipeline: Pipeline, question: str, names: tuple[str, str], k: int, golds: Golds | None = None
) -> Iterator[Snapshot]:
    """Ask both retrievers; each snapshot replaces the one before.

    The first snapshot has the passages of both sides, retrieved one after the other so that each is timed alone, the
    second what dial and plots show. The answers then stream side by side. What goes wrong on one side is that answer's `error`; the other side goes on.
    Closing the iterator stops the generation.

    Args:
        pipeline: Shared by everybody; nothing of this call is kept in it.
        question: What to answer.
        names: Retrievers, "closed-book" among them.
        k: Passages a side, 1 to `MOST_PASSAGES`.
        golds: Of the question, where they are known.

    Raises:
        ConfigError: The question or k cannot be used.
    """
    question = bounded(question)
    if not question:
        raise ConfigError("the question is empty: type one, or choose an example")
    if not (1 <= k <= MOST_PASSAGES and k == int(k)):
        raise ConfigError(f"passages a side must be a whole number from 1 to {MOST_PASSAGES}, got {k}")
    left, right = (_retrieve(pipeline, question, name, int(k)) for name in names)
    snapshot = Snapshot(
        question,
        (left[0], right[0]),
        (left[1], right[1]),
        k=int(k),
        found=(left[2], right[2]),
        golds=golds,
    )
    for side in (0, 1):
        if snapshot.answers[side].error:
            snapshot = _update(snapshot, side, snapshot.answers[side], "done")
    yield snapshot
    candidates = _candidates(pipeline, snapshot)
    if candidates:
        snapshot = replace(snapshot, candidates=candidates)
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


def bounded(question: str) -> str:
    """The question, stripped.

    Raises:
        ConfigError: It is too long. A part of it would be another question, so none is asked.
    """
    question = question.strip()
    if len(question) > LONGEST_QUESTION:
        raise ConfigError(f"the question has {len(question)} characters; shorten it to at most {LONGEST_QUESTION}")
    return question


def _candidates(pipeline: Pipeline, snapshot: Snapshot) -> tuple[Candidates, ...]:
    """For the dial; none where they cannot be had."""
    try:
        return find_candidates(
            pipeline, snapshot.question, snapshot.sides, snapshot.answers, snapshot.found, snapshot.k
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the answers do not need them
        in_words(error, DOING)
        return ()


def _retrieve(pipeline: Pipeline, question: str, name: str, k: int) -> tuple[Side, Answer, Found]:
    try:
        side = describe_side(pipeline, name)
        # A ranking of these is the same however much of it is asked for.
        depth = max(k, DEPTH) if side.kind in ("dense", "bm25") else k
        deep = pipeline.search([question], name, depth)[0]
        ranks = {hit.passage.id: hit.rank for hit in deep.hits}
        hits = deep.hits[:k]
        percentiles = _percentiles(pipeline.retriever(name).index, hits) if side.ranks else ()
        return side, replace(deep, hits=hits), Found(ranks, percentiles)
    except Exception as error:  # noqa: BLE001 - whatever it is, the visitor reads a line and the other side goes on
        return Side(name, "unknown"), Answer(name, error=in_words(error, DOING)), Found()


def _percentiles(index: Index, hits: Sequence[Hit]) -> tuple[float | None, ...]:
    """Of each hit's magnitude in the index; also of one that was found by its words."""
    rows = [hit.row for hit in hits if hit.row >= 0]
    known = iter(index.norm_percentiles(index.vectors(rows)[1]).tolist()) if rows else iter(())
    return tuple(next(known) if hit.row >= 0 else None for hit in hits)


def _load_reader(pipeline: Pipeline) -> str | None:
    """Once for both sides, before the threads: two failing attempts would take twice as long."""
    try:
        pipeline.generator.start()
    except Exception as error:  # noqa: BLE001 - as above
        return f"{NO_READER}: {in_words(error, DOING)}"
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
            items.put((side, replace(latest, error=in_words(error, DOING))))
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
