"""Rows of other people's data sets, turned into ours by a mapping of columns."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eval.data.jsonl import shown
from eval.errors import EvalError

QUESTION_FIELDS = (
    "id",
    "question",
    "answers",
    "aliases",
    "gold_ids",
    "supporting_ids",
    "excluded_ids",
    "qrels",
    "kind",
    "lang",
)
PAIR_FIELDS = ("text1", "text2", "score")


def check_columns(columns: Mapping[str, str], fields: Iterable[str]) -> None:
    """Refuse a mapping whose left side names no field.

    Raises:
        EvalError: The message offers the nearest field.
    """
    fields = list(fields)
    for name in columns:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(fields)}"
            raise EvalError(f"columns: {name!r} is no field that a column can be mapped to: {hint}")


def map_rows(
    rows: Iterable[tuple[str, dict[str, Any]]], columns: Mapping[str, str], *, normalised: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a question set under our names of fields.

    Fields that are not mapped keep their names, so FlashRAG's `golden_answers` needs no mapping. A row without any id
    gets its number in the set. An id that is a number becomes its text.

    Args:
        rows: (place, row), the rows as they are.
        columns: Our field to their column. `answers` may be a list, one string or an object (see `golds`); what
            `aliases` names is appended to the answers.
        normalised: Take the normalised aliases of an object (rule `triviaqa`) in place of the raw ones.

    Raises:
        EvalError: Names the place: a mapped column is missing, or answers have a form that is not known.
    """
    taken = set(columns.values())
    for number, (where, row) in enumerate(rows, start=1):
        for field, column in columns.items():
            if column not in row:
                there = ", ".join(map(str, row))
                raise EvalError(f'{where}: column "{column}" (our {field}) is missing; there are {there}')
        mapped = {name: value for name, value in row.items() if name not in taken}
        mapped.update({field: row[column] for field, column in columns.items()})
        identity = mapped.setdefault("id", str(number))
        if isinstance(identity, int) and not isinstance(identity, bool):
            mapped["id"] = str(identity)
        aliases = mapped.pop("aliases", None) if "aliases" in columns else None
        name = "answers" if "answers" in mapped else "golden_answers"
        if name in mapped:
            found = [*golds(mapped[name], where, normalised), *golds(aliases, where, normalised)]
            mapped[name] = list(dict.fromkeys(found))
        yield where, mapped


def golds(value: Any, where: str, normalised: bool = False) -> list[str]:
    """The golds in a column, in the order they stand.

    Forms: a list of strings; one string, or one that holds a JSON list of strings (PopQA's `possible_answers`); TriviaQA's
    object, whose value and aliases are taken, or its normalised aliases, never both; SQuAD's {"text": [...]}; null.

    Raises:
        EvalError: Another form.
    """
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return _listed(value) or [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    if isinstance(value, dict):
        # "NormalizedAliases" in the release, "normalized_aliases" on the hub.
        parts = {str(key).lower().replace("_", ""): part for key, part in value.items()}
        if normalised and "normalizedaliases" in parts:
            return golds(parts["normalizedaliases"], where)
        if "value" in parts or "aliases" in parts:
            return [*golds(parts.get("value"), where), *golds(parts.get("aliases"), where)]
        if "text" in parts:
            return golds(parts["text"], where)
    wanted = "a list of strings, one string, or an object with aliases"
    raise EvalError(f"{where}: answers must be {wanted}, got {shown(value)}")


def _listed(text: str) -> list[str]:
    """The strings of a JSON list in a string; [] when it is none (a pattern of CuratedTREC may begin with a bracket)."""
    if not text.startswith("["):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else []
