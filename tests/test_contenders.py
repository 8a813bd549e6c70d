"""The few passages that decide every ranking of one question, against ranking the whole index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retriever.build import build_index
from retriever.encoder import Vectors
from retriever.index import Index
from retriever.search.contenders import Contenders, _keep, find_contenders
from retriever.search.exact import ExactSearcher
from retriever.similarity import Similarity
from tests.vectors import ListCorpus, RandomEncoder, some_passages

GAMMAS = np.linspace(0, 1, 21)


def _index(folder: Path, passages: int = 300) -> tuple[Index, RandomEncoder]:
    encoder = RandomEncoder()
    return build_index(ListCorpus(some_passages(passages)), encoder, folder, shard_size=64), encoder  # type: ignore[arg-type]


def _all(cosines: object, norms: object) -> Contenders:
    values = np.asarray(cosines, np.float32), np.asarray(norms, np.float32)
    return Contenders(np.arange(len(values[0])), *values)


@pytest.mark.parametrize("k", [1, 3, 20])
def test_contenders_rank_as_the_whole_index_does_under_every_gamma(tmp_path: Path, k: int) -> None:
    index, encoder = _index(tmp_path / "index")
    query = encoder.encode_queries(["a tower on a river"])
    found = find_contenders(index, query, k)
    assert len(found.rows) < len(index) / 2
    for gamma in GAMMAS:
        whole = ExactSearcher(index, "cpu").search(query, Similarity("learnable", 1.0, float(gamma)), k)
        places, scores = found.rank(float(gamma), k)
        assert found.rows[places].tolist() == whole.rows[0].tolist()
        np.testing.assert_allclose(scores, whole.scores[0], rtol=1e-5)


def test_chunks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, encoder = _index(tmp_path / "index")
    query = encoder.encode_queries(["a comet"])
    whole = find_contenders(index, query, 5, nearest=30)
    monkeypatch.setattr("retriever.search.contenders.CHUNK_ROWS", 17)
    monkeypatch.setattr("retriever.search.contenders._BLOCK", 4)
    parts = find_contenders(index, query, 5, nearest=30)
    assert parts.rows.tolist() == whole.rows.tolist()
    np.testing.assert_allclose(parts.cosines, whole.cosines, rtol=1e-5)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([-0.9, -0.5, -0.1, 0.0, 0.2, 0.2001, 0.5, 0.9]), st.sampled_from([0.5, 1.0, 2.0, 8.0])
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 6),
)
@settings(deadline=None, max_examples=300)
def test_ties_and_negative_cosines_lose_no_contender(points: list[tuple[float, float]], k: int) -> None:
    every = _all([cosine for cosine, _ in points], [norm for _, norm in points])
    kept = _keep(every, min(k, len(points)), 0)
    for gamma in GAMMAS:
        scores = every.cosines.astype(np.float64) * every.norms.astype(np.float64) ** (1 - gamma)
        expected = sorted(range(len(points)), key=lambda row: (-scores[row], row))[:k]
        places, _ = kept.rank(float(gamma), k)
        # Scores that differ by rounding alone may change places; the scores at each rank cannot.
        np.testing.assert_allclose(scores[kept.rows[places]], scores[expected], rtol=1e-5)


def test_who_is_surpassed_by_k_in_both_is_left_out() -> None:
    every = _all([0.9, 0.8, 0.7, 0.6, 0.5], [3.0, 1.0, 2.0, 2.5, 5.0])
    assert sorted(_keep(every, 1, 0).rows) == [0, 4]
    # (0.8, 1.0) and (0.6, 2.5) are surpassed by one other, (0.7, 2.0) by one too.
    assert sorted(_keep(every, 2, 0).rows) == [0, 1, 2, 3, 4]
    assert sorted(_keep(every, 1, 2).rows) == [0, 1, 4]


def test_of_a_million_equal_passages_k_are_kept() -> None:
    assert _keep(_all([0.5] * 1000, [2.0] * 1000), 3, 0).rows.tolist() == [0, 1, 2]


def test_rows_that_are_asked_for_are_there_with_their_own_cosines(tmp_path: Path) -> None:
    index, encoder = _index(tmp_path / "index")
    query = encoder.encode_queries(["a comet"])
    plain = find_contenders(index, query, 2)
    row = next(row for row in range(len(index)) if row not in plain.rows)
    more = find_contenders(index, query, 2, rows=[row, int(plain.rows[0])])
    assert set(more.rows) == {*plain.rows.tolist(), row} and sorted(more.rows) == more.rows.tolist()
    units, norms = index.vectors([row])
    place = more.rows.tolist().index(row)
    assert more.cosines[place] == pytest.approx(float(units[0] @ query.units[0]), rel=1e-6)
    assert more.norms[place] == norms[0]
    assert isinstance(query, Vectors)
