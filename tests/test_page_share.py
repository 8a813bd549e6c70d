"""Golds of known questions, and comparisons as links and files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, unquote

import pytest

from rag_app.answers import Answer
from rag_app.config import load_config
from rag_app.errors import ConfigError
from rag_app.page.cards import LONGEST_TEXT
from rag_app.page.compare import Found, Side
from rag_app.page.golds import GoldBook, Golds, Mark, mark_answer
from rag_app.page.run import MOST_PASSAGES, Snapshot
from rag_app.page.share import Link, download, permalink, read_link
from retriever.base import Hit
from retriever.passages import Passage
from retriever.similarity import COSINE


def test_the_demos_questions_have_golds_and_others_none() -> None:
    book = GoldBook(load_config())
    assert book.find("  who built the FIRST lighthouse on the Eddystone rocks? ") == Golds(
        ("Henry Winstanley", "Winstanley")
    )
    assert book.find("Which museum owns The Milkmaid by Vermeer?") == Golds(())
    assert book.find("Who was it?") is None
    assert GoldBook(load_config(None, ["corpus=other.jsonl"])).find("weight of the steel ball in taipei 101") is None


def test_golds_of_a_configured_data_set_come_with_its_rule(tmp_path: Path) -> None:
    rows = [{"id": "1", "question": "Where?", "answers": ["Köln"]}, {"id": "2", "question": "When?", "answers": []}]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    config = tmp_path / "own.toml"
    config.write_text(
        f'[eval]\ndata = "{tmp_path}"\n[eval.datasets.own]\npath = "own.jsonl"\nrule = "triviaqa"\n'
        '[eval.datasets.gone]\npath = "gone.jsonl"\n',
        "utf-8",
    )
    book = GoldBook(load_config(config))
    assert book.find("where?") == Golds(("Köln",), "triviaqa")
    assert book.find("When?") is None
    assert book.find("weight of the steel ball in taipei 101") is not None


def test_an_answer_is_marked_by_the_rule_and_a_refusal_by_what_it_says() -> None:
    # Precision 1/2, recall 1/1.
    half = mark_answer("old Watt", Golds(("Watt",)))
    assert not half.right and half.f1 == pytest.approx(2 / 3)
    assert mark_answer("the Watt!", Golds(("Watt",))) == Mark(True, 1.0)
    assert mark_answer("The passages do not tell", Golds(())) == Mark(True)
    assert mark_answer("Watt", Golds(())) == Mark(False)


def _snapshot(question: str = "Who? & “why” #1") -> Snapshot:
    hits = [Hit(1, Passage("a", "T", "text"), 0.5, 0.5, 2.0, 3.0, 0)]
    sides = (Side("cosine", "dense", "mini", "e", COSINE), Side("closed-book", "closed-book"))
    answers = (Answer("cosine", answer="Watt", hits=hits, prompt="P"), Answer("closed-book", answer="x"))
    found = (Found({"a": 1}, (40.0,)), Found())
    return Snapshot(question, sides, answers, ("done", "done"), 7, found, Golds(("Watt",)))


def test_a_link_reopens_the_comparison() -> None:
    config = load_config()
    link = permalink(_snapshot(), "abc")
    assert link.startswith("?q=Who%3F%20%26%20") and "#" not in link
    query = {key: values[0] for key, values in parse_qs(link[1:], strict_parsing=True).items()}
    assert read_link(query, config) == Link("Who? & “why” #1", ("cosine", "closed-book"), 7, "abc")
    assert read_link({}, config) == Link("")
    assert "c=" not in permalink(_snapshot())


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"q": "x", "a": "cosin"}, 'a retriever "cosin" that this page does not have'),
        ({"q": "x" * 5000}, "the question has 5000 characters; shorten it to at most 2000"),
        ({"q": "x", "k": "0"}, "k = 0"),
        ({"q": "x", "k": str(MOST_PASSAGES + 1)}, "from 1 to"),
        ({"q": "x", "k": "3; drop"}, "k = 3; drop"),
        ({"q": "x", "k": "²"}, "k = ²"),
        ({"q": "x", "k": "0003000"}, "k = 0003000"),
        ({"q": "x", "k": "3" + "0" * 5000}, "from 1 to"),
    ],
)
def test_a_link_that_cannot_be_followed_says_why(query: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_link(query, load_config())


def test_the_file_holds_what_the_page_shows() -> None:
    kind, _, content = download(_snapshot()).partition(",")
    assert kind == "data:application/json;charset=utf-8"
    told = json.loads(unquote(content))
    assert told["question"] == "Who? & “why” #1" and told["golds"] == ["Watt"]
    first, second = told["answers"]
    assert first["score"] == {"em": True, "f1": 1.0} and second["score"] == {"em": False, "f1": 0.0}
    assert first["passages"][0]["percentile"] == 40.0 and first["passages"][0]["rank_on_the_other_side"] is None
    assert first["passages"][0]["text"] == "text"
    assert first["encoder"] == "mini" and first["similarity"]["gamma_d"] == 1.0 and first["prompt"] == "P"


def test_the_file_is_bounded_even_where_a_passage_is_a_whole_book() -> None:
    snapshot = _snapshot()
    long = Hit(1, Passage("a", "T", "word " * 100_000), 0.5, 0.5, 2.0, 3.0, 0)
    book = replace(snapshot, answers=(replace(snapshot.answers[0], hits=[long]), snapshot.answers[1]))
    text = json.loads(unquote(download(book).partition(",")[2]))["answers"][0]["passages"][0]["text"]
    assert text == ("word " * 100_000)[:LONGEST_TEXT] + " …"
    assert book.answers[0].hits[0].passage.text == "word " * 100_000
