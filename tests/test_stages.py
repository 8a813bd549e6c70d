"""Rankings and answers of before: used again where nothing differs, and only there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from generator.base import Completion, Prompt, Sampling
from rag_app.errors import ConfigError
from rag_app.stages import StageCache
from retriever.base import Hit, Retrieved
from retriever.passages import Passage

GREEDY = Sampling(max_tokens=8)


class Corpus:
    """Stands for an index: rows to passages."""

    def passage(self, row: int) -> Passage:
        return Passage(f"p{row}", "", f"text {row}")


@dataclass
class Ranker:
    """Ranks row = length of the question first; counts what it is asked."""

    fingerprint: str = "r1"
    name: str = "ranker"
    notes: list[str] = field(default_factory=list)
    index: Corpus = field(default_factory=Corpus)
    asked: list[str] = field(default_factory=list)

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        self.asked += questions
        hits = [
            [Hit(n + 1, self.index.passage(len(q) + n), 1 / 3 / (n + 1), 0.1, None, 2.5, len(q) + n) for n in range(k)]
            for q in questions
        ]
        return Retrieved(hits, {"search": 0.5})


@dataclass
class Reader:
    """Says the prompt backwards; fails on "bad"; dies after `lives` answers."""

    fingerprint: str = "g1"
    lives: int = 1000
    asked: list[str] = field(default_factory=list)
    started: int = 0

    def start(self) -> None:
        self.started += 1

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, *, on_result: Callable[[Completion], None] | None = None
    ) -> list[Completion]:
        done = []
        for prompt in prompts:
            if self.lives == 0:
                raise RuntimeError("the engine died")
            self.lives -= 1
            text = prompt.text or ""
            self.asked.append(text)
            bad = text == "bad"
            completion = Completion(
                prompt.id, "" if bad else text[::-1], "error" if bad else "stop", 3, 2, "no" if bad else None
            )
            done.append(completion)
            if on_result is not None:
                on_result(completion)
        return done


@pytest.fixture
def cache(tmp_path: Path) -> StageCache:
    return StageCache(tmp_path / "data")


def test_a_ranking_comes_back_whole_and_is_computed_once(cache: StageCache, tmp_path: Path) -> None:
    ranker = Ranker()
    first = cache.retrieve(ranker, ["who", "where?"], 2)
    assert first == Ranker().retrieve(["who", "where?"], 2)
    again = StageCache(tmp_path / "data").retrieve(ranker, ["where?", "when is it", "who"], 2)
    assert again.hits == Ranker().retrieve(["where?", "when is it", "who"], 2).hits
    assert ranker.asked == ["who", "where?", "when is it"]
    assert cache.retrieve(ranker, ["who"], 2).seconds == {}


def test_another_retriever_question_or_k_never_gets_an_old_ranking(cache: StageCache) -> None:
    cache.retrieve(Ranker(), ["who"], 2)
    for ranker, question, k in ((Ranker("r2"), "who", 2), (Ranker(), "who ", 2), (Ranker(), "who", 3)):
        assert cache.retrieve(ranker, [question], k) == replace(Ranker().retrieve([question], k))
        assert ranker.asked == [question]


def test_an_answer_is_generated_once_for_a_prompt_whoever_asks(cache: StageCache) -> None:
    reader = Reader()
    completions, seconds = cache.complete(
        reader, [Prompt("1", text="abc"), Prompt("2", text="xyz"), Prompt("3", text="abc")], GREEDY
    )
    assert [(c.id, c.text, c.prompt_tokens) for c in completions] == [("1", "cba", 3), ("2", "zyx", 3), ("3", "cba", 3)]
    assert set(seconds) == {"1", "2"} and min(seconds.values()) > 0 and reader.asked == ["abc", "xyz"]
    completions, seconds = cache.complete(reader, [Prompt("other", text="xyz")], GREEDY)
    assert completions == [Completion("other", "zyx", "stop", 3, 2)] and seconds == {}
    assert reader.asked == ["abc", "xyz"] and reader.started == 1


@pytest.mark.parametrize(
    ("reader", "sampling", "prompt"),
    [
        (Reader("g2"), GREEDY, Prompt("1", text="abc")),
        (Reader(), Sampling(max_tokens=9), Prompt("1", text="abc")),
        (Reader(), Sampling(max_tokens=8, stop=("\n",)), Prompt("1", text="abc")),
        (Reader(), Sampling(max_tokens=8, temperature=1.0), Prompt("1", text="abc")),
        (Reader(), GREEDY, Prompt("1", text="abc ")),
        (Reader(), GREEDY, Prompt("1", messages=({"role": "user", "content": "abc"},))),
    ],
)
def test_another_reader_decoding_or_prompt_never_gets_an_old_answer(
    cache: StageCache, reader: Reader, sampling: Sampling, prompt: Prompt
) -> None:
    cache.complete(Reader(), [Prompt("1", text="abc")], GREEDY)
    cache.complete(reader, [prompt], sampling)
    assert reader.asked == [prompt.text or ""]


def test_failures_are_told_and_not_kept(cache: StageCache) -> None:
    for _ in range(2):
        reader = Reader()
        [completion], _ = cache.complete(reader, [Prompt("1", text="bad")], GREEDY)
        assert (completion.finish_reason, completion.error, completion.text) == ("error", "no", "")
        assert reader.asked == ["bad"]


def test_what_was_finished_before_the_reader_died_is_kept(cache: StageCache) -> None:
    prompts = [Prompt(str(n), text=f"prompt {n}") for n in range(5)]
    with pytest.raises(RuntimeError, match="died"):
        cache.complete(Reader(lives=3), prompts, GREEDY)
    reader = Reader()
    completions, _ = cache.complete(reader, prompts, GREEDY)
    assert reader.asked == ["prompt 3", "prompt 4"]
    assert [c.text for c in completions] == [p.text[::-1] for p in prompts if p.text]


def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "stages.sqlite").write_bytes(b"this is no database, it is a text of some length" * 40)
    with pytest.raises(
        ConfigError, match=r"stages\.sqlite cannot be used .*delete that file, or set eval\.cache=false"
    ):
        StageCache(tmp_path)


def test_a_full_disk_is_told_in_one_line(cache: StageCache) -> None:
    # SQLite's own limit of pages gives the very error of a full disk.
    cache._database.execute("PRAGMA max_page_count = 4")
    with pytest.raises(ConfigError, match=r"database or disk is full\): free the disk"):
        for n in range(1000):
            cache.retrieve(Ranker(f"r{n}"), ["who"], 50)


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    one, other = StageCache(tmp_path), StageCache(tmp_path)
    one.retrieve(Ranker(), ["who"], 1)
    other.retrieve(Ranker(), ["when"], 1)
    ranker = Ranker()
    one.retrieve(ranker, ["who", "when"], 1)
    assert ranker.asked == []
    assert sqlite3.connect(one.path).execute("SELECT count(*) FROM results").fetchone() == (2,)
