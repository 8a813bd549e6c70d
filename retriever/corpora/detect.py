"""What a source is, found by looking at its first bytes; a name's ending only breaks ties."""

from __future__ import annotations

import codecs
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retriever.chunking import Chunking
from retriever.corpora.documents import DocumentSource, find_documents
from retriever.corpora.hub import PREFIX, HubSource
from retriever.corpora.lines import UTF8_BOM, is_gzip, read_head
from retriever.corpora.parsers import PARSERS, document_kind
from retriever.corpora.records import ID_NAMES, TEXT_NAMES, check_columns, find_fields, guess_columns
from retriever.corpora.report import Fault, Source
from retriever.corpora.tables import JsonlSource, TableSource, find_delimiter, header_cells, parse_object
from retriever.errors import RetrieverError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KNOWN = (
    'JSONL with id and text (or contents), CSV or TSV with a header such as "id<TAB>text<TAB>title", '
    "or a document (.txt .md .html .pdf .docx)"
)
BEIR_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LONGEST_HEADING = 100
"""Characters of a column's name; a form's questions, which become names too, are seldom longer."""

# A number, a date or a time; or a sentence, of four words at least, for "Art. no." is a name, as a question may be.
_VALUE = re.compile(r"[-+]?\d[\d.,:/ -]*%?|(?:\S+\s+){3,}\S*[.!…]|.{4,}。", re.DOTALL)
_LFS_MARK = b"version https://git-lfs.github.com/spec/"


def open_source(
    source: str | Path,
    *,
    columns: Mapping[str, str] | None,
    chunking: Chunking,
    tokenizer: PreTrainedTokenizerBase | None,
) -> Source:
    """The reader for a source; arguments as for `read_corpus`.

    Raises:
        RetrieverError: Nothing there, an unknown format, or columns for something without columns.
    """
    mapping = check_columns(columns)
    if str(source).startswith(PREFIX):
        return HubSource(str(source), mapping)
    path = Path(source).expanduser()
    try:
        missing = not str(source).strip() or not path.exists()
    except OSError as error:  # no right to look, or a name too long to be one
        raise RetrieverError(f"cannot read {str(source)[:200]}: {error.strerror}") from error
    if missing:
        raise RetrieverError(f'no file or folder "{source}"{_nearest(path)}')
    if path.is_dir():
        table = next((path / name for name in BEIR_CORPUS if (path / name).is_file()), None)
        if table is None:
            if mapping:
                raise RetrieverError(f"{path} is a folder of documents, which have no columns to map")
            return _open_documents(path, chunking, tokenizer)
        path = table
    kind = sniff(path, mapping)
    if kind == "jsonl":
        return JsonlSource(path, mapping)
    if kind == "table":
        return TableSource(
            path, mapping, find_delimiter(_first_line(read_head(path)).decode("utf-8", "replace"), _wanted(mapping))
        )
    if mapping:
        raise RetrieverError(f"{path} is a document ({kind}), which has no columns to map")
    return DocumentSource(path, [(path, kind)], 0, chunking, tokenizer)


