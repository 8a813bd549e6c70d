"""Where answers and the question's words stand in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_app.page.marks import Piece, Support, differences, mark_text, phrase, same_words, support


def _marked(text: str, answers: list[str], question: str = "") -> list[tuple[str, str]]:
    return [(piece.text, piece.kind) for piece in mark_text(text, answers, question) if piece.kind]


@pytest.mark.parametrize(
    ("text", "answers", "marked"),
    [
        ("The engine of James Watt ran.", ["James Watt"], ["James Watt"]),
        ("JAMES, WATT and james watt", ["James Watt"], ["JAMES, WATT", "james watt"]),
        ("often ten tens", ["ten"], ["ten"]),
        ("Beyoncé sang", ["Beyonce"], ["Beyoncé"]),
        ("Crystal Palace burnt", ["the Crystal Palace"], ["Crystal Palace"]),
        ("It weighs 660 tonnes.", ["660 tonnes", "660"], ["660 tonnes"]),
        ("首都是北京市", ["北京"], ["北京"]),
        ("no, he said no", ["no"], []),
        ("The passages do not tell.", ["The passages do not tell."], []),
        ("nothing here", ["", "..."], []),
    ],
)
def test_answers_are_marked_as_whole_words_whatever_their_notation(
    text: str, answers: list[str], marked: list[str]
) -> None:
    assert _marked(text, answers) == [(found, "answer") for found in marked]


def test_the_questions_words_are_marked_in_any_form_but_not_its_small_words() -> None:
    found = _marked("He was building the bridges of the city", [], "Who built the bridge of a city? Building")
    assert found == [("building", "term"), ("bridges", "term"), ("city", "term")]


def test_an_answer_wins_over_a_term() -> None:
    assert _marked("James Watt and James", ["James Watt"], "James?") == [("James Watt", "answer"), ("James", "term")]


@given(st.text(max_size=80), st.lists(st.text(max_size=12), max_size=3), st.text(max_size=30))
def test_the_pieces_are_the_text(text: str, answers: list[str], question: str) -> None:
    assert "".join(piece.text for piece in mark_text(text, [*answers, text[3:9]], question)) == text


def test_support_prefers_passages_that_hold_the_answer_together() -> None:
    texts = ["Watt knew James", "James Watt", "nobody", "a James Watt engine"]
    assert support("james watt.", texts) == Support((1, 3))
    assert support("Watt of James", texts) == Support((0, 1, 3), whole=False)
    assert support("Jenner", texts) == Support((), whole=False)
    assert support("yes", texts) is None and support("The passages do not tell", texts) is None
    assert phrase("The Diver!") == ("diver",)


def test_differences_mark_what_the_other_answer_lacks() -> None:
    left, right = differences("Henry Winstanley in 1698", "henry Winstanley, of Essex")
    assert left == [Piece("Henry Winstanley"), Piece(" "), Piece("in 1698", "differs")]
    assert right == [Piece("henry Winstanley,"), Piece(" "), Piece("of Essex", "differs")]
    assert differences("Watt", "Jenner") == ([Piece("Watt")], [Piece("Jenner")])
    assert same_words("Watt, James.", "watt james") and not same_words("Watt", "James Watt")


@given(st.text("ab .", max_size=30), st.text("ab .", max_size=30))
def test_differences_lose_no_word(left: str, right: str) -> None:
    for pieces, text in zip(differences(left, right), (left, right), strict=True):
        assert "".join(piece.text for piece in pieces).split() == text.split()
