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

from retriever.encoder import Encoder, EncoderSpec
from retriever.errors import RetrieverError
from retriever.similarity import NAMES, Similarity
from retriever.training.projection import load_projection, save_projection
from retriever.training.snapshot import flush

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

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
    adapter_dtype: str = "float32",
    projection: Any = None,
) -> None:
    """Write a checkpoint, in place of one that may be there.

    A kill leaves the old one or the new one, if need be beside the folder, whence `restore_checkpoint` takes it back.

    Args:
        folder: For a full model, a folder that sentence-transformers loads, without Normalize at its end (so norms are real)
            and with the similarity function that ranks as the manifest's similarity does. With an adapter, PEFT's files.
        encoder: The model, with the adapter inside where there is one.
        manifest: Goes beside it as magrag.json.
        adapter: What `retriever.training.lora.add_lora` returned; None for a full model.
        adapter_dtype: "float32" or "float16", half the size.
        projection: What `retriever.training.projection.add_projection` returned, kept beside an adapter; None where there is
            none.
    """
    restore_checkpoint(folder)
    partial = _emptied(folder.with_name(f".{folder.name}.partial"))
    if adapter is None:
        _save_model(partial, encoder.model, encoder, manifest)
    else:
        _save_adapter(partial, adapter, manifest, adapter_dtype)
        if projection is not None:
            save_projection(partial, projection, _torch_dtype(adapter_dtype))
    _write_manifest(partial, manifest)
    flush(partial)
    if folder.exists():
        os.replace(folder, _aside(folder))
    os.replace(partial, folder)
    shutil.rmtree(_aside(folder), ignore_errors=True)


def restore_checkpoint(folder: Path) -> None:
    """Put a checkpoint back that `save_checkpoint` had moved aside when it was killed; nothing else happens."""
    aside = _aside(folder)
    if aside.is_dir() and folder.exists():
        shutil.rmtree(aside)
    elif aside.is_dir():
        os.replace(aside, folder)


def save_merged(folder: Path, encoder: Encoder, adapter: Any) -> None:
    """Add to an adapter's checkpoint the full folder with the adapter merged, in `merged` below; all else there stays.

    Args:
        folder: A checkpoint.
        encoder: With the adapter inside.
        adapter: With the weights that the checkpoint holds, see `load_adapter`.
    """
    partial = _emptied(folder.with_name(f".{folder.name}.{MERGED}.partial"))
    _save_model(partial, _merged(encoder, adapter), encoder, manifest_of(folder))
    flush(partial)
    os.replace(partial, folder / MERGED)


def load_adapter(folder: Path, adapter: Any, projection: Any = None) -> None:
    """Put the weights of a saved adapter, and of the projection beside it, into ones that have their shapes.

    Raises:
        RetrieverError: A file is missing or damaged.
    """
    from peft import set_peft_model_state_dict
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        set_peft_model_state_dict(adapter, load_file(folder / ADAPTER_WEIGHTS))
        if projection is not None:
            load_projection(folder, projection)
    except (OSError, KeyError, RuntimeError, SafetensorError) as error:
        raise RetrieverError(f"{folder} is damaged ({error}); delete the training's folder and train again") from error


def read_manifest(folder: Path) -> CheckpointManifest | None:
    """The manifest of a checkpoint; None for a folder that was not made here.

    Raises:
        RetrieverError: There is one, but of another format or damaged: no JSON, or fields that are missing or nonsense.
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
        manifest = CheckpointManifest(**values)
        _check(manifest)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else error
        raise RetrieverError(f"{path} is damaged ({why}); save the checkpoint again") from error
    return manifest


def manifest_of(folder: Path) -> CheckpointManifest:
    """The manifest of a training's checkpoint.

    Raises:
        RetrieverError: There is none, or it is damaged.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise RetrieverError(f"{folder} has lost its manifest; delete the training's folder and train again")
    return manifest


def _check(manifest: CheckpointManifest) -> None:
    """Raises ValueError, TypeError or KeyError for what no training writes."""
    if manifest.similarity not in NAMES:
        raise ValueError(f"similarity is {manifest.similarity!r}")
    try:
        EncoderSpec(**manifest.encoder)
        Similarity(manifest.similarity, manifest.gamma_q, manifest.gamma_d)
    except RetrieverError as error:
        raise ValueError(str(error)) from error
    for name in ("name", "weights"):
        if not isinstance(manifest.base[name], str):
            raise TypeError(f"base.{name} is {manifest.base[name]!r}")
    for name, value in {"scale": manifest.scale, "step": manifest.step, **manifest.dev}.items():
        if not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}")


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _write_manifest(folder: Path, manifest: CheckpointManifest) -> None:
    text = json.dumps(asdict(manifest), indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _save_adapter(folder: Path, adapter: Any, manifest: CheckpointManifest, dtype: str) -> None:
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    kind = _torch_dtype(dtype)
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


def _torch_dtype(name: str) -> Any:
    import torch

    return {"float32": torch.float32, "float16": torch.float16}[name]


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
