"""EM and F1: the trap values of the official scripts, empty golds, and what no rule may give."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.errors import EvalError
from eval.metrics import (
    RULES,
    Rule,
    contains_match,
    exact_match,
    f1,
    get_rule,
    has_answer,
    kept_golds,
    score_answer,
)

NFC, NFD = "Beyonc\u00e9", "Beyonce\u0301"


# prediction, gold, then 1 = match under squad, nq_open, triviaqa.
EM_TRAPS = [
    ("J.K. Rowling", "J. K. Rowling", 0, 0, 1),
    ("JK Rowling", "J.K. Rowling", 1, 1, 0),
    ("U.S.A.", "USA", 1, 1, 0),
    ("a.m.", "am", 1, 1, 0),
    ("well-known", "well known", 0, 0, 1),
    ("O\u2019Brien", "O'Brien", 0, 0, 1),
    ("snake_case", "snake case", 0, 0, 1),
    ("1,000", "1000", 1, 1, 0),
    ("$5", "5", 1, 1, 1),
    ("\u00a35", "5", 0, 0, 0),
    ("\u201cHello\u201d", "Hello", 0, 0, 0),
    ("12\u201314", "12-14", 0, 0, 0),
    (NFD, NFC, 0, 1, 0),
    ("A-ha", "ha", 0, 0, 1),
    ("Vitamin A", "Vitamin", 1, 1, 1),
    ("The The", "", 1, 1, 1),
    ("two", "2", 0, 0, 0),
]


@pytest.mark.parametrize(("prediction", "gold", "squad", "nq_open", "triviaqa"), EM_TRAPS)
def test_exact_match_gives_the_official_value_for_each_trap(
    prediction: str, gold: str, squad: int, nq_open: int, triviaqa: int
) -> None:
    got = [exact_match(prediction, [gold], rule) for rule in ("squad", "nq_open", "triviaqa")]
    assert got == [bool(squad), bool(nq_open), bool(triviaqa)]


# prediction, gold, F1 under squad (plain), hotpotqa, squad_v2 (and musique).
F1_TRAPS = [
    ("yes", "yes it is", 0.5, 0.0, 0.5),
    ("no", "no answer", 2 / 3, 0.0, 2 / 3),
    ("yes", "Paris yes", 2 / 3, 0.0, 2 / 3),
    ("", "the", 0.0, 0.0, 1.0),
    ("New York New York", "New York", 2 / 3, 2 / 3, 2 / 3),
]


@pytest.mark.parametrize(("prediction", "gold", "plain", "hotpotqa", "squad_v2"), F1_TRAPS)
def test_f1_gives_the_official_value_for_each_trap(
    prediction: str, gold: str, plain: float, hotpotqa: float, squad_v2: float
) -> None:
    got = {rule: f1(prediction, [gold], rule) for rule in RULES if rule != "curatedtrec"}
    assert got == pytest.approx(
        {
            "squad": plain,
            "nq_open": plain,
            "triviaqa": plain,
            "hotpotqa": hotpotqa,
            "2wikimultihopqa": hotpotqa,
            "musique": squad_v2,
            "squad_v2": squad_v2,
        }
    )


def test_nothing_is_stemmed_spelt_out_or_stripped_of_accents() -> None:
    for rule in sorted(set(RULES) - {"curatedtrec"}):
        for prediction, gold in (("cats", "cat"), ("two", "2"), ("Beyonce", NFC), ("Mt Everest", "Mount Everest")):
            assert not exact_match(prediction, [gold], rule)


def test_triviaqas_normalised_aliases_go_with_its_own_rule_and_raw_ones_with_squads() -> None:
    assert exact_match("J.K. Rowling", ["j k rowling"], "triviaqa")
    assert not exact_match("J.K. Rowling", ["j k rowling"], "squad")
    assert exact_match("JK Rowling", ["J.K. Rowling"], "squad")


SHORT = st.lists(st.sampled_from(["yes", "no", "the", "Paris", "a", "", "noanswer", "x."]), max_size=3).map(" ".join)


@pytest.mark.parametrize("rule", sorted(set(RULES) - {"curatedtrec"}))
@given(prediction=SHORT, golds=st.lists(SHORT, max_size=3))
def test_em_is_at_most_f1_but_for_marked_empty_matches(rule: str, prediction: str, golds: list[str]) -> None:
    score = score_answer(prediction, golds, rule)
    assert score.f1 is not None and 0 <= score.f1 <= 1
    if score.em and score.f1 < 1:
        assert score.empty_match and RULES[rule].normalise(prediction) == "" and score.f1 == 0


def test_an_empty_match_has_em_1_and_the_f1_of_its_style() -> None:
    assert score_answer("The", [""], "squad") == score_answer("The", [""], "hotpotqa")
    plain, v2 = score_answer("The", [""], "squad"), score_answer("The", [""], "squad_v2")
    assert (plain.em, plain.f1, plain.empty_match) == (True, 0.0, True)
    assert (v2.em, v2.f1, v2.empty_match) == (True, 1.0, True)


class Forgetful:
    """A normaliser that a defect might bring about: each time it is asked, it makes something else of a text."""

    def __init__(self, *results: str) -> None:
        self.results = list(results)

    def __call__(self, text: str) -> str:
        return self.results.pop(0)


# Asked for the prediction and the gold by EM, by F1, and for the prediction once more.
VIOLATION = ("same", "same", "one", "two", "same")


def test_an_em_above_f1_is_an_error_that_names_the_answer() -> None:
    rule = Rule("defective", Forgetful(*VIOLATION), "plain", "nobody's")
    with pytest.raises(AssertionError, match=r"EM 1 but F1 0.0 for 'p' against \['g'\] under defective"):
        score_answer("p", ["g"], rule)


def test_an_em_above_f1_is_an_error_also_where_python_leaves_out_assertions() -> None:
    code = f"""
