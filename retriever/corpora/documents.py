"""Folders of documents: each file is parsed, then cut into chunks that become passages."""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.chunking import Chunking, chunk_text, token_offsets
from retriever.corpora.lines import file_digest
from retriever.corpora.parsers import PARSERS, Document, document_kind
from retriever.corpora.report import Fault
from retriever.errors import RetrieverError
from retriever.passages import Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class DocumentSource:
    """Documents of one folder, or a single one.

    Passages have ids `sub/file.pdf#0001` (the path inside the folder, chunks counted from 1), the document's title or
    its file's name, and meta {source, chunk} and, for PDFs, the page on which the chunk begins.

    Args:
        root: The folder, or the file itself.
        files: Each file and its kind (a key of PARSERS).
        ignored_files: How many files of other kinds lie beside them.
        chunking: How they are cut.
        tokenizer: By which chunks are measured; None measures in words.
    """

    parts = "files or pages"
    empty = "the source is empty"

    def __init__(
        self,
        root: Path,
        files: list[tuple[Path, str]],
        ignored_files: int,
        chunking: Chunking,
        tokenizer: PreTrainedTokenizerBase | None,
    ) -> None:
        self.name = str(root)
        self.ignored_files = ignored_files
        self._base = root if root.is_dir() else root.parent
        self._files = files
        self._chunking = chunking
        self._tokenizer = tokenizer
        self._done = 0
        token_offsets(tokenizer)  # a tokenizer that cannot be used is told of now

    def items(self) -> Iterator[tuple[str, Passage | Fault]]:
        """Chunks and faults, file after file; one file at a time is in memory."""
        for done, (path, kind) in enumerate(self._files):
            self._done = done
            try:
                parsed = PARSERS[kind].parse(path.read_bytes())
            except OSError as error:
                parsed = Fault("unreadable file", error.strerror or str(error))
            if isinstance(parsed, Fault):
                yield str(path), parsed
                continue
            for place, fault in parsed.faults:
                yield f"{path}: {place}" if place else str(path), fault
            if not any(page.strip() for page in parsed.pages):
                if not parsed.faults:
                    yield str(path), Fault("no text", "the document has no text")
                continue
            yield from self._passages(path, parsed)
        self._done = len(self._files)

    def identity(self) -> dict[str, object]:
        """Names and bytes of all files, how they are cut, and the versions of what reads them."""
        kinds = sorted({kind for _, kind in self._files})
        packages = sorted({package for kind in kinds for package in PARSERS[kind].packages})
        return {
            "kind": "documents",
            "files": [[self._relative(path), kind, file_digest(path)] for path, kind in self._files],
            "max_tokens": self._chunking.max_tokens,
            "overlap": self._chunking.overlap,
            "tokenizer": tokenizer_digest(self._tokenizer),
            "parsers": {package: version(package) for package in packages},
        }

    def fraction_read(self) -> float | None:
        """By files."""
        return self._done / len(self._files)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._base).as_posix()

    def _passages(self, path: Path, document: Document) -> Iterator[tuple[str, Passage]]:
        # Pages are joined by a line end and not by an empty line: a sentence often runs on overleaf.
        text = "\n".join(document.pages)
        page_starts, at = [], 0
        for page in document.pages:
            page_starts.append(at)
            at += len(page) + 1
        source = self._relative(path)
        for number, chunk in enumerate(chunk_text(text, self._tokenizer, self._chunking), start=1):
            meta: dict[str, Any] = {"source": source, "chunk": number}
            where = f"{path}: chunk {number}"
            if document.paged:
                meta["page"] = bisect_right(page_starts, chunk.start)
                where = f"{path}: page {meta['page']}"
            yield where, Passage(f"{source}#{number:04d}", document.title or path.stem, chunk.text, meta)


def find_documents(folder: Path) -> tuple[list[tuple[Path, str]], int]:
    """Documents anywhere below a folder, sorted by path, and how many other files there are.

    Hidden files and folders and the lock files of word processors (~$name) are passed over; links to folders aren't
    followed, since they can run in circles.

    Raises:
        RetrieverError: A folder that may not be looked into.
    """

    def unreadable(error: OSError) -> None:
        raise RetrieverError(f"cannot read the folder {error.filename}: {error.strerror}") from error

    suffixes = {suffix for parser in PARSERS.values() for suffix in parser.suffixes}
    found: list[tuple[Path, str]] = []
    ignored = 0
    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith((".", "~$")):
                continue
            path = Path(place, name)
            if path.suffix.lower() not in suffixes:
                ignored += 1
                continue
            try:
                with path.open("rb") as file:
                    head = file.read(1024)
            except OSError:  # told of when its turn comes
                head = b""
            found.append((path, document_kind(head, path.suffix) or "txt"))
    found.sort(key=lambda entry: entry[0].relative_to(folder).as_posix())
    return found, ignored


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase | None) -> str:
    """Identity of a tokenizer; "words" for None. How it was last asked to cut or fill up is no part of it."""
    if tokenizer is None:
        return "words"
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state.pop("truncation", None)
    state.pop("padding", None)
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
