"""What the page says of a comparison: badge, sentence, verdict, answers and states, with untrusted text as text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rag_app.answers import Answer
from rag_app.config import load_config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.page.cards import render_passages
from rag_app.page.compare import Side, badge, sentence
from rag_app.page.examples import example_questions
from rag_app.page.golds import Golds
from rag_app.page.plots import render_slopes
from rag_app.page.render import outcome, render_answer, render_message, render_seconds, render_verdict
from rag_app.page.run import Snapshot, Stage
from retriever.base import Hit
from retriever.passages import Passage
from retriever.similarity import COSINE, DOT, QNORM
from tests.comparison_example import dense, found_from, snapshot_of, some_hits
from tests.markup import Markup, text_of


@pytest.mark.parametrize(
    ("left", "right", "label"),
    [
        (dense(COSINE), dense(QNORM), "same encoder, different scoring"),
        (dense(DOT), dense(QNORM), "same encoder, same ranking"),
        (dense(COSINE, "e1"), dense(QNORM, "e2"), "different checkpoints"),
        (dense(COSINE), dense(COSINE), "same retriever twice"),
        (dense(COSINE), Side("bm25", "bm25"), "words against vectors"),
        (Side("bm25", "bm25"), Side("bm25-plain", "bm25"), "words on both sides"),
        (Side(CLOSED_BOOK, "closed-book"), dense(COSINE), "with and without passages"),
        (dense(COSINE), Side("broken", "unknown"), "one side only"),
        (Side("gone", "unknown"), Side("broken", "unknown"), "nothing to compare"),
    ],
)
def test_the_badge_says_what_the_comparison_isolates(left: Side, right: Side, label: str) -> None:
    assert badge(left, right)[0] == label


def test_the_explanation_says_which_side_keeps_magnitude() -> None:
    assert badge(dense(COSINE), dense(QNORM))[1] == (
        "One set of vectors, ranked twice: cosine drops the passage's magnitude |d|, "
        "qnorm keeps the passage's magnitude |d|."
    )


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ("abc", "abc", "Both sides rank the same 3 passages in the same order."),
        (
            "abc",
            "cab",
            "Both sides found the same 3 passages, in a different order. From cosine to qnorm, 1 passage moved up and 2 down.",
        ),
        ("abc", "cxy", "The two sides share 1 of 3 passages. From cosine to qnorm, 3 passages moved up and 2 down."),
        (
            "abc",
            "xyz",
            "The two sides have no passage in common. From cosine to qnorm, 3 passages moved up and 3 down.",
        ),
        ("a", "a", "Both sides rank the same 1 passage in the same order."),
        ("", "abc", "cosine found no passage."),
        ("", "", "Neither side found a passage."),
    ],
)
def test_the_sentence_counts_shared_and_moved_passages(left: str, right: str, words: str) -> None:
    answers = (Answer("cosine", hits=some_hits(left)), Answer("qnorm", hits=some_hits(right)))
    found = (found_from(answers[0].hits), found_from(answers[1].hits))
    assert sentence((dense(COSINE), dense(QNORM)), answers, found) == words


def test_the_sentence_says_which_side_found_the_longer_vectors() -> None:
    answers = (Answer("cosine", hits=some_hits("ab")), Answer("qnorm", hits=some_hits("ab")))
    sides = (dense(COSINE), dense(QNORM))

    def said(left: Sequence[float], right: Sequence[float]) -> str:
        return sentence(sides, answers, (found_from(answers[0].hits, left), found_from(answers[1].hits, right)))

    assert said([20, 30], [70, 91]).endswith(
        "qnorm found the longer vectors: mean magnitude percentile 80, against 25 under cosine."
    )
    assert said([50, 50], [51, 52]).endswith("Magnitudes are alike: mean percentile 50 under cosine, 52 under qnorm.")
    assert said([], [51, 52]).endswith("in the same order.")


def test_a_note_that_both_sides_share_is_shown_once() -> None:
    sides = tuple(Side(name, "dense", "m", "e", DOT, ("norms are free",)) for name in ("dot", "qnorm"))
    html = render_verdict(snapshot_of(Answer("dot"), Answer("qnorm"), (sides[0], sides[1])))
    assert text_of(html).count("norms are free") == 1
    assert "About dot and qnorm: norms are free." in text_of(html)


GOLDS = Golds(("James Watt", "Watt"))


def _answers(left: str, right: str, golds: Golds | None = None, stage: Stage = "done") -> Snapshot:
    hits = [
        Hit(1, Passage("a", "Engines", "The engine of James Watt."), 1.0),
        Hit(2, Passage("b", "James", "He knew Watt well."), 0.5),
    ]
    return snapshot_of(
        Answer("cosine", answer=left, hits=hits), Answer("qnorm", answer=right, hits=hits), golds=golds, stage=stage
    )


@pytest.mark.parametrize(
    ("left", "right", "golds", "says"),
    [
        ("James Watt.", "watt", GOLDS, "Both answers are right."),
        ("Watt", "Edward Jenner", GOLDS, "cosine’s answer is right, qnorm’s does not match the gold."),
        ("Edward", "the Watt", GOLDS, "qnorm’s answer is right, cosine’s does not match the gold."),
        ("Edward", "Jenner", GOLDS, "Neither answer matches the gold exactly."),
        ("Edward.", "edward", None, "Both gave the same answer."),
        ("Edward", "Jenner", None, "The answers differ."),
        ("", "Jenner", None, ""),
        ("The passages do not tell.", "x", Golds(()), "The corpus has no answer to this: only cosine said so."),
        (
            "the passages do not tell",
            "The passages do not tell.",
            Golds(()),
            "The corpus has no answer to this: both readers said so.",
        ),
    ],
)
def test_the_verdict_says_who_is_right(left: str, right: str, golds: Golds | None, says: str) -> None:
    assert outcome(_answers(left, right, golds)) == says
    assert outcome(_answers(left, right, golds, "answering")) == ""


def test_an_answer_shows_its_score_and_links_to_the_passages_that_hold_it() -> None:
    html = render_answer(_answers("James Watt of Greenock", "Watt", GOLDS), 0)
    # Two of the gold's two tokens among four: precision 1/2, recall 1.
    assert "EM 0 · F1 0.67 · golds: James Watt, Watt" in text_of(html)
    assert "stand in no passage shown here" in text_of(html)
    html = render_answer(_answers("James Watt of Greenock", "James Watt", GOLDS), 1)
    assert "✓ EM 1 · F1 1.00" in text_of(html) and '<a href="#mg-b-1">1</a></p>' in html
    assert "Its words, not together, in passages 1, 2" in text_of(render_answer(_answers("Watt James", "x"), 0))
    assert "EM" not in text_of(render_answer(_answers("Watt", "x", GOLDS, "answering"), 0))


def test_words_that_the_other_answer_lacks_are_marked() -> None:
    snapshot = _answers("James Watt in 1736", "james Watt, in 1749")
    assert 'James Watt in <mark class="mg-differs">1736</mark>' in render_answer(snapshot, 0)
    assert 'james Watt, in <mark class="mg-differs">1749</mark>' in render_answer(snapshot, 1)


def test_the_prompt_is_there_on_demand() -> None:
    answer = Answer(
        "cosine", answer="x", prompt="Passages:\n<1>", prompt_tokens=812, timings={"encode": 0.0123, "generate": 2.34}
    )
    html = render_seconds(snapshot_of(answer, answer), 0)
    assert "encode 12 ms · whole answer 2.3 s" in text_of(html)
    assert "<summary>The prompt, 812 tokens</summary><pre " in html and ">Passages:\n&lt;1&gt;</pre>" in html


def test_states_are_told_in_words() -> None:
    def answer(answer: Answer, stage: Stage = "done") -> str:
        return text_of(render_answer(snapshot_of(answer, Answer("qnorm"), stage=stage), 0))

    nothing = snapshot_of(Answer("x"), Answer("y"), (Side("x", "bm25"), Side(CLOSED_BOOK, "closed-book")))
    assert "none shares a word with this question" in render_passages(nothing, 0)
    assert "No passages" in render_passages(nothing, 1)
    assert "reading" in answer(Answer("cosine"), "waiting")
    assert "gave no answer" in answer(Answer("cosine"))
    assert answer(Answer("cosine", answer="x", dropped=2)).endswith("2 passages left out for length.")
    assert "1 passage left out" in answer(Answer("cosine", answer="x", dropped=1, cut=True))
    assert "<code>magrag index C</code>" in render_answer(
        snapshot_of(Answer("x", error="no index; run `magrag index C`"), Answer("y")), 0
    )
    timed = Answer("cosine", timings={"encode": 0.5})
    assert render_seconds(snapshot_of(timed, timed, stage="answering"), 0) == ""
    assert "encode 500 ms" in render_seconds(snapshot_of(timed, timed), 0)


def test_examples_are_of_every_kind_and_only_for_the_demo() -> None:
    kinds = [kind for kind, _ in example_questions(load_config())]
    assert len(kinds) == 7 and set(kinds) == {"trivia", "search", "multihop", "unanswerable", "language"}
    assert example_questions(load_config(None, ["corpus=other.jsonl"])) == []


ATTACK = '<script>alert("x")</script><img src=x onerror=alert(1)>'


def test_untrusted_text_is_shown_as_text_everywhere() -> None:
    hit = Hit(1, Passage(ATTACK, ATTACK, ATTACK + " word" * 90), 1.0, 0.5, 2.0, 6.0)
    side = Side(ATTACK, "dense", ATTACK, "e1", QNORM, (ATTACK,))
    answer = Answer(ATTACK, answer=ATTACK, hits=[hit], timings={ATTACK: 1.0}, prompt=ATTACK)
    snapshot = snapshot_of(answer, answer, (side, side), question=ATTACK, golds=Golds((ATTACK,)))
    failed = snapshot_of(Answer(ATTACK, error=ATTACK), answer, (side, side))
    pieces = [
        render_passages(snapshot, 0),
        render_answer(snapshot, 0),
        render_answer(failed, 0),
        render_seconds(snapshot, 0),
        render_verdict(snapshot),
        render_message(ATTACK),
        render_slopes(snapshot),
    ]
    for piece in pieces:
        markup = Markup(piece)
        assert not {"script", "img"} & {tag for tag, _ in markup.tags}
        assert not any(name.startswith("on") for _, attributes in markup.tags for name in attributes)
        assert '<script>alert("x")</script>' in markup.text
