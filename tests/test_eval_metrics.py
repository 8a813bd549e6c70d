"""EM, F1, contains and has_answer: the trap values of the official scripts, and independent re-implementations."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import example, given
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


def test_nothing_is_stemmed_spelt_out_or_stripped_of_accents() -> None:
    for rule in sorted(set(RULES) - {"curatedtrec"}):
        for prediction, gold in (("cats", "cat"), ("two", "2"), ("Beyonce", NFC), ("Mt Everest", "Mount Everest")):
            assert not exact_match(prediction, [gold], rule)


def test_triviaqas_normalised_aliases_go_with_its_own_rule_and_raw_ones_with_squads() -> None:
    assert exact_match("J.K. Rowling", ["j k rowling"], "triviaqa")
    assert not exact_match("J.K. Rowling", ["j k rowling"], "squad")
    assert exact_match("JK Rowling", ["J.K. Rowling"], "squad")


def test_triviaqa_takes_four_more_signs_for_spaces() -> None:
    for sign in "\u2018\u2019\u00b4`":
        assert normalise_triviaqa(f"O{sign}Brien") == "o brien"
    for sign in "\u201c\u201d\u2013":
        assert normalise_triviaqa(f"O{sign}Brien") == f"o{sign}brien"


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


def reference_normal(text: str, rule: str) -> str:
    """QA_METRICS' table, row by row: sign by sign, then runs of word characters, of which articles are left out."""
    if rule == "nq_open":
        text = unicodedata.normalize("NFD", text)
    if rule == "triviaqa":
        text = text.replace("_", " ")
    text = text.lower()
    for sign in PUNCTUATION + ("\u2018\u2019\u00b4`" if rule == "triviaqa" else ""):
        text = text.replace(sign, " " if rule == "triviaqa" else "")
    runs = ["".join(run) for _, run in itertools.groupby(text, key=str.isalnum)]
    return " ".join("".join(" " if run in {"a", "an", "the"} else run for run in runs).split())


def reference_scores(prediction: str, golds: list[str], rule: str) -> tuple[bool, Fraction]:
    said = reference_normal(prediction, rule)
    best, equal = Fraction(0), False
    for gold in [gold for gold in golds if gold.strip()] or [""]:
        wanted = reference_normal(gold, rule)
        equal = equal or wanted == said
        left, common = wanted.split(), 0
        for token in said.split():
            if token in left:
                left.remove(token)
                common += 1
        if common:
            best = max(best, Fraction(2 * common, len(said.split()) + len(wanted.split())))
    return equal, best


VOCABULARY = [
    *["the", "The", "a", "A", "an", "AN", "The The", "theatre", "", " ", "\t", "\u00a0"],
    *["Beyonc\u00e9", "S\u00e3o", "caf\u00e9", "\u0130zmir", "stra\u00dfe", "\u4e2d\u6587", "na\u00efve"],
    *["J.K.", "J.", "K.", "JK", "Rowling", "U.S.A.", "USA", "a.m.", "am", "A-ha", "ha", "well-known", "well", "known"],
    *[
        "O\u2019Brien",
        "O'Brien",
        "O`Brien",
        "O\u00b4Brien",
        "\u2018x\u2019",
        "\u201cHello\u201d",
        '"Hello"',
        "Hello",
        "snake_case",
    ],
    *["1,000", "1000", "$5", "\u00a35", "5", "12\u201314", "12-14", "3.5%", "2", "two", "\u00bd", "\u0664"],
    *["yes", "no", "-", "...", "?", "_", "\u00bf", "New", "York", "York"],
]


def made_up_answers(n: int) -> list[tuple[str, list[str]]]:
    """Predictions and golds, each gold a like form of the prediction, another answer, or nothing."""
    rng = random.Random(20240229)

    def phrase() -> str:
        return rng.choice([" ", "  ", " "]).join(rng.choices(VOCABULARY, k=rng.randint(0, 6)))

    changes = [
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: unicodedata.normalize("NFC", text),
        str.upper,
        lambda text: f"the {text}",
        lambda text: text + rng.choice(PUNCTUATION),
        lambda text: "".join(char for char in text if char not in PUNCTUATION),
        lambda text: text.replace("-", " ").replace(".", " ").replace("\u2019", "'"),
        lambda text: " ".join(text.split()[:-1]),
        lambda text: f"{text} {phrase()}",
        lambda _: phrase(),
    ]
    answers = []
    for _ in range(n):
        prediction = phrase()
        golds = [rng.choice(changes + 2 * changes[-3:])(prediction) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        answers.append((rng.choice(changes[:-1])(prediction), golds))
    return answers


def test_a_thousand_made_up_predictions_score_as_an_independent_implementation_has_it() -> None:
    answers = made_up_answers(1000)
    outcomes = []
    for prediction, golds in answers:
        row = []
        for rule in ("squad", "nq_open", "triviaqa"):
            em, best = reference_scores(prediction, golds, rule)
            score = score_answer(prediction, golds, rule)
            assert (score.em, score.f1) == (em, pytest.approx(float(best), abs=1e-12)), (prediction, golds, rule)
            row.append((em, best))
        outcomes.append(row)
    # The set is worth something: each rule finds and refuses many, many F1 lie between, and the rules differ.
    for column in zip(*outcomes, strict=True):
        assert 250 < sum(em for em, _ in column) < 750
        assert sum(0 < best < 1 for _, best in column) > 100
    for one, other in itertools.combinations(range(3), 2):
        assert sum(row[one] != row[other] for row in outcomes) > 15


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
