"""Passages as a file of JSON lines, which `retriever.corpora.read_corpus` reads back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from retriever.corpora.records import to_record
from retriever.passages import Passage
from retriever.shards import write_json_lines


def write_passages(path: Path, passages: Iterable[Passage], *, meta: bool = False) -> None:
    """Write a line for each passage, as `retriever.shards.write_atomically` does.

    Args:
        path: The file; its folder is made.
        passages: Taken one by one.
        meta: Whether `Passage.meta` is written too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_lines(path, (to_record(passage, meta=meta) for passage in passages))
