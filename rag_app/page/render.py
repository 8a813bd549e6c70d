"""Comparisons as HTML.

Everything that is not written in this file is escaped: corpora, questions and answers are untrusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rag_app.answers import Answer
from rag_app.page.compare import Factor, Move, Side, badge, factors, moves, sentence
from rag_app.page.run import NO_READER, Snapshot, Stage
from retriever.base import Hit

EXCERPT_WORDS = 55
"""A passage up to a third longer is shown whole; of a longer one, this many words and the rest on demand."""

_STAGES = {
    "encode": "encode",
    "search": "search",
    "prompt": "build prompt",
    "first_token": "first token",
    "generate": "whole answer",
}


def render_header(title: str, explanation: str) -> str:
    """The top of the page."""
    return f'<header class="mg-header"><h1>{escape(title)}</h1><p>{escape(explanation)}</p></header>'


def render_verdict(snapshot: Snapshot) -> str:
    """Badge, what it means, and the differences in words."""
    label, explanation = badge(*snapshot.sides)
    words = sentence(snapshot.sides, snapshot.answers)
    return (
        f'<div class="mg-verdict" role="status"><span class="mg-badge">{escape(label)}</span>'
        f'<p class="mg-words">{escape(words or explanation)}</p>'
        + (f'<p class="mg-explanation">{escape(explanation)}</p>' if words else "")
        + _notes(snapshot.sides)
        + "</div>"
    )


def render_message(message: str) -> str:
    """Something to tell in place of a comparison."""
    return f'<div class="mg-verdict mg-message" role="status"><p class="mg-words">{escape(message[:1].upper() + message[1:])}</p></div>'


def render_answer(side: Side, answer: Answer, stage: Stage) -> str:
    """Who answers, and the answer as far as it has come."""
    return (
        f'<section class="mg-answer" aria-label="Answer of {escape(side.name)}">'
        f"<h2>{escape(side.name)}</h2>"
        f'<p class="mg-how">{escape(_how(side))}</p>'
        f"{_answer_text(side, answer, stage)}"
        f"{_dropped(answer)}"
        "</section>"
    )


def render_passages(side: Side, answer: Answer, other: Answer) -> str:
    """A retriever's passages as cards."""
    if side.kind == "closed-book":
        return '<p class="mg-empty">No passages: the reader answers from what it learnt in training.</p>'
    if side.kind == "unknown":
        return ""
    if not answer.hits:
        return '<p class="mg-empty">Nothing found: no passage fits this question.</p>'
    against: Sequence[Move | None] = moves(answer.hits, other.hits) if other.hits else [None] * len(answer.hits)
    cards = "".join(_card(hit, move, side) for hit, move in zip(answer.hits, against, strict=True))
    return f'<ol class="mg-cards" aria-label="Passages of {escape(side.name)}">{cards}</ol>'


def render_seconds(answer: Answer, stage: Stage) -> str:
    """Seconds by stage, once they are all known."""
    if stage != "done" or not answer.timings:
        return ""
    parts = [f"{_STAGES.get(name, name)} {seconds:.2f} s" for name, seconds in answer.timings.items()]
    return f'<p class="mg-seconds">{escape(" · ".join(parts))}</p>'


def render_factors(hit: Hit, similarity_factors: Sequence[Factor]) -> str:
    """The score as the product of the factors it keeps, then, greyed, those it drops; alone where it has none."""
    score = f"{hit.score:.3f}"
    kept = [factor for factor in similarity_factors if factor.exponent > 0]
    dropped = [factor for factor in similarity_factors if factor.exponent <= 0]
    if not kept:
        return f'<span class="mg-factor"><i>score</i> <b>{score}</b></span>'
    product = '<span class="mg-times"> × </span>'.join(_factor(factor) for factor in kept)
    if len(kept) > 1 or kept[0].exponent < 1:
        product += f'<span class="mg-times"> = </span><b class="mg-score">{score}</b>'
    if dropped:
        left_out = " ".join(_factor(factor) for factor in dropped)
        product += (
            f' <span class="mg-dropped" title="This similarity drops these factors">not counted: {left_out}</span>'
        )
    return product


