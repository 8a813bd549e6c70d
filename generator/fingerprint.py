"""Content hashes of a model folder: two folders with the same hash give the same outputs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

# What changes a model's answers beside its weights: its shape, its tokenizer, its chat template, its end tokens, and what an
# adapter's weights are multiplied by and added to.
BEHAVIOUR_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "adapter_config.json",
)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that loading `folder` reads, sorted by relative path.

    Those are the ones at its top and, in a sentence-transformers model, those of the modules it lists; a training
    folder's older checkpoints and exports for other run times don't count.
    """
    modules = folder / "modules.json"
    listed = json.loads(modules.read_text(encoding="utf-8")) if modules.is_file() else []
    homes = {folder, *(folder / module.get("path", "") for module in listed)}
    return sorted(path for home in homes for path in home.glob("*.safetensors"))


def hash_weights(folder: Path) -> str:
    """SHA-256 over the names and contents of the weight files, as 64 hex digits.

    Reads everything once (about a second for each GB); callers that ask often keep the answer.
    """
    return _hash_files(folder, weight_files(folder))


def hash_behaviour(folder: Path) -> str:
    """SHA-256 over the small files that decide the outputs beside the weights (configuration, tokenizer, template)."""
    return _hash_files(folder, [folder / name for name in BEHAVIOUR_FILES if (folder / name).is_file()])


def _hash_files(folder: Path, files: list[Path]) -> str:
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def name_model(weights: str, behaviour: str, **facts: object) -> str:
    """A readable fingerprint: short hashes of weights and behaviour files, then what else decides the outputs."""
    rest = " ".join(f"{name}={value}" for name, value in facts.items())
    return f"weights={weights[:16]} files={behaviour[:16]} {rest}".rstrip()
