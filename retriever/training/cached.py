"""Gradient caching: the gradients of a large batch in the memory of a small one.

A contrastive loss couples all texts of a batch, but only through their vectors. So the vectors are computed first without a
graph, the loss is differentiated with respect to them, and each chunk of texts is then encoded once more, with a graph,
to pass its vectors' gradients on (Gao et al. 2021, arXiv 2101.06983). It costs one more forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Encode = Callable[[], Tensor]
"""Encodes one fixed chunk of texts: [rows, dim], attached to the parameters where gradients are enabled."""


def backward(
    query_chunks: Sequence[Encode], passage_chunks: Sequence[Encode], loss: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Add the gradients of `loss` over all chunks to the parameters, as its `.backward()` would.

    With one chunk a side this is plain backpropagation. Otherwise each chunk is called twice, the second time with the
    random numbers of the first, so that dropout repeats, and leaves the generators where one pass would.

    Args:
        query_chunks: At least one; their rows, one below the other, are the loss's first argument.
        passage_chunks: At least one; the same for the second. A chunk that computes under autocast enters it itself:
            an autocast around this call would keep weights cast without a graph for the pass that needs one.
        loss: From all query vectors [n, dim] and passage vectors [m, dim] to a scalar. May hold parameters of its own and
            may gather vectors of other processes; it is called once and draws no random numbers.

    Returns:
        The loss, detached.
    """
    if len(query_chunks) == len(passage_chunks) == 1:
        value = loss(query_chunks[0](), passage_chunks[0]())
        torch.autograd.backward(value)
        return value.detach()
    states: list[_RandomState] = []
    with torch.no_grad():
        queries, passages = (
            torch.cat([_first_pass(encode, states) for encode in side]).requires_grad_()
            for side in (query_chunks, passage_chunks)
        )
    value = loss(queries, passages)
    torch.autograd.backward(value)
    remaining = iter(states)
    for side, vectors in ((query_chunks, queries), (passage_chunks, passages)):
        gradients = vectors.grad if vectors.grad is not None else torch.zeros_like(vectors)
        start = 0
        for encode in side:
            next(remaining).restore()
            again = encode()
            torch.autograd.backward(again, gradients[start : start + len(again)])
            start += len(again)
    return value.detach()


def _first_pass(encode: Encode, states: list[_RandomState]) -> Tensor:
    states.append(_RandomState())
    return encode()


class _RandomState:
    """Where all of torch's random number generators stand."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        self._mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        torch.cuda.set_rng_state_all(self._cuda)
        if self._mps is not None:
            torch.mps.set_rng_state(self._mps)
