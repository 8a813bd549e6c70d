"""Where a command writes: asked for before anything takes time, and held against the same command started twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from filelock import FileLock, Timeout

from rag_app.errors import ConfigError

LOCK = "running.lock"
"""Held while a command is at work in a folder; the system lets go when the process ends, however it ends."""


_SIGNS = {
    "a sweep": ("sweep.json", "train/*/train.json"),
    "trainings of two towers": ("clip.json", "train/*/training.json"),
}
"""What is in a folder that holds such files: these two look alike from outside."""


@contextmanager
def own_folder(out: Path) -> Iterator[None]:
    """Make the folder and hold it against other processes; what is still empty at the end is removed.

    Raises:
        ConfigError: It cannot be made or written to, or another process works in it.
    """
    refuse_file(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / LOCK, timeout=0)
        lock.acquire()
    except Timeout as error:
        raise ConfigError(
            f"another process is at work in {out}: wait until it has finished, or name another folder with --out"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{out} cannot be written to ({error.strerror or error}): name another folder with --out"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no file that is open
            (out / LOCK).unlink()
        lock.release()
        with suppress(OSError):
            out.rmdir()


def refuse_file(out: Path) -> None:
    """Refuse the name of a file, or of something in one, where a folder is to be.

    Raises:
        ConfigError: The file is named.
    """
    for path in (out, *out.parents):
        if path.exists() and not path.is_dir():
            inside = "" if path == out else f", so {out} cannot be a folder in it"
            raise ConfigError(f"{path} is a file{inside}: name a folder to write to")


def refuse_foreign(out: Path, holds: Collection[str], what: str) -> None:
    """Refuse a file, and a folder that is neither empty nor one of ours.

    Args:
        out: The folder.
        holds: Names of which one at least is in a folder of ours.
        what: What that would be, in the words of `_SIGNS` where it is one of those.

    Raises:
        ConfigError: Something else is there.
    """
    refuse_file(out)
    names = {path.name for path in out.iterdir()} - {LOCK} if out.is_dir() else set()
    there = next((kind for kind, signs in _SIGNS.items() if any(any(out.glob(sign)) for sign in signs)), what)
    if there != what:
        raise ConfigError(f"{out} holds {there}, not {what}: choose another with --out")
    if names and names.isdisjoint(holds):
        raise ConfigError(f"{out} is no folder of {what}, and not empty: choose another with --out")


def check_file(out: Path, what: str) -> None:
    """Refuse the name of a file that cannot be written.

    Args:
        out: The file, there or not.
        what: What goes into it, for the error.

    Raises:
        ConfigError: A folder, or a place that cannot be written to.
    """
    if out.is_dir():
        raise ConfigError(f"{out} is a folder: name the file that {what} go to")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise ConfigError(
            f"{out} cannot be written ({error.strerror or error}): name another file for {what}"
        ) from error
