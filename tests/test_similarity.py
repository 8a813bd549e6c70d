"""The similarity family against the fixtures and identities of the paper, and numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from retriever.errors import RetrieverError
from retriever.similarity import (
    COSINE,
    DNORM,
    DOT,
    QNORM,
    Similarity,
    pairwise_score,
    require_symmetric,
    score,
    similarity_from_name,
)

QUERY = torch.tensor([[3.0, 4.0]])
PASSAGES = torch.tensor([[1.0, 2.0], [-6.0, 8.0], [0.0, 0.5]])
HALF = similarity_from_name("learnable")
FIXTURES = [
    (COSINE, [0.98387, 0.28, 0.8], [0, 2, 1], 0.844456, 0.024975),
    (DOT, [11.0, 14.0, 2.0], [1, 0, 2], 3.048593, 60.0),
    (QNORM, [2.2, 2.8, 0.4], [1, 0, 2], 1.094409, 12.000006),
    (DNORM, [4.91935, 1.4, 4.0], [0, 2, 1], 0.356553, 1e-8),
    (HALF, [3.289767, 1.979899, 1.264911], [0, 1, 2], 0.337806, 0.0),
]

vectors = arrays(np.float64, (5, 4), elements=st.floats(-8, 8).map(lambda x: round(x, 3)))
gammas = st.floats(0, 1)


def info_nce(scores: torch.Tensor, alpha: float) -> float:
    return float(torch.nn.functional.cross_entropy(alpha * scores.double(), torch.tensor([0])))


@pytest.mark.parametrize(("similarity", "scores", "order", "loss_1", "loss_20"), FIXTURES, ids=lambda v: str(v)[:30])
def test_fixture_scores_order_and_losses(
    similarity: Similarity, scores: list[float], order: list[int], loss_1: float, loss_20: float
) -> None:
    got = score(QUERY, PASSAGES, similarity)
    assert got[0].tolist() == pytest.approx(scores, abs=1e-5)
    assert got[0].argsort(descending=True).tolist() == order
    assert info_nce(got, 1) == pytest.approx(loss_1, abs=1e-5)
    assert info_nce(got, 20) == pytest.approx(loss_20, abs=2e-5)


def test_gradients_of_learnable_gammas_match_the_fixture() -> None:
    raw = [torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in range(2)]
    gamma_q, gamma_d = (torch.sigmoid(value) for value in raw)
    gamma_q.retain_grad()
    gamma_d.retain_grad()
    scores = score(QUERY, PASSAGES, HALF, gammas=(gamma_q, gamma_d))
    torch.nn.functional.cross_entropy(scores, torch.tensor([0])).backward()
    assert [float(gamma_q.grad), float(gamma_d.grad)] == pytest.approx([0.712699, -0.036105], abs=1e-5)
    assert [float(value.grad) for value in raw] == pytest.approx([0.178175, -0.009026], abs=1e-5)


@given(vectors, vectors, gammas, gammas)
@settings(max_examples=100, deadline=None)
def test_scores_equal_the_quotient_form_in_numpy(q: np.ndarray, d: np.ndarray, gamma_q: float, gamma_d: float) -> None:
    q, d = q + 0.5, d + 0.5
    q_norms, d_norms = np.linalg.norm(q, axis=1), np.linalg.norm(d, axis=1)
    if min(q_norms.min(), d_norms.min()) < 0.1:
        return
    expected = (q @ d.T) / (q_norms[:, None] ** gamma_q * d_norms[None, :] ** gamma_d)
    got = score(torch.tensor(q), torch.tensor(d), Similarity("learnable", gamma_q, gamma_d)).numpy()
    # float32 holds seven digits of the largest term of the sum, which is at most |q||d| times the kept factors.
    scale = q_norms[:, None] ** (1 - gamma_q) * d_norms[None, :] ** (1 - gamma_d)
    assert np.abs(got - expected).max() <= 2e-6 * scale.max()
    paired = pairwise_score(torch.tensor(q), torch.tensor(d), Similarity("learnable", gamma_q, gamma_d)).numpy()
    assert np.abs(paired - expected.diagonal()).max() <= 2e-6 * scale.max()


@given(vectors, gammas, gammas, gammas)
@settings(max_examples=100, deadline=None)
def test_ranking_for_one_query_depends_on_gamma_d_alone(d: np.ndarray, gamma_d: float, one: float, two: float) -> None:
    query = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
    passages = torch.tensor(d)
    scores = [score(query, passages, Similarity("learnable", gamma_q, gamma_d))[0].double() for gamma_q in (one, two)]
    # Scores differ by one positive factor, so equal up to rounding after division by it.
    factor = float(query.norm()) ** (two - one)
    assert torch.allclose(scores[0], scores[1] * factor, rtol=1e-5, atol=1e-6)


def test_dnorm_ranks_as_cosine_and_qnorm_as_dot() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, passages = torch.randn(7, 16, generator=generator), torch.randn(40, 16, generator=generator)
    passages *= torch.rand(40, 1, generator=generator) * 4
    orders = {s.name: score(queries, passages, s).argsort(dim=1).tolist() for s in (COSINE, DOT, QNORM, DNORM)}
    assert orders["dnorm"] == orders["cosine"]
    assert orders["qnorm"] == orders["dot"]
    assert orders["cosine"] != orders["dot"]


@pytest.mark.parametrize("similarity", [COSINE, DOT, QNORM, DNORM, HALF], ids=lambda s: s.name)
def test_zero_vector_scores_zero_and_never_nan(similarity: Similarity) -> None:
    zero, one = torch.zeros(1, 4), torch.ones(1, 4)
    for left, right in ((zero, one), (one, zero), (zero, zero)):
        assert score(left, right, similarity).item() == 0.0


def test_fixed_similarities_are_constants_and_refuse_gammas() -> None:
    assert [(s.gamma_q, s.gamma_d) for s in (COSINE, DOT, QNORM, DNORM)] == [(1, 1), (0, 0), (1, 0), (0, 1)]
    with pytest.raises(RetrieverError, match="fixed gammas"):
        similarity_from_name("qnorm", gamma_d=0.3)
    with pytest.raises(RetrieverError, match="unknown similarity 'qnrom'"):
        similarity_from_name("qnrom")
    for bad in (-0.01, 1.01, math.nan):
        with pytest.raises(RetrieverError, match="gamma_d must be between 0 and 1"):
            similarity_from_name("learnable", 0.5, bad)


@pytest.mark.parametrize("similarity", [QNORM, DNORM], ids=lambda s: s.name)
def test_one_sided_similarities_are_refused_for_symmetric_tasks(similarity: Similarity) -> None:
    with pytest.raises(RetrieverError, match="normalises one side only"):
        require_symmetric(similarity, "STS-B")
    with pytest.raises(RetrieverError, match=r"use cosine or dot \(eval.some=true measures what is lost\)"):
        require_symmetric(similarity, "STS-B", way="eval.some=true")
    require_symmetric(similarity, "STS-B", override=True)
    left, right = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 0.5]])
    assert pairwise_score(left, right, similarity).item() != pairwise_score(right, left, similarity).item()
    for symmetric in (COSINE, DOT):
        require_symmetric(symmetric, "STS-B")
        assert pairwise_score(left, right, symmetric).item() == pytest.approx(
            pairwise_score(right, left, symmetric).item()
        )
