"""The optimiser: AdamW with γ in a group of its own, warm-up and cosine decay."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from retriever.errors import RetrieverError
from retriever.training.settings import TrainingSettings

if TYPE_CHECKING:
    import torch
    from torch.nn import Parameter


def make_optimizer(
    named: Iterable[tuple[str, Parameter]],
    gammas: Iterable[Parameter],
    *,
    learning_rate: float,
    gamma_lr: float | None,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
) -> torch.optim.AdamW:
    """AdamW over the encoder's parameters and, where there are any, the logits of γ.

    Biases and normalisation weights (one dimension) are not decayed, nor is γ.

    Args:
        named: The encoder's parameters with their names; those without gradient are left out.
        gammas: The logits that learn; none for a fixed similarity.
        learning_rate: Peak for the encoder.
        gamma_lr: Peak for γ; None takes the encoder's, as in the paper's set-up, where γ hardly moves.
        weight_decay: For matrices.
        betas: Of Adam.
        eps: Of Adam.
    """
    import torch

    trained = [parameter for _, parameter in named if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "lr": learning_rate, "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "lr": learning_rate, "weight_decay": 0.0},
        {"params": list(gammas), "lr": learning_rate if gamma_lr is None else gamma_lr, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], betas=betas, eps=eps)
    for group in optimizer.param_groups:
        group["peak"] = group["lr"]
    return optimizer


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set every group's learning rate to `factor` times its peak."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor


def clip_gradient(parameters: Iterable[Parameter], settings: TrainingSettings, step: int) -> float:
    """Shorten the gradient to `settings.clip` (0: not at all); returns its norm before.

    Args:
        parameters: All that are trained, with their gradients.
        settings: Of the training.
        step: Counted from 0, for the error.

    Raises:
        RetrieverError: The norm is not finite.
    """
    import torch

    norm = torch.nn.utils.clip_grad_norm_(parameters, settings.clip if settings.clip > 0 else float("inf"))
    if not torch.isfinite(norm):
        fixed = ", or use scale matched" if settings.scale == "fixed" else ""
        raise RetrieverError(f"the gradient of step {step + 1} is not finite; lower learning_rate or alpha{fixed}")
    return float(norm)


def rate_factor(step: int, steps: int, warmup: float) -> float:
    """Share of the peak learning rate at a step.

    Args:
        step: Counted from 0.
        steps: Of the whole training.
        warmup: Share of the steps in which the rate rises linearly; after it, half a cosine down to 0.
    """
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1.0 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))
