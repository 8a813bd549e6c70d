"""An answer inside a text: whole tokens, and golds that are patterns."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.errors import EvalError
from eval.metrics import contains_match, exact_match, f1, has_answer, score_answer


@pytest.mark.parametrize(
    ("answers", "text", "expected"),
    [
        (["U.S."], "the US economy", False),
        (["US"], "he told us that", True),
        (["1,000"], "about 1000 men", False),
        (["ten"], "often", False),
        (["19"], "1914", False),
        (["well-known"], "a well - known man", True),
        (["Beyonc\u00e9"], "the singer Beyonce\u0301 sang", True),
        (["O\u2019Brien"], "Conan O'Brien", False),
        ([""], "anything", False),
        ([" "], "anything", False),
        ([], "anything", False),
        (["absent", "sang"], "she sang", True),
        (["she sang loud"], "she sang", False),
        (["the end"], "at the end", True),
        (["end"], "", False),
    ],
)
def test_has_answer_matches_whole_dpr_tokens(answers: list[str], text: str, expected: bool) -> None:
    assert has_answer(answers, text) is expected


def test_has_answer_searches_for_patterns_anywhere_when_golds_are_patterns() -> None:
    assert has_answer(["19[0-9]{2}"], "It was in 1914.", patterns=True)
    assert has_answer(["mount\\s+everest"], "on Mount  Everest", patterns=True)
    assert not has_answer(["18[0-9]{2}"], "It was in 1914.", patterns=True)
    assert not has_answer([""], "It was in 1914.", patterns=True)


def naive_has_answer(answers: list[str], text: str) -> bool:
    """DPR's match by hand: characters by Unicode category, then windows of tokens."""

    def tokens(raw: str) -> list[str]:
        found: list[str] = []
        word = ""
        for char in unicodedata.normalize("NFD", raw):
            kind = unicodedata.category(char)[0]
            if kind in "LNM":
                word += char
                continue
            if word:
                found.append(word)
            word = ""
            if kind not in "ZC":
                found.append(char)
        return [token.lower() for token in ([*found, word] if word else found)]

    inside = tokens(text)
    for answer in answers:
        wanted = tokens(answer)
        if wanted and any(inside[i : i + len(wanted)] == wanted for i in range(len(inside))):
            return True
    return False


SOUP = st.text(alphabet="aAbt hen-.,'_\u00e9\u0301\u2019\u00a01\n", max_size=14)


@given(answers=st.lists(SOUP, max_size=3), text=SOUP)
def test_has_answer_equals_a_naive_search(answers: list[str], text: str) -> None:
    assert has_answer(answers, text) is naive_has_answer(answers, text)


@pytest.mark.parametrize(
    ("prediction", "golds", "expected"),
    [
        ("not Mark Twain", ["Mark Twain"], True),
        ("It was the U.S.A., I think", ["USA"], True),
        ("often", ["ten"], False),
        ("a band", ["The The"], False),
        ("", ["Paris"], False),
        ("Paris", ["Paris Hilton"], False),
        ("a band", [""], False),
    ],
)
def test_contains_match_is_of_whole_tokens_and_apart_from_exact_match(
    prediction: str, golds: list[str], expected: bool
) -> None:
    assert contains_match(prediction, golds, "squad") is expected
    assert not exact_match(prediction, golds, "squad")


def test_a_gold_that_normalises_to_nothing_is_contained_in_no_prediction() -> None:
    assert not contains_match("The", ["The The"], "squad")
    assert not contains_match("", [""], "squad")


def test_curatedtrec_golds_are_patterns_matched_at_the_start_without_regard_to_case() -> None:
    assert exact_match("19 December 1984", ["19\\s+dec(ember)?\\s+1984"], "curatedtrec")
    assert not exact_match("on 19 December 1984", ["19 December 1984"], "curatedtrec")
    assert contains_match("on 19 December 1984", ["19 December 1984"], "curatedtrec")
    assert not exact_match("Paris", [""], "curatedtrec")
    assert score_answer("Paris", ["par.s"], "curatedtrec").f1 is None


def test_a_gold_that_is_no_pattern_matches_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert not exact_match("(unclosed", ["(unclosed"], "curatedtrec")
    assert "(unclosed" in caplog.text


# A run of a's can be cut into ones and twos in more ways than there are seconds.
ENDLESS, LONG = "(a|aa)+$", "a" * 60 + "b"


def test_a_pattern_that_would_take_for_ever_matches_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began = time.process_time()
    assert exact_match(LONG, [ENDLESS, "a+b"], "curatedtrec")
    assert not has_answer([ENDLESS], LONG, patterns=True)
    assert time.process_time() - began < 10
    assert [record.getMessage() for record in caplog.records if ENDLESS in record.getMessage()] == [
        f"the gold {ENDLESS!r} takes over 1 s to match a text, which counts as no match"
    ]
    assert exact_match("aaa", [ENDLESS], "curatedtrec")


def test_f1_under_patterns_is_refused() -> None:
    with pytest.raises(EvalError, match="'curatedtrec' has no F1"):
        f1("Paris", ["Paris"], "curatedtrec")
