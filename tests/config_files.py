"""Configuration files: those that come with the program, one that a test writes, and the paths of what a file sets."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


def write_config(folder: Path, text: str) -> Path:
    """A configuration of a person's own, whose name messages should give."""
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


def named_paths(
    value: Any, chosen: Collection[tuple[str, ...]] = (), path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Paths of all values as `setting_paths` gives them, with NAME below the tables whose keys people choose."""
    if not isinstance(value, dict):
        yield path
        return
    if not value and path in chosen:
        yield (*path, "NAME")
    for key, below in value.items():
        yield from named_paths(below, chosen, (*path, "NAME" if path in chosen else key))
