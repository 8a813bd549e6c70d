"""Corpora that people make on the page: each belongs to one of them, lies in the data folder and is searched like any other.

`corpora/OWNER/ID/` holds `passages.jsonl`, `meta.json` and, in `indexes/`, one index for each encoder that was needed. A
corpus is made in a folder whose name begins with a full stop and gets its own name when it is whole, so one that was
stopped or killed is never seen, and is cleared away at the next start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from rag_app.errors import ConfigError
from rag_app.gathering import Preview, Step, check_files, gather, preview, stage_files
from rag_app.pipeline import Pipeline
from retriever.chunking import Chunking
from retriever.shards import write_json

META, PASSAGES, INDEXES, FILES = "meta.json", "passages.jsonl", "indexes", "files"
UNFINISHED = ".making-"
DELETED = ".deleted-"
LONGEST_NAME = 80
MOST_OPEN = 8
"""Corpora kept open at once; the one used longest ago is closed and opened again when it is asked for."""

PREVIEWED, COUNTED = 5, 2000
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Shelved:
    """A corpus that can be asked.

    Attributes:
        id: "" is the configuration's own corpus.
        name: What its owner calls it.
        passages: How many it has; 0 where that is not known before it is loaded.
        made: ISO time with the zone; "" for the configuration's own.
        source: The files it was made of, in words.
    """

    id: str
    name: str
    passages: int
    made: str
    source: str


@dataclass(frozen=True, slots=True)
class Added:
    """A corpus that was just made, and what was left out of it, a line each."""

    corpus: Shelved
    faults: tuple[str, ...]


class Shelf:
    """The corpora of a page's visitors. Safe to share between threads.

    An owner is any text that only its person knows or has (see `page.room.owner_of`); folders bear its hash. Whoever has no
    owner ("") has no corpora but the configuration's own.

    Args:
        base: Over the configuration's own corpus. Its encoders and its reader serve all corpora.
    """

    def __init__(self, base: Pipeline) -> None:
        self._base = base
        self._root = base.config.resolved_data_dir() / "corpora"
        self._open: OrderedDict[Path, Pipeline] = OrderedDict()
        self._making: dict[Path, int] = {}
        self._lock = threading.Lock()
        self._clear_leftovers()

    @property
    def chunking(self) -> Chunking:
        """How documents are cut where nobody says otherwise."""
        return Chunking(self._base.config.chunking.max_tokens, self._base.config.chunking.overlap)

    @property
    def measure(self) -> str:
        """The encoder whose tokens chunks are measured in: the first of the page's retrievers'."""
        return self._base.config.page_encoders[0]

    def corpora(self, owner: str) -> list[Shelved]:
        """What an owner can ask: the configuration's own corpus, then theirs, the newest first."""
        own = [read for folder in self._folders(owner) if (read := _read_meta(folder)) is not None]
        return [self._own(), *sorted(own, key=lambda corpus: corpus.made, reverse=True)]

    def pipeline(self, corpus: str, owner: str) -> Pipeline:
        """What searches and answers over a corpus, sharing encoders and reader with all others.

        An index for an encoder that it has not met yet is made when a retriever needs it.

        Raises:
            ConfigError: It is not there, or not the owner's.
        """
        if not corpus:
            return self._base
        folder = self._folder(corpus, owner)
        stores = self._base.stores.over(folder / PASSAGES, folder / INDEXES)
        with self._lock:
            if folder not in self._open:
                self._open[folder] = Pipeline(
                    stores.config, log=self._base.log, stores=stores, generator=lambda: self._base.generator
                )
            self._open.move_to_end(folder)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            return self._open[folder]

    def preview(self, file: Path, chunking: Chunking, columns: Mapping[str, str]) -> Preview:
        """The first passages of a file, as they would be indexed.

        Raises:
            ConfigError: It is too large, or of a kind that nothing reads.
        """
        check_files([file], self._most_bytes)
        tokenizer = self._base.stores.encoder(self.measure).copied_tokenizer()
        return preview(file, chunking=chunking, columns=columns, tokenizer=tokenizer, count=PREVIEWED, most=COUNTED)

    def longest(self) -> int:
        """Tokens of the longest chunk that every encoder of the page reads whole (its own special tokens not counted)."""
        encoders = [self._base.stores.encoder(name) for name in self._base.config.page_encoders]
        return min(own.spec.passage_max_tokens - own.tokenizer.num_special_tokens_to_add() for own in encoders)

    def add(
        self,
        owner: str,
        name: str,
        files: Sequence[Path],
        *,
        chunking: Chunking | None = None,
        columns: Mapping[str, str] | None = None,
        step: Callable[[Step], None] = lambda step: None,
    ) -> Added:
        """Make a corpus of files; at its return it can be asked under every retriever of the page.

        Args:
            owner: Whose it is.
            name: What to call it; the first file's name where empty.
            files: Of the kinds in `gathering.SUFFIXES`; they are copied.
            chunking: How documents are cut.
            columns: Names of a table's columns for id, title and text.
            step: Told how far it is. What it raises ends the work, and nothing is left of it.

        Raises:
            ConfigError: Files that cannot be used, too many or too large; too many corpora; no owner.
            RetrieverError: They cannot be encoded.
        """
        check_files(files, self._most_bytes)
        if not owner:
            raise ConfigError(
                "this browser keeps no data of sites, so nothing could be found again: allow it, and reload"
            )
        place = self._root / _hashed(owner)
        with self._place_for_one(place, owner), self._making_in(place) as folder:
            copies = stage_files(files, folder / FILES)
            gathered = gather(
                copies,
                folder / PASSAGES,
                chunking=chunking or self.chunking,
                columns=columns or {},
                tokenizer=self._base.stores.encoder(self.measure).copied_tokenizer(),
                most=self._base.config.page.max_passages,
                step=step,
            )
            shutil.rmtree(folder / FILES)
            for encoder in self._base.config.page_encoders:
                self._encode(folder, encoder, gathered.passages, step)
            more = f" and {len(copies) - 1:,} more" if len(copies) > 1 else ""
            shelved = Shelved(
                id=secrets.token_hex(8),
                name=self._free_name(owner, clean_label(name) or copies[0].stem),
                passages=gathered.passages,
                made=datetime.now(UTC).isoformat(timespec="milliseconds"),
                source=f"{copies[0].name}{more}",
            )
            write_json(folder / META, asdict(shelved))
            folder.rename(place / shelved.id)
        return Added(shelved, gathered.faults)

    def rename(self, corpus: str, owner: str, name: str) -> Shelved:
        """Call a corpus something else.

        Raises:
            ConfigError: It is not there, or not the owner's; the name is empty.
        """
        folder = self._folder(corpus, owner)
        if not clean_label(name):
            raise ConfigError("the name is empty: type one")
        old = _read_meta(folder)
        if old is None:
            raise ConfigError(NOT_THERE)
        renamed = Shelved(old.id, self._free_name(owner, name, but=corpus), old.passages, old.made, old.source)
        write_json(folder / META, asdict(renamed))
        return renamed

    def delete(self, corpus: str, owner: str) -> None:
        """Remove a corpus with its passages and indexes.

        Raises:
            ConfigError: It is not there, or not the owner's.
        """
        folder = self._folder(corpus, owner)
        with self._lock:
            self._open.pop(folder, None)
        gone = folder.with_name(DELETED + secrets.token_hex(8))
        try:
            folder.rename(gone)  # at once out of sight, however long the rest takes
        except FileNotFoundError:
            raise ConfigError(NOT_THERE) from None
        shutil.rmtree(gone, ignore_errors=True)

    @property
    def _most_bytes(self) -> int:
        return self._base.config.page.max_upload_mb * 1_000_000

    def _own(self) -> Shelved:
        config = self._base.config
        source = config.index.path or config.corpus
        name = "Demo corpus" if config.is_demo else Path(source).stem or source
        return Shelved(
            "",
            name,
            self._base.stores.passages,
            "",
            "comes with MagRAG" if config.is_demo else "set up with the page",
        )

    def _folders(self, owner: str) -> list[Path]:
        place = self._root / _hashed(owner)
        if not owner or not place.is_dir():
            return []
        return [folder for folder in place.iterdir() if _ID.fullmatch(folder.name)]

    def _folder(self, corpus: str, owner: str) -> Path:
        folder = self._root / _hashed(owner) / corpus
        # The id comes from outside: anything but one of ours could lead elsewhere.
        if not owner or not _ID.fullmatch(corpus) or not (folder / META).is_file():
            raise ConfigError(NOT_THERE)
        return folder

    def _encode(self, folder: Path, encoder: str, passages: int, step: Callable[[Step], None]) -> None:
        def told(_: str, done: int, total: int | None) -> None:
            step(Step("encoding", encoder, done, passages))

        told("", 0, None)
        self._base.stores.over(folder / PASSAGES, folder / INDEXES, told).index(encoder)

    def _free_name(self, owner: str, name: str, but: str = "") -> str:
        name = clean_label(name)
        taken = {corpus.name.casefold() for corpus in self.corpora(owner) if corpus.id != but or not corpus.id}
        free, number = name, 2
        while free.casefold() in taken:
            free, number = f"{name} ({number})", number + 1
        return free

    @contextlib.contextmanager
    def _place_for_one(self, place: Path, owner: str) -> Iterator[None]:
        """Hold one of the owner's places, those of corpora that are being made counted."""
        most = self._base.config.page.max_corpora
        with self._lock:
            if len(self._folders(owner)) + self._making.get(place, 0) >= most:
                raise ConfigError(f"you have {most} corpora, the most that a person may keep here: delete one first")
            self._making[place] = self._making.get(place, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._making[place] -= 1
                if not self._making[place]:
                    del self._making[place]

    @contextlib.contextmanager
    def _making_in(self, place: Path) -> Iterator[Path]:
        """A folder for a corpus that is being made; gone at the end unless it was given another name."""
        folder = place / (UNFINISHED + secrets.token_hex(8))
        folder.mkdir(parents=True)
        lock = _lock_of(folder)
        try:
            with lock.open("w") as held:
                _lock(held)
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)

    def _clear_leftovers(self) -> None:
        """Remove what a killed page left: corpora half made (unless another page is making them) or half deleted."""
        for folder in self._root.glob(f"*/{UNFINISHED}*/"):
            lock = _lock_of(folder)
            with contextlib.suppress(OSError), lock.open("a") as held:
                if not _lock(held):
                    continue
                shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)
        for folder in self._root.glob(f"*/{DELETED}*"):
            shutil.rmtree(folder, ignore_errors=True)


NOT_THERE = "this corpus is not there (any more): choose another"


def _hashed(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


def _lock_of(folder: Path) -> Path:
    """Beside the folder, for one that holds an open file cannot be renamed everywhere."""
    return folder.with_name(f"{folder.name.removeprefix(UNFINISHED)}.lock")


def clean_label(name: str) -> str:
    """A corpus's name in one line, without control characters, not too long."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in name).split())[:LONGEST_NAME].strip()


def _read_meta(folder: Path) -> Shelved | None:
    """What meta.json says; None where it is gone or damaged."""
    try:
        read: dict[str, Any] = json.loads((folder / META).read_text("utf-8"))
        return Shelved(folder.name, str(read["name"]), int(read["passages"]), str(read["made"]), str(read["source"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lock(file: IO[str]) -> bool:
    """Hold a file against other processes; the system lets go when this one ends. Whether it could be had."""
    try:
        import fcntl
    except ImportError:  # Windows: what a killed page left stays for a day
        return time.time() - Path(file.name).stat().st_mtime > 86_400
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
