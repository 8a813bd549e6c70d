"""Files that a person brought, made into one file of passages: names mended, sizes bounded, faults told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rag_app.errors import ConfigError
from retriever.chunking import Chunking, token_offsets
from retriever.corpora import read_corpus
from retriever.corpora.detect import column_names, header_names, seems_no_header
from retriever.corpora.records import ID_NAMES, TEXT_NAMES, guess_columns
from retriever.corpora.writing import write_passages
from retriever.errors import RetrieverError
from retriever.passages import Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SUFFIXES = (".txt", ".md", ".html", ".htm", ".pdf", ".docx", ".jsonl", ".csv", ".tsv")
TABLES = (".jsonl", ".csv", ".tsv")
MOST_FILES = 500
LONGEST_NAME = 100
NO_COLUMN = "\0none"
"""In place of a column's name: the files have no such column. None is called so, for NUL stands in no name."""
_SHOWN_FAULTS = 5
_LONGEST_SUFFIX = 10
_STEP_EVERY = 64
_NOT_IN_NAMES = frozenset('\\/:*?"<>|')


@dataclass(frozen=True, slots=True)
class Step:
    """How far the making of a corpus has come.

    Attributes:
        stage: Reading files, or encoding passages.
        what: The file that is read, or the encoder.
        done: Passages of the stage so far.
        total: Passages that the stage will have; None where that is not known.
    """

    stage: Literal["reading", "encoding"]
    what: str
    done: int
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """What became of the files.

    Attributes:
        passages: How many were written.
        faults: What was left out and why, a line each: every file that could not be read (on), then of each other the first
            few faults, and how many more there are.
    """

    passages: int
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreviewChunk:
    """A passage as it would be indexed, and its length in tokens (without the special ones)."""

    passage: Passage
    tokens: int


@dataclass(frozen=True, slots=True)
class Preview:
    """The first passages of a file under chosen settings.

    Attributes:
        name: The file's.
        chunks: The first few.
        total: How many there are; None where there are more than were counted.
        fault: Why there are none, or what was left out first; "" where nothing was.
        header: Names of a table's columns, its first line; () for all else.
    """

    name: str
    chunks: tuple[PreviewChunk, ...]
    total: int | None
    fault: str = ""
    header: tuple[str, ...] = ()


def check_files(files: Sequence[Path], most_bytes: int) -> None:
    """Refuse what cannot be made into a corpus, before anything is read.

    Raises:
        ConfigError: No file, too many, too large, or of a kind that nothing reads.
    """
    if not files:
        raise ConfigError("there are no files yet: drop some, or choose them")
    if len(files) > MOST_FILES:
        raise ConfigError(f"{len(files):,} files are too many at once: bring at most {MOST_FILES}")
    for file in files:
        if file.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"{clean_name(file.name)} cannot be read: bring {' '.join(SUFFIXES)}")
        if not file.is_file():
            raise ConfigError(f"{clean_name(file.name)} is not on this machine any more: upload it again")
    size = sum(file.stat().st_size for file in files)
    if size > most_bytes:
        raise ConfigError(
            f"the files have {size / 1e6:,.1f} MB together, more than the {most_bytes / 1e6:,.0f} MB that a corpus may have "
            "here: bring fewer, or index them with `magrag index`"
        )


def clean_name(name: str, longest: int = LONGEST_NAME) -> str:
    """A file's name that is safe to write and to show: no folders, no control characters, not hidden, not too long."""
    kept = "".join("_" if sign in _NOT_IN_NAMES or not sign.isprintable() else sign for sign in name).strip(" .~$")
    stem, dot, suffix = kept.rpartition(".")
    if not dot or len(suffix) > _LONGEST_SUFFIX:
        return kept[:longest] or "file"
    return f"{stem[: longest - len(suffix) - 1]}.{suffix}"


def stage_files(files: Sequence[Path], folder: Path) -> list[Path]:
    """Copies of the files in a folder of ours, under clean names of which each stands once."""
    folder.mkdir(parents=True)
    taken: set[str] = set()
    copies = []
    for file in files:
        name = clean_name(file.name)
        stem, suffix, number = Path(name).stem, Path(name).suffix, 2
        while name.casefold() in taken:
            name, number = f"{stem} ({number}){suffix}", number + 1
        taken.add(name.casefold())
        copies.append(folder / name)
        shutil.copyfile(file, copies[-1])
    return copies


