"""Folders that are made once, by whichever process asks first, and are whole or not there."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path


def prepare(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return `target`, made by `fill` where it is missing; several processes may ask at once.

    `fill` writes into a scratch folder beside it, which is flushed and then renamed, so that a kill or a power cut
    leaves a whole folder or none.
    """
    if target.is_dir():
        return target
    with locked(target.parent, f".{target.name}") as scratch:
        if not target.is_dir():
            part = scratch / "part"
            part.mkdir()
            fill(part)
            for path in part.rglob("*"):
                if path.is_file():
                    with path.open("rb+") as stream:
                        os.fsync(stream.fileno())
            os.replace(part, target)
    return target


@contextlib.contextmanager
def locked(parent: Path, name: str) -> Iterator[Path]:
    """Hold the lock `name` in `parent` and give a scratch folder there; what a killed holder left is removed."""
    from filelock import FileLock

    parent.mkdir(parents=True, exist_ok=True)
    with FileLock(parent / f"{name}.lock"):
        scratch = parent / f"{name}.part"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
