"""The Documents tab as HTML, and the making of a corpus that is watched."""

from __future__ import annotations

import re
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from rag_app.errors import ConfigError
from rag_app.gathering import Preview, PreviewChunk, Step
from rag_app.page.documents import render_added, render_corpora, render_making, render_preview, time_left
from rag_app.page.making import Making, run_making
from rag_app.page.room import browser_id, owner_of
from rag_app.shelf import Added, Shelved
from retriever.passages import Passage

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)> **b** \"q\" 'q'"


def _unescaped(markup: str) -> bool:
    return bool(re.search(r"<(script|img)", markup))


def test_nothing_from_outside_becomes_markup() -> None:
    chunk = PreviewChunk(Passage(EVIL, EVIL, EVIL, {"page": EVIL}), 12)
    shelved = Shelved("1", EVIL, 3, "2026-01-02T03:04:05+00:00", EVIL)
    parts = [
        render_preview(Preview(EVIL, (chunk,), 1, EVIL), 254, EVIL),
        render_making(Making(Step("reading", EVIL, 3), 1.0)),
        render_making(Making(Step("encoding", EVIL, 1, 3), 1.0)),
        render_added(Added(shelved, (EVIL,))),
        render_corpora([shelved]),
    ]
    for markup in parts:
        assert "&lt;script&gt;" in markup and not _unescaped(markup)


def test_a_preview_tells_lengths_and_what_is_not_encoded() -> None:
    chunks = tuple(PreviewChunk(Passage(f"a#{n}", "A", "text", {}), n) for n in (254, 255))
    markup = render_preview(Preview("a.txt", chunks, 7), 254, "minilm")
    assert "7 passages, the first 2" in markup and "254 tokens" in markup and "255 tokens" in markup
    assert markup.count("Only the first 254 tokens are encoded") == 1
    assert "thousands of passages" in render_preview(Preview("a.txt", chunks, None), 254, "minilm")


def test_progress_has_a_share_a_rate_and_the_time_left() -> None:
    making = Making(Step("encoding", "minilm", 500, 2000), 10.0)
    assert making.rate == 50 and making.left_s == 30
    markup = render_making(making)
    assert 'value="0.250"' in markup and "500 of 2,000 passages · 50 a second · 30 s left" in markup
    assert 'aria-label="Encoding with minilm"' in markup
    assert "value=" not in render_making(Making(Step("reading", "a.pdf", 0), 1.0))
    assert Making(Step("encoding", "minilm", 0, 5), 1.0).left_s is None
    assert Making(None, 0.0).rate is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (59.4, "59 s"), (75, "1 min 15 s"), (120, "2 min"), (1199, "19 min"), (5400, "1 h 30 min")],
)
def test_durations_are_said_as_people_do(seconds: float, words: str) -> None:
    assert time_left(seconds) == words


ADDED = Added(Shelved("1", "Mine", 3, "2026-01-02T03:04:05+00:00", "a.txt"), ())


def test_a_corpus_that_is_made_is_the_last_thing_told() -> None:
    def make(step: Any) -> Added:
        step(Step("reading", "a.txt", 0))
        step(Step("encoding", "minilm", 1, 3))
        time.sleep(0.5)
        step(Step("encoding", "minilm", 3, 3))
        return ADDED

    told = list(run_making(make))
    assert told[-1].added == ADDED and not told[-1].error
    assert all(making.added is None for making in told[:-1])
    assert told[0].step == Step("encoding", "minilm", 1, 3) and told[0].seconds > 0.2


def test_errors_are_one_line_and_what_nobody_foresaw_shows_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(step: Any) -> Added:
        raise ConfigError("too\nlarge")

    def break_(step: Any) -> Added:
        raise KeyError("/home/secret")

    assert list(run_making(refuse))[-1].error == "too large"
    assert list(run_making(break_))[-1].error == "unexpected KeyError; the terminal shows where"
    assert "/home/secret" in caplog.text


def test_the_work_ends_when_nobody_watches() -> None:
    ended = threading.Event()

    def make(step: Any) -> Added:
        try:
            for done in range(10_000):
                step(Step("encoding", "minilm", done, 10_000))
                time.sleep(0.01)
            return ADDED
        finally:
            ended.set()

    watching = run_making(make)
    next(watching)
    assert not ended.is_set()
    watching.close()
    assert ended.wait(5)


def test_whose_a_visitors_things_are() -> None:
    def request(user: str | None) -> Any:
        return SimpleNamespace(username=user)

    new, other = browser_id(""), browser_id(None)
    assert new != other and browser_id(new) == new
    assert owner_of(request(None), new) == f"browser:{new}"
    assert owner_of(request("anna"), new) == owner_of(request("anna"), other) == "user:anna"
    for forged in ("", "anna", "user:anna", "x" * 31, "x" * 65, "../" * 12, None, 7, ["x" * 40], {"a": 1}):
        assert owner_of(request(None), forged) == ""
        assert browser_id(forged) != forged
