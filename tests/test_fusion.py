"""Reciprocal-rank fusion by hand and against a plain second way to compute it, and the retriever around it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.base import Hit, Retrieved
from retriever.build import build_index
from retriever.dense import DenseRetriever
from retriever.errors import RetrieverError
from retriever.fusion import HybridRetriever, reciprocal_rank_fusion
from retriever.index import Index
from retriever.lexical import BM25Retriever
from retriever.search.exact import ExactSearcher
from retriever.similarity import COSINE, QNORM
from tests.vectors import ListCorpus, RandomEncoder, some_passages

PASSAGES = some_passages(60)


class FixedRanking:
    """Ranks the rows it is told, whatever is asked."""

    def __init__(self, name: str, index: Index, rows: Sequence[int], notes: Sequence[str] = ()) -> None:
        self.name, self.index, self.rows, self.notes = name, index, list(rows), list(notes)
        self.fingerprint = f"fixed-{rows}"
        self.asked = 0

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        self.asked = k
        hits = [Hit(rank, self.index.passage(row), 1.0 / rank, row=row) for rank, row in enumerate(self.rows[:k], 1)]
        return Retrieved([hits for _ in questions], {"encode": 1.0, "search": 2.0})


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(ListCorpus(PASSAGES), RandomEncoder(), tmp_path_factory.mktemp("fusion") / "i", shard_size=25)


def dense(index: Index, similarity=COSINE) -> DenseRetriever:  # type: ignore[no-untyped-def]
    return DenseRetriever(similarity.name, RandomEncoder(), similarity, index, ExactSearcher(index))  # type: ignore[arg-type]


def test_scores_are_those_computed_by_hand() -> None:
    fused = reciprocal_rank_fusion([[7, 3, 5], [3, 9]], rrf_k=60)
    assert fused == [
        (3, pytest.approx(1 / 62 + 1 / 61)),  # 0.0325225
        (7, pytest.approx(1 / 61)),
        (9, pytest.approx(1 / 62)),
        (5, pytest.approx(1 / 63)),
    ]
    assert fused[0][1] == pytest.approx(0.0325225, abs=1e-7)


def test_equal_scores_go_by_the_best_single_rank_and_then_by_row() -> None:
    # With rrf_k = 2, ranks 1 and 10 give row 4 1/3 + 1/12 = 5/12, and ranks 2 and 4 give row 2 1/4 + 1/6 = 5/12.
    first = [4, 2, 30, 31, 32, 33, 34, 35, 36, 37]
    second = [50, 51, 52, 2, 53, 54, 55, 56, 57, 4]
    order = [row for row, _ in reciprocal_rank_fusion([first, second], rrf_k=2)]
    scores = dict(reciprocal_rank_fusion([first, second], rrf_k=2))
    assert scores[4] == scores[2]
    assert order[:2] == [4, 2]
    assert [row for row, _ in reciprocal_rank_fusion([[9], [1], [5]])] == [1, 5, 9]


rankings = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=12), min_size=1, max_size=5)


@given(rankings, st.integers(1, 100))
def test_fusion_agrees_with_exact_fractions(rankings: list[list[int]], rrf_k: int) -> None:
    exact: dict[int, Fraction] = {}
    best: dict[int, int] = {}
    for ranking in rankings:
        for place, row in enumerate(ranking):
            exact[row] = exact.get(row, Fraction(0)) + Fraction(1, rrf_k + place + 1)
            best[row] = min(best.get(row, place), place)
    fused = reciprocal_rank_fusion(rankings, rrf_k)
    assert dict(fused) == pytest.approx({row: float(score) for row, score in exact.items()}, rel=1e-15)
    keys = [(-score, best[row], row) for row, score in fused]
    assert keys == sorted(keys)
    assert sorted(fused) == sorted(reciprocal_rank_fusion(rankings[::-1], rrf_k))


def test_a_hybrid_of_vectors_and_words_ranks_by_both_and_keeps_the_factors(index: Index) -> None:
    questions = ["the river number 8", "violin", "near the comet"]
    cosine, bm25 = dense(index), BM25Retriever("bm25", index)
    hybrid = HybridRetriever("hybrid", [cosine, bm25], depth=10)
    found = hybrid.retrieve(questions, 12)
    vectors, words = cosine.retrieve(questions, 12).hits, bm25.retrieve(questions, 12).hits
    assert hybrid.index is index
    for hits, by_vector, by_word in zip(found.hits, vectors, words, strict=True):
        expected = reciprocal_rank_fusion([[hit.row for hit in by_vector], [hit.row for hit in by_word]])[:12]
        assert [(hit.row, hit.score) for hit in hits] == expected
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        factors = {hit.row: (hit.cosine, hit.norm, hit.query_norm) for hit in by_vector}
        for hit in hits:
            assert hit.passage == index.passage(hit.row)
            assert (hit.cosine, hit.norm, hit.query_norm) == factors.get(hit.row, (None, None, None))
        assert any(hit.norm is not None for hit in hits)
        assert any(hit.norm is None for hit in hits)


def test_norms_of_another_index_are_not_mixed_in(index: Index, tmp_path: Path) -> None:
    class Other(RandomEncoder):
        def encode_queries(self, queries, progress=None):  # type: ignore[no-untyped-def]
            return super().encode_queries([f"other {query}" for query in queries])

    encoder = Other(description={"model": "other", "weights": "w2", "dim": 16})
    second = build_index(ListCorpus(PASSAGES), encoder, tmp_path / "second")
    other = DenseRetriever("other", encoder, COSINE, second, ExactSearcher(second))  # type: ignore[arg-type]
    hits = HybridRetriever("h", [dense(index), other], depth=5).retrieve(["violin"], 10).hits[0]
    own = {hit.row: hit.norm for hit in dense(index).retrieve(["violin"], 10).hits[0]}
    assert {hit.row: hit.norm for hit in hits} == {hit.row: own.get(hit.row) for hit in hits}


def test_parts_are_asked_for_depth_candidates_or_more_where_more_are_wanted(index: Index) -> None:
    one, two = FixedRanking("one", index, range(60)), FixedRanking("two", index, range(59, -1, -1))
    hybrid = HybridRetriever("h", [one, two], depth=10)
    ten = hybrid.retrieve(["a"], 3).hits[0]
    assert (one.asked, two.asked) == (10, 10)
    assert [hit.row for hit in ten] == [0, 59, 1]
    assert hybrid.retrieve(["a"], 8).hits[0][:3] == ten
    assert len(hybrid.retrieve(["a"], 40).hits[0]) == 40
    assert one.asked == 40
    assert len(hybrid.retrieve(["a"], 1_000).hits[0]) == 60
    assert hybrid.retrieve([], 3).hits == []
    with pytest.raises(RetrieverError, match="k must be at least 1, got 0"):
        hybrid.retrieve(["a"], 0)


def test_seconds_are_summed_and_notes_passed_on_once(index: Index) -> None:
    one = FixedRanking("one", index, [1], ["careful", "twice"])
    hybrid = HybridRetriever("h", [one, FixedRanking("two", index, [2], ["twice"])])
    seconds = hybrid.retrieve(["a"], 1).seconds
    assert seconds["encode"] == 2.0
    assert 4.0 <= seconds["search"] < 5.0
    assert hybrid.notes == ["careful", "twice"]


def test_the_fingerprint_follows_parts_and_settings(index: Index) -> None:
    parts = [dense(index), BM25Retriever("bm25", index)]
    prints = [
        HybridRetriever("h", parts).fingerprint,
        HybridRetriever("h", parts, depth=50).fingerprint,
        HybridRetriever("h", parts, rrf_k=10).fingerprint,
        HybridRetriever("h", [dense(index, QNORM), parts[1]]).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert HybridRetriever("renamed", parts).fingerprint == prints[0]


def test_parts_of_different_corpora_are_refused(index: Index, tmp_path: Path) -> None:
    other = build_index(ListCorpus(PASSAGES[:50], "corpus-2"), RandomEncoder(), tmp_path / "other")
    with pytest.raises(
        RetrieverError, match="h puts cosine and bm25 together, but their indexes .* different passages"
    ):
        HybridRetriever("h", [dense(index), BM25Retriever("bm25", other)])


def test_settings_out_of_range_are_named(index: Index) -> None:
    parts = [dense(index), BM25Retriever("bm25", index)]
    with pytest.raises(RetrieverError, match="at least two retrievers, got 1"):
        HybridRetriever("h", parts[:1])
    with pytest.raises(RetrieverError, match="depth must be at least 1, got 0"):
        HybridRetriever("h", parts, depth=0)
    with pytest.raises(RetrieverError, match="rrf_k must be at least 1, got 0"):
        HybridRetriever("h", parts, rrf_k=0)
