"""Other people's columns: which forms of answers are understood, and which golds are taken."""

from __future__ import annotations

from typing import Any

import pytest

from eval.data.columns import QUESTION_FIELDS, check_columns, golds, map_rows
from eval.errors import EvalError
from eval.metrics import exact_match

# As in the release of TriviaQA and on the hub.
TRIVIA = {
    "value": "J. K. Rowling",
    "aliases": ["J. K. Rowling", "JK Rowling"],
    "normalized_value": "j k rowling",
    "normalized_aliases": ["j k rowling", "jk rowling"],
    "matched_wiki_entity_name": "",
}
RELEASE = {"Value": "J. K. Rowling", "Aliases": ["JK Rowling"], "NormalizedAliases": ["j k rowling"], "Type": "x"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        ("a", ["a"]),
        ('["politician", "political leader"]', ["politician", "political leader"]),
        ("[0-9]+ miles", ["[0-9]+ miles"]),
        ("[1, 2]", ["[1, 2]"]),
        (None, []),
        ("", []),
        ([], []),
        ({"text": ["Denver", "Denver Broncos"], "answer_start": [1, 1]}, ["Denver", "Denver Broncos"]),
        (RELEASE, ["J. K. Rowling", "JK Rowling"]),
        ({"aliases": ["a"]}, ["a"]),
    ],
)
def test_the_forms_of_answers(value: Any, expected: list[str]) -> None:
    assert golds(value, "x") == expected


@pytest.mark.parametrize("value", [7, ["a", 7], {"spans": ["a"]}, {"aliases": 3}, [["a"]]])
def test_another_form_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(EvalError, match=r"^f\.jsonl, line 3: answers must be a list of strings"):
        golds(value, "f.jsonl, line 3")


def test_triviaqa_gives_raw_aliases_or_normalised_ones_and_never_both() -> None:
    raw, normal = golds(TRIVIA, "x"), golds(TRIVIA, "x", normalised=True)
    assert not set(raw) & set(normal)
    assert set(normal) == {"j k rowling", "jk rowling"}


def test_mixing_raw_and_normalised_aliases_would_change_scores() -> None:
    answer = {"value": "Spider-Man", "aliases": ["Spider-Man"], "normalized_aliases": ["spider man"]}
    assert not exact_match("Spider Man", golds(answer, "x"), "squad")
    assert exact_match("Spider Man", golds(answer, "x", normalised=True), "squad")


def test_columns_are_renamed_aliases_appended_and_duplicates_dropped() -> None:
    row = {"qid": 7, "query": "who?", "answer": "Ann", "answer_aliases": ["Anne", "Ann"], "hops": 2}
    columns = {"id": "qid", "question": "query", "answers": "answer", "aliases": "answer_aliases"}
    assert list(map_rows([("here", row)], columns)) == [
        ("here", {"id": "7", "question": "who?", "answers": ["Ann", "Anne"], "hops": 2})
    ]


def test_a_set_without_ids_is_numbered() -> None:
    rows = [("1", {"question": "a?", "answer": ["x"]}), ("2", {"question": "b?", "answer": ["y"]})]
    assert [row["id"] for _, row in map_rows(rows, {"answers": "answer"})] == ["1", "2"]


def test_flashrags_golds_need_no_mapping() -> None:
    row = {"id": "test_0", "question": "who?", "golden_answers": ["Ann"], "metadata": None}
    assert list(map_rows([("x", row)], {})) == [("x", row)]


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    with pytest.raises(EvalError, match=r'^line 1: column "query" \(our question\) is missing; there are id, text$'):
        list(map_rows([("line 1", {"id": "1", "text": "t"})], {"question": "query"}))


def test_a_field_that_is_none_offers_the_nearest() -> None:
    with pytest.raises(EvalError, match="'anwsers' is no field .*did you mean 'answers'"):
        check_columns({"anwsers": "x"}, QUESTION_FIELDS)
    check_columns({"answers": "x"}, QUESTION_FIELDS)
