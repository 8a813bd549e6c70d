"""What stands around the passages, as HTML: the verdict, the answers, the seconds, the dial.

Everything that is not written in this file is escaped: corpora, questions and answers are untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from eval.report.html.markup import text
from rag_app.answers import Answer
from rag_app.page.cards import card_id, render_move, render_pieces
from rag_app.page.compare import Side, badge, sentence
from rag_app.page.dial import Candidates, Dialled, turn
from rag_app.page.golds import Golds, declines, mark_answer
from rag_app.page.marks import Piece, differences, same_words, support
from rag_app.page.plots import render_candidates, render_scatter
from rag_app.page.run import NO_READER, Snapshot, Stage
from rag_app.page.share import download, permalink

MOST_GOLDS = 4
"""So many golds are named; some questions have hundreds of spellings."""

_STAGES = {
    "encode": "encode",
    "search": "search",
    "prompt": "build prompt",
    "first_token": "first token",
    "generate": "whole answer",
}


def render_header(title: str, explanation: str) -> str:
    """The top of the page."""
    return f'<header class="mg-header"><h1>{text(title)}</h1><p>{text(explanation)}</p></header>'


def render_verdict(snapshot: Snapshot, corpus: str = "") -> str:
    """Badge, what it means, the differences in words, and in the end whose answer is right and what to take along."""
    label, explanation = badge(*snapshot.sides)
    words = sentence(snapshot.sides, snapshot.answers, snapshot.found)
    told = outcome(snapshot)
    return (
        f'<div class="mg-verdict"><div role="status"><span class="mg-badge">{text(label)}</span>'
        + (f'<p class="mg-outcome">{text(told)}</p>' if told else "")
        + f'<p class="mg-words">{text(words or explanation)}</p>'
        + (f'<p class="mg-explanation">{text(explanation)}</p>' if words else "")
        + f"</div>{_notes(snapshot.sides)}{_take_along(snapshot, corpus) if snapshot.done else ''}</div>"
    )


def render_message(message: str) -> str:
    """Something to tell in place of a comparison."""
    shown = _with_code(message[:1].upper() + message[1:])
    return f'<div class="mg-verdict mg-message" role="status"><p class="mg-words">{shown}</p></div>'


def outcome(snapshot: Snapshot) -> str:
    """Which answer is right, or whether they differ; "" until both are there."""
    left, right = snapshot.answers
    if not snapshot.done or left.error or right.error:
        return ""
    names = [side.name for side in snapshot.sides]
    if snapshot.golds is None:
        if not (left.answer and right.answer):
            return ""
        return "Both gave the same answer." if same_words(left.answer, right.answer) else "The answers differ."
    rights = [mark_answer(answer.answer, snapshot.golds).right for answer in snapshot.answers]
    if not snapshot.golds.answers:
        said = {2: "both readers said so", 0: "neither answer says so"}.get(sum(rights))
        return f"The corpus has no answer to this: {said or f'only {names[rights.index(True)]} said so'}."
    if all(rights):
        return "Both answers are right."
    if not any(rights):
        return "Neither answer matches the gold exactly."
    return f"{names[rights.index(True)]}’s answer is right, {names[rights.index(False)]}’s does not match the gold."


def render_answer(snapshot: Snapshot, side: int) -> str:
    """Who answers, the answer as far as it has come, where it stands and how it scores."""
    shown, answer, stage = snapshot.sides[side], snapshot.answers[side], snapshot.stages[side]
    finished = stage == "done" and answer.answer and not answer.error
    return (
        f'<section class="mg-answer" aria-label="Answer of {text(shown.name)}">'
        f"<h2>{text(shown.name)}</h2>"
        f'<p class="mg-how">{text(_how(shown))}</p>'
        f"{_answer_text(answer, stage, _compared(snapshot, side))}"
        + (_score(answer.answer, snapshot.golds) + _support(snapshot, side) if finished else "")
        + f"{_dropped(answer)}</section>"
    )


def render_seconds(snapshot: Snapshot, side: int) -> str:
    """The time of each stage once all are known, and the prompt on demand."""
    answer = snapshot.answers[side]
    if snapshot.stages[side] != "done" or not answer.timings:
        return ""
    parts = [f"{_STAGES.get(name, name)} {_time(seconds)}" for name, seconds in answer.timings.items()]
    prompt = (
        f'<details class="mg-prompt"><summary>The prompt, {answer.prompt_tokens} tokens</summary>'
        f'<pre tabindex="0" role="region" aria-label="The prompt">{text(answer.prompt)}</pre></details>'
        if answer.prompt
        else ""
    )
    return f'<p class="mg-seconds">{text(" · ".join(parts))}</p>{prompt}'


def render_dial(candidates: Candidates, gamma_d: float, choices: int = 1) -> tuple[str, str]:
    """The ranking under γd as a list, and the plot that shows why; `choices` counts the indexes that may be dialled."""
    turned = turn(candidates, gamma_d)
    return (
        _dialled(candidates, turned, gamma_d, choices),
        render_scatter(candidates, turned, gamma_d) + render_candidates(candidates, turned),
    )


def _dialled(candidates: Candidates, turned: Sequence[Dialled], gamma_d: float, choices: int) -> str:
    home = candidates.names[candidates.home]
    entries = "".join(
        f'<li><details><summary><span class="mg-rank">{one.rank}</span><span class="mg-dial-title">'
        f"{text(one.candidate.title)}</span>{render_move(one.move, than=f'under {home}')}</summary>"
        f"<p>{text(one.candidate.excerpt)}</p></details></li>"
        for one in turned
    )
    moved = sum(one.move.kind != "same" for one in turned)
    told = f"{moved} of {len(turned)} moved against {home}" if moved else f"as {home} ranks them"
    score = {0.0: "cosine × |d|", 1.0: "cosine alone"}.get(gamma_d, f"cosine × |d|<sup>{1 - gamma_d:.2f}</sup>")
    return (
        f'<div class="mg-dialled{" mg-choice" if choices > 1 else ""}"><p class="mg-formula" role="status">Score: <b>{score}</b>, {text(told)}.</p>'
        f'<ol aria-label="Passages as the dial ranks them">{entries}</ol></div>'
    )


def _notes(sides: tuple[Side, Side]) -> str:
    """What to know about the retrievers, each note once, since two that share an encoder often share a note."""
    named: dict[str, list[str]] = {}
    for side in sides:
        for note in side.notes:
            names = named.setdefault(note, [])
            if side.name not in names:
                names.append(side.name)
    return "".join(
        f'<p class="mg-note"><strong>About {text(" and ".join(names))}:</strong> {text(note)}.</p>'
        for note, names in named.items()
    )


def _take_along(snapshot: Snapshot, corpus: str) -> str:
    return (
        '<p class="mg-take">'
        f'<a href="{text(permalink(snapshot, corpus))}">Link to this comparison</a>'
        f'<a href="{text(download(snapshot))}" download="comparison.json">Save as JSON</a></p>'
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


def _compared(snapshot: Snapshot, side: int) -> list[Piece]:
    """The answer, its words that the other side's lacks marked once both are there."""
    answers = snapshot.answers
    if not snapshot.done or any(answer.error or not answer.answer or declines(answer.answer) for answer in answers):
        return [Piece(answers[side].answer)]
    return differences(answers[0].answer, answers[1].answer)[side]


