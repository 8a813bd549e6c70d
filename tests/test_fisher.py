"""The Fisher-type diagnostic: its gradients by autograd, its eigenvalues by the matrix itself, and when it abstains."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from retriever.encoder import Vectors
from retriever.fisher import (
    DAMPING,
    LEAST,
    TRACE_SHARE,
    Candidates,
    condition_number,
    fisher_diagnostic,
    gradient_grams,
    unknown_fisher,
)
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity, pairwise_score


def made(n: int, m: int, dim: int, *, seed: int = 0, factor: float = 1.0, spread: float = 0.4) -> Candidates:
    """Queries near their positives, norms that vary; `factor` multiplies every vector."""
    rng = np.random.default_rng(seed)
    positives = rng.normal(size=(n, dim))
    queries = positives + 0.7 * rng.normal(size=(n, dim))
    passages = np.concatenate([positives[:, None], positives[:, None] + rng.normal(size=(n, m - 1, dim))], axis=1)
    passages *= rng.lognormal(0, spread, (n, m, 1))
    norms = np.linalg.norm(passages, axis=2)
    units = passages / norms[..., None]
    lengths = np.linalg.norm(queries, axis=1)
    # float64 where the encoder gives float32, so that nothing but the formula is compared.
    return Candidates(Vectors(queries / lengths[:, None], factor * lengths), units, factor * norms)


def gradients(candidates: Candidates, similarity: Similarity, scale: float, *, sides: str) -> np.ndarray:
    """[n, dim²], one backward pass a query through a head on one side or both, by the loss as it is trained."""
    found = []
    for i in range(len(candidates.norms)):
        query = torch.from_numpy(candidates.queries.units[i] * candidates.queries.norms[i])
        passages = torch.from_numpy(candidates.units[i] * candidates.norms[i][:, None])
        head = torch.eye(len(query), dtype=torch.float64, requires_grad=True)
        q = head @ query if "q" in sides else query
        d = passages @ head.T if "d" in sides else passages
        cosines = (d @ q) / (d.norm(dim=1) * q.norm())
        scores = cosines * q.norm() ** (1 - similarity.gamma_q) * d.norm(dim=1) ** (1 - similarity.gamma_d)
        loss = torch.nn.functional.cross_entropy(scale * scores[None], torch.tensor([0]))
        assert scores.detach().float().numpy() == pytest.approx(
            pairwise_score(query.expand_as(passages), passages, similarity).numpy(), rel=1e-5, abs=1e-6
        )
        (gradient,) = torch.autograd.grad(loss, head)
        found.append(gradient.flatten().numpy())
    return np.stack(found)


@pytest.mark.parametrize("similarity", [COSINE, DOT, QNORM, DNORM, Similarity("learnable", 0.3, 0.6)], ids=str)
def test_inner_products_are_those_of_autograd_s_gradients(similarity: Similarity) -> None:
    candidates = made(6, 4, 5)
    found = gradient_grams(candidates, similarity, 1.7)
    for gram, sides in ((found.both, "qd"), (found.queries, "q"), (found.passages, "d")):
        own = gradients(candidates, similarity, 1.7, sides=sides)
        np.testing.assert_allclose(gram, own @ own.T, rtol=1e-9, atol=1e-12)


def test_blocks_of_rows_make_the_same_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = made(11, 3, 4)
    whole = gradient_grams(candidates, DNORM, 2.0)
    monkeypatch.setattr("retriever.fisher._ROWS_AT_ONCE", 4)
    parts = gradient_grams(candidates, DNORM, 2.0)
    for name in ("both", "queries", "passages"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-10, atol=1e-12)


def test_kappa_is_that_of_the_fisher_matrix_itself() -> None:
    candidates, n = made(6, 4, 5), 6
    own = gradients(candidates, QNORM, 1.7, sides="qd")
    fisher = sum(np.outer(g, g) for g in own) / n  # [25, 25]
    values = np.sort(np.linalg.eigvalsh(fisher))[::-1]
    k = next(k for k in range(1, 26) if values[:k].sum() >= TRACE_SHARE * np.trace(fisher))
    damping = DAMPING * np.trace(fisher) / n
    expected = (values[0] + damping) / (values[k - 1] + damping)
    assert condition_number(gradient_grams(candidates, QNORM, 1.7).both) == pytest.approx(expected, rel=1e-9)
    assert math.isnan(condition_number(np.zeros((3, 3))))


def test_a_resample_s_copies_may_be_one_longer_gradient() -> None:
    own = gradients(made(6, 4, 5), QNORM, 1.7, sides="qd")
    times = np.array([2, 0, 1, 3, 0, 0])
    copied = np.repeat(own, times, axis=0)
    short = np.sqrt(times[times > 0])[:, None] * own[times > 0]
    assert condition_number(short @ short.T, queries=6) == pytest.approx(condition_number(copied @ copied.T), rel=1e-9)


@pytest.mark.parametrize("factor", [10.0, 1e-3])
def test_it_does_not_change_when_all_vectors_are_multiplied(factor: float) -> None:
    plain = fisher_diagnostic(made(LEAST, 5, 8), resamples=20)
    scaled = fisher_diagnostic(made(LEAST, 5, 8, factor=factor), resamples=20)
    for first, second in ((plain.qnorm, scaled.qnorm), (plain.dnorm, scaled.dnorm)):
        assert first is not None and second is not None
        assert second.scale * factor == pytest.approx(first.scale, rel=1e-6)
        for name in ("kappa", "queries", "passages"):
            assert getattr(second, name) == pytest.approx(getattr(first, name), rel=1e-6)
    assert scaled.difference == pytest.approx(plain.difference, abs=1e-6)
    assert scaled.interval == pytest.approx(plain.interval, abs=1e-6) and scaled.verdict == plain.verdict


def test_scales_are_matched_to_the_entropy_of_cosine_at_20() -> None:
    candidates = made(30, 5, 8)

    def entropy(logits: np.ndarray) -> float:
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return float(-(shares * np.log(shares)).sum(axis=1).mean())

    for similarity in (QNORM, DNORM):
        scale = candidates.matched_scale(similarity)
        assert entropy(scale * candidates.scores(similarity)) == pytest.approx(entropy(20 * candidates.cosines()))


def test_it_abstains_where_the_difference_could_be_chance_or_nothing_is_known() -> None:
    few = fisher_diagnostic(made(LEAST - 1, 4, 6), resamples=5)
    assert few.verdict == "" and few.interval is None and f"{LEAST - 1} questions" in few.reason
    assert few.qnorm is not None and math.isfinite(few.difference)
    alone = fisher_diagnostic(made(1, 4, 6))
    assert alone.verdict == "" and alone.qnorm is None and "two questions" in alone.reason
    tied = made(LEAST, 3, 6)
    tied.units[:], tied.norms[:] = tied.units[:, :1], 1.0
    assert fisher_diagnostic(tied).verdict == "" and "no scale gives" in fisher_diagnostic(tied).reason
    assert math.isnan(unknown_fisher(0, "why").difference)


def test_the_verdict_is_the_sign_of_an_interval_without_0() -> None:
    seen = set()
    for seed, spread in ((0, 0.0), (1, 0.4), (2, 1.2)):
        found = fisher_diagnostic(made(LEAST, 5, 8, seed=seed, spread=spread), resamples=40)
        assert found.interval is not None and found.n == LEAST and found.candidates == 5
        low, high = found.interval
        expected = "" if low <= 0 <= high else "qnorm" if high < 0 else "dnorm"
        assert found.verdict == expected
        seen.add(expected)
    assert {"", "qnorm"} <= seen
