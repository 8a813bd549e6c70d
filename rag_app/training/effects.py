"""Settings of a training that do not do what they say, since others are in their way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rag_app.training.config import TrainConfig
from retriever.training.pairs import TrainingPair

if TYPE_CHECKING:
    from retriever.encoder import Encoder


def without_effect(config: TrainConfig, encoder: Encoder, pairs: Sequence[TrainingPair]) -> Iterator[str]:
    """A line for each.

    Args:
        config: Of the training.
        encoder: As it searches.
        pairs: With the negatives that they are trained with.
    """
    recipe, mining = config.training, config.mining
    if recipe.hard_negatives and not any(pair.negatives for pair in pairs):
        what = "set mining.kind" if mining.kind == "none" else "[mining] leaves none over"
        yield f"training.hard_negatives = {recipe.hard_negatives} has no effect: no pair has hard negatives; {what}"
    if mining.kind != "none" and not recipe.hard_negatives:
        yield f'mining.kind = "{mining.kind}" has no effect: training.hard_negatives is 0, so nothing is mined'
    if recipe.patience and not (recipe.eval_every and (config.dev.queries or config.dev.datasets)):
        what = "there is no development set" if recipe.eval_every else "training.eval_every is 0"
        yield f"training.patience = {recipe.patience} has no effect: {what}"
    for side in ("query_max_tokens", "passage_max_tokens"):
        trained, searched = getattr(recipe, side), getattr(encoder.spec, side)
        if trained > searched:
            yield (
                f"training.{side} is {trained}, but the encoder searches with {searched}: texts are cut shorter then than in "
                f"training, unless encoder.{side} is raised"
            )
