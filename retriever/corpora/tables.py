"""Files with one passage a record: JSONL (ours, BEIR's and FlashRAG's), and tables with a header row (CSV, TSV, DPR's)."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from retriever.corpora.lines import NumberedLines, file_digest
from retriever.corpora.records import LINE_NUMBER, Fields, find_fields, has_lone_surrogate, to_passage
from retriever.corpora.report import Fault
from retriever.errors import RetrieverError
from retriever.passages import Passage

DELIMITERS = (",", ";", "\t", "|")

# A quoted text that goes on for longer than this is a quotation mark that was never meant to open one.
MOST_LINES = 200


class LineSource:
    """What the two formats share: numbered lines and the identity of a file."""

    kind = ""
    ignored_files = 0
    parts = "records"
    empty = "the source is empty"

    def __init__(self, path: Path, columns: Mapping[str, str]) -> None:
        self.name = str(path)
        self.path = path
        self.columns = columns
        self.lines = NumberedLines(path)

    def identity(self) -> dict[str, object]:
        """The bytes of the file and what its columns are taken for; its name and place don't matter."""
        return {"kind": self.kind, "sha256": file_digest(self.path), "columns": dict(self.columns)}

    def fraction_read(self) -> float | None:
        """By bytes, compressed ones where the file is."""
        return self.lines.fraction

    def decoded(self) -> Iterator[tuple[int, str | Fault]]:
        """Each line's number and its text."""
        for number, line in self.lines:
            if line is None:
                yield number, Fault("line too long", "the line is longer than 64 MiB")
                continue
            try:
                yield number, line.decode("utf-8")
            except UnicodeDecodeError as error:
                yield (
                    number,
                    Fault(
                        "invalid UTF-8",
                        f"byte {error.start + 1} of the line is not valid UTF-8: save the file as UTF-8",
                    ),
                )


class JsonlSource(LineSource):
    """One JSON object a line. The first one that can be read decides which fields hold the passage."""

    kind = "jsonl"

    def items(self) -> Iterator[tuple[str, Passage | Fault]]:
        """Passages and faults in file order."""
        fields: Fields | None = None
        for number, line in self.decoded():
            where = f"{self.path}:{number}"
            record = line if isinstance(line, Fault) else parse_object(line)
            if isinstance(record, Fault):
                yield where, record
                continue
            if fields is None:
                found = find_fields(record, self.columns)
                if isinstance(found, Fault):
                    yield where, found
                    continue
                fields = found
            yield where, to_passage(record, fields)


class TableSource(LineSource):
    """A header, then one passage a record: DPR's `psgs_w100.tsv`, and CSV as spreadsheets write it.

    A field that holds a quotation mark, a delimiter or a line end is quoted, and its marks are doubled. Files that were
    written without quoting are read too: where a line doesn't parse as quoted and has the right number of delimiters, its
    marks stand for themselves. Without a column of ids, passages are called by the number of their first line.

    Args:
        path: The file.
        columns: The file's own names for id, title and text.
        delimiter: What stands between two cells.
    """

    empty = "it has a header alone"

    def __init__(self, path: Path, columns: Mapping[str, str], delimiter: str) -> None:
        super().__init__(path, columns)
        self.delimiter = delimiter
        self.kind = "tsv" if delimiter == "\t" else f"csv {delimiter}"

    def items(self) -> Iterator[tuple[str, Passage | Fault]]:
        """Passages and faults in file order; a passage over several lines is named by its first.

        Raises:
            RetrieverError: The header lacks a column, or cannot be read.
        """
        # The module's limit on a field's length is for the whole process; lines are bounded here already.
        csv.field_size_limit(max(csv.field_size_limit(), 1 << 30))
        header: list[str] | None = None
        fields: Fields | None = None
        lines = _Lines(self.decoded())
        for number, line in lines:
            where = f"{self.path}:{number}"
            if isinstance(line, Fault):
                if header is None:  # or the first passage would be taken for it
                    raise RetrieverError(f"{where}: the header cannot be read: {line.detail}")
                yield where, line
            elif header is None or fields is None:
                header = header_cells(line, self.delimiter)
                found = find_fields(dict.fromkeys(header), self.columns, numbered=True)
                if isinstance(found, Fault):
                    raise RetrieverError(f"{where}: the header has {found.detail}")
                fields = found
            else:
                cells = _quoted_cells(line, self.delimiter)
                if cells is None:
                    cells = _continued(number, line, lines, len(header), self.delimiter)
                if cells is None or len(cells) != len(header):
                    cells = line.split(self.delimiter)
                if len(cells) == len(header):
                    record: dict[str, Any] = dict(zip(header, cells, strict=True))
                    if fields.id == LINE_NUMBER:
                        record[LINE_NUMBER] = number
                    yield where, to_passage(record, fields)
                else:
                    detail = f"the header has {len(header)} columns, the line {len(cells)} (or a quote is not closed)"
                    yield where, Fault("invalid TSV" if self.delimiter == "\t" else "invalid CSV", detail)


def header_cells(line: str, delimiter: str) -> list[str]:
    """Names of a table's columns, from its first line."""
    return [cell.strip() for cell in _quoted_cells(line, delimiter) or line.split(delimiter)]


def find_delimiter(line: str, names: Collection[str]) -> str:
    """What separates the cells of a header: what makes most cells, and above all most of the given `names`."""
    return max(
        DELIMITERS, key=lambda own: (len(set(names) & set(header_cells(line, own))), len(header_cells(line, own)))
    )


class _Lines:
    """Numbered lines of which some can be given back."""

    def __init__(self, lines: Iterator[tuple[int, str | Fault]]) -> None:
        self._lines = lines
        self._returned: deque[tuple[int, str | Fault]] = deque()

    def __iter__(self) -> Iterator[tuple[int, str | Fault]]:
        return self

    def __next__(self) -> tuple[int, str | Fault]:
        return self._returned.popleft() if self._returned else next(self._lines)

    def give_back(self, lines: list[tuple[int, str | Fault]]) -> None:
        self._returned.extendleft(reversed(lines))


def _quoted_cells(line: str, delimiter: str) -> list[str] | None:
    """Cells of one record, or None when its quotes are not as csv writes them."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return None


def _continued(number: int, line: str, lines: _Lines, width: int, delimiter: str) -> list[str] | None:
    """Cells of a record whose quoted text goes on over the next lines; None, and nothing taken, when none ends soon."""
    if line.count('"') % 2 == 0:  # none is open
        return None
    taken: list[tuple[int, str | Fault]] = []
    for entry in islice(lines, MOST_LINES):
        taken.append(entry)
        following, more = entry
        if isinstance(more, Fault):
            break
        line += "\n" * (following - number) + more
        number = following
        if more.count('"') % 2:  # the quote ends here, or nowhere
            cells = _quoted_cells(line, delimiter)
            if cells is not None and len(cells) == width:
                return cells
            break
    lines.give_back(taken)
    return None


def parse_object(line: str) -> dict[str, Any] | Fault:
    """One line of JSONL."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        return Fault("invalid JSON", f"not valid JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets in brackets without end
        return Fault("invalid JSON", f"not usable JSON: {type(error).__name__}")
    if not isinstance(record, dict):
        return Fault("invalid JSON", 'not a JSON object like {"id": ..., "title": ..., "text": ...}')
    # Only an escape can make half a character, so only lines with one are searched.
    if ("\\ud" in line or "\\uD" in line) and has_lone_surrogate(record):
        return Fault("invalid Unicode", "an escape \\uD8xx or \\uDCxx stands without its other half")
    return record
