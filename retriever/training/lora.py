"""LoRA adapters inside an encoder, through PEFT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retriever.errors import RetrieverError
from retriever.training.settings import LoraSettings

if TYPE_CHECKING:
    from retriever.encoder import Encoder


def add_lora(encoder: Encoder, settings: LoraSettings, seed: int) -> Any:
    """Put adapters into the encoder's transformer, which is changed in place; all other weights are frozen.

    Args:
        encoder: Computes with the adapters from now on.
        settings: Rank, scale and where.
        seed: Of the first factors (the second start at 0, so nothing changes before the first step).

    Returns:
        The PeftModel, which saves, merges and switches off the adapters.

    Raises:
        RetrieverError: The model has no layers of those names or numbers.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    _check_layers(encoder, settings)
    torch.manual_seed(seed)
    encoder.model.requires_grad_(False)  # PEFT freezes the transformer, and no other module
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets) or None,
        layers_to_transform=list(settings.layers) or None,
        task_type="FEATURE_EXTRACTION",
    )
    try:
        return get_peft_model(encoder.model[0].auto_model, config)
    except ValueError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise RetrieverError(
            f"LoRA does not fit {encoder.name}: {reason}; name its linear layers in targets"
        ) from error


def _check_layers(encoder: Encoder, settings: LoraSettings) -> None:
    """PEFT names targets and layers in one breath where a layer is too many."""
    count = getattr(encoder.model[0].auto_model.config, "num_hidden_layers", None)
    if count is not None and (wrong := [layer for layer in settings.layers if layer >= count]):
        raise RetrieverError(f"lora.layers must be 0 to {count - 1}, the layers of {encoder.name}, got {wrong[0]}")
