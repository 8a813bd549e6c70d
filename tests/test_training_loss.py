"""The contrastive loss against SIMILARITY's fixtures, numpy, finite differences and sentence-transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim, dot_score
from torch import Tensor

from retriever.errors import RetrieverError
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity, similarity_from_name
from retriever.training.loss import ContrastiveLoss, anchor_loss, matched_scale
from tests.random_bert import random_bert, some_texts

HALF = similarity_from_name("learnable")
FIXED = [COSINE, DOT, QNORM, DNORM]
FIRST = torch.tensor([0])
QUERY, PASSAGES = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 2.0], [-6.0, 8.0], [0.0, 0.5]])
# (loss at scale 1, at scale 20), as printed with the paper's fixtures; None where they are printed as "about 0".
FIXTURES = {
    COSINE: (0.844456, 0.024975),
    DOT: (3.048593, 60.0),
    QNORM: (1.094409, 12.000006),
    DNORM: (0.356553, None),
    HALF: (0.337806, None),
}


def numpy_logits(q: np.ndarray, d: np.ndarray, gamma_q: float, gamma_d: float, scale: float) -> np.ndarray:
    """The quotient form in float64, which the package never computes."""
    q, d = q.astype(np.float64), d.astype(np.float64)
    norms = np.linalg.norm(q, axis=1)[:, None] ** gamma_q * np.linalg.norm(d, axis=1)[None, :] ** gamma_d
    return scale * (q @ d.T) / norms


def numpy_loss(logits: np.ndarray, targets: np.ndarray) -> float:
    return float(np.mean(np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(logits)), targets]))


def some_vectors(n: int = 5, m: int = 9, dim: int = 6, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and passages of different lengths, and shuffled targets."""
    generator = torch.Generator().manual_seed(seed)
    queries, passages = torch.randn(n, dim, generator=generator), torch.randn(m, dim, generator=generator)
    passages = passages * (0.3 + 1.5 * torch.rand(m, 1, generator=generator))
    return queries, passages, torch.randperm(m, generator=generator)[:n]


@pytest.mark.parametrize("similarity", FIXTURES, ids=lambda s: s.name)
@pytest.mark.parametrize(("position", "scale"), [(0, 1.0), (1, 20.0)])
def test_fixtures_of_the_paper(similarity: Similarity, position: int, scale: float) -> None:
    printed = FIXTURES[similarity][position]
    loss = ContrastiveLoss(similarity, scale)
    got = loss(QUERY, PASSAGES, FIRST).item()
    logits = numpy_logits(QUERY.numpy(), PASSAGES.numpy(), similarity.gamma_q, similarity.gamma_d, scale)
    exact = numpy_loss(logits, FIRST.numpy())
    # Logits are float32: what they cannot tell apart, the loss cannot show. It is the last printed digit only.
    resolution = 3 * float(np.spacing(np.float32(np.abs(logits).max())))
    if printed is None:
        assert 0 <= got <= 2e-8 + resolution
        assert exact < 2e-8
    else:
        assert round(exact, 6) == printed
        assert got == pytest.approx(printed, abs=5e-7 + resolution)


def test_gradients_of_the_learnable_gammas_match_the_fixture() -> None:
    loss = ContrastiveLoss(HALF, 1.0)
    loss(QUERY, PASSAGES, FIRST).backward()
    through_sigmoid = [p.grad.item() for p in (loss.gamma_hat_q, loss.gamma_hat_d)]
    assert through_sigmoid == pytest.approx([0.178175, -0.009026], abs=6e-7)
    assert [g / 0.25 for g in through_sigmoid] == pytest.approx([0.712699, -0.036105], abs=1e-6)