from eval.metrics import Rule, score_answer
results = list({VIOLATION!r})
score_answer("p", ["g"], Rule("defective", lambda text: results.pop(0), "plain", "nobody's"))
"""
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "AssertionError: EM 1 but F1 0.0" in done.stderr


def test_em_and_f1_take_their_maxima_over_golds_separately() -> None:
    golds = ["Samuel Langhorne Clemens", "Mark Twain"]
    assert exact_match("Mark Twain", golds, "squad")
    assert f1("Samuel Clemens", golds, "squad") == pytest.approx(0.8)
    assert not exact_match("Samuel Clemens", golds, "squad")


def test_empty_golds_are_dropped_and_none_left_means_the_empty_gold() -> None:
    assert kept_golds(["", " ", "Paris"], "squad") == ["Paris"]
    assert kept_golds(["", " "], "squad") == [""]
    assert kept_golds([], "squad") == [""]
    assert not exact_match("", ["", "Paris"], "squad")
    assert exact_match("", [], "squad")


def test_only_the_squad_v2_script_drops_golds_that_normalise_to_nothing() -> None:
    golds = ["The The", "English rock band"]
    assert exact_match("The The", golds, "squad")
    assert not exact_match("The The", golds, "squad_v2")
    assert exact_match("The The", ["The The"], "squad_v2")


def test_an_unknown_rule_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(EvalError, match="'hotpot_qa': did you mean 'hotpotqa'"):
        get_rule("hotpot_qa")
    with pytest.raises(EvalError, match="use one of squad, nq_open"):
        get_rule("?")


def test_golds_given_as_one_string_are_refused() -> None:
    # Otherwise "Paris" would be the golds "P", "a", "r", "i", "s".
    for call in (
        lambda: exact_match("P", "Paris", "squad"),
        lambda: f1("P", "Paris", "squad"),
        lambda: contains_match("P", "Paris", "squad"),
        lambda: has_answer("Paris", "P"),
    ):
        with pytest.raises(EvalError, match="list of strings, got the string 'Paris'"):
            call()
