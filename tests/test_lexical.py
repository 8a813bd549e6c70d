"""BM25 against its formula, and against the faults known of its peers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from retriever.build import build_index
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.lexical import BM25Retriever, BM25Settings
from retriever.passages import Passage
from tests.vectors import ListCorpus, RandomEncoder

TEXTS = ["horse racing in france", "a horse and a cart", "the cart of the baker", "baker street in london", "vitamin c"]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    passages = [Passage(f"p{i}", "", text) for i, text in enumerate(TEXTS)]
    return build_index(ListCorpus(passages), RandomEncoder(), tmp_path / "i")


def lucene_bm25(query: str, k1: float, b: float) -> list[float]:
    """Robertson's formula with Lucene's idf, by hand."""
    documents = [text.split() for text in TEXTS]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        total = 0.0
        for word in query.split():
            n = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
            tf = document.count(word)
            total += idf * tf / (tf + k1 * (1 - b + b * len(document) / mean))
        scores.append(total)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75)])
def test_scores_equal_the_formula(index: Index, k1: float, b: float) -> None:
    expected = lucene_bm25("the horse cart", k1, b)
    hits = BM25Retriever("bm25", index, BM25Settings(k1, b)).retrieve(["the horse cart"], 5).hits[0]
    assert {hit.passage.id: hit.score for hit in hits} == pytest.approx(
        {f"p{i}": score for i, score in enumerate(expected) if score > 0}, rel=1e-5
    )
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.cosine is None and hit.norm is None for hit in hits)
    assert all(index.passage(hit.row) == hit.passage for hit in hits)


def test_questions_are_stemmed_as_passages_are(index: Index) -> None:
    stemmed = BM25Retriever("bm25", index, BM25Settings(stemmer="english"))
    assert {hit.passage.id for hit in stemmed.retrieve(["races horses"], 5).hits[0]} == {"p0", "p1"}
    plain = BM25Retriever("bm25", index, BM25Settings(stemmer="none"))
    assert plain.retrieve(["races horses"], 5).hits[0] == []
    assert plain.fingerprint != stemmed.fingerprint


def test_passages_without_a_word_in_common_are_not_returned(index: Index) -> None:
    retriever = BM25Retriever("bm25", index)
    hits = retriever.retrieve(["zebra", "", "?!", "Vitamin C"], 3).hits
    assert hits[:3] == [[], [], []]
    assert [hit.passage.id for hit in hits[3]] == ["p4"]


def test_the_kept_matrix_gives_the_same_ranking_again(index: Index) -> None:
    first = BM25Retriever("bm25", index).retrieve(["baker"], 2).hits
    assert list(index.folder.glob("bm25-*"))
    assert not list(index.folder.glob("*.tmp"))
    again = BM25Retriever("bm25", Index(index.folder)).retrieve(["baker"], 2).hits
    assert again == first


def test_settings_out_of_range_are_named() -> None:
    for settings, message in (
        ({"k1": -1}, "k1 must be at least 0"),
        ({"b": 1.5}, "b must be between 0 and 1"),
        ({"stemmer": "klingon"}, "stemmer must be none or one of"),
    ):
        with pytest.raises(RetrieverError, match=message):
            BM25Settings(**settings)  # type: ignore[arg-type]
