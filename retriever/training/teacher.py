"""The encoder as it was before training, for the loss that keeps it near (our own, not the paper's)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retriever.training.forward import Forward, Texts
from retriever.training.settings import TrainingSettings

if TYPE_CHECKING:
    from torch import Tensor

    from retriever.encoder import Encoder

Teacher = Callable[[Forward, Texts, Texts], "tuple[Tensor, Tensor]"]
"""From an encoder's training side, queries and passages to their untrained vectors, each in the order given."""


def make_teacher(encoder: Encoder, adapter: Any, settings: TrainingSettings) -> Teacher:
    """Encodes a batch as the encoder did before training, without gradients and dropout."""
    import copy

    if adapter is None:
        frozen = copy.deepcopy(encoder.model).eval().requires_grad_(False)
        untrained = Forward(
            replace(encoder, model=frozen), tokens_per_batch=settings.tokens_per_batch, precision=settings.precision
        )

        def from_copy(forward: Forward, queries: Texts, passages: Texts) -> tuple[Tensor, Tensor]:
            return untrained.vectors(queries), untrained.vectors(passages)

        return from_copy

    def without_adapter(forward: Forward, queries: Texts, passages: Texts) -> tuple[Tensor, Tensor]:
        model = forward.encoder.model
        training = model.training
        model.eval()
        with adapter.disable_adapter():
            vectors = forward.vectors(queries), forward.vectors(passages)
        model.train(training)
        return vectors

    return without_adapter