def sniff(path: Path, columns: Mapping[str, str]) -> str:
    """Format of a file: "jsonl", "table", or a parser's name.

    Args:
        path: An existing file, gzipped or not.
        columns: The user's mapping, by which a table's header is recognised too.

    Raises:
        RetrieverError: None of the known formats, or known to be something else.
    """
    head = read_head(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")
    if not head:
        raise RetrieverError(f"{path} holds no passages: the file is empty")
    if head.startswith(_LFS_MARK):
        raise RetrieverError(f"{path} is a Git LFS pointer and not the data itself: run git lfs pull")
    kind = _table_kind(path, head, suffix, columns) or document_kind(head, suffix)
    if kind is None:
        raise RetrieverError(f"cannot tell the format of {path}: it must be {KNOWN}")
    if kind not in ("jsonl", "table") and is_gzip(path):
        raise RetrieverError(f"{path} is a gzipped document ({kind}): unpack it first")
    return kind


def column_names(path: Path) -> list[str]:
    """Names of a table's columns, or of the fields of JSONL's first object; [] for a document and for what cannot be read.

    For offering people a choice of columns before the file is read as a corpus.
    """
    line = _first_line(read_head(path)).decode("utf-8", "replace")
    if line.startswith("{"):
        record = parse_object(line)
        return [] if isinstance(record, Fault) else [str(name) for name in record]
    return header_names(path)


def header_names(path: Path) -> list[str]:
    """Names of a table's columns, its first line; [] for all else and where that line is not UTF-8."""
    head = read_head(path)
    line = _first_line(head).decode("utf-8", "replace")
    if path.suffix.lower() not in (".csv", ".tsv") or line.startswith("{") or _not_utf8(head):
        return []
    return [name for name in header_cells(line, find_delimiter(line, _wanted({}))) if name]


def seems_no_header(names: Sequence[str]) -> bool:
    """Whether a table's first line looks like a passage: a number in front, or numbers or sentences and no usual name."""
    if names and names[0].isdigit():
        return True
    return not guess_columns(names) and any(_VALUE.fullmatch(name) or len(name) > LONGEST_HEADING for name in names)


def _first_line(head: bytes) -> bytes:
    """The first line of a file that is not blank, without byte-order mark and line end."""
    return next((line for line in head.removeprefix(UTF8_BOM).splitlines() if line.strip()), b"").strip(b"\r\n")


def _not_utf8(head: bytes) -> bool:
    """Whether the first line is in another encoding; a character that the head's end cuts in two says nothing."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(_first_line(head))
    except UnicodeDecodeError:
        return True
    return False


def _wanted(columns: Mapping[str, str]) -> set[str]:
    """Names of columns that a header may have for ids and texts."""
    ids = {columns["id"]} if "id" in columns else set(ID_NAMES)
    texts = {columns["text"]} if "text" in columns else set(TEXT_NAMES)
    return ids | texts


def _table_kind(path: Path, head: bytes, suffix: str, columns: Mapping[str, str]) -> str | None:
    """Whether the file has a passage a record; a clearly named table with a wrong first line is still a table."""
    first = _first_line(head)
    line = first.decode("utf-8", "replace")
    ids = {columns["id"]} if "id" in columns else set(ID_NAMES)
    texts = {columns["text"]} if "text" in columns else set(TEXT_NAMES)
    tabbed = set(header_cells(line, "\t"))
    if tabbed & ids and tabbed & texts:
        return "table"
    named_json, named_table = suffix in (".jsonl", ".json", ".ndjson"), suffix in (".tsv", ".csv")
    if named_json or named_table:
        if head.startswith(_UTF16_MARKS):
            raise RetrieverError(f"{path} is UTF-16 text: save it as UTF-8")
        if first.startswith(b"["):
            raise RetrieverError(f"{path} is a JSON list: write one object a line (JSONL)")
        if named_table and _not_utf8(head):
            raise RetrieverError(f"{path}: the header is not valid UTF-8: save the file as UTF-8")
    if named_table and not _is_passage(first, columns, whole=b"\n" in head):
        names = header_cells(line, find_delimiter(line, ids | texts))
        # A number is a passage's: the file has no header, and "text" stands in its first line by chance.
        if not set(names) & texts or (names[0].isdigit() and "text" not in columns):
            have = ", ".join(name[:40] for name in names[:8])
            raise RetrieverError(
                f'{path}: the first line must be a header with a column for the text, such as "id<TAB>text<TAB>title"; '
                f"it has {have} (map columns to name another)"
            )
        return "table"
    if named_json or _is_passage(first, columns, whole=b"\n" in head):
        return "jsonl"
    return None


def _is_passage(first: bytes, columns: Mapping[str, str], *, whole: bool) -> bool:
    """Whether a line is a JSON object that holds a passage (a text may begin with some other object)."""
    if not first.startswith(b"{"):
        return False
    if not whole:  # the first line is longer than what was read
        return first[1:].lstrip().startswith(b'"')
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and not isinstance(find_fields(record, columns), Fault)


def _open_documents(folder: Path, chunking: Chunking, tokenizer: PreTrainedTokenizerBase | None) -> Source:
    files, ignored = find_documents(folder)
    if not files:
        endings = " ".join(suffix for parser in PARSERS.values() for suffix in parser.suffixes)
        tables = sorted(path.name for path in folder.iterdir() if path.suffix in (".jsonl", ".tsv", ".gz"))
        hint = f"; name a file itself, such as {folder / tables[0]}" if tables else ""
        raise RetrieverError(f"{folder} holds neither corpus.jsonl nor documents ({endings}){hint}")
    return DocumentSource(folder, files, ignored, chunking, tokenizer)


def _nearest(path: Path) -> str:
    """A hint at a name beside the missing one that looks like it."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f'; did you mean "{path.parent / close[0]}"?' if close else ""
