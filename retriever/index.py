"""The index on disk: unit vectors, norms, passages and a manifest, read through memory maps.

The folder holds `manifest.json` and, for each shard, `vectors-N.npy` ([rows, dim] unit vectors), `norms-N.npy` ([rows]
float32) and `passages-N.arrow`. The manifest is written last: without it there is no index, only a build to continue.
`retriever.build` writes such a folder.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retriever.encoder import NO_VECTOR_CHANGES, Encoder
from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.shards import hash_file, open_array, open_table, shard_files
from retriever.similarity import NORM_FLOOR
from retriever.wording import counted

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_CHECKED_AT_ONCE = 65_536
_OFF_BY = 1e-3
"""Unit vectors in float32 are within 1e-6 of length 1."""


class Index:
    """An open index; rows are numbered from 0 in corpus order.

    Args:
        folder: Where `retriever.build.build_index` wrote it.

    Raises:
        RetrieverError: No index there, an unfinished one, one of another format version, or a file that is missing or
            has the wrong size. `verify` reads every byte.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = _read_manifest(self.folder)
        self.dim: int = self.manifest["encoder"]["dim"]
        for name, entry in self.manifest["files"].items():
            path = self.folder / name
            size = path.stat().st_size if path.is_file() else None
            if size != entry["bytes"]:
                got = "it is missing" if size is None else f"it has {size} bytes, not {entry['bytes']}"
                raise RetrieverError(
                    f"index {self.folder} is damaged at {name}: {got}; delete the folder and build it again"
                )
        self._starts: list[int] = [0]
        for rows in self.manifest["shard_rows"]:
            self._starts.append(self._starts[-1] + rows)
        names = [shard_files(number) for number in range(len(self.manifest["shard_rows"]))]
        self._units = [open_array(self.folder / vectors) for vectors, _, _ in names]
        self._norms = [open_array(self.folder / norms) for _, norms, _ in names]
        self._passages = [open_table(self.folder / passages) for _, _, passages in names]

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def fingerprint(self) -> str:
        """Binds results to the very vectors and passages of this index."""
        return str(self.manifest["fingerprint"])

    @property
    def norm_stats(self) -> dict[str, float]:
        """Of the passage norms: mean, std (population), cv = std / mean, min, max."""
        return dict(self.manifest["norms"])

    def chunks(self, max_rows: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(first row, unit vectors [m, dim], norms [m]) with m <= max_rows, over the whole index, without copying."""
        for start, units, norms in zip(self._starts, self._units, self._norms, strict=False):
            for offset in range(0, len(norms), max_rows):
                yield start + offset, units[offset : offset + max_rows], norms[offset : offset + max_rows]

    def vectors(self, rows: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        """Unit vectors [n, dim] float32 and norms [n] float32 of the given rows, in their order."""
        places = [self._place(row) for row in rows]
        units = np.empty((len(places), self.dim), dtype=np.float32)
        norms = np.empty(len(places), dtype=np.float32)
        for position, (shard, offset) in enumerate(places):
            units[position] = self._units[shard][offset]
            norms[position] = self._norms[shard][offset]
        return units, norms

    def passage(self, row: int) -> Passage:
        """The passage of one row."""
        shard, offset = self._place(row)
        table = self._passages[shard]
        id_, title, text, meta = (table.column(name)[offset].as_py() for name in table.schema.names)
        return Passage(id_, title, text, json.loads(meta))

    def passages(self) -> Iterator[Passage]:
        """All passages in row order."""
        for table in self._passages:
            for batch in table.to_batches(max_chunksize=1024):
                columns: Sequence[pa.Array] = batch.columns
                for id_, title, text, meta in zip(*(column.to_pylist() for column in columns), strict=True):
                    yield Passage(id_, title, text, json.loads(meta))

    def find(self, ids: Collection[str]) -> dict[str, int]:
        """Rows of the passages with those ids, in one pass over the ids of all shards; ids that are not there are left out."""
        rows: dict[str, int] = {}
        wanted = pa.array(list(ids), pa.string())
        for start, table in zip(self._starts, self._passages, strict=False):
            offset = start
            for batch in table.to_batches(max_chunksize=65_536):
                found = pc.is_in(batch.column("id"), wanted)
                for place in np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist():
                    rows[batch.column("id")[place].as_py()] = offset + place
                offset += len(batch)
        return rows

    def norms(self) -> np.ndarray:
        """All passage norms [n] float32 (4 bytes a passage)."""
        return np.concatenate(self._norms) if self._norms else np.zeros(0, dtype=np.float32)

    def norm_percentiles(self, norms: Iterable[float]) -> np.ndarray:
        """Where each of `norms` stands among the index's: percent [n] float64 of its norms that are at most as large."""
        values = np.fromiter(norms, dtype=np.float64)
        # Compared as float64, in which every float32 norm is exact: a norm of the index counts itself.
        return 100 * np.searchsorted(self._sorted_norms, values, side="right") / len(self)

    @cached_property
    def _sorted_norms(self) -> np.ndarray:
        return np.sort(self.norms()).astype(np.float64)

    def check_encoder(self, encoder: Encoder) -> None:
        """Refuse queries from an encoder other than the one that made the index.

        Raises:
            RetrieverError: Names each setting that differs, with both values.
        """
        built, given = self.manifest["encoder"], encoder.description
        differing = [key for key in given if key not in NO_VECTOR_CHANGES and built.get(key) != given[key]]
        if differing:
            name = built.get("model")
            other = (
                f"another encoder, {name}, than {encoder.name}" if name != encoder.name else f"other settings of {name}"
            )
            details = "; ".join(f"{key}: index {built.get(key)!r}, encoder {given[key]!r}" for key in differing)
            raise RetrieverError(
                f"index {self.folder} was built with {other} ({details}); take the index's, or build another"
            )

    def check_vectors(self, *, directions: bool = False) -> None:
        """Refuse norms that are no positive number, and directions whose length is not 1.

        Args:
            directions: Read these too: 4 · dim bytes a passage, where the norms are 4.

        Raises:
            RetrieverError: How many vectors are damaged, and the first one's passage.
        """
        damaged: list[int] = []
        for start, units, norms in self.chunks(_CHECKED_AT_ONCE):
            bad = ~(np.isfinite(norms) & (norms > 0))
            if directions:
                with np.errstate(all="ignore"):  # what overflows is damaged
                    lengths = np.sqrt(np.einsum("nd,nd->n", units, units))
                # A vector of zeros keeps them, under the smallest norm there is.
                empty = (lengths == 0) & (norms <= 2 * NORM_FLOOR)
                bad |= ~((np.abs(lengths - 1) < _OFF_BY) | empty)
            damaged.extend((start + np.flatnonzero(bad)).tolist())
        if damaged:
            first = self.passage(damaged[0]).id
            raise RetrieverError(
                f"index {self.folder} is damaged: {counted(len(damaged), 'vector')} of {len(self):,} "
                f"{'has' if len(damaged) == 1 else 'have'} no positive finite norm{' and length 1' if directions else ''}, the first "
                f"that of passage {first!r}; delete the folder and build it again"
            )

    def verify(self) -> None:
        """Hash every file against the manifest.

        Raises:
            RetrieverError: Names the first file whose content has changed.
        """
        for name, entry in self.manifest["files"].items():
            if hash_file(self.folder / name) != entry["sha256"]:
                raise RetrieverError(
                    f"index {self.folder} is damaged at {name}: its checksum differs; delete the folder and build it again"
                )

    def _place(self, row: int) -> tuple[int, int]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is outside the index of {len(self)} passages")
        shard = bisect.bisect_right(self._starts, row) - 1
        return shard, row - self._starts[shard]


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        if any(folder.glob("shard-*.json")) or (folder / "build.json").is_file():
            raise RetrieverError(f"index {folder} is not finished; run the same `magrag index` again to continue it")
        raise RetrieverError(f"no index at {folder}; build one with `magrag index CORPUS {folder}`")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RetrieverError(f"cannot read {path}: {error}; delete the index's folder and build it again") from error
    if manifest.get("format") != FORMAT_VERSION:
        raise RetrieverError(
            f"index {folder} has format {manifest.get('format')!r}, this version reads {FORMAT_VERSION}; delete the folder and build it again"
        )
    return manifest
