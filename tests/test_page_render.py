"""What the page says and shows, without a browser and without models."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from rag_app.answers import Answer
from rag_app.config import load_config
from rag_app.errors import ConfigError, WeightsError
from rag_app.page.compare import Side, badge, factors, moves, sentence
from rag_app.page.examples import example_questions
from rag_app.page.render import (
    render_answer,
    render_factors,
    render_message,
    render_passages,
    render_seconds,
    render_verdict,
)
from rag_app.page.run import LONGEST_QUESTION, MOST_PASSAGES, Snapshot, run_comparison
from rag_app.pipeline import CLOSED_BOOK, Pipeline
from retriever.base import Hit
from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity

ATTACK = '<script>alert("x")</script><img src=x onerror=alert(1)>'


class _Markup(HTMLParser):
    """Tags and text of a piece of HTML, as a browser's parser sees them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def _text(html: str) -> str:
    return " ".join(_Markup(html).text.split())


def _hits(ids: Sequence[str], norms: Sequence[float] | None = None) -> list[Hit]:
    lengths = norms or [2.0] * len(ids)
    return [
        Hit(place + 1, Passage(id, f"Title {id}", f"Text {id}"), 0.5 * norm, 0.5, norm, 6.0)
        for place, (id, norm) in enumerate(zip(ids, lengths, strict=True))
    ]


def _dense(similarity: Similarity, encoder: str = "e1") -> Side:
    return Side(similarity.name, "dense", f"model {encoder}", encoder, similarity)


# Moves


def test_moves_count_places_against_the_other_side() -> None:
    found = moves(_hits("abcd"), _hits("dbca"))
    assert [(move.kind, move.places) for move in found] == [("up", 3), ("same", 0), ("same", 0), ("down", 3)]


def test_a_passage_the_other_side_lacks_is_only_here() -> None:
    assert [(move.kind, move.places) for move in moves(_hits("ab"), _hits("bc"))] == [("only", 0), ("down", 1)]


def test_cards_show_moves_with_words_for_those_who_cannot_see_arrows() -> None:
    answers = [Answer("cosine", hits=_hits("abc")), Answer("qnorm", hits=_hits("cax"))]
    html = render_passages(_dense(QNORM), answers[1], answers[0])
    assert "▲ 2" in html and "2 places higher than on the other side" in html
    assert "▼ 1" in html and "1 place lower than on the other side" in html
    assert "only here" in html


def test_no_moves_are_shown_against_a_side_without_passages() -> None:
    html = render_passages(_dense(COSINE), Answer("cosine", hits=_hits("ab")), Answer(CLOSED_BOOK))
    assert "mg-move" not in html


# Factors


@pytest.mark.parametrize("similarity", [COSINE, DOT, QNORM, DNORM, Similarity("learnable", 0.25, 0.7)])
def test_factors_multiply_to_the_score_of_the_raw_vectors(similarity: Similarity) -> None:
    rng = np.random.default_rng(5)
    query, passage = rng.normal(size=8), rng.normal(size=8) * 3
    query_norm, norm = np.linalg.norm(query), np.linalg.norm(passage)
    score = query @ passage / (query_norm**similarity.gamma_q * norm**similarity.gamma_d)
    cosine = query @ passage / (query_norm * norm)
    hit = Hit(1, Passage("a", "", "text"), float(score), float(cosine), float(norm), float(query_norm))
    product = np.prod([factor.value**factor.exponent for factor in factors(hit, similarity)])
    assert product == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize(
    ("similarity", "kept", "dropped"),
    [
        (COSINE, "cosine 0.5120", "|d| 2.310 |q| 6.000"),
        (QNORM, "cosine 0.5120 × |d| 2.310 = 1.183", "|q| 6.000"),
        (DNORM, "cosine 0.5120 × |q| 6.000 = 3.072", "|d| 2.310"),
        (DOT, "cosine 0.5120 × |d| 2.310 × |q| 6.000 = 7.096", ""),
        (Similarity("learnable", 1.0, 0.5), "cosine 0.5120 × |d|0.5 2.310 = 0.778", "|q| 6.000"),
    ],
)
def test_the_score_is_shown_as_its_factors_and_dropped_ones_are_greyed(
    similarity: Similarity, kept: str, dropped: str
) -> None:
    score = 0.512 * 2.31 ** (1 - similarity.gamma_d) * 6.0 ** (1 - similarity.gamma_q)
    hit = Hit(1, Passage("a", "", "text"), score, 0.512, 2.31, 6.0)
    html = render_factors(hit, factors(hit, similarity))
    shown, _, greyed = html.partition('<span class="mg-dropped"')
    assert _text(shown) == kept
    assert _text(f"<span{greyed}") == (f"not counted: {dropped}" if dropped else "")


def test_bm25_shows_its_score_alone() -> None:
    hit = Hit(1, Passage("a", "", "text"), 12.3456)
    assert _text(render_factors(hit, factors(hit, None))) == "score 12.346"


# Escaping


