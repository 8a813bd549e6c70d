"""A corpus as it is gone through: again and again, in bounded memory, counted, and known by its fingerprint."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.corpora import read_corpus, seen
from retriever.corpora.seen import SeenStrings
from tests.corpus_files import PASSAGES, write_jsonl, write_ours, zipped
from tests.shared_data import DATA, needs_data


def test_a_corpus_can_be_gone_through_again_also_after_a_stop_in_the_middle(tmp_path: Path) -> None:
    corpus = read_corpus(write_ours(tmp_path / "c.jsonl"))
    assert next(iter(corpus)) == PASSAGES[0]
    assert list(corpus) == PASSAGES
    assert list(corpus) == PASSAGES
    assert corpus.report.kept == 3


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with path.open("w") as file:
        for number in range(6_000):
            file.write(json.dumps({"id": number, "text": f"{number} " + "word " * 400}) + "\n")
    corpus = read_corpus(path)
    tracemalloc.start()
    count = sum(1 for _ in corpus)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 6_000
    assert peak < 3_000_000 < path.stat().st_size / 4


def test_equal_contents_are_counted_and_dropped_only_on_request(tmp_path: Path) -> None:
    rows = [("1", "T", "a  b"), ("2", "T", "a\nb "), ("3", "", "T a b"), ("4", "t", "a b"), ("5", "T", "a b")]
    path = write_jsonl(tmp_path / "c.jsonl", [dict(zip(("id", "title", "text"), row, strict=True)) for row in rows])
    kept = read_corpus(path)
    assert [p.id for p in kept] == ["1", "2", "3", "4", "5"]
    assert (kept.report.kept, kept.report.duplicates, kept.report.dropped) == (5, 2, 0)
    collapsed = read_corpus(path, collapse_duplicates=True)
    assert [p.id for p in collapsed] == ["1", "3", "4"]
    report = collapsed.report
    assert (report.read, report.kept, report.duplicates, report.dropped) == (5, 3, 2, 2)
    assert report.to_json()["dropped"] == 2


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=3), max_size=200))
def test_strings_met_before_are_known_through_any_number_of_merges(strings: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "BUFFER", 5)
        remembered, oracle = SeenStrings(), set[str]()
        for string in strings:
            assert remembered.add(string) == (string not in oracle)
            oracle.add(string)
        assert len(remembered) == len(oracle)


def test_the_total_is_estimated_on_the_way_and_exact_at_the_end(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", [{"id": n, "text": "word " * 50} for n in range(20_000)])
    for source in (path, zipped(path)):
        corpus = read_corpus(source)
        assert corpus.estimated_total() is None
        stream = iter(corpus)
        for _ in range(10_000):
            next(stream)
        estimate = corpus.estimated_total()
        assert estimate is not None
        assert 0.8 * 20_000 < estimate < 1.2 * 20_000
        list(stream)
        assert corpus.estimated_total() == 20_000


def test_the_fingerprint_follows_what_is_read_and_not_where_it_lies(tmp_path: Path) -> None:
    path = write_ours(tmp_path / "c.jsonl")
    first = read_corpus(path).fingerprint()
    (tmp_path / "other").mkdir()
    assert read_corpus(write_ours(tmp_path / "other" / "name")).fingerprint() == first
    assert read_corpus(path, on_error="skip").fingerprint() == first
    variants = {
        first,
        read_corpus(path, collapse_duplicates=True).fingerprint(),
        read_corpus(path, columns={"text": "title"}).fingerprint(),
    }
    path.write_bytes(path.read_bytes().replace(b"Moses", b"Noses"))
    variants.add(read_corpus(path).fingerprint())
    assert len(variants) == 4
    assert all(len(value) == 64 for value in variants)


@needs_data
@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("opendomain/corpus.jsonl", 21_477),
        ("hotpotqa/corpus.jsonl", 17_240),
        ("musique/corpus.jsonl", 8_674),
        ("2wiki/corpus.jsonl", 9_616),
        ("scifact", 5_183),
        ("trec_dl19", 14_581),
    ],
)
def test_real_corpora_have_the_counts_of_their_manifest(source: str, count: int) -> None:
    assert DATA is not None
    corpus = read_corpus(DATA / source)
    assert sum(1 for _ in corpus) == count
    assert (corpus.report.read, corpus.report.kept) == (count, count)
