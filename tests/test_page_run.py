"""Running a comparison: what arrives first, what is drawn anew, and faults that stay on their own side."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from rag_app.answers import Answer
from rag_app.errors import ConfigError, WeightsError
from rag_app.page import compare_tab
from rag_app.page.cards import render_passages
from rag_app.page.render import render_answer, render_seconds, render_verdict
from rag_app.page.run import LONGEST_QUESTION, MOST_PASSAGES, Snapshot, run_comparison
from rag_app.pipeline import Pipeline
from retriever.errors import RetrieverError
from tests.comparison_example import some_hits
from tests.markup import text_of


class _Pipeline:
    """Stands where a pipeline would: what it raises or says is set by the test."""

    def __init__(
        self, *, reader: Exception | None = None, broken: str = "", words: Sequence[str] = ("Henry", "W")
    ) -> None:
        self.reader, self.broken, self.words = reader, broken, words
        self.config = SimpleNamespace(retriever=lambda name: SimpleNamespace(kind="bm25"))
        self.closed: list[str] = []

    @property
    def generator(self) -> object:
        if self.reader:
            raise self.reader
        return SimpleNamespace(start=lambda: None)

    def retriever(self, name: str) -> object:
        if name == self.broken:
            raise RetrieverError(f"{name} has no index")
        index = SimpleNamespace(
            vectors=lambda rows: (None, np.array([float(row) for row in rows])),
            norm_percentiles=lambda norms: norms * 10,
        )
        return SimpleNamespace(notes=[], index=index)

    def search(self, questions: Sequence[str], name: str, k: int) -> list[Answer]:
        return [Answer(name, hits=some_hits("abcdef"[:k]))]

    def stream(self, question: str, found: Answer) -> Iterator[Answer]:
        try:
            text = ""
            for word in self.words:
                text += word
                yield Answer(found.retriever, answer=text, hits=found.hits)
            if found.retriever == "dies":
                raise RuntimeError("<b>boom</b>")
        finally:
            self.closed.append(found.retriever)


def _run(pipeline: _Pipeline, question: str = "q?", left: str = "x", right: str = "y", k: int = 3) -> list[Snapshot]:
    return list(run_comparison(cast("Pipeline", pipeline), question, (left, right), k))


def test_passages_come_before_answers_and_both_answers_end_whole() -> None:
    snapshots = _run(_Pipeline())
    assert [len(answer.hits) for answer in snapshots[0].answers] == [3, 3]
    assert snapshots[0].stages == ("waiting", "waiting")
    assert [answer.answer for answer in snapshots[0].answers] == ["", ""]
    assert [answer.answer for answer in snapshots[-1].answers] == ["HenryW", "HenryW"]
    assert snapshots[-1].stages == ("done", "done")


def test_with_a_token_only_an_answer_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Counter[str] = Counter()

    def counted(name: str) -> None:
        draw = getattr(compare_tab, name)
        monkeypatch.setattr(compare_tab, name, lambda *given: drawn.update([name]) or draw(*given))

    for name in ("render_passages", "render_slopes", "render_verdict", "render_seconds", "render_answer"):
        counted(name)
    pane = [compare_tab.Pane(*(f"{part} {side}" for part in ("answer", "passages", "seconds"))) for side in "ab"]  # type: ignore[arg-type]
    outputs = compare_tab.Outputs("question", "button", "verdict", (pane[0], pane[1]), "slopes", None)  # type: ignore[arg-type]
    first, last = _run(_Pipeline())[0], _run(_Pipeline())[-1]
    left, right = first.answers
    steps = [
        replace(first, stages=("answering", "answering"), answers=(replace(left, answer=f"w{n}"), right))
        for n in range(100)
    ]
    page: dict[str, str] = {}
    for update in compare_tab._updates(outputs, iter([first, *steps, last]), ""):
        page |= update
    assert drawn == {
        "render_passages": 2 * 2,  # at once, and with the answer's words marked
        "render_slopes": 1,
        "render_verdict": 2,
        "render_seconds": 2 * 2,
        "render_answer": (1 + 100 + 1) + (1 + 1 + 1),
    }
    assert page["passages a"] == render_passages(last, 0) and page["verdict"] == render_verdict(last)
    assert page["answer b"] == render_answer(last, 1) and page["seconds a"] == render_seconds(last, 0)


def test_without_a_reader_passages_stay_and_both_panes_say_what_is_missing() -> None:
    pipeline = _Pipeline(reader=WeightsError("no weights; run `magrag fetch`"))
    last = _run(pipeline)[-1]
    assert [len(answer.hits) for answer in last.answers] == [3, 3]
    for side in (0, 1):
        shown = text_of(render_answer(last, side))
        assert "There is no reader to answer: no weights; run magrag fetch." in shown
        assert "magrag doctor" in shown


def test_a_broken_retriever_does_not_disturb_the_other_side() -> None:
    last = _run(_Pipeline(broken="x"))[-1]
    assert last.answers[0].error == "x has no index"
    assert last.answers[1].answer == "HenryW" and last.stages == ("done", "done")


def test_an_unforeseen_error_is_one_line_on_its_own_side() -> None:
    last = _run(_Pipeline(), left="dies")[-1]
    assert last.answers[0].error == "unexpected RuntimeError; the terminal shows where"
    assert last.answers[1].error is None and last.answers[1].answer == "HenryW"


def test_closing_the_comparison_stops_both_answers() -> None:
    pipeline = _Pipeline(words=["w"] * 10_000_000)
    comparison = run_comparison(cast("Pipeline", pipeline), "q?", ("x", "y"), 3)
    next(comparison), next(comparison)
    comparison.close()  # type: ignore[attr-defined]
    for _ in range(500):
        if sorted(pipeline.closed) == ["x", "y"]:
            return
        time.sleep(0.01)
    pytest.fail(f"still answering: only {pipeline.closed} stopped")


@pytest.mark.parametrize(
    ("question", "k", "says"),
    [
        ("  ", 3, "question is empty"),
        ("x" * (LONGEST_QUESTION + 1), 3, "shorten it"),
        ("q?", 0, "from 1 to"),
        ("q?", MOST_PASSAGES + 1, "from 1 to"),
        ("q?", 2.5, "whole number from 1 to 20, got 2.5"),
    ],
)
def test_unusable_input_is_refused_in_words(question: str, k: float, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _run(_Pipeline(), question, k=cast(int, k))


def test_a_comparison_as_json_has_what_the_page_shows() -> None:
    last = _run(_Pipeline())[-1].to_json()
    assert last["question"] == "q?" and [answer["answer"] for answer in last["answers"]] == ["HenryW", "HenryW"]
    assert last["summary"].startswith("Both sides rank the same 3 passages")
    assert [passage["rank_on_the_other_side"] for passage in last["answers"][0]["passages"]] == [1, 2, 3]


def test_rankings_are_looked_at_deeper_than_they_are_shown() -> None:
    first = _run(_Pipeline(), k=2)[0]
    assert [len(answer.hits) for answer in first.answers] == [2, 2]
    assert dict(first.found[0].ranks) == {id: rank for rank, id in enumerate("abcdef", 1)}
    assert first.found[0].percentiles == (None, None)