def test_untrusted_text_is_shown_as_text_everywhere() -> None:
    hit = Hit(1, Passage(ATTACK, ATTACK, ATTACK + " word" * 90), 1.0, 0.5, 2.0, 6.0)
    side = Side(ATTACK, "dense", ATTACK, "e1", QNORM, (ATTACK,))
    answer = Answer(ATTACK, answer=ATTACK, hits=[hit], timings={ATTACK: 1.0})
    snapshot = Snapshot(ATTACK, (side, side), (answer, answer), ("done", "done"))
    pieces = [
        render_passages(side, answer, answer),
        render_answer(side, answer, "done"),
        render_answer(side, Answer(ATTACK, error=ATTACK), "done"),
        render_seconds(answer, "done"),
        render_verdict(snapshot),
        render_message(ATTACK),
    ]
    for piece in pieces:
        markup = _Markup(piece)
        assert not {"script", "img"} & {tag for tag, _ in markup.tags}
        assert not any(name.startswith("on") for _, attributes in markup.tags for name in attributes)
        assert '<script>alert("x")</script>' in markup.text


def test_a_long_passage_is_folded_and_loses_no_word() -> None:
    words = [f"w{number}" for number in range(200)]
    hit = Hit(1, Passage("a", "Title", " ".join(words)), 1.0, 0.5, 2.0, 6.0)
    html = render_passages(_dense(COSINE), Answer("cosine", hits=[hit]), Answer("qnorm"))
    assert re.findall(r"\bw\d+\b", html) == words
    assert "<details" in html and "145 more words" in html


# Badge and sentence


@pytest.mark.parametrize(
    ("left", "right", "label"),
    [
        (_dense(COSINE), _dense(QNORM), "same encoder, different scoring"),
        (_dense(DOT), _dense(QNORM), "same encoder, same ranking"),
        (_dense(COSINE, "e1"), _dense(QNORM, "e2"), "different checkpoints"),
        (_dense(COSINE), _dense(COSINE), "same retriever twice"),
        (_dense(COSINE), Side("bm25", "bm25"), "words against vectors"),
        (Side("bm25", "bm25"), Side("bm25-plain", "bm25"), "words on both sides"),
        (Side(CLOSED_BOOK, "closed-book"), _dense(COSINE), "with and without passages"),
        (_dense(COSINE), Side("broken", "unknown"), "one side only"),
    ],
)
def test_the_badge_says_what_the_comparison_isolates(left: Side, right: Side, label: str) -> None:
    assert badge(left, right)[0] == label


def test_the_explanation_says_which_side_keeps_magnitude() -> None:
    assert badge(_dense(COSINE), _dense(QNORM))[1] == (
        "One set of vectors, ranked twice: cosine drops the passage's magnitude |d|, "
        "qnorm keeps the passage's magnitude |d|."
    )


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ("abc", "abc", "Both sides rank the same 3 passages in the same order."),
        ("abc", "cab", "Both sides found the same 3 passages, in a different order."),
        ("abc", "cxy", "The two sides share 1 of 3 passages."),
        ("abc", "xyz", "The two sides have no passage in common."),
        ("a", "a", "Both sides rank the same 1 passage in the same order."),
        ("", "abc", "The two sides have no passage in common."),
    ],
)
def test_the_sentence_counts_shared_passages(left: str, right: str, words: str) -> None:
    answers = (Answer("cosine", hits=_hits(left)), Answer("qnorm", hits=_hits(right)))
    assert sentence((_dense(COSINE), _dense(QNORM)), answers).startswith(words)


def test_the_sentence_gives_mean_norms_and_says_when_scales_differ() -> None:
    answers = (Answer("cosine", hits=_hits("ab", [1.0, 2.0])), Answer("qnorm", hits=_hits("cd", [3.0, 4.5])))
    same = sentence((_dense(COSINE), _dense(QNORM)), answers)
    other = sentence((_dense(COSINE, "e1"), _dense(QNORM, "e2")), answers)
    assert same.endswith("Mean magnitude |d|: 1.50 under cosine, 3.75 under qnorm.")
    assert other.endswith("3.75 under qnorm, each encoder on its own scale.")


def test_a_note_that_both_sides_share_is_shown_once() -> None:
    sides = tuple(Side(name, "dense", "m", "e", DOT, ("norms are free",)) for name in ("dot", "qnorm"))
    snapshot = Snapshot("q", (sides[0], sides[1]), (Answer("dot"), Answer("qnorm")))
    assert _text(render_verdict(snapshot)).count("norms are free") == 1
    assert "About dot and qnorm: norms are free." in _text(render_verdict(snapshot))


# States


def test_states_are_told_in_words() -> None:
    side = _dense(COSINE)
    assert "Nothing found" in render_passages(side, Answer("cosine"), Answer("qnorm"))
    assert "No passages" in render_passages(Side(CLOSED_BOOK, "closed-book"), Answer(CLOSED_BOOK), Answer("qnorm"))
    assert "reading" in render_answer(side, Answer("cosine"), "waiting")
    assert "gave no answer" in render_answer(side, Answer("cosine"), "done")
    assert _text(render_answer(side, Answer("cosine", answer="x", dropped=2), "done")).endswith(
        "2 passages left out for length."
    )
    assert "1 passage left out" in render_answer(side, Answer("cosine", answer="x", dropped=1, cut=True), "done")
    assert render_seconds(Answer("cosine", timings={"encode": 0.5}), "answering") == ""
    assert "encode 0.50 s" in render_seconds(Answer("cosine", timings={"encode": 0.5}), "done")