def gather(
    files: Sequence[Path],
    out: Path,
    *,
    chunking: Chunking,
    columns: Mapping[str, str],
    tokenizer: PreTrainedTokenizerBase | None,
    most: int,
    step: Callable[[Step], None],
) -> Gathered:
    """Read files and write their passages as JSONL of {id, title, text, ...}.

    One file of passages serves every encoder, so that retrievers with different ones are compared on the same passages.
    What cannot be read is left out and told.

    Args:
        files: All in one folder.
        out: A new file.
        chunking: How documents are cut.
        columns: Names of a table's columns for id, title and text; NO_COLUMN where there is none.
        tokenizer: By which chunks are measured; not used by others meanwhile.
        most: Passages that there may be.
        step: Told how far it is; what it raises ends the work.

    Raises:
        ConfigError: More than `most` passages, or none.
    """
    left_out: list[_Faults] = []
    done = 0

    def found() -> Iterator[Passage]:
        nonlocal done
        for file in files:
            step(Step("reading", file.name, done))
            left_out.append(faults := _Faults(file))
            try:
                for passage in _passages(file, chunking, columns, tokenizer, prefixed=len(files) > 1, faults=faults):
                    done += 1
                    if done > most:
                        raise ConfigError(
                            f"the files hold more than the {most:,} passages that a corpus may have here: bring fewer, or "
                            "index them with `magrag index`"
                        )
                    yield passage
                    if done % _STEP_EVERY == 0:
                        step(Step("reading", file.name, done))
            except RetrieverError as error:
                faults.stop(error)

    write_passages(out, found(), meta=True)
    stopped = [faults.stopped for faults in left_out if faults.stopped]
    if not done:
        more = f" and {len(stopped) - _SHOWN_FAULTS:,} more" if len(stopped) > _SHOWN_FAULTS else ""
        raise ConfigError(f"nothing to search in these files: {'; '.join(stopped[:_SHOWN_FAULTS])}{more}")
    return Gathered(done, (*stopped, *(line for faults in left_out for line in faults.told())))


def preview(
    file: Path,
    *,
    chunking: Chunking,
    columns: Mapping[str, str],
    tokenizer: PreTrainedTokenizerBase | None,
    count: int,
    most: int,
) -> Preview:
    """The first `count` passages of a file; others are counted up to `most`."""
    faults = _Faults(file)
    name = clean_name(file.name)
    found: list[Passage] = []
    total = 0
    try:
        for passage in islice(_passages(file, chunking, columns, tokenizer, prefixed=False, faults=faults), most + 1):
            total += 1
            if len(found) < count:
                found.append(passage)
    except RetrieverError as error:
        faults.stop(error)
    offsets = token_offsets(tokenizer)
    chunks = tuple(PreviewChunk(passage, len(offsets(passage.text))) for passage in found)
    fault = next((line for line in (*faults.told(), faults.stopped) if line), "")
    return Preview(name, chunks, total if total <= most else None, fault, tuple(_header(file)))


def table_columns(files: Sequence[Path]) -> list[str]:
    """Names of the columns of the first file that has any."""
    for file in files:
        if file.suffix.lower() in TABLES:
            try:
                names = column_names(file)
            except RetrieverError:
                continue
            if names:
                return names
    return []


def _passages(
    file: Path,
    chunking: Chunking,
    columns: Mapping[str, str],
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    prefixed: bool,
    faults: _Faults,
) -> Iterator[Passage]:
    """Passages of one file, whatever it is; `faults` has what was left out when it ends."""
    names = column_names(file) if file.suffix.lower() in TABLES else []
    mapping = _mapping(names, columns)
    corpus = read_corpus(file, on_error="skip", chunking=chunking, columns=mapping, tokenizer=tokenizer)
    header = _header(file)
    if seems_no_header(header):
        faults.add(
            f"{file.name}: the first line names the columns and is no passage, but seems to be no header "
            f"({_shortened(header)}): put a line of names above it"
        )
    for passage in corpus:
        # Ids of tables are often 1, 2, 3; those of documents begin with the file's name already.
        own = passage.id.startswith(f"{file.name}#")
        yield replace(passage, id=f"{file.name}:{passage.id}") if prefixed and not own else passage
    shown = [example for examples in corpus.report.examples.values() for example in examples]
    for example in shown:
        faults.add(example)
    faults.more += corpus.report.skipped_total - len(shown)


def _header(file: Path) -> list[str]:
    """Names of a table's columns, where its first line has them."""
    try:
        return header_names(file) if file.suffix.lower() in TABLES else []
    except RetrieverError:
        return []


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in names[:4]) + (", …" if len(names) > 4 else "")


def _mapping(names: Sequence[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """A table's columns: as chosen where it has those, else guessed; {} where the reader knows by itself."""
    if not names:
        return {}
    if chosen.get("text") in names:
        fitting = {role: name for role, name in chosen.items() if name in names}
        return fitting | {"title": NO_COLUMN} if chosen.get("title") == NO_COLUMN else fitting
    known = {"id": ID_NAMES, "title": ("title",), "text": TEXT_NAMES}
    return {role: name for role, name in guess_columns(names).items() if not set(known[role]) & set(names)}


@dataclass(slots=True)
class _Faults:
    """What was left out of one file: why it was not read (on), if so, and the first few faults; others are counted."""

    file: Path
    stopped: str = ""
    more: int = 0
    lines: list[str] = field(default_factory=list)

    def stop(self, error: RetrieverError) -> None:
        """Take in what ended the reading."""
        self.stopped = self._words(str(error))

    def add(self, fault: str) -> None:
        """Take one in, or count it."""
        if len(self.lines) == _SHOWN_FAULTS:
            self.more += 1
        else:
            self.lines.append(self._words(fault))

    def told(self) -> list[str]:
        """Those that did not end the reading, and how many more there are."""
        return [*self.lines, *([f"{self.file.name}: and {self.more:,} more"] if self.more else [])]

    def _words(self, fault: str) -> str:
        """In one line, without the folder of this server that the file lies in."""
        return " ".join(fault.replace(str(self.file), self.file.name).split())
