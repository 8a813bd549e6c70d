"""Rows of training data under whatever names and shapes they come in, made into pairs.

Shapes known without a mapping: query, positive, negatives as texts or passages (ours, sentence-transformers', BGE's), DPR's
positive_ctxs, Tevatron's positive_passages, MS MARCO's passages that are marked is_selected, and Natural Questions in its
own form, where the long answers are the positives.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.training.pairs import TrainingPair, stable_id
from retriever.wording import counted, shown

ROLES: dict[str, tuple[str, ...]] = {
    "query": ("query", "question", "anchor"),
    "positive": ("positive", "positives", "pos", "positive_passages", "positive_ctxs", "passages", "passage"),
    "title": ("title",),
    "negatives": ("negatives", "negative", "neg", "negative_passages", "hard_negative_ctxs"),
    "answers": ("answers", "answer"),
    "source": ("source",),
}
"""What a pair is made of, and the columns in which it is looked for, the first that is there. `title` goes with a positive
that is a text alone."""

_TEXT = ("text", "passage_text", "contents")
_ID = ("id", "_id", "docid", "passage_id")
# What ends in a full stop without ending a title: initials ("J. K. Rowling", "U.S. Route 1"), and these.
_ABBREVIATIONS = frozenset({"mr", "mrs", "ms", "dr", "st", "ste", "mt", "ft", "jr", "sr", "vs", "no", "vol", "feat"})
_INITIAL = re.compile(r"(?:^|[\s.(\"])[^\W\d_]$")
_LONGEST_TITLE = 120


def pairs_of_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    origin: str,
    columns: Mapping[str, str],
    title_separator: str,
    tell: Callable[[str], None] | None = None,
) -> list[TrainingPair]:
    """The pairs of (place, row), in their order; equal passages become one object, so that memory holds each text once.

    Args:
        rows: Rows with their places, for messages.
        origin: Of all rows, for messages.
        columns: A role of `ROLES` to the column it is in.
        title_separator: See `retriever.training.pairs.read_pairs`.
        tell: Told, in a line, how many rows have no positive.

    Raises:
        RetrieverError: An unknown role, a row that is no pair, an id that stands for two texts, or no pair at all.
    """
    for role in columns:
        if role not in ROLES:
            near = difflib.get_close_matches(role, ROLES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"map some of {', '.join(ROLES)}"
            raise RetrieverError(f"columns: {role!r} is nothing a pair is made of: {hint}")
    if title_separator and not title_separator.strip():
        raise RetrieverError(f"title_separator must hold more than white space, got {title_separator!r}")
    reader = _RowReader(columns, title_separator)
    pairs: list[TrainingPair] = []
    read = empty = 0
    for where, row in rows:
        before = len(pairs)
        pairs += reader.pairs(row, where)
        read, empty = read + 1, empty + (len(pairs) == before)
    if not pairs:
        raise RetrieverError(f"{origin} holds no pair of a query and a passage that answers it")
    if empty and tell is not None:
        tell(f"{origin}: {empty:,} of {counted(read, 'row')} without a positive, left out")
    return pairs


def split_title(text: str, separator: str) -> tuple[str, str]:
    """Title and text of "Title. text", cut at the first separator that ends a title.

    A separator does not end one after an initial or a usual abbreviation ("Mr. Pickles", "George H. W. Bush"), unless the
    text goes on with the title once more, as articles do ("Vitamin C. Vitamin C is ..."), or no other follows within the
    length of a title. That is a guess by form, and this project's own.

    Returns:
        ("", text) where the separator doesn't occur, or nothing would be left on one side.
    """
    first = at = text.find(separator)
    while 0 <= at <= _LONGEST_TITLE and not _ends_title(text[:at], text[at + len(separator) :], separator):
        at = text.find(separator, at + len(separator))
    if not 0 <= at <= _LONGEST_TITLE:
        at = first
    title, rest = (text[:at].strip(), text[at + len(separator) :].strip()) if at >= 0 else ("", "")
    return (title, rest) if title and rest else ("", text)


def _ends_title(head: str, rest: str, separator: str) -> bool:
    if not separator.startswith(".") or (len(head) > len("J. R.") and rest.startswith(head)):
        return True
    return not (_INITIAL.search(head) or re.split(r"[\s.(]", head)[-1].lower() in _ABBREVIATIONS)


class _RowReader:
    """Reads rows; remembers every passage, so that equal ones are shared and an id for two texts is noticed."""

    def __init__(self, columns: Mapping[str, str], title_separator: str) -> None:
        self._columns = columns
        self._separator = title_separator
        self._passages: dict[str, Passage] = {}

    def pairs(self, row: Mapping[str, Any], where: str) -> Iterator[TrainingPair]:
        """The pairs of one row: one for each positive."""
        if _is_natural_questions(row) and "positive" not in self._columns:
            row = _natural_question(row, where)
        query = row_text(self._value(row, "query", where), where, "query")
        value = self._value(row, "positive", where)
        positives = self._list(value, where, "positive", selected=True, title=self._value(row, "title", where))
        negatives = self._list(self._value(row, "negatives", where), where, "negative", selected=False)
        answers = _answers(self._value(row, "answers", where), where)
        source = self._value(row, "source", where)
        for positive in positives:
            yield TrainingPair(query, positive, tuple(negatives), answers, source if isinstance(source, str) else "")

    def _value(self, row: Mapping[str, Any], role: str, where: str) -> Any:
        """What the row holds of a role; None where it holds nothing and may."""
        if role in self._columns:
            name = self._columns[role]
            if name not in row:
                there = ", ".join(map(str, list(row)[:12]))
                raise RetrieverError(f'{where}: column "{name}" (our {role}) is missing; there are {there}')
            return row[name]
        # A column that stands for something else is not taken for this as well.
        taken = set(self._columns.values())
        for name in ROLES[role]:
            if name in row and name not in taken:
                return row[name]
        if role in ("query", "positive"):
            there, usual = ", ".join(map(str, list(row)[:12])), ", ".join(ROLES[role])
            raise RetrieverError(f"{where}: no {role} ({usual}); there are {there}: map a column to {role}")
        return None

    def _list(self, value: Any, where: str, what: str, *, selected: bool, title: Any = None) -> list[Passage]:
        """The passages of a column, those first that stand first; of marked ones those whose mark is `selected`."""
        found: dict[str, Passage] = {}
        for entry in _entries(value, where, what):
            if isinstance(entry, Mapping) and "is_selected" in entry and bool(entry["is_selected"]) != selected:
                continue
            passage = self._passage(entry, where, what, title)
            found[passage.id] = passage
        return list(found.values())

    def _passage(self, entry: Any, where: str, what: str, title: Any) -> Passage:
        identity = ""
        if isinstance(entry, Mapping):
            name = next((name for name in _TEXT if name in entry), None)
            if name is None:
                there = ", ".join(map(str, list(entry)[:8]))
                raise RetrieverError(f"{where}: a {what} has no text ({', '.join(_TEXT)}); there are {there}")
            text = row_text(entry[name], where, what)
            title = entry.get("title")
            given = next((entry[name] for name in _ID if entry.get(name) is not None), "")
            if isinstance(given, bool) or not isinstance(given, str | int):
                raise RetrieverError(f"{where}: the id of a {what} must be text or a whole number, got {_shown(given)}")
            identity = str(given)
            own_title = "" if title is None else title
        else:
            text = row_text(entry, where, what)
            own_title = "" if title is None else title
            if self._separator and not own_title:
                own_title, text = split_title(text, self._separator)
        if not isinstance(own_title, str):
            raise RetrieverError(f"{where}: the title of a {what} must be text, got {_shown(own_title)}")
        own_title = own_title.replace("\0", " ").strip()
        made = Passage(identity or stable_id(own_title, text), own_title, text)
        known = self._passages.setdefault(made.id, made)
        if known != made:
            raise RetrieverError(
                f"{where}: passage id {made.id!r} stands for two texts ({known.text[:40]!r}, {text[:40]!r}): "
                "give each text an id of its own, or leave the ids out"
            )
        return known


def row_text(value: Any, where: str, what: str) -> str:
    """A text that isn't blank, without white space around it; NUL characters, which end strings elsewhere, are spaces.

    Raises:
        RetrieverError: Something else.
    """
    if isinstance(value, Mapping):  # Natural Questions: {"text", "tokens"}
        value = value.get("text")
    if not isinstance(value, str):
        raise RetrieverError(f"{where}: a {what} must be text, got {_shown(value)}")
    text = value.replace("\0", " ").strip()
    if not text:
        raise RetrieverError(f"{where}: a {what} is empty")
    return text


def _entries(value: Any, where: str, what: str) -> list[Any]:
    """One text or passage, a list of them, or an object of lists, which is how `datasets` may give a list of objects."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        lists = {name: items for name, items in value.items() if isinstance(items, list)}
        if not any(name in lists for name in _TEXT):
            return [value]
        if len({len(items) for items in lists.values()}) != 1:
            raise RetrieverError(f"{where}: the lists of {what}s are not of one length")
        return [dict(zip(lists, items, strict=True)) for items in zip(*lists.values(), strict=True)]
    return value if isinstance(value, list) else [value]


