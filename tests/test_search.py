"""Searchers against numpy, and against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from retriever.build import build_index
from retriever.dense import DenseRetriever
from retriever.encoder import EncoderSpec, Vectors
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.search import exact
from retriever.search.base import Searcher
from retriever.search.exact import ExactSearcher
from retriever.search.faiss import FaissSearcher
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity
from tests.vectors import ListCorpus, RandomEncoder, some_passages

SIMILARITIES = [COSINE, DOT, QNORM, DNORM, Similarity("learnable", 0.3, 0.5)]
PASSAGES = some_passages(200)
QUESTIONS = [f"question {i}" for i in range(9)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("index") / "i"
    return build_index(ListCorpus(PASSAGES), RandomEncoder(), folder, shard_size=64)


def searcher_of(kind: str, index: Index) -> Searcher:
    return FaissSearcher(index) if kind == "faiss" else ExactSearcher(index, "cpu")


@pytest.mark.parametrize("kind", ["exact", "faiss"])
@pytest.mark.parametrize("similarity", SIMILARITIES, ids=lambda s: s.name)
def test_one_index_serves_every_similarity_as_numpy_does(
    index: Index, kind: str, similarity: Similarity, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small chunks, so that results are merged across chunks within a shard, across shards and across query blocks.
    monkeypatch.setattr(exact, "CHUNK_ROWS", 48)
    monkeypatch.setattr(exact, "QUERY_ROWS", 4)
    queries = RandomEncoder().encode_queries(QUESTIONS)
    passages = RandomEncoder().encode_queries([p.text for p in PASSAGES])
    q = queries.units.astype(np.float64) * queries.norms[:, None]
    d = passages.units.astype(np.float64) * passages.norms[:, None]
    expected = (q @ d.T) / (
        np.linalg.norm(q, axis=1)[:, None] ** similarity.gamma_q * np.linalg.norm(d, axis=1)[None] ** similarity.gamma_d
    )
    got = searcher_of(kind, index).search(queries, similarity, 10)
    assert np.array_equal(got.rows, np.argsort(-expected, axis=1)[:, :10])
    assert got.scores == pytest.approx(np.take_along_axis(expected, got.rows, 1), rel=1e-5, abs=1e-5)
    assert got.norms == pytest.approx(passages.norms[got.rows])
    assert got.cosines == pytest.approx((queries.units @ passages.units.T)[np.arange(9)[:, None], got.rows], abs=1e-6)


@pytest.mark.parametrize("kind", ["exact", "faiss"])
def test_k_beyond_the_corpus_gives_the_whole_corpus_and_k_zero_is_refused(index: Index, kind: str) -> None:
    searcher = searcher_of(kind, index)
    queries = RandomEncoder().encode_queries(["a"])
    got = searcher.search(queries, QNORM, 10_000)
    assert sorted(got.rows[0].tolist()) == list(range(200))
    with pytest.raises(RetrieverError, match="k must be at least 1, got 0"):
        searcher.search(queries, QNORM, 0)


@pytest.mark.parametrize("kind", ["exact", "faiss"])
def test_a_zero_query_scores_zero(index: Index, kind: str) -> None:
    got = searcher_of(kind, index).search(Vectors.from_raw(np.zeros((1, 16))), DOT, 3)
    assert got.scores.tolist() == [[0.0, 0.0, 0.0]]


def test_no_queries_give_no_rankings(index: Index) -> None:
    got = ExactSearcher(index, "cpu").search(Vectors.from_raw(np.zeros((0, 16))), DOT, 3)
    assert got.rows.shape == (0, 3)


class ConstantNorms(RandomEncoder):
    """Ends in a normalisation, as many published encoders do."""

    model = ("Transformer", "Pooling", "Normalize")

    def encode_queries(self, queries, progress=None):  # type: ignore[no-untyped-def]
        vectors = super().encode_queries(queries)
        return Vectors(vectors.units, np.ones_like(vectors.norms))


def test_magnitude_that_does_not_vary_is_refused(tmp_path: Path) -> None:
    encoder = ConstantNorms()
    index = build_index(ListCorpus(some_passages(20)), encoder, tmp_path / "i")
    for similarity in (QNORM, DOT):
        with pytest.raises(RetrieverError, match="keeps a magnitude, but all norms of random are 1"):
            DenseRetriever("r", encoder, similarity, index, ExactSearcher(index))  # type: ignore[arg-type]
    DenseRetriever("r", encoder, COSINE, index, ExactSearcher(index))  # type: ignore[arg-type]


def test_hits_carry_the_factors_of_their_score(index: Index) -> None:
    retriever = DenseRetriever("r", RandomEncoder(), QNORM, index, ExactSearcher(index))  # type: ignore[arg-type]
    found = retriever.retrieve(QUESTIONS, 4)
    assert set(found.seconds) == {"encode", "search"}
    for hits in found.hits:
        assert [hit.rank for hit in hits] == [1, 2, 3, 4]
        for hit in hits:
            assert hit.score == pytest.approx(hit.cosine * hit.norm, rel=1e-5)
            assert index.passage(hit.row) == hit.passage
    assert (
        retriever.fingerprint != DenseRetriever("r", RandomEncoder(), COSINE, index, ExactSearcher(index)).fingerprint
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trained_for", "similarity", "note"),
    [
        ("cosine", QNORM, "trained for cosine, which never trained its magnitudes: what qnorm measures"),
        ("cosine", DNORM, None),
        ("dot", COSINE, "trained for dot, which ranks by passage norms too: cosine throws them away"),
        ("dot", QNORM, None),
    ],
)
def test_scoring_otherwise_than_trained_is_noted(
    index: Index, trained_for: str, similarity: Similarity, note: str
) -> None:
    encoder = RandomEncoder()
    encoder.spec = EncoderSpec(trained_for=trained_for)  # type: ignore[attr-defined]
    notes = DenseRetriever("r", encoder, similarity, index, ExactSearcher(index)).notes  # type: ignore[arg-type]
    assert len(notes) == bool(note)
    assert not note or note in notes[0]