@given(st.floats(0.02, 0.98), st.floats(0.02, 0.98), st.integers(0, 1000), st.sampled_from([1.0, 5.0]))
@settings(max_examples=40, deadline=None)
def test_gradients_of_gammas_match_finite_differences(gamma_q: float, gamma_d: float, seed: int, scale: float) -> None:
    queries, passages, targets = some_vectors(seed=seed)
    loss = ContrastiveLoss(Similarity("learnable", gamma_q, gamma_d), scale)
    loss(queries, passages, targets).backward()

    def value(hat_q: float, hat_d: float) -> float:
        gammas = (1 / (1 + math.exp(-hat)) for hat in (hat_q, hat_d))
        return numpy_loss(numpy_logits(queries.numpy(), passages.numpy(), *gammas, scale), targets.numpy())

    hat_q, hat_d, step = loss.gamma_hat_q.item(), loss.gamma_hat_d.item(), 1e-5
    expected = [
        (value(hat_q + step, hat_d) - value(hat_q - step, hat_d)) / (2 * step),
        (value(hat_q, hat_d + step) - value(hat_q, hat_d - step)) / (2 * step),
    ]
    got = [loss.gamma_hat_q.grad.item(), loss.gamma_hat_d.grad.item()]
    assert got == pytest.approx(expected, rel=1e-5, abs=3e-6)
    assert loss(queries, passages, targets).item() == pytest.approx(value(hat_q, hat_d), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("similarity", FIXED, ids=lambda s: s.name)
def test_fixed_similarities_are_constants_and_learnable_pinned_at_a_corner_equals_them(similarity: Similarity) -> None:
    fixed = ContrastiveLoss(similarity, 3.0)
    pinned = ContrastiveLoss(Similarity("learnable", similarity.gamma_q, similarity.gamma_d), 3.0)
    assert list(fixed.parameters()) == []
    assert fixed.current is similarity
    optimiser = torch.optim.AdamW(pinned.parameters(), lr=0.1, weight_decay=0.0)
    for _ in range(2):
        results = []
        for loss in (fixed, pinned):
            queries, passages, targets = some_vectors()
            queries.requires_grad_()
            passages.requires_grad_()
            value = loss(queries, passages, targets)
            value.backward()
            results.append((value.detach(), queries.grad, passages.grad))
        for left, right in zip(*results, strict=True):
            assert torch.allclose(left, right, rtol=0, atol=1e-7)
        # A corner is not left again by training.
        optimiser.step()
        assert (pinned.current.gamma_q, pinned.current.gamma_d) == (similarity.gamma_q, similarity.gamma_d)


def test_learnable_starts_where_it_is_told_and_current_follows_training() -> None:
    assert (ContrastiveLoss(HALF).current.gamma_q, ContrastiveLoss(HALF).current.gamma_d) == (0.5, 0.5)
    loss = ContrastiveLoss(similarity_from_name("learnable", 0.2, 0.9), 1.0)
    assert (loss.current.gamma_q, loss.current.gamma_d) == pytest.approx((0.2, 0.9), abs=1e-6)
    optimiser = torch.optim.SGD(loss.parameters(), lr=0.5)
    before = loss(QUERY, PASSAGES, FIRST)
    before.backward()
    optimiser.step()
    after = loss(QUERY, PASSAGES, FIRST)
    assert after < before
    assert ContrastiveLoss(loss.current, 1.0)(QUERY, PASSAGES, FIRST).item() == pytest.approx(after.item(), abs=1e-6)


@pytest.mark.parametrize("similarity", [*FIXED, HALF], ids=lambda s: s.name)
def test_excluded_columns_count_as_absent(similarity: Similarity) -> None:
    queries, passages, targets = some_vectors(n=4, m=8)
    excluded = torch.zeros(4, 8, dtype=torch.bool)
    for row, target in enumerate(targets.tolist()):
        excluded[row, [c for c in range(8) if c != target][row : row + 3]] = True
    loss = ContrastiveLoss(similarity, 2.0)
    queries.requires_grad_()
    passages.requires_grad_()
    value = loss(queries, passages, targets, excluded)
    value.backward()
    one_by_one, entropies = [], []
    for row, target in enumerate(targets.tolist()):
        kept = (~excluded[row]).nonzero().flatten().tolist()
        one = loss(queries[row : row + 1].detach(), passages[kept].detach(), torch.tensor([kept.index(target)]))
        one_by_one.append(one.item())
        logits = loss.logits(queries[row : row + 1], passages[kept]).detach().numpy()[0].astype(np.float64)
        entropies.append(scipy_entropy(np.exp(logits - logits.max())))
    assert value.item() == pytest.approx(np.mean(one_by_one), abs=1e-6)
    assert loss.entropy(queries, passages, excluded) == pytest.approx(np.mean(entropies), abs=1e-6)
    assert torch.isfinite(queries.grad).all()
    assert torch.isfinite(passages.grad).all()


def test_query_without_negatives_left_costs_nothing_and_an_excluded_positive_is_refused() -> None:
    excluded = torch.tensor([[False, True, True]])
    query = QUERY.clone().requires_grad_()
    value = ContrastiveLoss(DOT)(query, PASSAGES, FIRST, excluded)
    value.backward()
    assert value.item() == 0
    assert query.grad.tolist() == [[0.0, 0.0]]
    with pytest.raises(RetrieverError, match="positive of query 0 of the batch is excluded"):
        ContrastiveLoss(DOT)(QUERY, PASSAGES, torch.tensor([1]), excluded)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_scale_must_be_positive(bad: float) -> None:
    with pytest.raises(RetrieverError, match="scale must be a positive number, got"):
        ContrastiveLoss(COSINE, bad)
    loss = ContrastiveLoss(COSINE, 5)
    with pytest.raises(RetrieverError, match="scale must be a positive number, got"):
        loss.scale = bad
    assert loss.scale == 5


def test_autocast_does_not_round_scores() -> None:
    queries, passages, targets = some_vectors()
    loss = ContrastiveLoss(HALF)
    expected = loss(queries, passages, targets)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss(queries, passages, targets), expected)


