"""Image-text pairs: CLIP's two towers under the similarity family, with the symmetric loss or one direction of it.

The towers are transformers' CLIPModel (Radford et al., arXiv 2103.00020). Scores and cross-entropies are those of
`retriever.training.loss`, so cosine with both directions is CLIP's own loss (tests hold it to transformers').
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from retriever.errors import RetrieverError
from retriever.similarity import Similarity, similarity_from_name
from retriever.training.loss import ContrastiveLoss, matched_scale
from retriever.training.optim import clip_gradient, make_optimizer, rate_factor, set_rates
from retriever.training.settings import TrainingSettings

Direction = Literal["both", "text_to_image", "image_to_text"]
Pixels = Callable[[Sequence[int]], np.ndarray]
"""Numbers of pictures to their pixels, [n, 3, height, width] float32, as the model takes them."""

_MIRRORED = {"qnorm": "dnorm", "dnorm": "qnorm"}


class PairLoss:
    """InfoNCE from the side that asks, or CLIP's mean of both sides.

    Args:
        similarity: Its query is the side that asks; with both, the text.
        direction: "text_to_image" (a caption picks its picture), "image_to_text" (a picture picks its caption) or "both".
        scale: What scores are multiplied by.

    Raises:
        RetrieverError: The similarity is learnable: each direction would learn exponents of its own.
    """

    def __init__(self, similarity: Similarity, direction: Direction, scale: float) -> None:
        if similarity.name == "learnable":
            raise RetrieverError("two towers take cosine, dot, qnorm or dnorm, got learnable")
        self.direction = direction
        self._forward = ContrastiveLoss(similarity, scale)
        # The same scores seen from the other side: who asked is now the candidate.
        mirrored = similarity_from_name(_MIRRORED.get(similarity.name, similarity.name))
        self._backward = ContrastiveLoss(mirrored, scale)

    def __call__(self, texts: Tensor, images: Tensor, excluded: Tensor | None = None) -> Tensor:
        """The loss of n pairs, row i of one side belonging to row i of the other.

        Args:
            texts: [n, dim], not normalised.
            images: [n, dim], not normalised.
            excluded: [n, n] bool; True where the picture (column) is right for the caption (row) too, and so no negative.

        Returns:
            Scalar, float32.
        """
        asking, asked, left_out = (texts, images, excluded)
        if self.direction == "image_to_text":
            asking, asked, left_out = images, texts, None if excluded is None else excluded.T
        targets = torch.arange(len(asking), device=asking.device)
        value = self._forward(asking, asked, targets, left_out)
        if self.direction != "both":
            return value
        return (value + self._backward(asked, asking, targets, None if left_out is None else left_out.T)) / 2

    def match(self, texts: Tensor, images: Tensor, excluded: Tensor, reference: float) -> float:
        """Set and return the scale at which the softmax of the side that asks is as sharp as cosine's at `reference`."""
        asking, asked, left_out = (texts, images, excluded)
        if self.direction == "image_to_text":
            asking, asked, left_out = images, texts, excluded.T
        scale = matched_scale(asking, asked, self._forward.current, left_out, reference=reference)
        self._forward.scale = self._backward.scale = scale
        return scale


