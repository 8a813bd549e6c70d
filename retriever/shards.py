"""One shard of an index on disk: three files and a receipt, each written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from retriever.encoder import Vectors
from retriever.errors import RetrieverError
from retriever.passages import Passage

# `datasets.Dataset.from_file` reads these streams as they are. meta is JSON text, since its keys differ by corpus.
PASSAGE_SCHEMA = pa.schema(
    [("id", pa.string()), ("title", pa.string()), ("text", pa.large_string()), ("meta", pa.string())]
)


@dataclass(frozen=True, slots=True)
class ShardReceipt:
    """Proof that a shard is complete: its rows and, for each file, size and SHA-256."""

    rows: int
    files: dict[str, dict[str, Any]]
    norm_sum: float
    norm_square_sum: float
    norm_min: float
    norm_max: float


def shard_files(number: int) -> tuple[str, str, str]:
    """Names of the vectors, norms and passages of shard `number`."""
    return f"vectors-{number:05d}.npy", f"norms-{number:05d}.npy", f"passages-{number:05d}.arrow"


def receipt_file(number: int) -> str:
    """Name of the receipt of shard `number`, which exists only while the index is being built."""
    return f"shard-{number:05d}.json"


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> dict[str, Any]:
    """Write through a temporary name, flush to disk, rename; returns {"bytes", "sha256"} of what was written."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        entry = {"bytes": temporary.stat().st_size, "sha256": hash_file(temporary)}
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return entry


def write_text(path: Path, text: str) -> None:
    """Write text, in UTF-8, as `write_atomically` does."""
    write_atomically(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: object) -> None:
    """Write JSON as `write_atomically` does."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n")


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a line of JSON for each row, taken one by one, as `write_atomically` does."""
    lines = (json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    write_atomically(path, lambda file: file.writelines(lines))


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_shard(folder: Path, number: int, passages: Sequence[Passage], vectors: Vectors, storage: str) -> ShardReceipt:
    """Write one shard and, last, its receipt."""
    vectors_name, norms_name, passages_name = shard_files(number)
    units = vectors.units.astype(np.dtype(storage), copy=False)
    table = pa.table(
        {
            "id": [p.id for p in passages],
            "title": [p.title for p in passages],
            "text": [p.text for p in passages],
            "meta": [json.dumps(p.meta, ensure_ascii=False, sort_keys=True) for p in passages],
        },
        schema=PASSAGE_SCHEMA,
    )

    def write_table(file: IO[bytes]) -> None:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)

    norms = vectors.norms.astype(np.float64)
    receipt = ShardReceipt(
        rows=len(passages),
        files={
            vectors_name: write_atomically(folder / vectors_name, lambda file: np.save(file, units)),
            norms_name: write_atomically(folder / norms_name, lambda file: np.save(file, vectors.norms)),
            passages_name: write_atomically(folder / passages_name, write_table),
        },
        norm_sum=float(norms.sum()),
        norm_square_sum=float((norms**2).sum()),
        norm_min=float(norms.min()),
        norm_max=float(norms.max()),
    )
    write_json(folder / receipt_file(number), asdict(receipt))
    return receipt


def read_receipt(folder: Path, number: int) -> ShardReceipt | None:
    """The receipt of a finished shard whose files are whole (hashed again), or None."""
    path = folder / receipt_file(number)
    if not path.is_file():
        return None
    receipt = ShardReceipt(**json.loads(path.read_text("utf-8")))
    for name, entry in receipt.files.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != entry["bytes"] or hash_file(file) != entry["sha256"]:
            return None
    return receipt


def open_array(path: Path) -> np.ndarray:
    """Memory-map an array; copy-on-write, because torch does not take read-only memory."""
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RetrieverError(f"cannot read {path}: {error}; delete the index's folder and build it again") from error


def open_table(path: Path) -> pa.Table:
    """Memory-map a passages file."""
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_stream(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise RetrieverError(f"cannot read {path}: {error}; delete the index's folder and build it again") from error
