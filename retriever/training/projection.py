"""A linear layer behind an encoder, in which magnitudes are learnt from nothing (our own, not the paper's).

What a mean-pooled encoder gives before training are lengths that mostly follow the length of the text, and a short training
cannot unlearn them everywhere. Here the encoder's vectors are normalised first, and a linear layer that starts as the
identity follows: before the first step all vectors are of length 1, every similarity ranks as cosine does, and any magnitude
there is later has been learnt.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.loading import PROJECTION

if TYPE_CHECKING:
    from retriever.encoder import Encoder


def add_projection(encoder: Encoder) -> Any:
    """Put Normalize and a linear layer [dim, dim] without bias behind the encoder's modules; the encoder is changed in place.

    Returns:
        The sentence-transformers Dense module, all of whose weights are trained.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.sentence_transformer.modules import Normalize

    identity = torch.eye(encoder.dim)
    layer = Dense(encoder.dim, encoder.dim, bias=False, activation_function=torch.nn.Identity(), init_weight=identity)
    encoder.model = SentenceTransformer(modules=[*encoder.model, Normalize(), layer], device=str(encoder.device))
    return layer


def without_projection(encoder: Encoder) -> Encoder:
    """The encoder as it was before `add_projection`, over the same weights."""
    from sentence_transformers import SentenceTransformer

    return replace(encoder, model=SentenceTransformer(modules=list(encoder.model)[:-2], device=str(encoder.device)))


def save_projection(folder: Path, layer: Any, dtype: Any) -> None:
    """Write the layer below an adapter's folder, as sentence-transformers' Dense reads it.

    Args:
        folder: Of the adapter.
        layer: What `add_projection` returned.
        dtype: A torch dtype to store it in.
    """
    from safetensors.torch import save_file

    target = folder / PROJECTION
    target.mkdir()
    layer.save_config(str(target))
    weights = {name: value.detach().to("cpu", dtype).contiguous() for name, value in layer.state_dict().items()}
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


def load_projection(folder: Path, layer: Any) -> None:
    """Put the weights of a saved layer into one that is in use."""
    from safetensors.torch import load_file

    layer.load_state_dict(load_file(folder / PROJECTION / "model.safetensors"))
