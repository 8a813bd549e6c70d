"""A trained encoder on disk: a sentence-transformers folder or a PEFT adapter, and a manifest of what it was trained for."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.errors import RetrieverError
from retriever.training.snapshot import flush

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from retriever.encoder import Encoder

MANIFEST = "magrag.json"
FORMAT = 1
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MERGED = "merged"

# Ranking needs no query norm, so two names serve four similarities there.
_FUNCTIONS = {"cosine": "cosine", "dnorm": "cosine", "dot": "dot", "qnorm": "dot", "learnable": "cosine"}


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """What a checkpoint says of itself.

    Attributes:
        similarity: Name of the similarity it was trained for.
        gamma_q: γ of the query side at that point.
        gamma_d: γ of the passage side.
        scale: Factor of the scores in training.
        base: "name" of the model it started from and "weights", their hash.
        data_hash: Of the training pairs.
        recipe: The training's settings.
        dev: Development scores.
        encoder: Pooling, prefixes and lengths to use it with (fields of an EncoderSpec).
        step: Updates it had.
        note: What else to know; "" for nothing.
        format: Of this file.
    """

    similarity: str
    gamma_q: float
    gamma_d: float
    scale: float
    base: Mapping[str, str]
    data_hash: str
    recipe: Mapping[str, Any]
    dev: Mapping[str, float]
    encoder: Mapping[str, Any]
    step: int = 0
    note: str = ""
    format: int = field(default=FORMAT)


def save_checkpoint(
    folder: Path,
    encoder: Encoder,
    manifest: CheckpointManifest,
    *,
    adapter: Any = None,
    merged: bool = False,
    adapter_dtype: str = "float32",
) -> None:
    """Write a checkpoint, in place of one that may be there; a kill leaves the old one, the new one or none.

    Args:
        folder: For a full model, a folder that sentence-transformers loads, its last module the pooling (no Normalize, so
            norms are real), with the similarity function that ranks as the manifest's similarity does. With an adapter,
            PEFT's files.
        encoder: The model, with the adapter inside where there is one.
        manifest: Goes beside it as magrag.json.
        adapter: What `retriever.training.lora.add_lora` returned; None for a full model.
        merged: With an adapter: also the full folder with the adapter merged, in `merged` below.
        adapter_dtype: "float32" or "float16", half the size.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if adapter is None:
        _save_model(partial, encoder.model, encoder, manifest)
    else:
        _save_adapter(partial, adapter, manifest, adapter_dtype)
        if merged:
            _save_model(partial / MERGED, _merged(encoder, adapter), encoder, manifest)
    _write_manifest(partial, manifest)
    flush(partial)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def load_adapter(folder: Path, adapter: Any) -> None:
    """Put the weights of a saved adapter into one that has its shape."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    set_peft_model_state_dict(adapter, load_file(folder / ADAPTER_WEIGHTS))


def read_manifest(folder: Path) -> CheckpointManifest | None:
    """The manifest of a checkpoint; None for a folder that was not made here.

    Raises:
        RetrieverError: There is one, but of another format or damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.get("format") != FORMAT:
            raise RetrieverError(
                f"{path} has format {values.get('format')!r}, this version reads {FORMAT}: train again or use the version that made it"
            )
        return CheckpointManifest(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise RetrieverError(f"{path} is damaged ({error}); save the checkpoint again") from error


def _write_manifest(folder: Path, manifest: CheckpointManifest) -> None:
    text = json.dumps(asdict(manifest), indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _save_adapter(folder: Path, adapter: Any, manifest: CheckpointManifest, dtype: str) -> None:
    import torch
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    kind = {"float32": torch.float32, "float16": torch.float16}[dtype]
    weights = get_peft_model_state_dict(adapter)
    save_file(
        {name: value.detach().to("cpu", kind).contiguous() for name, value in weights.items()},
        folder / ADAPTER_WEIGHTS,
        metadata={"format": "pt"},
    )
    config = copy.deepcopy(adapter.peft_config["default"])
    # PEFT would name the folder of this machine.
    config.base_model_name_or_path = manifest.base["name"]
    config.inference_mode = True
    config.save_pretrained(str(folder))


def _merged(encoder: Encoder, adapter: Any) -> SentenceTransformer:
    """A copy with the adapter's product added to the weights; what is in training keeps its own."""
    model, inside = copy.deepcopy((encoder.model, adapter))  # in one go, so that both copies share the transformer
    inside.merge_and_unload()
    return model


def _save_model(folder: Path, model: SentenceTransformer, encoder: Encoder, manifest: CheckpointManifest) -> None:
    from sentence_transformers import SentenceTransformer

    spec = encoder.spec
    saved = SentenceTransformer(
        modules=list(model),
        device=str(encoder.device),
        similarity_fn_name=_FUNCTIONS[manifest.similarity],
        prompts={"query": spec.query_prefix, "document": spec.passage_prefix},
    )
    saved.max_seq_length = spec.passage_max_tokens
    saved.save(str(folder), create_model_card=False)
