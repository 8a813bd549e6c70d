"""Why a question was missed: one cause each, in a fixed order of precedence, and what two systems differ on."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.causes import CAUSES, answer_passages, cause_of, count_causes, near_miss_reason
from eval.data.datasets import Question
from eval.errors import EvalError
from eval.flips import FirstAnswer, count_flips, flips
from eval.metrics import RULES, exact_match
from tests.run_folders import row, write_run

PARIS = Question("q", "nq", "capital of France?", ("Paris",))
VERDICT = Question("q", "hotpotqa", "are both French?", ("yes",), supporting_ids=("p1", "p2"))


def cause(
    prediction: str = "Lyon", passages: str = "a b* c", *, question: Question = PARIS, rule: str = "squad",
    answerable: bool | None = None, **facts: Any,
) -> str:  # fmt: skip
    return cause_of(question, row("s", "q", prediction, passages, **facts), rule, answerable)


def test_each_cause_from_the_least_that_makes_it() -> None:
    assert cause("the Paris.") == "correct"
    assert cause_of(PARIS, None, "squad") == "missing"
    assert cause("", error="prompt too long") == "missing"
    assert cause(question=Question("q", "nq", "x?", ())) == "no gold"
    assert cause(question=Question("q", "nq", "x?", ("", " "))) == "no gold"
    assert cause("“Paris”") == "alias near-miss"
    assert cause(passages="", k=0) == "no passages"
    assert cause(passages="a b", answerable=False) == "no answer in corpus"
    assert cause(passages="a b", answerable=True) == "retrieval miss"
    assert cause(passages="a b c*", dropped=1) == "prompt cut"
    assert cause() == "reader miss"


def test_the_first_that_holds_counts() -> None:
    # An answer, though without any evidence, is right; an error is missing even where its text would be right.
    assert cause("Paris", passages="a b", answerable=False) == "correct"
    assert cause("Paris", error="stopped") == "missing"
    # Saying nothing to a question without answer is right under the official scripts.
    assert cause("", question=Question("q", "nq", "x?", ())) == "correct"
    assert cause("“Paris”", passages="", k=0) == "alias near-miss"
    assert cause("“Paris”", passages="a b", answerable=False) == "alias near-miss"
    assert cause(passages="", k=0, answerable=False) == "no passages"


def test_only_the_passages_that_were_offered_to_the_reader_count() -> None:
    assert cause(passages="a b c* d", k=2) == "retrieval miss"
    assert cause(passages="a b c* d", k=3) == "reader miss"
    assert cause(passages="", k=5) == "retrieval miss"  # BM25 may find nothing at all


@pytest.mark.parametrize(
    ("passages", "dropped", "cut", "expected"),
    [
        ("a* b c", 2, False, "reader miss"),
        ("a* b c", 3, False, "prompt cut"),
        ("a b* c", 1, False, "reader miss"),
        ("a b* c", 1, True, "prompt cut"),  # b is the last that stayed, and was shortened
        ("a* b* c", 1, True, "reader miss"),
        ("a b* c*", 1, True, "prompt cut"),  # one dropped, the other shortened
        ("a b c*", 0, True, "prompt cut"),
        ("a b c* d*", 1, False, "reader miss"),
        ("a b c", 3, False, "retrieval miss"),
    ],
)
def test_an_answer_that_did_not_reach_the_reader_whole(passages: str, dropped: int, cut: bool, expected: str) -> None:
    assert cause(passages=passages, dropped=dropped, cut=cut) == expected
    # What lies below k was never offered, and is not what was dropped.
    assert cause(passages=passages + " x* y*", k=len(passages.split()), dropped=dropped, cut=cut) == expected


def test_yes_and_no_are_looked_for_by_the_marked_passages_all_of_them() -> None:
    def verdict(passages: str, question: Question = VERDICT, **facts: Any) -> str:
        return cause("no", passages, question=question, rule="hotpotqa", **facts)

    assert verdict("a* b* p1*") == "retrieval miss"  # "yes" stands in all of them
    assert verdict("p1 a p2") == "reader miss"
    assert verdict("p1 a p2", k=2) == "retrieval miss"
    assert verdict("p1 a p2", dropped=1) == "prompt cut"
    assert verdict("p1 p2 a", cut=True) == "reader miss"
    assert verdict("p1 p2", cut=True) == "prompt cut"
    assert verdict("a b", answerable=False) == "retrieval miss"
    both = Question("q", "boolq", "x?", ("Yes.", "no"), gold_ids=("p1",))
    assert cause("perhaps", "p1 a", question=both) == "reader miss"
    assert cause("perhaps", "a* b*", question=both) == "retrieval miss"
    assert cause("perhaps", "a b", question=Question("q", "boolq", "x?", ("no",))) == "reader miss"
    # With another gold beside it the string is evidence again.
    mixed = Question("q", "nq", "x?", ("yes", "the band Yes"), supporting_ids=("p1",))
    assert cause("perhaps", "a b*", question=mixed) == "reader miss"


@pytest.mark.parametrize(
    ("prediction", "golds", "rule", "reason"),
    [
        # The table of traps: what matches under another script.
        ("J.K. Rowling", ["J. K. Rowling"], "squad", "rule triviaqa"),
        ("JK Rowling", ["J.K. Rowling"], "triviaqa", "rule squad"),
        ("snake_case", ["snake case"], "hotpotqa", "rule triviaqa"),
        ("well-known", ["x", "well known"], "musique", "rule triviaqa"),
        ("Beyonc\u0065\u0301", ["Beyonc\u00e9"], "squad", "rule nq_open"),
        # Signs that the ASCII rules keep.
        ("£5", ["5"], "squad", "Unicode punctuation"),
        ("“Hello”", ["Hello"], "nq_open", "Unicode punctuation"),
        ("12–14", ["12-14"], "squad", "Unicode punctuation"),
        ("well–known", ["well known"], "squad", "Unicode punctuation"),
        ("¿Paris?", ["Paris"], "triviaqa", "Unicode punctuation"),
        ("“The Hague”", ["Hague"], "squad", "Unicode punctuation"),
        ("“An Ode”", ["Ode"], "squad", "Unicode punctuation"),
        (
            "\u039f\u0394\u039f\u03a3–\u0391",
            ["\u03bf\u03b4\u03bf\u03c3\u03b1"],
            "squad",
            "Unicode punctuation",
        ),  # sigma
        # Accents, with signs or without.
        ("Beyonce", ["Beyoncé"], "squad", "accents"),
        ("São Paulo", ["Sao Paulo"], "nq_open", "accents"),
        ("«Curaçao»", ["Curacao"], "squad", "accents"),
        # Not a matter of notation.
        ("Paris, France", ["Paris"], "squad", None),
        ("two", ["2"], "squad", None),
        ("", ["Paris"], "squad", None),
        ("?", ["The The", "Paris"], "squad_v2", None),
        ("…", ["$"], "squad", None),
        ("Paris", [], "squad", None),
        # Marks that tell letters apart: ga is not ka, and the vowel signs of Hindi are letters.
        ("か", ["が"], "squad", None),
        ("हद", ["हिंदी"], "squad", None),
        # Patterns are read as patterns, and only by the rule that has them.
        ("“1914”", ["19\\d\\d"], "curatedtrec", "Unicode punctuation"),
        ("Beyonce", ["beyonc[é]"], "curatedtrec", "accents"),
        ("in 1914", ["19\\d\\d"], "curatedtrec", None),
        ("Parisian", ["Paris"], "squad", None),  # a pattern would match its beginning
        ("x", ["("], "curatedtrec", None),
    ],
)
def test_near_misses_are_named_by_what_would_mend_them(
    prediction: str, golds: list[str], rule: str, reason: str | None
) -> None:
    assert not exact_match(prediction, golds, rule)
    assert near_miss_reason(prediction, golds, rule) == reason


# Little enough that texts are often alike, and everything that a comparison takes out or treats in a way of its own.
LOOKALIKES = st.text("aAnthe xX5-.’“–£_ \u00e9e\u0301ÅA\u030aΣςσßẞİiı½हि\t\u0085", max_size=7)


def defined_reason(prediction: str, golds: list[str], rule: str) -> str | None:
    """The definition itself, every gold under every comparison."""

    def plain(text: str, filler: str) -> str:
        return "".join(filler if unicodedata.category(sign)[0] in "PS" else sign for sign in text)

    def bare(text: str) -> str:
        decomposed = unicodedata.normalize("NFD", text)
        return unicodedata.normalize("NFC", re.sub("[\u0300-\u036f]", "", decomposed))

    comparisons: list[tuple[str, Callable[[str], str]]] = [
        (f"rule {name}", RULES[name].normalise)
        for name in ("squad", "nq_open", "triviaqa")
        if RULES[name].normalise is not RULES[rule].normalise
    ]
    squad = RULES["squad"].normalise
    comparisons += [
        ("Unicode punctuation", lambda text: squad(plain(text, ""))),
        ("Unicode punctuation", lambda text: squad(plain(text, " "))),
        ("accents", lambda text: squad(plain(bare(text), ""))),
        ("accents", lambda text: squad(plain(bare(text), " "))),
    ]
    golds = [gold for gold in golds if gold.strip()]
    for reason, normalise in comparisons:
        if normalise(prediction) and normalise(prediction) in map(normalise, golds):
            return reason
    return None


@settings(max_examples=600, deadline=None)
@given(LOOKALIKES, st.lists(LOOKALIKES, max_size=3), st.sampled_from(["squad", "nq_open", "triviaqa", "hotpotqa"]))
def test_reasons_are_those_of_the_definition(prediction: str, golds: list[str], rule: str) -> None:
    assert near_miss_reason(prediction, golds, rule) == defined_reason(prediction, golds, rule)


def test_an_unknown_rule_and_a_string_of_golds_are_refused() -> None:
    with pytest.raises(EvalError, match="no scoring rule 'em'"):
        cause(rule="em")
    with pytest.raises(EvalError, match="must be a list of strings"):
        near_miss_reason("Paris", "Paris", "squad")


def test_counts_hold_every_cause_in_order_and_add_up() -> None:
    questions = [Question(f"q{at}", "nq", "x?", ("Paris",)) for at in range(5)]
    rows = [row("s", "q0", "Paris"), None, row("s", "q2", "Lyon", "a"), row("s", "q3", "Lyon", "a"),
            row("s", "q4", "Lyon", "a*")]  # fmt: skip
    counts = count_causes(questions, rows, "squad", {"q2": False, "q3": True})
    assert tuple(counts) == CAUSES
    assert {name: n for name, n in counts.items() if n} == {
        "correct": 1, "missing": 1, "no answer in corpus": 1, "retrieval miss": 1, "reader miss": 1
    }  # fmt: skip
    assert sum(count_causes(questions, rows, "squad").values()) == 5
    with pytest.raises(ValueError, match="shorter|longer"):
        count_causes(questions, rows[:4], "squad")


def test_every_combination_of_facts_ends_as_one_of_the_causes() -> None:
    """All 2 * 3 * 3 * 4 * 3 * 2 * 3 combinations against the definition written out as conditions on them."""
    seen: Counter[str] = Counter()
    golds: Sequence[tuple[str, ...]] = ((), ("Paris",))
    for answers, prediction, flags, k, dropped, cut, answerable in itertools.product(
        golds, ("Paris", "“Paris”", "Lyon"), ("a b", "a* b", "a b*"), (0, 1, 2), (0, 1, 2), (False, True),
        (None, True, False),
    ):  # fmt: skip
        if dropped > k or (cut and dropped == k):
            continue
        question = Question("q", "nq", "x?", answers)
        facts = row("s", "q", prediction, flags, k=k, dropped=dropped, cut=cut)
        found = cause_of(question, facts, "squad", answerable)
        seen[found] += 1
        at = {"a b": None, "a* b": 0, "a b*": 1}[flags]
        in_prompt = at is not None and at < k - dropped - cut
        expected = {
            "correct": bool(answers) and prediction == "Paris",
            "no gold": not answers,
            "alias near-miss": bool(answers) and prediction == "“Paris”",
        }
        if not any(expected.values()):
            expected |= {
                "no passages": k == 0,
                "no answer in corpus": k > 0 and answerable is False,
                "retrieval miss": k > 0 and answerable is not False and (at is None or at >= k),
                "prompt cut": answerable is not False and at is not None and at < k and not in_prompt,
                "reader miss": answerable is not False and in_prompt,
            }
        assert [name for name, holds in expected.items() if holds] == [found], (facts, answerable)
    assert set(seen) == set(CAUSES) - {"missing"}


def test_answer_passages_are_listed_to_the_recorded_depth() -> None:
    found = row("s", "q", "x", "a b* c d*", k=1)
    assert [passage["id"] for passage in answer_passages(PARIS, found)] == ["b", "d"]
    assert list(answer_passages(PARIS, None)) == []
    assert [p["id"] for p in answer_passages(VERDICT, row("s", "q", "no", "a* p2 p1"))] == ["p2", "p1"]


QUESTIONS = [
    Question("q1", "nq", "capital of France?", ("Paris",)),
    Question("q2", "nq", "author of Emma?", ("Jane Austen", "Austen")),
    Question("q3", "nq", "largest planet?", ("Jupiter",)),
    Question("q4", "nq", "both right?", ("yes it is",)),
    Question("q5", "hotpotqa", "of another set?", ("Rome",)),
    Question("q6", "nq", "not asked yet?", ("x",)),
]
ROWS = [
    row("cosine", "q1", "Paris", "p1 p2* p3", percentiles=(10, 20, 30)),
    row("cosine", "q2", "", "p4*", error="too long", percentiles=(60,)),
    row("cosine", "q3", "Saturn", "p5 p6", percentiles=(1, 2)),
    row("cosine", "q4", "yes it is", "p7"),
    row("cosine", "q5", "Rome", "p8*", percentiles=(40,)),
    row("cosine", "q6", "x"),
    row("qnorm", "q1", "Lyon", "p3 p1 p2*", k=2, percentiles=(30, 10, 20)),
    row("qnorm", "q2", "Austen", "p9* p4*", percentiles=(95, 60)),
    row("qnorm", "q3", "Jupiter!", "p5", percentiles=(1,)),
    row("qnorm", "q4", "yes, it is", "p7"),
    row("qnorm", "q5", "“Rome”", "p0", percentiles=(99,)),
]


def test_flips_hold_what_stood_behind_both_answers(tmp_path: Path) -> None:
    view = write_run(tmp_path / "run", QUESTIONS, ["cosine", "qnorm"], ROWS)
    found = {flip.question.id: flip for flip in flips(view, "cosine", "qnorm")}
    assert list(found) == ["q1", "q2", "q3", "q5"]  # q4 is right on both sides, q6 was not asked on one

    first = found["q1"]
    assert (first.dataset, first.a_correct, first.a.cause, first.b.cause) == ("nq", True, "correct", "retrieval miss")
    assert first.a.answer == FirstAnswer(2, "p2", "title of p2", 2.0, 20)
    assert first.b.answer == FirstAnswer(3, "p2", "title of p2", 2.0, 20)  # below the k = 2 that the reader got

    second = found["q2"]
    assert (second.a_correct, second.a.prediction, second.a.error, second.a.cause) == (False, "", "too long", "missing")
    assert second.a.answer is not None and second.a.answer.id == "p4"
    assert second.b.answer is not None and (second.b.answer.id, second.b.answer.percentile) == ("p9", 95)

    assert (found["q3"].a.answer, found["q3"].b.answer, found["q3"].b.prediction) == (None, None, "Jupiter!")
    assert (found["q5"].b.cause, found["q5"].b.near_miss) == ("alias near-miss", "Unicode punctuation")
    assert found["q5"].a.near_miss is None

    counts = count_flips(list(found.values()))
    # Right in cosine alone: q1 (percentiles 20 and 20) and q5 (40, and no answer passage in qnorm).
    alone = counts.a_only
    assert (alone.n, alone.a_percentile, alone.a_n, alone.b_percentile, alone.b_n) == (2, 30, 2, 20, 1)
    # In qnorm alone: q2 (60, 95) and q3, whose answer is in no passage.
    alone = counts.b_only
    assert (alone.n, alone.a_percentile, alone.a_n, alone.b_percentile, alone.b_n) == (2, 60, 1, 95, 1)
    assert (counts.both.n, counts.both.a_percentile, counts.both.b_percentile) == (4, 40, 57.5)
    assert found["q3"].to_json()["answers"] == ["Jupiter"] and found["q3"].to_json()["b"]["cause"] == "correct"


def test_flips_the_other_way_are_the_same_with_sides_changed(tmp_path: Path) -> None:
    view = write_run(tmp_path / "run", QUESTIONS, ["cosine", "qnorm"], ROWS)
    there, back = flips(view, "cosine", "qnorm"), flips(view, "qnorm", "cosine")
    assert [(flip.question, flip.b, flip.a) for flip in back] == [(flip.question, flip.a, flip.b) for flip in there]
    assert flips(view, "qnorm", "qnorm") == []


def test_no_flips_have_no_means_and_unknown_systems_are_named(tmp_path: Path) -> None:
    none = count_flips([]).both
    assert (none.n, none.a_percentile, none.a_n, none.b_percentile) == (0, None, 0, None)
    view = write_run(tmp_path / "run", QUESTIONS, ["cosine", "qnorm"], ROWS)
    with pytest.raises(EvalError, match="has no system 'bm25': it has cosine, qnorm"):
        flips(view, "cosine", "bm25")


def test_a_data_set_without_answers_has_no_flips(tmp_path: Path) -> None:
    sets = {"nq": {"task": "retrieval", "rule": None}, "hotpotqa": {"task": "qa", "rule": "hotpotqa"}}
    view = write_run(tmp_path / "run", QUESTIONS, ["cosine", "qnorm"], ROWS, datasets=sets)
    assert [flip.question.id for flip in flips(view, "cosine", "qnorm")] == ["q5"]