def _answers(value: Any, where: str) -> tuple[str, ...]:
    """Answers from a list, one text, or SQuAD's {"text": [...]}; blank ones are dropped, and equal ones are one."""
    if isinstance(value, Mapping):
        value = value.get("text")
    values = value if isinstance(value, list) else [] if value is None else [value]
    for answer in values:
        if not isinstance(answer, str):
            raise RetrieverError(f"{where}: answers must be texts, got {_shown(answer)}")
    return tuple(dict.fromkeys(answer.strip() for answer in values if answer.strip()))


def _is_natural_questions(row: Mapping[str, Any]) -> bool:
    document = row.get("document")
    return isinstance(document, Mapping) and "tokens" in document and "annotations" in row


def _natural_question(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Query, long answers as positives and short answers of a row in Natural Questions' own form."""
    document = row["document"]
    try:
        tokens = _entries_of(document["tokens"])
        annotations = _entries_of(row["annotations"])
        spans = dict.fromkeys(
            (int(own["long_answer"]["start_token"]), int(own["long_answer"]["end_token"])) for own in annotations
        )
        texts = [
            " ".join(str(token["token"]) for token in tokens[start:end] if not token["is_html"])
            for start, end in spans
            if 0 <= start < end
        ]
        short = [text for own in annotations for part in _entries_of(own["short_answers"]) for text in _texts(part)]
    except (KeyError, TypeError, ValueError) as error:
        raise RetrieverError(f"{where}: not Natural Questions' form ({type(error).__name__}: {error})") from error
    return {
        "query": row.get("question"),
        "positive": [{"title": document.get("title"), "text": text} for text in texts if text.strip()],
        "answers": short,
        "source": row.get("source"),
    }


def _texts(part: Mapping[str, Any]) -> list[str]:
    text = part["text"]
    return list(text) if isinstance(text, list) else [text]


def _entries_of(value: Any) -> list[dict[str, Any]]:
    """Objects of a list, or of an object of lists."""
    if isinstance(value, Mapping):
        return [dict(zip(value, items, strict=True)) for items in zip(*value.values(), strict=True)]
    return list(value)


def _shown(value: Any) -> str:
    return f"{shown(value, 40)} ({type(value).__name__})"