def test_examples_are_of_every_kind_and_only_for_the_demo() -> None:
    kinds = [kind for kind, _ in example_questions(load_config())]
    assert len(kinds) == 6 and set(kinds) == {"trivia", "search", "multihop", "unanswerable"}
    assert example_questions(load_config(None, ["corpus=other.jsonl"])) == []


# Running a comparison


class _Pipeline:
    """Stands where a pipeline would: what it raises or says is set by the test."""

    def __init__(
        self, *, reader: Exception | None = None, broken: str = "", words: Sequence[str] = ("Henry", "W")
    ) -> None:
        self.reader, self.broken, self.words = reader, broken, words
        self.config = SimpleNamespace(retriever=lambda name: SimpleNamespace(kind="bm25"))
        self.closed: list[str] = []

    @property
    def generator(self) -> object:
        if self.reader:
            raise self.reader
        return SimpleNamespace(start=lambda: None)

    def retriever(self, name: str) -> object:
        if name == self.broken:
            raise RetrieverError(f"{name} has no index")
        return type("Plain", (), {"notes": []})()

    def search(self, questions: Sequence[str], name: str, k: int) -> list[Answer]:
        return [Answer(name, hits=_hits("abcdef"[:k]))]

    def stream(self, question: str, found: Answer) -> Iterator[Answer]:
        try:
            text = ""
            for word in self.words:
                text += word
                yield Answer(found.retriever, answer=text, hits=found.hits)
            if found.retriever == "dies":
                raise RuntimeError("<b>boom</b>")
        finally:
            self.closed.append(found.retriever)


def _run(pipeline: _Pipeline, question: str = "q?", left: str = "x", right: str = "y", k: int = 3) -> list[Snapshot]:
    return list(run_comparison(cast("Pipeline", pipeline), question, (left, right), k))


def test_passages_come_before_answers_and_both_answers_end_whole() -> None:
    snapshots = _run(_Pipeline())
    assert [len(answer.hits) for answer in snapshots[0].answers] == [3, 3]
    assert snapshots[0].stages == ("waiting", "waiting")
    assert [answer.answer for answer in snapshots[0].answers] == ["", ""]
    assert [answer.answer for answer in snapshots[-1].answers] == ["HenryW", "HenryW"]
    assert snapshots[-1].stages == ("done", "done")


def test_without_a_reader_passages_stay_and_both_panes_say_what_is_missing() -> None:
    pipeline = _Pipeline(reader=WeightsError("no weights; run `magrag fetch`"))
    last = _run(pipeline)[-1]
    assert [len(answer.hits) for answer in last.answers] == [3, 3]
    for side in (0, 1):
        shown = _text(render_answer(last.sides[side], last.answers[side], last.stages[side]))
        assert "There is no reader to answer: no weights; run `magrag fetch`." in shown
        assert "magrag doctor" in shown


def test_a_broken_retriever_does_not_disturb_the_other_side() -> None:
    last = _run(_Pipeline(broken="x"))[-1]
    assert last.answers[0].error == "x has no index"
    assert last.answers[1].answer == "HenryW" and last.stages == ("done", "done")


def test_an_unforeseen_error_is_one_line_on_its_own_side() -> None:
    last = _run(_Pipeline(), left="dies")[-1]
    assert last.answers[0].error == "unexpected RuntimeError: <b>boom</b>; the terminal shows where"
    assert last.answers[1].error is None and last.answers[1].answer == "HenryW"


def test_closing_the_comparison_stops_both_answers() -> None:
    pipeline = _Pipeline(words=["w"] * 10_000_000)
    comparison = run_comparison(cast("Pipeline", pipeline), "q?", ("x", "y"), 3)
    next(comparison), next(comparison)
    comparison.close()  # type: ignore[attr-defined]
    for _ in range(500):
        if sorted(pipeline.closed) == ["x", "y"]:
            return
        time.sleep(0.01)
    pytest.fail(f"still answering: only {pipeline.closed} stopped")


@pytest.mark.parametrize(
    ("question", "k", "says"),
    [
        ("  ", 3, "question is empty"),
        ("x" * (LONGEST_QUESTION + 1), 3, "shorten it"),
        ("q?", 0, "between 1 and"),
        ("q?", MOST_PASSAGES + 1, "between 1 and"),
    ],
)
def test_unusable_input_is_refused_in_words(question: str, k: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _run(_Pipeline(), question, k=k)


def test_a_comparison_as_json_has_what_the_page_shows() -> None:
    last = _run(_Pipeline())[-1].to_json()
    assert last["question"] == "q?" and [answer["answer"] for answer in last["answers"]] == ["HenryW", "HenryW"]
    assert last["summary"].startswith("Both sides rank the same 3 passages")
