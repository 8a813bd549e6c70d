"""What the page says and shows, without a browser and without models."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from rag_app.answers import Answer
from rag_app.config import load_config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.errors import ConfigError, WeightsError
from rag_app.page import compare_tab
from rag_app.page.cards import render_factors, render_passages
from rag_app.page.compare import Found, Side, badge, factors, moves, sentence
from rag_app.page.examples import example_questions
from rag_app.page.golds import Golds
from rag_app.page.plots import render_slopes
from rag_app.page.render import outcome, render_answer, render_message, render_seconds, render_verdict
from rag_app.page.run import LONGEST_QUESTION, MOST_PASSAGES, Snapshot, Stage, run_comparison
from rag_app.pipeline import Pipeline
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


def _found(hits: Sequence[Hit], percentiles: Sequence[float] = ()) -> Found:
    return Found({hit.passage.id: hit.rank for hit in hits}, tuple(percentiles))


def _snapshot(
    left: Answer,
    right: Answer,
    sides: tuple[Side, Side] | None = None,
    *,
    stage: Stage = "done",
    question: str = "q?",
    golds: Golds | None = None,
) -> Snapshot:
    return Snapshot(
        question,
        sides or (_dense(COSINE), _dense(QNORM)),
        (left, right),
        (stage, stage),
        found=(_found(left.hits), _found(right.hits)),
        golds=golds,
    )


# Moves


def test_moves_count_places_against_the_other_side() -> None:
    found = moves(_hits("abcd"), {"d": 1, "b": 2, "c": 3, "a": 4})
    assert [(move.kind, move.places) for move in found] == [("up", 3), ("same", 0), ("same", 0), ("down", 3)]


def test_a_passage_the_other_side_lacks_is_only_here() -> None:
    assert [(move.kind, move.places) for move in moves(_hits("ab"), {"b": 1, "c": 2})] == [("only", 0), ("down", 1)]


def test_cards_show_moves_with_words_for_those_who_cannot_see_arrows() -> None:
    html = render_passages(_snapshot(Answer("cosine", hits=_hits("abc")), Answer("qnorm", hits=_hits("cax"))), 1)
    assert "▲ 2" in html and "2 places higher than on the other side, where it has rank 3" in html
    assert "▼ 1" in html and "1 place lower than on the other side, where it has rank 1" in html
    assert "only here" in html


def test_a_move_from_below_what_the_other_side_shows_names_its_rank_there() -> None:
    snapshot = _snapshot(Answer("cosine", hits=_hits("abc")), Answer("qnorm", hits=_hits("abx")))
    deep = replace(snapshot, found=(Found({"a": 1, "b": 2, "c": 3, "x": 17}), snapshot.found[1]))
    assert "▲ 14 from 17<" in render_passages(deep, 1)


def test_no_moves_are_shown_against_a_side_without_passages() -> None:
    html = render_passages(_snapshot(Answer("cosine", hits=_hits("ab")), Answer(CLOSED_BOOK)), 0)
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
    answer = Answer(ATTACK, answer=ATTACK, hits=[hit], timings={ATTACK: 1.0}, prompt=ATTACK)
    snapshot = _snapshot(answer, answer, (side, side), question=ATTACK, golds=Golds((ATTACK,)))
    failed = _snapshot(Answer(ATTACK, error=ATTACK), answer, (side, side))
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
        markup = _Markup(piece)
        assert not {"script", "img"} & {tag for tag, _ in markup.tags}
        assert not any(name.startswith("on") for _, attributes in markup.tags for name in attributes)
        assert '<script>alert("x")</script>' in markup.text


def test_a_long_passage_is_folded_and_loses_no_word() -> None:
    words = [f"w{number}" for number in range(200)]
    hit = Hit(1, Passage("a", "Title", " ".join(words)), 1.0, 0.5, 2.0, 6.0)
    snapshot = _snapshot(Answer("cosine", hits=[hit]), Answer("qnorm"))
    html = render_passages(snapshot, 0)
    assert re.findall(r"\bw\d+\b", html) == words
    assert "<details" in html and "145 more words<" in html
    # An answer across the fold is marked on both sides of it, and the fold says that there is one.
    html = render_passages(replace(snapshot, golds=Golds(("w54 w55",))), 0)
    assert '<mark class="mg-answer">w54</mark> …' in html and '<mark class="mg-answer"> w55</mark>' in html
    assert "145 more words, with an answer" in html


def test_a_card_says_how_long_passage_and_vector_are() -> None:
    snapshot = _snapshot(Answer("cosine", hits=_hits("ab")), Answer("qnorm"))
    html = render_passages(replace(snapshot, found=(Found({}, (71.4, None)), Found())), 0)
    assert "magnitude percentile 71 · 2 words" in _text(html)
    assert _text(html).count("percentile") == 1 and _text(html).endswith("2 words")


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
        (Side("gone", "unknown"), Side("broken", "unknown"), "nothing to compare"),
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
    answers = (Answer("cosine", hits=_hits(left)), Answer("qnorm", hits=_hits(right)))
    found = (_found(answers[0].hits), _found(answers[1].hits))
    assert sentence((_dense(COSINE), _dense(QNORM)), answers, found) == words


def test_the_sentence_says_which_side_found_the_longer_vectors() -> None:
    answers = (Answer("cosine", hits=_hits("ab")), Answer("qnorm", hits=_hits("ab")))
    sides = (_dense(COSINE), _dense(QNORM))

    def said(left: Sequence[float], right: Sequence[float]) -> str:
        return sentence(sides, answers, (_found(answers[0].hits, left), _found(answers[1].hits, right)))

    assert said([20, 30], [70, 91]).endswith(
        "qnorm found the longer vectors: mean magnitude percentile 80, against 25 under cosine."
    )
    assert said([50, 50], [51, 52]).endswith("Magnitudes are alike: mean percentile 50 under cosine, 52 under qnorm.")
    assert said([], [51, 52]).endswith("in the same order.")


def test_a_note_that_both_sides_share_is_shown_once() -> None:
    sides = tuple(Side(name, "dense", "m", "e", DOT, ("norms are free",)) for name in ("dot", "qnorm"))
    html = render_verdict(_snapshot(Answer("dot"), Answer("qnorm"), (sides[0], sides[1])))
    assert _text(html).count("norms are free") == 1
    assert "About dot and qnorm: norms are free." in _text(html)


# Answers


GOLDS = Golds(("James Watt", "Watt"))


def _answers(left: str, right: str, golds: Golds | None = None, stage: Stage = "done") -> Snapshot:
    hits = [
        Hit(1, Passage("a", "Engines", "The engine of James Watt."), 1.0),
        Hit(2, Passage("b", "James", "He knew Watt well."), 0.5),
    ]
    return _snapshot(
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
    assert "EM 0 · F1 0.67 · golds: James Watt, Watt" in _text(html)
    assert "stand in no passage shown here" in _text(html)
    html = render_answer(_answers("James Watt of Greenock", "James Watt", GOLDS), 1)
    assert "✓ EM 1 · F1 1.00" in _text(html) and '<a href="#mg-b-1">1</a></p>' in html
    assert "Its words, not together, in passages 1, 2" in _text(render_answer(_answers("Watt James", "x"), 0))
    assert "EM" not in _text(render_answer(_answers("Watt", "x", GOLDS, "answering"), 0))


def test_words_that_the_other_answer_lacks_are_marked() -> None:
    snapshot = _answers("James Watt in 1736", "james Watt, in 1749")
    assert 'James Watt in <mark class="mg-differs">1736</mark>' in render_answer(snapshot, 0)
    assert 'james Watt, in <mark class="mg-differs">1749</mark>' in render_answer(snapshot, 1)


def test_the_prompt_is_there_on_demand() -> None:
    answer = Answer(
        "cosine", answer="x", prompt="Passages:\n<1>", prompt_tokens=812, timings={"encode": 0.0123, "generate": 2.34}
    )
    html = render_seconds(_snapshot(answer, answer), 0)
    assert "encode 12 ms · whole answer 2.3 s" in _text(html)
    assert "<summary>The prompt, 812 tokens</summary><pre " in html and ">Passages:\n&lt;1&gt;</pre>" in html


# States


def test_states_are_told_in_words() -> None:
    def answer(answer: Answer, stage: Stage = "done") -> str:
        return _text(render_answer(_snapshot(answer, Answer("qnorm"), stage=stage), 0))

    nothing = _snapshot(Answer("x"), Answer("y"), (Side("x", "bm25"), Side(CLOSED_BOOK, "closed-book")))
    assert "none shares a word with this question" in render_passages(nothing, 0)
    assert "No passages" in render_passages(nothing, 1)
    assert "reading" in answer(Answer("cosine"), "waiting")
    assert "gave no answer" in answer(Answer("cosine"))
    assert answer(Answer("cosine", answer="x", dropped=2)).endswith("2 passages left out for length.")
    assert "1 passage left out" in answer(Answer("cosine", answer="x", dropped=1, cut=True))
    assert "<code>magrag index C</code>" in render_answer(
        _snapshot(Answer("x", error="no index; run `magrag index C`"), Answer("y")), 0
    )
    timed = Answer("cosine", timings={"encode": 0.5})
    assert render_seconds(_snapshot(timed, timed, stage="answering"), 0) == ""
    assert "encode 500 ms" in render_seconds(_snapshot(timed, timed), 0)


def test_examples_are_of_every_kind_and_only_for_the_demo() -> None:
    kinds = [kind for kind, _ in example_questions(load_config())]
    assert len(kinds) == 7 and set(kinds) == {"trivia", "search", "multihop", "unanswerable", "language"}
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
        index = SimpleNamespace(
            vectors=lambda rows: (None, np.array([float(row) for row in rows])),
            norm_percentiles=lambda norms: norms * 10,
        )
        return SimpleNamespace(notes=[], index=index)

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


def test_with_a_token_only_an_answer_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Counter[str] = Counter()

    def counted(name: str) -> None:
        draw = getattr(compare_tab, name)
        monkeypatch.setattr(compare_tab, name, lambda *given: drawn.update([name]) or draw(*given))

    for name in ("render_passages", "render_slopes", "render_verdict", "render_seconds", "render_answer"):
        counted(name)
    pane = [compare_tab.Pane(*(f"{part} {side}" for part in ("answer", "passages", "seconds"))) for side in "ab"]  # type: ignore[arg-type]
    outputs = compare_tab.Outputs("question", "button", "verdict", (pane[0], pane[1]), "slopes", None)  # type: ignore[arg-type]
    first, last = _run(_Pipeline())[0], _run(_Pipeline())[-1]
    left, right = first.answers
    steps = [
        replace(first, stages=("answering", "answering"), answers=(replace(left, answer=f"w{n}"), right))
        for n in range(100)
    ]
    page: dict[str, str] = {}
    for update in compare_tab._updates(outputs, iter([first, *steps, last]), ""):
        page |= update
    assert drawn == {
        "render_passages": 2 * 2,  # at once, and with the answer's words marked
        "render_slopes": 1,
        "render_verdict": 2,
        "render_seconds": 2 * 2,
        "render_answer": (1 + 100 + 1) + (1 + 1 + 1),
    }
    assert page["passages a"] == render_passages(last, 0) and page["verdict"] == render_verdict(last)
    assert page["answer b"] == render_answer(last, 1) and page["seconds a"] == render_seconds(last, 0)


def test_without_a_reader_passages_stay_and_both_panes_say_what_is_missing() -> None:
    pipeline = _Pipeline(reader=WeightsError("no weights; run `magrag fetch`"))
    last = _run(pipeline)[-1]
    assert [len(answer.hits) for answer in last.answers] == [3, 3]
    for side in (0, 1):
        shown = _text(render_answer(last, side))
        assert "There is no reader to answer: no weights; run magrag fetch." in shown
        assert "magrag doctor" in shown


def test_a_broken_retriever_does_not_disturb_the_other_side() -> None:
    last = _run(_Pipeline(broken="x"))[-1]
    assert last.answers[0].error == "x has no index"
    assert last.answers[1].answer == "HenryW" and last.stages == ("done", "done")


def test_an_unforeseen_error_is_one_line_on_its_own_side() -> None:
    last = _run(_Pipeline(), left="dies")[-1]
    assert last.answers[0].error == "unexpected RuntimeError; the terminal shows where"
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
    assert [passage["rank_on_the_other_side"] for passage in last["answers"][0]["passages"]] == [1, 2, 3]


def test_rankings_are_looked_at_deeper_than_they_are_shown() -> None:
    first = _run(_Pipeline(), k=2)[0]
    assert [len(answer.hits) for answer in first.answers] == [2, 2]
    assert dict(first.found[0].ranks) == {id: rank for rank, id in enumerate("abcdef", 1)}
    assert first.found[0].percentiles == (None, None)
