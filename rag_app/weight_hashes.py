"""Content hashes of models, which an index, an adapter or a run binds to."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from generator.fingerprint import hash_behaviour, hash_weights, weight_files
from rag_app.errors import WeightsError


def weights_hash(folder: Path, *, data_dir: Path | None = None) -> str:
    """SHA-256 over the weight files' names and contents, which an index or a run binds to.

    Args:
        folder: A folder that `resolve` returned.
        data_dir: Where to remember the answer, keyed by each file's name, size and time; None reads the files anew.
    """
    files = weight_files(folder)
    if not files:
        raise WeightsError(f"{folder} holds no safetensors to hash")
    if data_dir is None:
        return hash_weights(folder)
    state = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    key = hashlib.sha256(json.dumps(state).encode()).hexdigest()
    kept = data_dir / "weights" / "hashes" / key
    if kept.is_file() and len(known := kept.read_text(encoding="ascii").strip()) == 64:
        return known
    value = hash_weights(folder)
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_name(f".{key}.{os.getpid()}")
    partial.write_text(value, encoding="ascii")
    os.replace(partial, kept)
    return value


def model_hash(folder: Path, *, data_dir: Path | None = None) -> str:
    """As `weights_hash`, with the small files that decide a model's outputs too: configuration and tokenizer."""
    content = f"{weights_hash(folder, data_dir=data_dir)} {hash_behaviour(folder)}"
    return hashlib.sha256(content.encode("ascii")).hexdigest()
