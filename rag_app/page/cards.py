"""Passages as cards. All text is escaped: corpora, questions and answers are untrusted."""

from __future__ import annotations

from collections.abc import Sequence

from eval.report.html.markup import text
from rag_app.page.compare import Factor, Move, Side, factors, moves
from rag_app.page.marks import Piece, mark_text, phrase
from rag_app.page.run import Snapshot
from retriever.base import Hit

EXCERPT_WORDS = 55
"""A passage up to a third longer is shown whole; of a longer one, this many words and the rest on demand."""

LONGEST_TEXT = 20_000
"""Characters of a passage that are shown at most: one record of a corpus may be a whole book."""


def card_id(side: int, rank: int) -> str:
    """What links to a card name it by."""
    return f"mg-{'ab'[side]}-{rank}"


def render_passages(snapshot: Snapshot, side: int) -> str:
    """One side's passages as cards."""
    shown, answer = snapshot.sides[side], snapshot.answers[side]
    if shown.kind == "closed-book":
        return '<p class="mg-empty">No passages: the reader answers from what it learnt in training.</p>'
    if shown.kind == "unknown":
        return ""
    if not answer.hits:
        why = "none shares a word with this question" if shown.kind == "bm25" else "no passage fits this question"
        return f'<p class="mg-empty">Nothing found: {why}. Try other words, or another retriever.</p>'
    other = snapshot.found[1 - side].ranks
    against: Sequence[Move | None] = moves(answer.hits, other) if other else [None] * len(answer.hits)
    percentiles = snapshot.found[side].percentiles or (None,) * len(answer.hits)
    wanted = looked_for(snapshot, side)
    cards = "".join(
        _card(
            hit, side, shown, move if move is None else _move(move, snapshot.k), percentile, snapshot.question, wanted
        )
        for hit, move, percentile in zip(answer.hits, against, percentiles, strict=True)
    )
    return f'{_key(snapshot, side)}<ol class="mg-cards" aria-label="Passages of {text(shown.name)}">{cards}</ol>'


def _key(snapshot: Snapshot, side: int) -> str:
    """What the marks mean."""
    golds = snapshot.golds is not None and snapshot.golds.answers
    given = snapshot.answers[side]
    none = given.error or (snapshot.stages[side] == "done" and not phrase(given.answer))
    shown = "right answers" if golds else "" if none else "the answer given"
    answer = f'<mark class="mg-answer">{shown}</mark> and ' if shown else ""
    return f'<p class="mg-key">Marked: {answer}<mark class="mg-term">words of the question</mark></p>'


def looked_for(snapshot: Snapshot, side: int) -> tuple[str, ...]:
    """The answers that are marked in passages: the golds, or the answer given where there are none."""
    if snapshot.golds is not None and snapshot.golds.answers:
        return snapshot.golds.answers
    answer = snapshot.answers[side]
    return (answer.answer,) if snapshot.stages[side] == "done" and not answer.error else ()


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


def render_pieces(pieces: Sequence[Piece]) -> str:
    """Text with its marks; each kind has a look that does not need colour."""
    return "".join(
        f'<mark class="mg-{piece.kind}">{text(piece.text)}</mark>' if piece.kind else text(piece.text)
        for piece in pieces
    )


def render_move(move: Move, *, than: str = "on the other side", note: str = "") -> str:
    """Where a passage moved to, as a sign for those who see it and in words for those who do not."""
    places = f"{move.places} place{'s' if move.places != 1 else ''}"
    shown, words = {
        "up": (f"▲ {move.places}", f"{places} higher than {than}, where it has rank {move.there}"),
        "down": (f"▼ {move.places}", f"{places} lower than {than}, where it has rank {move.there}"),
        "same": ("=", f"same rank as {than}"),
        "only": ("only here", f"not in the ranking {than}"),
    }[move.kind]
    return (
        f'<span class="mg-move mg-{move.kind}" title="{text(words)}" role="img" aria-label="{text(words)}">'
        f"{shown}{text(note)}</span>"
    )


def _move(move: Move, k: int) -> str:
    """With its rank on the other side where that is not shown there."""
    return render_move(move, note=f" from {move.there}" if move.there > k else "")


def _card(
    hit: Hit,
    side: int,
    shown: Side,
    move: str | None,
    percentile: float | None,
    question: str,
    wanted: Sequence[str],
) -> str:
    title = hit.passage.title or hit.passage.id
    return (
        f'<li class="mg-card" id="{card_id(side, hit.rank)}" tabindex="-1"><div class="mg-top">'
        f'<span class="mg-rank">{hit.rank}</span><h3>{render_pieces(mark_text(title, wanted, question))}</h3>{move or ""}</div>'
        f"{_text(hit.passage.text, question, wanted)}"
        f'<p class="mg-factors">{render_factors(hit, factors(hit, shown.similarity))}</p>'
        f'<p class="mg-size">{_size(hit.passage.text, percentile)}</p></li>'
    )


def _size(whole: str, percentile: float | None) -> str:
    words = len(whole.split())
    length = f"{words} word{'s' if words != 1 else ''}"
    if percentile is None:
        return length
    return (
        f'<span class="mg-meter" aria-hidden="true"><i style="width:{percentile:.0f}%"></i></span> '
        f'<span title="Percent of the corpus whose vectors are at most as long">magnitude percentile {percentile:.0f}</span> · {length}'
    )


def _factor(factor: Factor) -> str:
    power = "" if factor.exponent in (0.0, 1.0) else f"<sup>{factor.exponent:.2g}</sup>"
    digits = 4 if factor.label == "cosine" else 3
    return f'<span class="mg-factor"><i>{factor.label}</i>{power} {factor.value:.{digits}f}</span>'


def shortened(whole: str) -> str:
    """A passage's text, cut where it is longer than any that is shown."""
    return whole if len(whole) <= LONGEST_TEXT else f"{whole[:LONGEST_TEXT]} …"


def _text(whole: str, question: str, wanted: Sequence[str]) -> str:
    words = shortened(whole).split()
    if len(words) <= EXCERPT_WORDS * 4 / 3:
        return f'<p class="mg-text">{render_pieces(mark_text(" ".join(words), wanted, question))}</p>'
    # Marked whole and cut then, so that an answer across the fold is marked too.
    start, rest = _cut(mark_text(" ".join(words), wanted, question), len(" ".join(words[:EXCERPT_WORDS])))
    inside = ", with an answer" if any(piece.kind == "answer" for piece in rest) else ""
    return (
        f'<p class="mg-text">{render_pieces(start)} …</p><details class="mg-rest"><summary>'
        f'{len(words) - EXCERPT_WORDS} more words{inside}</summary><p class="mg-text">… {render_pieces(rest)}</p></details>'
    )


def _cut(pieces: Sequence[Piece], at: int) -> tuple[list[Piece], list[Piece]]:
    start: list[Piece] = []
    rest: list[Piece] = []
    for piece in pieces:
        if at > 0:
            start.append(Piece(piece.text[:at], piece.kind))
        if len(piece.text) > at:
            rest.append(Piece(piece.text[max(at, 0) :], piece.kind))
        at -= len(piece.text)
    return start, rest
