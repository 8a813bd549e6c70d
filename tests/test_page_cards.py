"""The cards of passages: moves against the other side, the factors of a score, and long texts folded."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from rag_app.answers import Answer
from rag_app.config_tables import CLOSED_BOOK
from rag_app.page.cards import render_factors, render_passages
from rag_app.page.compare import Found, factors, moves
from rag_app.page.golds import Golds
from retriever.base import Hit
from retriever.passages import Passage
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity
from tests.comparison_example import snapshot_of, some_hits
from tests.markup import text_of


def test_moves_count_places_against_the_other_side() -> None:
    found = moves(some_hits("abcd"), {"d": 1, "b": 2, "c": 3, "a": 4})
    assert [(move.kind, move.places) for move in found] == [("up", 3), ("same", 0), ("same", 0), ("down", 3)]


def test_a_passage_the_other_side_lacks_is_only_here() -> None:
    assert [(move.kind, move.places) for move in moves(some_hits("ab"), {"b": 1, "c": 2})] == [("only", 0), ("down", 1)]


def test_cards_show_moves_with_words_for_those_who_cannot_see_arrows() -> None:
    html = render_passages(
        snapshot_of(Answer("cosine", hits=some_hits("abc")), Answer("qnorm", hits=some_hits("cax"))), 1
    )
    assert "▲ 2" in html and "2 places higher than on the other side, where it has rank 3" in html
    assert "▼ 1" in html and "1 place lower than on the other side, where it has rank 1" in html
    assert "only here" in html


def test_a_move_from_below_what_the_other_side_shows_names_its_rank_there() -> None:
    snapshot = snapshot_of(Answer("cosine", hits=some_hits("abc")), Answer("qnorm", hits=some_hits("abx")))
    deep = replace(snapshot, found=(Found({"a": 1, "b": 2, "c": 3, "x": 17}), snapshot.found[1]))
    assert "▲ 14 from 17<" in render_passages(deep, 1)


def test_no_moves_are_shown_against_a_side_without_passages() -> None:
    html = render_passages(snapshot_of(Answer("cosine", hits=some_hits("ab")), Answer(CLOSED_BOOK)), 0)
    assert "mg-move" not in html


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
    assert text_of(shown) == kept
    assert text_of(f"<span{greyed}") == (f"not counted: {dropped}" if dropped else "")


def test_bm25_shows_its_score_alone() -> None:
    hit = Hit(1, Passage("a", "", "text"), 12.3456)
    assert text_of(render_factors(hit, factors(hit, None))) == "score 12.346"


def test_a_long_passage_is_folded_and_loses_no_word() -> None:
    words = [f"w{number}" for number in range(200)]
    hit = Hit(1, Passage("a", "Title", " ".join(words)), 1.0, 0.5, 2.0, 6.0)
    snapshot = snapshot_of(Answer("cosine", hits=[hit]), Answer("qnorm"))
    html = render_passages(snapshot, 0)
    assert re.findall(r"\bw\d+\b", html) == words
    assert "<details" in html and "145 more words<" in html
    # An answer across the fold is marked on both sides of it, and the fold says that there is one.
    html = render_passages(replace(snapshot, golds=Golds(("w54 w55",))), 0)
    assert '<mark class="mg-answer">w54</mark> …' in html and '<mark class="mg-answer"> w55</mark>' in html
    assert "145 more words, with an answer" in html


def test_a_card_says_how_long_passage_and_vector_are() -> None:
    snapshot = snapshot_of(Answer("cosine", hits=some_hits("ab")), Answer("qnorm"))
    html = render_passages(replace(snapshot, found=(Found({}, (71.4, None)), Found())), 0)
    assert "magnitude percentile 71 · 2 words" in text_of(html)
    assert text_of(html).count("percentile") == 1 and text_of(html).endswith("2 words")