@pytest.mark.parametrize("similarity", [*FIXED, HALF], ids=lambda s: s.name)
@pytest.mark.parametrize("length", [0.01, 1.0, 100.0])
def test_matched_scale_reaches_the_entropy_of_cosine(similarity: Similarity, length: float) -> None:
    queries, passages, _ = some_vectors(n=16, m=40, dim=24)
    excluded = torch.rand(16, 40, generator=torch.Generator().manual_seed(1)) < 0.2
    scale = matched_scale(queries * length, passages * length, similarity, excluded)
    wanted = ContrastiveLoss(COSINE, 20).entropy(queries, passages, excluded)
    assert ContrastiveLoss(similarity, scale).entropy(queries * length, passages * length, excluded) == pytest.approx(
        wanted, abs=1e-5
    )
    # s grows by length^(2 − γq − γd), so the scale falls by as much; the gradients' shape stays the same.
    unit = matched_scale(queries, passages, similarity, excluded)
    assert scale * length ** (2 - similarity.gamma_q - similarity.gamma_d) == pytest.approx(unit, rel=1e-4)


def test_matched_scale_of_cosine_is_the_reference_itself() -> None:
    queries, passages, _ = some_vectors(n=8, m=20)
    assert matched_scale(queries, passages, COSINE) == pytest.approx(20, rel=1e-9)
    assert matched_scale(queries, passages, COSINE, reference=7) == pytest.approx(7, rel=1e-9)


def test_matched_scale_refuses_a_batch_that_has_nothing_to_tell_apart() -> None:
    with pytest.raises(RetrieverError, match="no scale gives qnorm the entropy of cosine at 20"):
        matched_scale(QUERY, PASSAGES[:1], QNORM)
    with pytest.raises(RetrieverError, match="several different passages"):
        matched_scale(QUERY, PASSAGES[:1].repeat(3, 1), QNORM)


def test_anchor_is_zero_for_the_teacher_itself_and_its_gradient_vanishes() -> None:
    queries, passages, targets = some_vectors()
    excluded = torch.zeros(5, 9, dtype=torch.bool)
    excluded[0, int(targets[1])] = True
    student = (queries * 3).requires_grad_()  # cosine does not see the length
    value = anchor_loss(student, passages, queries, passages, ContrastiveLoss(COSINE, 20), excluded)
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-6)
    assert student.grad.abs().max().item() < 1e-5


@pytest.mark.parametrize("similarity", [QNORM, HALF], ids=lambda s: s.name)
def test_anchor_equals_the_divergence_by_scipy(similarity: Similarity) -> None:
    queries, passages, _ = some_vectors(n=4, m=7)
    teacher_queries, teacher_passages, _ = some_vectors(n=4, m=7, dim=11, seed=5)
    excluded = torch.zeros(4, 7, dtype=torch.bool)
    excluded[1, 2:5] = True
    expected = []
    for row in range(4):
        kept = (~excluded[row]).numpy()
        teacher = numpy_logits(teacher_queries.numpy(), teacher_passages.numpy(), 1, 1, 20)[row, kept]
        student = numpy_logits(queries.numpy(), passages.numpy(), similarity.gamma_q, similarity.gamma_d, 2)[row, kept]
        expected.append(scipy_entropy(np.exp(teacher), np.exp(student)))
    loss = ContrastiveLoss(similarity, 2.0)
    queries.requires_grad_()
    teacher_queries.requires_grad_()
    value = anchor_loss(queries, passages, teacher_queries, teacher_passages, loss, excluded)
    value.backward()
    assert value.item() == pytest.approx(np.mean(expected), rel=1e-5)
    assert torch.isfinite(queries.grad).all()
    assert teacher_queries.grad is None


@pytest.mark.parametrize("negatives", [0, 1, 3])
@pytest.mark.parametrize(
    ("similarity", "function", "scale"), [(COSINE, cos_sim, 20.0), (DOT, dot_score, 1.0)], ids=["cosine", "dot"]
)
def test_equals_sentence_transformers_in_value_and_gradient(
    similarity: Similarity, function: Callable[[Tensor, Tensor], Tensor], scale: float, negatives: int, tmp_path: Path
) -> None:
    model = random_bert(tmp_path).eval()
    columns = [model.preprocess(some_texts(8, seed=seed)) for seed in range(2 + negatives)]
    # The reference in float64: in float32 its own rounding is already more than 1e-6.
    model.double()
    expected = MultipleNegativesRankingLoss(model, scale=scale, similarity_fct=function)(columns, torch.arange(8))
    expected.backward()
    gradients = {name: p.grad.float() for name, p in model.named_parameters() if p.grad is not None}
    model.float()
    model.zero_grad()

    queries, *passages = (model(column)["sentence_embedding"] for column in columns)
    value = ContrastiveLoss(similarity, scale)(queries, torch.cat(passages), torch.arange(8))
    value.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    assert max(float(g.abs().max()) for g in gradients.values()) > 0.1
    for name, parameter in model.named_parameters():
        if name in gradients:
            assert torch.allclose(parameter.grad, gradients[name], rtol=0, atol=1e-6), name
        else:
            assert parameter.grad is None
