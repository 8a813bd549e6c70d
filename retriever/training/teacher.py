"""The encoder as it was before training, for the loss that keeps it near (our own, not the paper's)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from retriever.training.forward import Forward, Texts
from retriever.training.projection import without_projection
from retriever.training.settings import TrainingSettings

if TYPE_CHECKING:
    from torch import Tensor

    from retriever.encoder import Encoder

Teacher = Callable[[Texts, Texts], "tuple[Tensor, Tensor]"]
"""From queries and passages to their untrained vectors, each in the order given."""


def make_teacher(encoder: Encoder, adapter: Any, settings: TrainingSettings) -> Teacher:
    """Encodes a batch as the encoder did before training, without gradients and dropout; a projection is left out."""
    import copy

    if settings.projection:
        encoder = without_projection(encoder)
    if adapter is None:
        frozen = copy.deepcopy(encoder.model).eval().requires_grad_(False)
        encoder = replace(encoder, model=frozen)
    untrained = Forward(encoder, tokens_per_batch=settings.tokens_per_batch, precision=settings.precision)
    if adapter is None:
        return lambda queries, passages: (untrained.vectors(queries), untrained.vectors(passages))

    def without_adapter(queries: Texts, passages: Texts) -> tuple[Tensor, Tensor]:
        model = encoder.model
        training = model[0].training
        model.eval()
        with adapter.disable_adapter():
            vectors = untrained.vectors(queries), untrained.vectors(passages)
        model.train(training)
        return vectors

    return without_adapter
