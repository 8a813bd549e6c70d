"""The Documents tab as HTML, and the making of a corpus that is watched."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rag_app.errors import ConfigError
from rag_app.gathering import Preview, PreviewChunk, Step
from rag_app.page.documents import render_added, render_corpora, render_making, render_preview
from rag_app.page.making import Making, Work
from rag_app.page.progress import pace, time_left
from rag_app.page.room import browser_id, owner_of
from rag_app.shelf import Added, Shelved
from retriever.passages import Passage
from retriever.turns import Turns

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
    assert 'max="2000" value="500"' in markup
    assert "500 of 2,000 passages · 50 a second · about 30 s left" in markup
    assert 'aria-label="Encoding with minilm"' in markup
    assert "value=" not in render_making(Making(Step("reading", "a.pdf", 0), 1.0))
    assert Making(Step("encoding", "minilm", 0, 5), 1.0).left_s is None
    assert Making(None, 0.0).rate is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (59.9, "1 min"),
        (75, "1 min 15 s"),
        (120, "2 min"),
        (1199, "19 min"),
        (5400, "1 h 30 min"),
    ],
)
def test_durations_are_said_as_people_do(seconds: float, words: str) -> None:
    assert time_left(seconds) == words


def test_a_pace_is_told_by_what_comes_in_a_second() -> None:
    assert pace(1234.4, 90) == " · 1,234 a second · about 1 min 30 s left"
    assert (pace(2.5, None), pace(0.25, None), pace(None, 3)) == (" · 2.5 a second", " · one in 4.0 s", "")


ADDED = Added(Shelved("1", "Mine", 3, "2026-01-02T03:04:05+00:00", "a.txt"), ())


def until(work: Work, true: Callable[[Making], bool]) -> Making:
    """What it tells once that holds."""
    deadline = time.monotonic() + 10
    while not true(making := work.now()):
        assert time.monotonic() < deadline, making
        time.sleep(0.01)
    return making


def ended(making: Making) -> bool:
    return making.ended


def test_a_corpus_that_is_made_is_the_last_thing_told() -> None:
    def make(step: Callable[[Step], None]) -> Added:
        step(Step("reading", "a.txt", 0))
        step(Step("encoding", "minilm", 1, 3))
        time.sleep(0.4)
        step(Step("encoding", "minilm", 3, 3))
        return ADDED

    async def watch() -> list[Making]:
        return [making async for making in Work(make, Turns()).watch()]

    told = asyncio.run(watch())
    assert told[-1].added == ADDED and not told[-1].error
    assert all(making.added is None and not making.ended for making in told[:-1])
    assert told[1].step == Step("encoding", "minilm", 1, 3) and told[1].seconds > 0.2


def test_errors_are_one_line_and_what_nobody_foresaw_shows_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(step: Callable[[Step], None]) -> Added:
        raise ConfigError("too\nlarge")

    def break_(step: Callable[[Step], None]) -> Added:
        raise KeyError("/home/secret")

    assert until(Work(refuse, Turns()), ended).error == "too large"
    assert until(Work(break_, Turns()), ended).error == "unexpected KeyError; the terminal shows where"
    assert "/home/secret" in caplog.text


def test_one_corpus_is_made_at_a_time_and_who_waits_can_cancel() -> None:
    turns, go_on, made = Turns(), threading.Event(), []

    def make(name: str) -> Callable[[Callable[[Step], None]], Added]:
        def making(step: Callable[[Step], None]) -> Added:
            made.append(name)
            step(Step("reading", name, 0))
            go_on.wait(10)
            return ADDED

        return making

    first = Work(make("first"), turns)
    until(first, lambda making: making.step is not None)
    second, third = Work(make("second"), turns), Work(make("third"), turns)
    assert second.now().waiting and not second.now().ended
    assert "Waiting …" in render_making(second.now())
    second.cancel()
    assert (now := second.now()).ended and now.cancelled and not now.added
    go_on.set()
    assert until(first, ended).added == until(third, ended).added == ADDED
    assert made == ["first", "third"]


def test_what_is_done_before_it_can_be_cancelled_is_not_told_as_cancelled() -> None:
    at_its_end, go_on = threading.Event(), threading.Event()

    def make(step: Callable[[Step], None]) -> Added:
        step(Step("encoding", "minilm", 3, 3))
        at_its_end.set()
        go_on.wait(10)
        return ADDED

    work = Work(make, Turns())
    assert at_its_end.wait(10)
    work.cancel()
    assert not work.now().ended and "Stopping …" in render_making(work.now())
    go_on.set()
    assert until(work, ended).added == ADDED


def test_the_work_ends_when_nobody_watches() -> None:
    stopped = threading.Event()

    def make(step: Callable[[Step], None]) -> Added:
        try:
            for done in range(10_000):
                step(Step("encoding", "minilm", done, 10_000))
                time.sleep(0.01)
            return ADDED
        finally:
            stopped.set()

    async def look_once(work: Work) -> None:
        watching = work.watch()
        await anext(watching)
        assert not stopped.is_set()
        await watching.aclose()

    work = Work(make, Turns())
    asyncio.run(look_once(work))
    assert stopped.wait(5) and until(work, ended).added is None


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
