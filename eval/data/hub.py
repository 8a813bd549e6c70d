"""Rows of data sets on the Hugging Face hub, and a memory of what they held when they were first loaded."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval.data.jsonl import parse_object
from eval.errors import EvalError

LOCK_FILE = "datasets.lock.json"


def hub_rows(hub: str, subset: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, row) for a split, streamed: the other splits, often far larger, are not fetched.

    Args:
        hub: Name on the hub, or a folder that the datasets library can read.
        subset: Its configuration; "" for the only or default one.
        split: Which part; "" where there is one.

    Raises:
        EvalError: Not found, no connection, several splits to choose from, or a damaged file; in one line.
    """
    from datasets import load_dataset

    # It tells of each retry; whoever has no hub reads one line at the end instead.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    what = ", ".join(filter(None, (hub, subset, split)))
    try:
        rows = load_dataset(hub, subset or None, split=split or None, streaming=True)
    except Exception as error:  # noqa: BLE001 - the library raises errors of a dozen libraries below it
        raise EvalError(f"cannot load {what} from the Hugging Face hub ({_one_line(error)})") from None
    if isinstance(rows, dict):
        if len(rows) != 1:
            raise EvalError(f"{what} has several splits ({', '.join(map(str, rows))}): set split to one of them")
        rows = next(iter(rows.values()))
    numbered = enumerate(rows, start=1)
    number = 0
    while True:
        try:
            number, row = next(numbered)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - as above
            raise EvalError(f"{what}: stopped after row {number} ({_one_line(error)})") from None
        yield f"{what}, row {number}", row


def check_lock(folder: Path, name: str, key: str, sha256: str, count: int) -> None:
    """Trust a hub set's content the first time, and no other content after that.

    Args:
        folder: Where `LOCK_FILE` is kept; made when it is absent.
        name: The data set's name, for messages.
        key: What was loaded: hub name, configuration and split.
        sha256: Of the content.
        count: How many rows it has.

    Raises:
        EvalError: The content is not what it was, or the file is damaged or cannot be written.
    """
    path = folder / LOCK_FILE
    try:
        known = parse_object(path.read_bytes(), str(path)) if path.exists() else {}
        if key in known:
            first = known[key]
            if not isinstance(first, dict) or first.get("sha256") != sha256:
                before = first.get("sha256") if isinstance(first, dict) else first
                raise EvalError(
                    f"{name}: {key} is not what it was when first loaded (sha256 {before}, now {sha256} with {count:,} rows): "
                    f"give the former content as a file ({name}=PATH), or delete its entry in {path} to accept the new one"
                )
            return
        known[key] = {"sha256": sha256, "rows": count, "first_loaded": datetime.now(UTC).isoformat(timespec="seconds")}
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise EvalError(f"{path}: cannot be used: {error.strerror or error}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
