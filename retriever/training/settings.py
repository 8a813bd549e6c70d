"""What a training is: every setting that changes its weights, checked before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from retriever.errors import RetrieverError
from retriever.similarity import COSINE, Similarity
from retriever.training.crops import CropSettings


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Low-rank adapters (LoRA) in place of full fine-tuning.

    Attributes:
        rank: Of the two factors.
        alpha: Their product is scaled by alpha / rank.
        dropout: Before the first factor, in training.
        targets: Names of linear layers, as the architecture calls them; () takes PEFT's choice for it.
        layers: Indices of transformer layers that get adapters; () takes all. Below the lowest no gradient is computed.
    """

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise RetrieverError(f"lora rank must be at least 1, got {self.rank}")


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """One recipe; the paper's values where it has some (Feng & Watanabe, arXiv 2602.09229, appendix B).

    Attributes:
        similarity: What is trained for; "learnable" starts from its γ.
        scale: "fixed" takes alpha; "matched" [ours] chooses it so that the first softmax is as sharp as cosine's at alpha.
        alpha: Factor of the scores before the softmax.
        steps: Updates; 0 counts epochs.
        epochs: Passes over the pairs, where steps is 0.
        batch_size: Queries an update, over all processes; their positives are one another's negatives.
        chunk_size: Texts encoded at once with gradients (gradient caching, twice the forward work); 0 encodes all at once.
        tokens_per_batch: Padded tokens in one forward pass.
        learning_rate: Peak.
        gamma_lr: Peak for γ; None takes the encoder's.
        warmup: Share of the steps before the peak.
        weight_decay: Of matrices.
        betas: Of Adam.
        eps: Of Adam.
        clip: Largest norm of the gradient; 0 cuts nothing.
        hard_negatives: A pair's own negatives in each step.
        crops: How passages are cut [ours].
        anchor: Weight of the loss that keeps rankings near the untrained model's [ours]; 0 is off.
        projection: Vectors are normalised and go through a trained linear layer, the identity at first [ours].
        lora: Adapters; None trains all weights.
        dropout: Whether the model's own dropout is on (and LoRA's).
        precision: "float32", or "bfloat16" for the transformer's arithmetic (weights stay float32).
        query_max_tokens: Longer queries are cut.
        passage_max_tokens: Longer passages are cut.
        seed: Of order, crops, negatives, dropout and adapters.
        eval_every: Steps between development scores; 0 scores at the end alone.
        patience: Evaluations without a better one before it stops; 0 never stops early.
        save_every: Steps between snapshots; 0 saves whenever it evaluates.
    """

    similarity: Similarity = COSINE
    scale: Literal["fixed", "matched"] = "fixed"
    alpha: float = 20.0
    steps: int = 0
    epochs: float = 1.0
    batch_size: int = 64
    chunk_size: int = 0
    tokens_per_batch: int = 4096
    learning_rate: float = 2e-5
    gamma_lr: float | None = 1e-2
    warmup: float = 0.0
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    clip: float = 1.0
    hard_negatives: int = 0
    crops: CropSettings = field(default_factory=CropSettings)
    anchor: float = 0.0
    projection: bool = False
    lora: LoraSettings | None = None
    dropout: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"
    query_max_tokens: int = 64
    passage_max_tokens: int = 256
    seed: int = 0
    eval_every: int = 0
    patience: int = 0
    save_every: int = 0

    def __post_init__(self) -> None:
        if self.scale not in ("fixed", "matched"):
            raise RetrieverError(f"scale must be fixed or matched, got {self.scale!r}")
        if self.precision not in ("float32", "bfloat16"):
            raise RetrieverError(f"precision must be float32 or bfloat16, got {self.precision!r}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise RetrieverError(f"betas must be at least 0 and below 1, got {self.betas[0]} and {self.betas[1]}")
        for name, least in (("steps", 0), ("chunk_size", 0), ("batch_size", 2), ("tokens_per_batch", 1)):
            if getattr(self, name) < least:
                raise RetrieverError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.steps == 0 and self.epochs <= 0:
            raise RetrieverError(f"epochs must be more than 0 where steps is 0, got {self.epochs}")

    def total_steps(self, pairs: int) -> int:
        """Updates in all, for so many pairs."""
        return self.steps or max(1, math.ceil(self.epochs * pairs / self.batch_size))
