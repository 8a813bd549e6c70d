"""Rankings, judgments and topics in the file formats that retrieval tools share: TREC's and BEIR's.

Order and ties. trec_eval ignores the rank column: it orders by score, kept in 32 bits, and takes equal scores by
descending document id; other tools break ties in other ways. Our rankings may have equal scores (ordered by row of the
corpus) and, after a fusion or a second search, rising ones. So what is exported, and what `eval.ranking` measures, is
the order of the row: a score that is not below its predecessor in 32 bits is replaced by the next 32-bit number below
that (`exported`). All other scores are written in full and read back as the same floats. Every tool then sees the one
order, and figures of the command line on the exported files are those of our tables.

Ids with white space. TREC files are columns between blanks, but passages of a person's own files have ids such as
"My notes.pdf#0003". Refusing them would end an evaluation over an export; so such an id is written as "escaped:" and
the id with its white space and per cent signs percent-encoded, which is read back as the id. No other id is changed:
an id with a per cent sign from somebody else's collection still matches their judgments.

Files are written whole under another name and then renamed: a reader never sees half of one.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from eval.data.datasets import Question
from eval.errors import EvalError

BEIR_HEADER = ("query-id", "corpus-id", "score")
_MARK = "escaped:"
_WHITE = re.compile(r"[\s%]")
# Below the largest 32-bit number, with room for ties to be lowered.
_LARGEST = 3e38


def exported(passages: Iterable[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """A ranking as it is exported and measured: (id, score), scores strictly falling even in 32 bits.

    Args:
        passages: Of one row, best first, each with "id" and "score"; one that is ranked twice counts where it is first.

    Raises:
        EvalError: A score is not a finite 32-bit number.
    """
    ranking: dict[str, float] = {}
    last = np.float32(np.inf)
    for passage in passages:
        if passage["id"] in ranking:
            continue
        score = float(passage["score"])
        if not abs(score) <= _LARGEST:
            raise EvalError(f"passage {passage['id']!r} has the score {score}, which is no finite 32-bit number")
        single = np.float32(score)
        if single >= last:
            single = np.nextafter(last, np.float32(-np.inf))
            score = float(single)
        ranking[passage["id"]] = score
        last = single
    return list(ranking.items())


def write_run(path: str | Path, questions: Sequence[Question], rows: Mapping[str, Mapping[str, Any]], tag: str) -> None:
    """Write one system's rankings: `question Q0 passage rank score tag`, ranks from 1.

    Args:
        path: Its folder is made; a name that ends in .gz is compressed.
        questions: In the order they are written; one without row or passages has no line.
        rows: By question id, each with "passages" (see `exported`).
        tag: Name of the system; white space in it becomes "_".

    Raises:
        EvalError: A score is not a finite 32-bit number, the tag is blank, or the file cannot be written.
    """
    label = "_".join(tag.split())
    if not label:
        raise EvalError("a run file needs the name of its system, got a blank one")
    lines = []
    for question in questions:
        row = rows.get(question.id)
        try:
            ranking = exported(row["passages"]) if row else []
        except EvalError as error:
            raise EvalError(f"{path}: question {question.id!r}: {error}") from None
        for rank, (passage, score) in enumerate(ranking, start=1):
            lines.append(f"{_escape(question.id)} Q0 {_escape(passage)} {rank} {score!r} {label}\n")
    _write(path, "".join(lines))


def write_qrels(path: str | Path, qrels: Mapping[str, Mapping[str, int]]) -> None:
    """Write judgments: `query 0 document grade`.

    Raises:
        EvalError: The file cannot be written.
    """
    judged = [(query, document, grade) for query, grades in qrels.items() for document, grade in grades.items()]
    lines = [f"{_escape(query)} 0 {_escape(document)} {grade}\n" for query, document, grade in judged]
    _write(path, "".join(lines))


def read_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Judgments by query and document id; BEIR's layout is told from TREC's by its header. Plain or .gz.

    Raises:
        EvalError: Names the line: wrong columns, a grade that is no whole number, or a document judged twice with
            different grades; or the file: absent, unreadable, empty.
    """
    qrels: dict[str, dict[str, int]] = {}
    beir = False
    for number, (where, line) in enumerate(_lines(path)):
        if number == 0 and tuple(line.split("\t")) == BEIR_HEADER:
            beir = True
            continue
        columns = line.split("\t") if beir else line.split()
        if beir and len(columns) != 3:
            raise EvalError(f"{where}: must have 3 columns between tabs (query, document, grade), got {len(columns)}")
        if not beir and len(columns) != 4:
            raise EvalError(
                f"{where}: must have 4 columns (query 0 document grade), got {len(columns)}: "
                f"a BEIR file begins with the header {' TAB '.join(BEIR_HEADER)}"
            )
        query, document = _unescape(columns[0]), _unescape(columns[-2])
        try:
            grade = int(columns[-1])
        except ValueError:
            raise EvalError(f"{where}: the grade must be a whole number, got {columns[-1]!r}") from None
        if qrels.setdefault(query, {}).setdefault(document, grade) != grade:
            earlier = qrels[query][document]
            raise EvalError(f"{where}: document {document!r} of query {query!r} was already judged {earlier}")
    if not qrels:
        raise EvalError(f"{path}: holds no judgments")
    return qrels


