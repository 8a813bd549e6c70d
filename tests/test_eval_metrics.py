"""EM, F1, contains and has_answer: the trap values of the official scripts, and independent re-implementations."""

from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eval.errors import EvalError
from eval.metrics import (
    RULES,
    contains_match,
    exact_match,
    f1,
    get_rule,
    has_answer,
    kept_golds,
    normalise_nq_open,
    normalise_squad,
    normalise_triviaqa,
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


@pytest.mark.parametrize(
    ("answers", "text", "expected"),
    [
        (["U.S."], "the US economy", False),
        (["US"], "he told us that", True),
        (["1,000"], "about 1000 men", False),
        (["ten"], "often", False),
        (["19"], "1914", False),
        (["well-known"], "a well - known man", True),
        ([NFC], f"the singer {NFD} sang", True),
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


PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def naive_normal(text: str, spaced: str, deleted: str) -> str:
    """Normalisation by hand: one pass over characters that cuts words where \\b does, then drops lone articles."""
    words: list[str] = []
    # Word characters are letters and digits; what else is left stays, glued to its neighbours.
    for chunk in "".join(" " if c in spaced else c for c in text.lower() if c not in deleted).split():
        parts: list[str] = []
        for char in chunk:
            if parts and parts[-1][-1].isalnum() and char.isalnum():
                parts[-1] += char
            else:
                parts.append(char)
        words += "".join(" " if part in ("a", "an", "the") else part for part in parts).split()
    return " ".join(words)


WORDS = st.lists(
    st.one_of(st.sampled_from(["a", "an", "the", "The", "A.", "£a", "the-", "\u2019a", "ha"]), st.text(max_size=6)),
    max_size=6,
).map(" ".join)


@given(WORDS)
@example("the\u2019a an")
@example("İ the The")
def test_squad_normal_form_equals_a_naive_one(text: str) -> None:
    assert normalise_squad(text) == naive_normal(text, spaced="", deleted=PUNCTUATION)


@given(WORDS)
def test_nq_open_normal_form_equals_a_naive_one(text: str) -> None:
    decomposed = unicodedata.normalize("NFD", text)
    assert normalise_nq_open(text) == naive_normal(decomposed, spaced="", deleted=PUNCTUATION)


@given(WORDS)
def test_triviaqa_normal_form_equals_a_naive_one(text: str) -> None:
    assert normalise_triviaqa(text) == naive_normal(text, spaced=PUNCTUATION + "\u2018\u2019\u00b4", deleted="")


def test_punctuation_goes_before_articles() -> None:
    # Articles first would leave "a" alone in "a.m." and delete it.
    assert normalise_squad("a.m.") == "am"
    assert normalise_squad("the-end") == "theend"


def naive_f1(prediction: str, gold: str) -> float:
    left = Counter(normalise_squad(gold).split())
    size, tokens, common = sum(left.values()), normalise_squad(prediction).split(), 0
    for token in tokens:
        if left[token] > 0:
            left[token] -= 1
            common += 1
    # The harmonic mean of common / tokens and common / size.
    return 2 * common / (len(tokens) + size) if common else 0.0


@given(prediction=WORDS, golds=st.lists(WORDS, min_size=1, max_size=3))
def test_f1_is_the_best_dice_overlap_of_token_bags(prediction: str, golds: list[str]) -> None:
    assert f1(prediction, golds, "squad") == pytest.approx(max(naive_f1(prediction, gold) for gold in golds))


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


def test_f1_under_patterns_is_refused() -> None:
    with pytest.raises(EvalError, match="'curatedtrec' has no F1"):
        f1("Paris", ["Paris"], "curatedtrec")


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
