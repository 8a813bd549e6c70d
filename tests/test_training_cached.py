"""Gradient caching against plain backpropagation and against sentence-transformers' own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim, dot_score
from torch import Tensor

from retriever.similarity import COSINE, DOT, QNORM, Similarity, similarity_from_name
from retriever.training.cached import Encode, backward
from retriever.training.loss import ContrastiveLoss
from tests.random_bert import random_bert, some_texts

QUERIES = some_texts(6, seed=1)
PASSAGES = some_texts(15, seed=2)
TARGETS = torch.tensor([4, 0, 11, 2, 9, 14])


def encode(model: SentenceTransformer, texts: list[str]) -> Tensor:
    return model(model.preprocess(texts))["sentence_embedding"]


def chunks(model: SentenceTransformer, texts: list[str], size: int) -> list[Encode]:
    return [partial(encode, model, texts[start : start + size]) for start in range(0, len(texts), size)]


def gradients(*modules: torch.nn.Module) -> list[Tensor]:
    """Copies of all gradients there are; they are cleared."""
    found = [p.grad.clone() for module in modules for p in module.parameters() if p.grad is not None]
    for module in modules:
        module.zero_grad()
    return found


def largest_difference(left: list[Tensor], right: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("negatives", [0, 2])
@pytest.mark.parametrize(
    ("similarity", "function", "scale"), [(COSINE, cos_sim, 20.0), (DOT, dot_score, 1.0)], ids=["cosine", "dot"]
)
def test_equals_cached_sentence_transformers_in_value_and_gradient(
    similarity: Similarity, function: Callable[[Tensor, Tensor], Tensor], scale: float, negatives: int, tmp_path: Path
) -> None:
    model = random_bert(tmp_path).eval()
    columns = [some_texts(8, seed=seed) for seed in range(2 + negatives)]
    # The reference in float64: in float32 its own rounding is already more than 1e-6.
    model.double()
    reference = CachedMultipleNegativesRankingLoss(model, scale=scale, similarity_fct=function, mini_batch_size=3)
    expected = reference([model.preprocess(column) for column in columns], torch.arange(8))
    expected.backward()
    model.float()
    wanted = gradients(model)

    loss = ContrastiveLoss(similarity, scale)
    passages = [chunk for column in columns[1:] for chunk in chunks(model, column, 3)]
    value = backward(chunks(model, columns[0], 3), passages, lambda q, d: loss(q, d, torch.arange(8)))
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    assert not value.requires_grad
    assert largest_difference(gradients(model), [gradient.float() for gradient in wanted]) < 1e-6


@pytest.mark.parametrize("sizes", [(6, 15), (6, 4), (2, 15), (4, 7), (1, 1)], ids=str)
def test_dropout_repeats_so_that_gradients_equal_plain_backpropagation(sizes: tuple[int, int], tmp_path: Path) -> None:
    model = random_bert(tmp_path, dropout=0.3).train()
    loss = ContrastiveLoss(similarity_from_name("learnable", 0.3, 0.6), 2.0)
    query_chunks, passage_chunks = chunks(model, QUERIES, sizes[0]), chunks(model, PASSAGES, sizes[1])

    torch.manual_seed(7)
    vectors = [torch.cat([chunk() for chunk in side]) for side in (query_chunks, passage_chunks)]
    expected = loss(*vectors, TARGETS)
    expected.backward()
    wanted, drawn_next = gradients(model, loss), torch.rand(3)

    torch.manual_seed(7)
    value = backward(query_chunks, passage_chunks, lambda q, d: loss(q, d, TARGETS))
    # The next step draws what it would have drawn: a training is the same with caching and without.
    assert torch.equal(torch.rand(3), drawn_next)
    assert value.item() == pytest.approx(expected.item(), abs=1e-6)
    got = gradients(model, loss)
    assert len(got) == len(wanted)
    assert largest_difference(got, wanted) < 2e-6
    # Dropout does something here: without it the loss is another.
    model.eval()
    undisturbed = loss(encode(model, QUERIES), encode(model, PASSAGES), TARGETS)
    assert abs(undisturbed.item() - expected.item()) > 1e-3


def test_gradients_are_added_to_those_already_there(tmp_path: Path) -> None:
    model = random_bert(tmp_path).eval()
    loss = ContrastiveLoss(QNORM, 2.0)

    def step() -> None:
        backward(chunks(model, QUERIES, 4), chunks(model, PASSAGES, 4), lambda q, d: loss(q, d, TARGETS))

    step()
    once = gradients(model)
    step()
    step()
    assert largest_difference(gradients(model), [2 * gradient for gradient in once]) < 2e-6


def test_chunks_under_their_own_autocast_keep_the_graph(tmp_path: Path) -> None:
    model = random_bert(tmp_path).eval()
    loss = ContrastiveLoss(QNORM, 2.0)

    def rounded(chunk: Encode) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return chunk()

    whole, parts = [
        [[partial(rounded, chunk) for chunk in chunks(model, texts, size)] for texts in (QUERIES, PASSAGES)]
        for size in (15, 4)
    ]
    expected = backward(*whole, lambda q, d: loss(q, d, TARGETS))
    wanted = gradients(model)
    value = backward(*parts, lambda q, d: loss(q, d, TARGETS))
    got = gradients(model)
    assert value.item() == pytest.approx(expected.item(), abs=2e-2)
    assert largest_difference(got, wanted) < 0.05 * max(float(gradient.abs().max()) for gradient in wanted)


def test_no_graph_is_kept_over_more_than_one_chunk() -> None:
    weight = torch.nn.Parameter(torch.eye(4))
    inputs = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    alive, most = 0, 0

    class Counted(torch.autograd.Function):
        """A product that knows how many of its graphs wait for backward."""

        @staticmethod
        def forward(ctx, rows: Tensor, weight: Tensor) -> Tensor:
            nonlocal alive, most
            if graphs:
                alive += 1
                most = max(most, alive)
            ctx.save_for_backward(rows)
            return rows @ weight

        @staticmethod
        def backward(ctx, gradient: Tensor) -> tuple[None, Tensor]:
            nonlocal alive
            alive -= 1
            return None, ctx.saved_tensors[0].T @ gradient

    graphs = False

    def chunk(start: int) -> Tensor:
        nonlocal graphs
        graphs = torch.is_grad_enabled()
        return Counted.apply(inputs[start : start + 2], weight)

    loss = ContrastiveLoss(DOT, 1.0)
    sides = [partial(chunk, start) for start in (0, 2)], [partial(chunk, start) for start in (4, 6, 8, 10)]
    backward(*sides, lambda q, d: loss(q, d, torch.arange(4)))
    assert (most, alive) == (1, 0)
    wanted = weight.grad.clone()
    weight.grad = None
    loss(inputs[:4] @ weight, inputs[4:] @ weight, torch.arange(4)).backward()
    assert torch.allclose(weight.grad, wanted, atol=1e-6)