def read_topics(path: str | Path) -> dict[str, str]:
    """Query texts by id, from `id TAB text` lines or classic TREC topics (<top> with <num> and <title>).

    The classic number is read without its word "Number:" and the title without "Topic:"; narrative and description are
    left out. Plain or .gz.

    Raises:
        EvalError: Names the line: no tab, a blank id or text, an id twice, a topic without number or title; or the
            file: absent, unreadable, empty.
    """
    lines = list(_lines(path))
    if not lines:
        raise EvalError(f"{path}: holds no topics")
    classic = lines[0][1].lstrip().lower().startswith("<top")
    topics: dict[str, str] = {}
    for where, id, text in _classic(lines) if classic else _tabbed(lines):
        if not id or not text:
            raise EvalError(f"{where}: a topic needs an id and a text, got {id!r} and {text!r}")
        if id in topics:
            raise EvalError(f"{where}: topic {id!r} was already given: ids must be unique")
        topics[id] = text
    return topics


def _tabbed(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    for where, line in lines:
        id, tab, text = line.partition("\t")
        if not tab:
            raise EvalError(f"{where}: must be an id, a tab and a text, got {line[:40]!r}")
        yield where, _unescape(id.strip()), " ".join(text.split())


def _classic(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Topics whose fields go on until the next tag, closed or not, over as many lines as they like."""
    place, field = "", ""
    fields: dict[str, str] = {}
    for where, line in lines:
        for piece in re.split(r"(</?[A-Za-z]+>)", line):
            tag = re.fullmatch(r"<(/?)([A-Za-z]+)>", piece)
            if tag is None:
                if field and piece.strip():
                    fields[field] = f"{fields.get(field, '')} {piece.strip()}"
                continue
            closes, field = tag[1] == "/", tag[2].lower()
            if field == "top" and not closes:
                if place:
                    raise EvalError(f"{place}: this topic is not closed: </top> is missing")
                place, fields = where, {}
            elif field == "top":
                yield place, _field(fields, "num", "Number:"), _field(fields, "title", "Topic:")
                place = ""
            if closes or field == "top":
                field = ""
    if place:
        raise EvalError(f"{place}: this topic is not closed: </top> is missing")


def _field(fields: Mapping[str, str], name: str, label: str) -> str:
    text = " ".join(fields.get(name, "").split())
    return text[len(label) :].strip() if text.lower().startswith(label.lower()) else text


def _escape(id: str) -> str:
    if id and id == "".join(id.split()) and not id.startswith(_MARK):
        return id
    return _MARK + _WHITE.sub(lambda found: quote(found[0]), id)


def _unescape(column: str) -> str:
    return unquote(column.removeprefix(_MARK)) if column.startswith(_MARK) else column


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """(place, line without its end) for each line that is not blank."""
    path = Path(path)
    try:
        data = path.read_bytes()
        data = (gzip.decompress(data) if path.name.endswith(".gz") else data).removeprefix(b"\xef\xbb\xbf")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise EvalError(f"{path}: not a whole gzip file ({error}): fetch or compress it again") from None
    except OSError as error:
        raise EvalError(f"{path}: cannot be read: {error.strerror or error}") from None
    for number, raw in enumerate(data.split(b"\n"), start=1):
        where = f"{path}, line {number}"
        try:
            line = raw.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise EvalError(f"{where}: invalid UTF-8 at byte {error.start + 1}: save the file as UTF-8") from None
        if line.strip():
            yield where, line


def _write(path: str | Path, text: str) -> None:
    path = Path(path)
    data = text.encode("utf-8")
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as handle:
                handle.write(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise EvalError(f"{path}: cannot be written: {error.strerror or error}") from None