def _answer_text(answer: Answer, stage: Stage, pieces: Sequence[Piece]) -> str:
    if answer.error:
        hint = ""
        if answer.error.startswith(NO_READER):
            hint = " Retrieval works without it. <code>magrag doctor</code> says what is installed and what is missing."
        return f'<p class="mg-error" role="alert">{_with_code(answer.error.rstrip("."))}.{hint}</p>'
    if stage == "waiting" or (stage == "answering" and not answer.answer):
        return '<p class="mg-text-answer mg-pending">reading …</p>'
    if not answer.answer:
        return '<p class="mg-text-answer mg-pending">The reader gave no answer.</p>'
    return f'<p class="mg-text-answer mg-{stage}">{render_pieces(pieces)}</p>'


def _score(answer: str, golds: Golds | None) -> str:
    if golds is None:
        return ""
    mark = mark_answer(answer, golds)
    sign = '<b class="mg-right">✓</b>' if mark.right else '<b class="mg-wrong">✗</b>'
    if not golds.answers:
        return f'<p class="mg-score-line">{sign} {"Rightly says so" if mark.right else "Answers"}: no passage holds an answer.</p>'
    f1 = "" if mark.f1 is None else f" · F1 {mark.f1:.2f}"
    named = ", ".join(golds.answers[:MOST_GOLDS])
    more = len(golds.answers) - MOST_GOLDS
    return (
        f'<p class="mg-score-line">{sign} EM {int(mark.right)}{f1} · golds: {text(named)}'
        f"{f' and {more} more' if more > 0 else ''}</p>"
    )


def _support(snapshot: Snapshot, side: int) -> str:
    """Links to the passages that the answer's words stand in."""
    answer = snapshot.answers[side]
    if not answer.hits:
        return ""
    found = support(answer.answer, [f"{hit.passage.title} {hit.passage.text}" for hit in answer.hits])
    if found is None:
        return ""
    if not found.places:
        return '<p class="mg-cites">Its words stand in no passage shown here: the reader brought them along.</p>'
    links = ", ".join(
        f'<a href="#{card_id(side, answer.hits[place].rank)}">{answer.hits[place].rank}</a>' for place in found.places
    )
    where = f"passage{'s' if len(found.places) > 1 else ''} {links}"
    return f'<p class="mg-cites">{"In" if found.whole else "Its words, not together, in"} {where}</p>'


def _dropped(answer: Answer) -> str:
    parts = []
    if answer.dropped:
        parts.append(f"{answer.dropped} passage{'s' if answer.dropped != 1 else ''} left out for length")
    if answer.cut:
        parts.append("the last passage shortened for length")
    return f'<p class="mg-left-out">{"; ".join(parts)}.</p>' if parts else ""


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 0.95 else f"{seconds:.1f} s"


def _with_code(message: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text(message))
