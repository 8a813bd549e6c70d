"""A model folder as an encoder: its modules without the normalisation at their end, an adapter merged in, on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.encoder import Encoder, EncoderSpec
from retriever.errors import RetrieverError

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

PROJECTION = "projection"
"""Folder within an adapter's that holds a linear layer for the normalised vectors (`retriever.training.projection`)."""


def load_encoder(
    folder: Path,
    spec: EncoderSpec,
    *,
    name: str,
    weights_hash: str,
    adapter: Path | None = None,
    device: str = "auto",
    tokens_per_batch: int = 4096,
    trust_remote_code: bool = False,
) -> Encoder:
    """Load a model folder as an encoder whose norms are real.

    A folder with a sentence-transformers configuration keeps its modules but for Normalize at the end, and its pooling must be
    the spec's; without one, the transformer is pooled as the spec says (sentence-transformers alone would take the mean).

    Args:
        folder: Local folder with weights in safetensors and a tokenizer.
        spec: Pooling, prefixes, lengths and precision.
        name: What people call the model.
        weights_hash: Hash of the weight files (and the adapter's).
        adapter: Folder of a PEFT adapter, merged into the weights; a projection in it follows the normalised vectors.
        device: "auto" (a GPU where there is one), "cpu", "cuda", "cuda:1", "mps".
        tokens_per_batch: Padded tokens in one forward pass.
        trust_remote_code: Run code that comes with the weights; off unless a person turns it on.

    Raises:
        RetrieverError: The folder is no model, or its configuration contradicts the spec.
    """
    import torch
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    chosen = torch_device(device)
    try:
        if (folder / "modules.json").is_file():
            model = SentenceTransformer(
                str(folder), device=str(chosen), trust_remote_code=trust_remote_code, local_files_only=True
            )
        else:
            transformer = Transformer(
                str(folder), model_kwargs={"trust_remote_code": trust_remote_code, "local_files_only": True}
            )
            pooling = Pooling(transformer.get_embedding_dimension(), spec.pooling)
            model = SentenceTransformer(modules=[transformer, pooling], device=str(chosen))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RetrieverError(f"cannot load an encoder from {folder}: {_reason(error)}") from error

    for module in model:
        if isinstance(module, Pooling) and module.pooling_mode != spec.pooling:
            raise RetrieverError(
                f"{name} pools by {module.pooling_mode!r} but the encoder's settings say {spec.pooling!r}; "
                "set encoders.NAME.pooling or take the model's own preset"
            )
    kept, dropped = list(model), []
    while isinstance(kept[-1], Normalize):
        dropped.append(type(kept.pop()).__name__)
    if adapter is not None and (adapter / PROJECTION).is_dir():
        kept += [Normalize(), _read_projection(adapter, model, name)]
    if len(kept) != len(model) or dropped:
        model = SentenceTransformer(modules=kept, device=str(chosen))
    first = model[0]
    if adapter is not None:
        from peft import PeftModel

        try:
            first.auto_model = PeftModel.from_pretrained(first.auto_model, str(adapter)).merge_and_unload()
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise RetrieverError(f"adapter {adapter} does not fit {name}: {_reason(error)}") from error
    if spec.precision == "bfloat16":
        first.to(torch.bfloat16)
    model.eval()
    return Encoder(name, spec, weights_hash, model, chosen, tuple(dropped), tokens_per_batch)


def _read_projection(adapter: Path, model: SentenceTransformer, name: str) -> Any:
    from safetensors import SafetensorError
    from sentence_transformers.base.modules.dense import Dense

    try:
        layer = Dense.load(str(adapter / PROJECTION), local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        raise RetrieverError(f"the projection of adapter {adapter} cannot be read: {_reason(error)}") from error
    if layer.in_features != model.get_embedding_dimension():
        raise RetrieverError(
            f"adapter {adapter} does not fit {name}: its projection takes {layer.in_features} dimensions and the model has "
            f"{model.get_embedding_dimension()}"
        )
    return layer


def _reason(error: BaseException) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def torch_device(name: str) -> torch.device:
    """The device that a setting means; "auto" takes a GPU where there is one.

    Raises:
        RetrieverError: No device of that name, or a GPU where torch sees none.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RetrieverError(f"device must be auto, cpu, cuda, cuda:N or mps, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RetrieverError(f"device {name} was asked for, but torch sees no GPU; set device to auto or cpu")
    return device