def _notes(sides: tuple[Side, Side]) -> str:
    """What to know about the retrievers, each note once, since two that share an encoder often share a note."""
    named: dict[str, list[str]] = {}
    for side in sides:
        for note in side.notes:
            names = named.setdefault(note, [])
            if side.name not in names:
                names.append(side.name)
    return "".join(
        f'<p class="mg-note"><strong>About {escape(" and ".join(names))}:</strong> {escape(note)}.</p>'
        for note, names in named.items()
    )


def _factor(factor: Factor) -> str:
    power = "" if factor.exponent in (0.0, 1.0) else f"<sup>{factor.exponent:.2g}</sup>"
    digits = 4 if factor.label == "cosine" else 3
    return f'<span class="mg-factor"><i>{factor.label}</i>{power} {factor.value:.{digits}f}</span>'


def _card(hit: Hit, move: Move | None, side: Side) -> str:
    title = hit.passage.title or hit.passage.id
    moved = _move(move) if move else ""
    return (
        f'<li class="mg-card"><div class="mg-top"><span class="mg-rank">{hit.rank}</span>'
        f"<h3>{escape(title)}</h3>{moved}</div>"
        f"{_text(hit.passage.text)}"
        f'<p class="mg-factors">{render_factors(hit, factors(hit, side.similarity))}</p></li>'
    )


def _move(move: Move) -> str:
    places = f"{move.places} place{'s' if move.places != 1 else ''}"
    shown, words = {
        "up": (f"▲ {move.places}", f"{places} higher than on the other side"),
        "down": (f"▼ {move.places}", f"{places} lower than on the other side"),
        "same": ("=", "same rank as on the other side"),
        "only": ("only here", "not among the passages of the other side"),
    }[move.kind]
    return f'<span class="mg-move mg-{move.kind}" title="{words}" role="img" aria-label="{words}">{shown}</span>'


def _text(text: str) -> str:
    words = text.split()
    if len(words) <= EXCERPT_WORDS * 4 / 3:
        return f'<p class="mg-text">{escape(" ".join(words))}</p>'
    start, rest = " ".join(words[:EXCERPT_WORDS]), " ".join(words[EXCERPT_WORDS:])
    return (
        f'<p class="mg-text">{escape(start)} …</p><details class="mg-rest"><summary>'
        f'{len(words) - EXCERPT_WORDS} more words</summary><p class="mg-text">… {escape(rest)}</p></details>'
    )


HOW = {
    "bm25": "BM25: words in common",
    "hybrid": "several rankings, fused by reciprocal ranks",
    "rerank": "candidates, read again by a cross-encoder",
    "iterative": "asked again with what was found",
    "trec_run": "a ranking from a TREC run file",
    "closed-book": "no passages",
}


def _how(side: Side) -> str:
    if side.kind == "dense" and side.similarity is not None:
        similarity = side.similarity
        gammas = f" (γq {similarity.gamma_q:g}, γd {similarity.gamma_d:g})" if similarity.name == "learnable" else ""
        return f"{side.encoder}, scored by {similarity.name}{gammas}"
    return HOW.get(side.kind, "could not be loaded")


def _answer_text(side: Side, answer: Answer, stage: Stage) -> str:
    if answer.error:
        hint = ""
        if answer.error.startswith(NO_READER):
            hint = " Retrieval works without it. <code>magrag doctor</code> says what is installed and what is missing."
        return f'<p class="mg-error" role="alert">{escape(answer.error.rstrip("."))}.{hint}</p>'
    if stage == "waiting" or (stage == "answering" and not answer.answer):
        return '<p class="mg-text-answer mg-pending">reading …</p>'
    if not answer.answer:
        return '<p class="mg-text-answer mg-pending">The reader gave no answer.</p>'
    return f'<p class="mg-text-answer mg-{stage}">{escape(answer.answer)}</p>'


def _dropped(answer: Answer) -> str:
    parts = []
    if answer.dropped:
        parts.append(f"{answer.dropped} passage{'s' if answer.dropped != 1 else ''} left out for length")
    if answer.cut:
        parts.append("the last passage shortened for length")
    return f'<p class="mg-left-out">{"; ".join(parts)}.</p>' if parts else ""
