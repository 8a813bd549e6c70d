"""Passages written as JSON lines are read back as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retriever.corpora import read_corpus
from retriever.corpora.writing import write_passages
from retriever.passages import Passage


@pytest.mark.parametrize("meta", [True, False])
def test_passages_come_back_as_they_were_written(meta: bool, tmp_path: Path) -> None:
    passages = [
        Passage("1", "Žluťoučký kůň", 'Two\nlines and "quotes".', {"year": 1900, "tags": ["a"]}),
        Passage("2", "", "\u2028 and 😀"),
    ]
    path = tmp_path / "new" / "passages.jsonl"
    write_passages(path, iter(passages), meta=meta)
    kept = passages if meta else [Passage(own.id, own.title, own.text) for own in passages]
    assert list(read_corpus(path)) == kept
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_what_else_is_known_of_a_passage_never_stands_for_its_own_fields(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    write_passages(path, [Passage("own", "Title", "Text.", {"id": "other", "text": "other", "page": 2})], meta=True)
    assert json.loads(path.read_bytes()) == {"id": "own", "title": "Title", "text": "Text.", "page": 2}