class TwoTowers:
    """A CLIP that gives embeddings as they come, not normalised.

    Args:
        model: transformers' CLIPModel.
        tokenizer: transformers'; it ends each caption with the model's `eos_token_id`, whose state is the embedding.
        device: That the model is moved to.
    """

    def __init__(self, model: Any, tokenizer: Any, device: torch.device) -> None:
        self.model = model.to(device)
        self.model.logit_scale.requires_grad_(False)  # the loss has a scale of its own
        self.tokenizer, self.device = tokenizer, device
        self._max_tokens = model.config.text_config.max_position_embeddings
        self._tokens: dict[str, Tensor] = {}  # a caption comes again in each epoch

    def texts(self, captions: Sequence[str]) -> Tensor:
        """Embeddings [n, dim] float32, with gradients."""
        new = [caption for caption in dict.fromkeys(captions) if caption not in self._tokens]
        if new:
            found = self.tokenizer(new, truncation=True, max_length=self._max_tokens)["input_ids"]
            self._tokens.update(zip(new, map(torch.tensor, found), strict=True))
        # Attention is causal and the embedding is the first end token's state, so what fills up a row is never seen.
        rows = [self._tokens[caption] for caption in captions]
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        return self.model.get_text_features(input_ids=tokens.to(self.device)).pooler_output.float()

    def images(self, pixels: np.ndarray) -> Tensor:
        """Embeddings [n, dim] float32 of [n, 3, height, width], with gradients."""
        values = torch.from_numpy(pixels).to(self.device)
        return self.model.get_image_features(pixel_values=values).pooler_output.float()

    def encode_texts(self, captions: Sequence[str], batch_size: int) -> np.ndarray:
        """Embeddings [n, dim] float32, without gradients."""
        return self._encode(len(captions), batch_size, lambda at: self.texts(captions[at]))

    def encode_images(self, n: int, pixels: Pixels, batch_size: int) -> np.ndarray:
        """Embeddings [n, dim] float32 of pictures 0 to n − 1, without gradients."""
        return self._encode(n, batch_size, lambda at: self.images(pixels(range(n)[at])))

    @torch.inference_mode()
    def _encode(self, n: int, batch_size: int, embed: Callable[[slice], Tensor]) -> np.ndarray:
        self.model.eval()
        return np.concatenate(
            [embed(slice(start, start + batch_size)).cpu().numpy() for start in range(0, n, batch_size)]
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """A caption and the number of a picture that it describes."""

    caption: str
    picture: int


def described(pairs: Iterable[Pair]) -> dict[str, set[int]]:
    """The pictures of each caption."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for pair in pairs:
        found[pair.caption].add(pair.picture)
    return dict(found)


def no_negatives(batch: Sequence[Pair], known: Mapping[str, set[int]]) -> np.ndarray:
    """[n, n] bool: where another pair's picture (column) is right for a caption (row) too, or is the same picture.

    The diagonal, which holds the pairs themselves, is False.
    """
    right = np.array([[pair.picture in known[row.caption] for pair in batch] for row in batch])
    np.fill_diagonal(right, False)
    return right


def train_towers(
    towers: TwoTowers,
    pairs: Sequence[Pair],
    pixels: Pixels,
    direction: Direction,
    recipe: TrainingSettings,
    *,
    report: Callable[[int, int, Mapping[str, float]], None] | None = None,
) -> dict[str, float]:
    """Train to the last step.

    Args:
        towers: Their weights change.
        pairs: A caption's other pictures, and a picture's other captions, are never its negatives.
        pixels: Of the pictures that the pairs name.
        direction: Which side asks.
        recipe: Similarity, scale, steps, batch size, optimiser, precision and seed; nothing else of it is looked at.
        report: Called after each step with (steps done, steps in all, {"loss"}).

    Returns:
        The scale, and the mean loss of the last tenth of the steps.

    Raises:
        RetrieverError: Fewer pairs than a batch, no scale that matches cosine's, or a gradient that is not finite.
    """
    if len(pairs) < recipe.batch_size:
        raise RetrieverError(f"{len(pairs)} pairs are fewer than batch_size {recipe.batch_size}: lower it")
    known = described(pairs)
    loss = PairLoss(recipe.similarity, direction, recipe.alpha)
    optimizer = make_optimizer(
        towers.model.named_parameters(),
        (),
        learning_rate=recipe.learning_rate,
        gamma_lr=None,
        weight_decay=recipe.weight_decay,
        betas=recipe.betas,
        eps=recipe.eps,
    )
    trained = [parameter for parameter in towers.model.parameters() if parameter.requires_grad]

    def embedded(batch: Sequence[Pair]) -> tuple[Tensor, Tensor, Tensor]:
        excluded = torch.from_numpy(no_negatives(batch, known)).to(towers.device)
        with torch.autocast(towers.device.type, torch.bfloat16, enabled=recipe.precision == "bfloat16"):
            texts = towers.texts([pair.caption for pair in batch])
            images = towers.images(pixels([pair.picture for pair in batch]))
        return texts, images, excluded

    scale, losses = recipe.alpha, []
    if recipe.scale == "matched":
        towers.model.eval()
        with torch.no_grad():
            scale = loss.match(*embedded(_batch(pairs, recipe, 0)), recipe.alpha)
    towers.model.train()
    for step in range(recipe.steps):
        set_rates(optimizer, rate_factor(step, recipe.steps, recipe.warmup))
        optimizer.zero_grad(set_to_none=True)
        value = loss(*embedded(_batch(pairs, recipe, step)))
        torch.autograd.backward(value)
        clip_gradient(trained, recipe, step)
        optimizer.step()
        losses.append(value.item())
        if report is not None:
            report(step + 1, recipe.steps, {"loss": losses[-1]})
    return {"scale": scale, "loss": float(np.mean(losses[-max(1, recipe.steps // 10) :]))}


def _batch(pairs: Sequence[Pair], recipe: TrainingSettings, step: int) -> list[Pair]:
    """The pairs of a step, a function of seed and step: each epoch has an order of its own, and drops what is left over."""
    epoch, place = divmod(step, len(pairs) // recipe.batch_size)
    order = np.random.default_rng([recipe.seed, epoch]).permutation(len(pairs))
    chosen = order[place * recipe.batch_size : (place + 1) * recipe.batch_size]
    return [pairs[position] for position in chosen]
