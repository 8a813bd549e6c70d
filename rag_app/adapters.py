"""Adapters: small trained weights over a model's own, found by name or folder, and merged where a reader needs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import generator
import retriever
from generator.quiet import quiet_transformers
from rag_app.errors import ConfigError, WeightsError
from rag_app.prepare import prepare
from rag_app.weight_hashes import model_hash

SHIPPED = (Path(retriever.__file__).parent / "adapters", Path(generator.__file__).parent / "adapters")
"""Where the adapters are that come with this project: for encoders and for readers."""


def find_adapter(name: str, setting: str) -> Path:
    """The folder of an adapter.

    Args:
        name: A folder, or the name of an adapter that comes with this project.
        setting: The setting that it came from, named in errors.

    Raises:
        ConfigError: Neither, or a folder without an adapter.
    """
    folder = Path(name).expanduser()
    home = SHIPPED[1] if setting.startswith("generator.") else SHIPPED[0]
    if not folder.is_dir() and (home / name).is_dir():
        folder = home / name
    if not folder.is_dir():
        shipped = sorted(path.parent.name for path in home.glob("*/adapter_config.json"))
        known = f" (those that come with it: {', '.join(shipped)})" if shipped else ""
        raise ConfigError(f"{setting} = {name!r} is neither a folder nor the name of an adapter{known}")
    if not (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{setting}: {folder} holds no adapter_config.json; give the folder of a PEFT adapter")
    return folder


def check_base(adapter: Path, folder: Path, model: str, setting: str, data_dir: Path) -> None:
    """Refuse an adapter that was trained on other weights than those it is to be put on.

    Adapters of other makers, which have no magrag.json, say nothing about it and pass.

    Raises:
        ConfigError: Both models are named.
    """
    base = read_description(adapter, setting).get("base")
    if base is not None and base["weights"] != model_hash(folder, data_dir=data_dir):
        raise ConfigError(
            f"{setting}: the adapter {adapter} was trained on {base['name']} and does not fit {model}, whose weights or "
            'tokenizer are others; set it to "" or take an adapter of this model'
        )


def read_description(adapter: Path, setting: str) -> dict[str, Any]:
    """What an adapter's magrag.json says; {} where there is none.

    Raises:
        ConfigError: It cannot be read.
    """
    path = adapter / "magrag.json"
    if not path.is_file():
        return {}
    try:
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(said, dict):
            raise ValueError("it holds no table")
        if "base" in said and not {"name", "weights"} <= set(said["base"]):
            raise ValueError("base has no name and weights")
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{setting}: {path} is damaged ({error}); copy or train the adapter again") from error
    return said


def merged(folder: Path, adapter: Path, *, data_dir: Path, log: Callable[[str], None] | None = None) -> Path:
    """The model with the adapter's changes in its weights, made once and kept in data_dir/weights/merged.

    The sum is taken in float32 and rounded to the precision of the model's own weights.

    Raises:
        WeightsError: The adapter does not fit the model.
    """
    mark = hashlib.sha256(f"{model_hash(folder, data_dir=data_dir)} {model_hash(adapter)}".encode()).hexdigest()[:12]
    say = log or (lambda line: None)
    return prepare(
        data_dir / "weights" / "merged" / f"{folder.name}-{mark}", lambda target: _merge(folder, adapter, target, say)
    )


def _merge(folder: Path, adapter: Path, target: Path, say: Callable[[str], None]) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    say(f"merging the adapter {adapter.name} into {folder.name} (once)")
    try:
        with quiet_transformers():
            own = AutoConfig.from_pretrained(folder, local_files_only=True).dtype or torch.float32
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, use_safetensors=True
            )
            model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
            model.to(own).save_pretrained(target)
            AutoTokenizer.from_pretrained(folder, local_files_only=True).save_pretrained(target)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WeightsError(f"adapter {adapter} does not fit {folder}: {why}") from error
