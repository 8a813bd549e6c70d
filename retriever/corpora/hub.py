"""Data sets of the Hugging Face hub, streamed: nothing is stored on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from retriever.corpora.records import Fields, find_fields, has_lone_surrogate, to_passage
from retriever.corpora.report import Fault
from retriever.errors import RetrieverError
from retriever.passages import Passage

if TYPE_CHECKING:
    from datasets import DatasetBuilder

PREFIX = "hub:"


class HubSource:
    """One split of one configuration of a data set, at the revision it had when this object was made.

    Args:
        address: `hub:NAME`, `hub:NAME:CONFIG`, `hub:NAME:SPLIT`, `hub:NAME:CONFIG:SPLIT` or `hub:NAME::SPLIT`. One name
            is a configuration where the data set has one of that name. The split may be left out when there is one.
        columns: Which column holds id, title and text, where they have other names.

    Raises:
        RetrieverError: The data set, configuration or split cannot be found.
    """

    ignored_files = 0
    parts = "records"
    empty = "the source is empty"

    def __init__(self, address: str, columns: Mapping[str, str]) -> None:
        self.name = address
        self.columns = columns
        self._read = 0
        parts = address.removeprefix(PREFIX).split(":")
        if not parts[0] or len(parts) > 3:
            raise RetrieverError(f"{address} is not of the form hub:NAME[:CONFIG][:SPLIT]")
        name, config, split = [*parts, "", ""][:3]
        self.builder, config, split = _find(address, name, config, split)
        try:
            self.splits = self.builder.as_streaming_dataset()
        except Exception as error:  # the library raises errors of a dozen libraries below it
            raise RetrieverError(f"cannot read {address}: {_one_line(error)}") from error
        if not split and len(self.splits) == 1:
            split = str(next(iter(self.splits)))
        if split not in self.splits:
            got = f'no split "{split}"' if split else "several splits"
            raise RetrieverError(
                f"{address} has {got}: name one, as in hub:{name}:{config}:SPLIT ({', '.join(self.splits)})"
            )
        self.split = split

    def items(self) -> Iterator[tuple[str, Passage | Fault]]:
        """Passages and faults in the data set's order.

        Raises:
            RetrieverError: The connection broke, or a file of the data set is damaged.
        """
        fields: Fields | None = None
        self._read = 0
        rows = iter(self.splits[self.split])
        while True:
            try:
                record: dict[str, Any] = next(rows)
            except StopIteration:
                return
            except Exception as error:
                raise RetrieverError(f"{self.name}: stopped after row {self._read}: {_one_line(error)}") from error
            self._read += 1
            where = f"{self.name}:{self._read}"
            if fields is None:
                found = find_fields(record, self.columns)
                if isinstance(found, Fault):
                    raise RetrieverError(f"{self.name} has {found.detail}")
                fields = found
            if has_lone_surrogate(record):
                yield where, Fault("invalid Unicode", "half of a surrogate pair stands alone")
            else:
                yield where, to_passage(record, fields)

    def identity(self) -> dict[str, object]:
        """The revision that is streamed, and the state of each of its files (etag on the hub, time on a disk)."""
        files = self.builder.config.data_files or {}
        return {
            "kind": "hub",
            "config": self.builder.config.name,
            "split": self.split,
            "revision": self.builder.hash,
            "files": [list(map(str, entry)) for entry in getattr(files.get(self.split), "origin_metadata", [])],
            "columns": dict(self.columns),
        }

    def fraction_read(self) -> float | None:
        """By rows, where the data set's card says how many there are."""
        info = (self.builder.info.splits or {}).get(self.split)
        total = getattr(info, "num_examples", 0) or 0
        return min(self._read / total, 1.0) if total else None


def _find(address: str, name: str, config: str, split: str) -> tuple[DatasetBuilder, str, str]:
    """The data set's builder, with a single name after it told apart as configuration or split."""
    from datasets import get_dataset_config_names, load_dataset_builder

    try:
        if config and not split and config not in get_dataset_config_names(name):
            config, split = "", config
        return load_dataset_builder(name, config or None), config, split
    except Exception as error:
        raise RetrieverError(f"cannot find {address}: {_one_line(error)}; check the name and the connection") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
