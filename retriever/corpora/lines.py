"""Lines of a plain or gzipped file with their numbers, in bounded memory."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from retriever.errors import RetrieverError

GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = b"\xef\xbb\xbf"
# No passage is this long: such a line is a file without line ends, or a broken one.
MAX_LINE_BYTES = 64 << 20
_POSITION_EVERY = 1024


def is_gzip(path: Path) -> bool:
    """Whether the file begins as gzip files do, whatever its name."""
    with path.open("rb") as raw:
        return raw.read(2) == GZIP_MAGIC


def read_head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of the file, decompressed.

    Raises:
        RetrieverError: The file cannot be read.
    """
    try:
        with path.open("rb") as raw:
            if not is_gzip(path):
                return raw.read(size)
            return gzip.GzipFile(fileobj=raw).read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise RetrieverError(f"cannot read {path}: {error}") from error


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes as they lie on the disk, in hexadecimal.

    Raises:
        RetrieverError: The file cannot be read.
    """
    try:
        with path.open("rb") as raw:
            return hashlib.file_digest(raw, "sha256").hexdigest()
    except OSError as error:
        raise RetrieverError(f"cannot read {path}: {error.strerror or error}") from error


class NumberedLines:
    """The lines of one file that aren't blank; can be gone through again.

    Numbers count every line from 1, blank ones too, as editors do. Line ends (LF or CRLF) and a byte-order mark are
    taken off. A line longer than MAX_LINE_BYTES comes as None and is never held in memory.

    Attributes:
        path: The file.
        fraction: How much of it the latest pass has read, 0 to 1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fraction = 0.0

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        self.fraction = 0.0
        number = 0
        try:
            size = self.path.stat().st_size or 1
            zipped = is_gzip(self.path)
            with self.path.open("rb") as raw:
                stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if zipped else raw)
                while line := stream.readline(MAX_LINE_BYTES):
                    number += 1
                    if number % _POSITION_EVERY == 0:
                        self.fraction = min(raw.tell() / size, 1.0)
                    if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                        del line
                        _skip_line(stream)
                        yield number, None
                        continue
                    if number == 1:
                        line = line.removeprefix(UTF8_BOM)
                    line = line.rstrip(b"\r\n")
                    if line.strip():
                        yield number, line
        except (OSError, EOFError, zlib.error) as error:
            # What follows is lost, and nobody can say how much: skipping would pass a part off as the whole.
            what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise RetrieverError(
                f"{self.path}:{number + 1}: cannot read on: {what}; the file is damaged or cut short, fetch it again"
            ) from error
        self.fraction = 1.0


def _skip_line(stream: IO[bytes]) -> None:
    while part := stream.readline(MAX_LINE_BYTES):
        if part.endswith(b"\n"):
            return
