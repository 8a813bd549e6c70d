"""Rows of JSON files, each with its place, so that every complaint names file and line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from eval.errors import EvalError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json")


def read_rows(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, row) for each JSON object of a .jsonl, .jsonl.gz or .json file (a list of objects).

    Blank lines are skipped; a byte order mark at the beginning is ignored.

    Raises:
        EvalError: No such file, unreadable, another suffix, broken gzip, invalid UTF-8 or JSON, or not an object.
    """
    path = Path(path)
    if not path.exists():
        raise EvalError(f"{path}: there is no such file")
    if not path.name.endswith(SUFFIXES):
        raise EvalError(f"{path}: cannot tell its format from its name: use {', '.join(SUFFIXES)}")
    try:
        with _open(path) as handle:
            yield from _json_list(path, handle) if path.name.endswith(".json") else _json_lines(path, handle)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise EvalError(f"{path}: not a whole gzip file ({error}): fetch or compress it again") from None
    except OSError as error:
        raise EvalError(f"{path}: cannot be read: {error.strerror or error}") from None


def parse_object(raw: bytes, where: str) -> dict[str, Any]:
    """One JSON object from bytes.

    Raises:
        EvalError: Invalid UTF-8 or JSON, a lone surrogate, or not an object; the message begins with `where`.
    """
    return _as_object(_parse(raw, where), where)


def shown(value: Any, longest: int = 60) -> str:
    """A value as JSON has it, for an error: cut at `longest` characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _open(path: Path) -> IO[bytes]:
    # gzip's reader is an IO[bytes] in all that is used here, though its type doesn't say so.
    return cast(IO[bytes], gzip.open(path, "rb")) if path.name.endswith(".gz") else path.open("rb")


def _json_lines(path: Path, handle: IO[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, raw in enumerate(handle, start=1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if raw.strip():
            where = f"{path}, line {number}"
            yield where, parse_object(raw.rstrip(b"\r\n"), where)


def _json_list(path: Path, handle: IO[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = _parse(handle.read().removeprefix(b"\xef\xbb\xbf"), str(path))
    if not isinstance(rows, list):
        kind = type(rows).__name__
        raise EvalError(f"{path}: a .json file must hold a list of objects, got {kind}: name one object a line .jsonl")
    for number, row in enumerate(rows, start=1):
        where = f"{path}, entry {number}"
        yield where, _as_object(row, where)


def _parse(raw: bytes, where: str) -> Any:
    try:
        value = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise EvalError(f"{where}: invalid UTF-8 at byte {error.start + 1}: save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise EvalError(f"{where}: invalid JSON at {place}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise EvalError(f"{where}: JSON that cannot be read: {error}") from None
    if b"\\ud" in raw.lower():
        # Half an emoji, as left by a cut in the middle of "\ud83d\ude00": no UTF-8 file can hold it.
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise EvalError(f"{where}: invalid Unicode (half a surrogate pair): repair the text") from None
    return value


def _as_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EvalError(f"{where}: must be a JSON object {{...}}, got {type(value).__name__}")
    return value
