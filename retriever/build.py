"""Building an index: shard by shard in bounded memory, and on from where a killed build stopped."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from retriever.encoder import NO_VECTOR_CHANGES, Encoder, Progress
from retriever.errors import RetrieverError
from retriever.index import FORMAT_VERSION, MANIFEST, Index
from retriever.passages import Passage
from retriever.shards import ShardReceipt, read_receipt, receipt_file, write_json, write_shard

BUILD = "build.json"
LOCK = "build.lock"


class PassageSource(Protocol):
    """Passages that can be read again from the start, in the same order."""

    def __iter__(self) -> Any:
        """Yield Passages."""
        ...

    def fingerprint(self) -> str:
        """Changes whenever the passages may change."""
        ...


def build_index(
    corpus: PassageSource,
    encoder: Encoder,
    folder: str | Path,
    *,
    storage: str = "float32",
    shard_size: int = 4096,
    progress: Progress | None = None,
) -> Index:
    """Encode a corpus into `folder`, or continue a build of the same corpus and encoder that was interrupted.

    What a shard holds depends on its passages alone, so a continued build gives the very bytes of an unbroken one.

    Args:
        corpus: Where passages come from.
        encoder: What makes the vectors.
        folder: A new folder, an unfinished build, or a finished index of the same settings (which is kept as it is).
        storage: "float32", or "float16" for half the size (unit vectors only; norms stay float32).
        shard_size: Passages a shard, and so the work at risk when a build is killed.
        progress: Called with (passages done, None).

    Raises:
        RetrieverError: The folder holds something else, or an index of other settings; the corpus is empty or has
            changed; the disk is too full.
    """
    folder = Path(folder)
    if storage not in ("float32", "float16"):
        raise RetrieverError(f"storage must be float32 or float16, got {storage!r}")
    if shard_size < 1:
        raise RetrieverError(f"shard_size must be at least 1, got {shard_size}")
    settings = {
        "format": FORMAT_VERSION,
        "corpus": corpus.fingerprint(),
        "encoder": encoder.description,
        "storage": storage,
        "shard_size": shard_size,
    }
    if (folder / MANIFEST).is_file():
        index = Index(folder)
        _require_same(folder, index.manifest, settings)
        return index
    if (folder / BUILD).is_file():
        # A build that stopped before its first shard (at a bad line, say) binds to nothing.
        if any(folder.glob("shard-*.json")):
            _require_same(folder, json.loads((folder / BUILD).read_text("utf-8")), settings)
    elif folder.exists() and any(path.name != LOCK for path in folder.iterdir()):
        raise RetrieverError(f"{folder} is not empty and not an index; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    with _only_builder(folder):
        if not (folder / MANIFEST).is_file():  # or another process was quicker
            _build(corpus, encoder, folder, settings, progress)
    return Index(folder)


def _build(
    corpus: PassageSource, encoder: Encoder, folder: Path, settings: dict[str, Any], progress: Progress | None
) -> None:
    write_json(folder / BUILD, settings)
    for leftover in folder.glob("*.tmp"):
        leftover.unlink()

    receipts: list[ShardReceipt] = []
    done = 0
    for number, passages in enumerate(_batched(corpus, settings["shard_size"])):
        receipt = read_receipt(folder, number)
        if receipt is None:
            _require_disk(folder, len(passages), encoder.dim, settings["storage"])
            vectors = encoder.encode_passages(passages, _shifted(progress, done))
            receipt = write_shard(folder, number, passages, vectors, settings["storage"])
        elif progress is not None:
            progress(done + receipt.rows, None)
        receipts.append(receipt)
        done += receipt.rows
    if not receipts:
        raise RetrieverError("the corpus holds no passages, so there is nothing to index")
    _finish(folder, settings, receipts)


def _finish(folder: Path, settings: dict[str, Any], receipts: list[ShardReceipt]) -> None:
    """Write the manifest, which makes the folder an index; then drop what only the build needed."""
    rows = sum(receipt.rows for receipt in receipts)
    mean = sum(receipt.norm_sum for receipt in receipts) / rows
    variance = max(0.0, sum(receipt.norm_square_sum for receipt in receipts) / rows - mean**2)
    files = {name: entry for receipt in receipts for name, entry in receipt.files.items()}
    content = json.dumps([settings, files], sort_keys=True).encode()
    write_json(
        folder / MANIFEST,
        settings
        | {
            "fingerprint": hashlib.sha256(content).hexdigest()[:16],
            "rows": rows,
            "shard_rows": [receipt.rows for receipt in receipts],
            "norms": {
                "mean": mean,
                "std": variance**0.5,
                "cv": variance**0.5 / mean,
                "min": min(receipt.norm_min for receipt in receipts),
                "max": max(receipt.norm_max for receipt in receipts),
            },
            "files": files,
        },
    )
    for number in range(len(receipts)):
        (folder / receipt_file(number)).unlink(missing_ok=True)
    (folder / BUILD).unlink(missing_ok=True)
    (folder / LOCK).unlink(missing_ok=True)


@contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    """Hold the folder against a second builder; the system lets go when this process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two builds of one folder at once are up to the person there
        yield
        return
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RetrieverError(
                f"another process is building {folder}; wait until it has finished, then run again"
            ) from error
        yield


def _shifted(progress: Progress | None, before: int) -> Progress | None:
    """Progress within a shard as progress of the whole build."""
    return None if progress is None else lambda done, total: progress(before + done, None)


def _batched(corpus: Iterable[Passage], size: int) -> Iterable[list[Passage]]:
    passages = iter(corpus)
    while batch := list(itertools.islice(passages, size)):
        yield batch


def _require_same(folder: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    flat_there, flat_asked = (
        {key: value for key, value in side.items() if key != "encoder"} | side["encoder"] for side in (there, asked)
    )
    differing = [key for key in flat_asked if key not in NO_VECTOR_CHANGES and flat_there.get(key) != flat_asked[key]]
    if differing:
        if differing == ["corpus"]:
            raise RetrieverError(
                f"{folder} was begun on another corpus, or this one has changed; delete it or name another"
            )
        details = "; ".join(f"{key}: there {flat_there.get(key)!r}, asked {flat_asked[key]!r}" for key in differing)
        raise RetrieverError(f"{folder} holds an index of other settings ({details}); name a new folder or delete it")


def _require_disk(folder: Path, rows: int, dim: int, storage: str) -> None:
    need = rows * (dim * (4 if storage == "float32" else 2) + 4096)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise RetrieverError(
            f"the disk of {folder} has {free >> 20} MB free and the next shard needs about {need >> 20} MB; "
            "free some space and run the same command again to continue"
        )
