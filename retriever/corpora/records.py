"""From one record of named values to a passage: which field is which, and what is wrong with the values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retriever.corpora.report import Fault
from retriever.errors import RetrieverError
from retriever.passages import Passage

ROLES = ("id", "title", "text")
ID_NAMES = ("id", "_id")
TEXT_NAMES = ("text", "contents")
LINE_NUMBER = "\0line"
"""Stands for the id's field where a table has none; no column has this name, for NUL is in none."""
# What people call the columns of their spreadsheets, for a guess that they can correct.
_GUESSES = {
    "id": ("id", "_id", "docid", "doc_id", "pid", "passage_id", "key", "number", "nr"),
    "title": ("title", "name", "heading", "headline", "subject", "question"),
    "text": (
        "text",
        "contents",
        "content",
        "passage",
        "body",
        "abstract",
        "description",
        "answer",
        "document",
        "summary",
    ),
}
# FlashRAG's contents: the title in double quotes (it may hold more of them), a line end, the text.
_QUOTED_LINE = re.compile(r'"([^\n]*)"[ \t]*\r?\n')


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields that hold a passage.

    Attributes:
        id: Field of the identifier.
        text: Field of the text.
        title: Field of the title; records without it have an empty title.
        quoted_title: Whether the text begins with a line that holds the title in double quotes (FlashRAG).
    """

    id: str
    text: str
    title: str = "title"
    quoted_title: bool = False


def check_columns(columns: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of a mapping from id, title and text to the source's own names.

    Raises:
        RetrieverError: A key that is none of the three.
    """
    for role in columns or {}:
        if role not in ROLES:
            raise RetrieverError(f'unknown column "{role}": map some of {", ".join(ROLES)} to the source\'s own names')
    return dict(columns or {})


def guess_columns(names: Sequence[str]) -> dict[str, str]:
    """Which of a table's own names hold id, title and text, judged by what such columns are often called."""
    folded = {name.strip().casefold(): name for name in reversed(names)}
    found = {
        role: next((folded[guess] for guess in guesses if guess in folded), "") for role, guesses in _GUESSES.items()
    }
    return {role: name for role, name in found.items() if name}


def find_fields(names: Mapping[str, Any], columns: Mapping[str, str], *, numbered: bool = False) -> Fields | Fault:
    """Decide by a record's names which format it has.

    Args:
        names: The record, or anything keyed by its field names.
        columns: What the user has mapped; it wins.
        numbered: Whether records without an id are known by their line, LINE_NUMBER.
    """
    found: dict[str, str] = {}
    for role, usual in (("id", ID_NAMES), ("text", TEXT_NAMES)):
        candidates = (columns[role],) if role in columns else usual
        name = next((name for name in candidates if name in names), None)
        if name is None and role == "id" and numbered and role not in columns:
            name = LINE_NUMBER
        if name is None:
            wanted = " or ".join(f'"{name}"' for name in candidates)
            have = ", ".join(str(name)[:40] for name in list(names)[:8]) or "none"
            return Fault("missing field", f"no field {wanted} (the fields are: {have}); map columns to name another")
        found[role] = name
    return Fields(
        found["id"],
        found["text"],
        columns.get("title", "title"),
        quoted_title="text" not in columns and found["text"] == "contents",
    )


def to_passage(record: Mapping[str, Any], fields: Fields) -> Passage | Fault:
    """Check one record and make a passage of it; fields that are none of the three go to meta.

    NUL characters become spaces: they carry nothing and end strings early in other programs.
    """
    for name in (fields.id, fields.text):
        if name not in record:
            return Fault("missing field", f'no field "{name}"')
    identifier, text, title = record[fields.id], record[fields.text], record.get(fields.title)
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    for name, value, wanted in (
        (fields.id, identifier, "text or a whole number"),
        (fields.text, text, "text"),
        (fields.title, "" if title is None else title, "text"),
    ):
        if not isinstance(value, str):
            return Fault("wrong type", f'"{name}" must be {wanted}, got {_kind(value)}')
    identifier, text, title = identifier.replace("\0", " "), text.replace("\0", " "), (title or "").replace("\0", " ")
    if fields.quoted_title:
        own_title, text = split_contents(text)
        title = title or own_title
    if not identifier.strip():
        return Fault("empty id", f'"{fields.id}" is empty')
    if not text.strip():
        return Fault("empty text", f'the text of passage "{identifier[:80]}" is empty')
    used = (fields.id, fields.text, fields.title)
    meta = {name: value for name, value in record.items() if name not in used}
    return Passage(identifier, title, text, meta)


def to_record(passage: Passage, *, meta: bool = False) -> dict[str, Any]:
    """The record of a passage that `to_passage` reads: {id, title, text} and, where wanted, what else is known of it."""
    own = {"id": passage.id, "title": passage.title, "text": passage.text}
    return {**own, **passage.meta, **own} if meta else own


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of FlashRAG's contents; without a quoted first line all of it is text."""
    match = _QUOTED_LINE.match(contents)
    if match is None:
        return "", contents
    return match.group(1), contents[match.end() :]


def has_lone_surrogate(value: object) -> bool:
    """Whether a JSON value holds half of a surrogate pair, which is no character and cannot be written as UTF-8."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return True
        return False
    if isinstance(value, Mapping):
        return any(has_lone_surrogate(key) or has_lone_surrogate(item) for key, item in value.items())
    return isinstance(value, list) and any(has_lone_surrogate(item) for item in value)


def _kind(value: object) -> str:
    """JSON's name for a value's type, which is what the file shows."""
    names = {
        bool: "true or false",
        type(None): "null",
        list: "a list",
        dict: "an object",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), f"a {type(value).__name__}")
