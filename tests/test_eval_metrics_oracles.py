"""Normal forms, EM and F1 against an independent implementation, on made-up texts."""

from __future__ import annotations

import itertools
import random
import unicodedata
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eval.metrics import f1, normalise_nq_open, normalise_squad, normalise_triviaqa, score_answer

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


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
    """EM and the best F1: the harmonic mean of the shares of common tokens, 2 c / (a + b), exact."""
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


WORDS = st.lists(
    st.one_of(st.sampled_from(["a", "an", "the", "The", "A.", "£a", "the-", "\u2019a", "ha"]), st.text(max_size=6)),
    max_size=6,
).map(" ".join)


@given(WORDS)
@example("the\u2019a an")
@example("İ the The")
def test_squad_normal_form_equals_a_naive_one(text: str) -> None:
    assert normalise_squad(text) == reference_normal(text, "squad")


@given(WORDS)
def test_nq_open_normal_form_equals_a_naive_one(text: str) -> None:
    assert normalise_nq_open(text) == reference_normal(text, "nq_open")


@given(WORDS)
def test_triviaqa_normal_form_equals_a_naive_one(text: str) -> None:
    assert normalise_triviaqa(text) == reference_normal(text, "triviaqa")


def test_triviaqa_takes_four_more_signs_for_spaces() -> None:
    for sign in "\u2018\u2019\u00b4`":
        assert normalise_triviaqa(f"O{sign}Brien") == "o brien"
    for sign in "\u201c\u201d\u2013":
        assert normalise_triviaqa(f"O{sign}Brien") == f"o{sign}brien"


def test_punctuation_goes_before_articles() -> None:
    # Articles first would leave "a" alone in "a.m." and delete it.
    assert normalise_squad("a.m.") == "am"
    assert normalise_squad("the-end") == "theend"


@given(prediction=WORDS, golds=st.lists(WORDS, min_size=1, max_size=3))
def test_f1_is_the_best_dice_overlap_of_token_bags(prediction: str, golds: list[str]) -> None:
    assert f1(prediction, golds, "squad") == pytest.approx(float(reference_scores(prediction, golds, "squad")[1]))


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
