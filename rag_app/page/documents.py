"""The Documents tab as HTML. Names of files and corpora and all passages come from outside and are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from rag_app.gathering import Preview, PreviewChunk
from rag_app.page.making import Making
from rag_app.shelf import Added, Shelved

SHOWN_CHARACTERS = 3000
"""Of a previewed passage, which in a table may be as long as a book."""

NO_PREVIEW = '<p class="mg-empty">Drop files to see the first passages they will be cut into.</p>'
NO_CORPORA = '<p class="mg-empty">None yet. A corpus you make is kept here; nobody else sees it.</p>'


def render_preview(preview: Preview, longest: int, measure: str) -> str:
    """The first passages of a file.

    Args:
        preview: What the file gave.
        longest: Tokens that every encoder reads whole.
        measure: The encoder whose tokens are counted.
    """
    count = "no passages" if not preview.chunks else _count(preview.total, len(preview.chunks))
    cards = "".join(_chunk(number, chunk, longest) for number, chunk in enumerate(preview.chunks, start=1))
    fault = f'<p class="mg-note">{escape(preview.fault)}</p>' if preview.fault else ""
    return (
        f'<section class="mg-preview" aria-label="Preview"><h2>{escape(preview.name)}</h2>'
        f'<p class="mg-how">{count} · lengths in tokens of {escape(measure)}</p>{fault}'
        + (f'<ol class="mg-chunks">{cards}</ol>' if cards else "")
        + "</section>"
    )


def render_making(making: Making) -> str:
    """How far the making of a corpus is: a bar, the rate and the time left."""
    step = making.step
    if step is None:
        return _progress("Starting …", "", None)
    if step.stage == "reading":
        done = f"{step.done:,} passages" if step.done else ""
        return _progress(f"Reading {step.what}", done, None)
    share = step.done / step.total if step.total else 0.0
    facts = [f"{step.done:,} of {step.total:,} passages"]
    if making.rate:
        facts.append(f"{making.rate:,.0f} a second" if making.rate >= 10 else f"{making.rate:.1f} a second")
    if making.left_s is not None:
        facts.append(f"{time_left(making.left_s)} left")
    return _progress(f"Encoding with {step.what}", " · ".join(facts), share)


def render_added(added: Added) -> str:
    """A corpus that was just made, and what was left out."""
    left_out = "".join(f"<li>{escape(fault)}</li>" for fault in added.faults)
    return (
        '<div class="mg-verdict" role="status"><p class="mg-words mg-first">'
        f"<strong>{escape(added.corpus.name)}</strong> can be asked now: {passages(added.corpus.passages)}.</p>"
        + (
            f'<div class="mg-note"><strong>Left out:</strong><ul class="mg-faults">{left_out}</ul></div>'
            if left_out
            else ""
        )
        + "</div>"
    )


def render_corpora(corpora: Sequence[Shelved]) -> str:
    """What can be asked, as a table."""
    rows = "".join(
        f'<tr><th scope="row">{escape(corpus.name)}</th><td>{f"{corpus.passages:,}" if corpus.passages else "–"}</td>'
        f"<td>{_day(corpus.made)}</td><td>{escape(corpus.source)}</td></tr>"
        for corpus in corpora
    )
    table = (
        '<div class="mg-corpora-box" tabindex="0" role="region" aria-label="Corpora"><table class="mg-corpora"><thead><tr>'
        '<th scope="col">Corpus</th><th scope="col">Passages</th><th scope="col">Made</th><th scope="col">From</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )
    return table if len(corpora) > 1 else table + NO_CORPORA


def passages(count: int) -> str:
    """A number of passages in words."""
    return "1 passage" if count == 1 else f"{count:,} passages"


def time_left(seconds: float) -> str:
    """A duration, rounded as people say it."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def _count(total: int | None, shown: int) -> str:
    if total is None:
        return f"thousands of passages, the first {shown}"
    return passages(total) if total <= shown else f"{passages(total)}, the first {shown}"


def _chunk(number: int, chunk: PreviewChunk, longest: int) -> str:
    page = f" · page {escape(str(chunk.passage.meta['page']))}" if "page" in chunk.passage.meta else ""
    over = ""
    if chunk.tokens > longest:
        over = f'<p class="mg-note">Only the first {longest} tokens are encoded: choose shorter passages.</p>'
    return (
        f'<li class="mg-card"><div class="mg-top"><span class="mg-rank">{number}</span>'
        f'<h3>{escape(chunk.passage.title or chunk.passage.id)}</h3><span class="mg-tokens">{chunk.tokens} tokens{page}</span>'
        f'</div><p class="mg-text">{escape(_shortened(chunk.passage.text))}</p>{over}</li>'
    )


def _shortened(text: str) -> str:
    words = " ".join(text[: 2 * SHOWN_CHARACTERS].split())
    return words if len(words) <= SHOWN_CHARACTERS else f"{words[:SHOWN_CHARACTERS]} …"


def _progress(what: str, facts: str, share: float | None) -> str:
    value = "" if share is None else f' value="{share:.3f}"'
    return (
        f'<div class="mg-making"><p class="mg-making-what">{escape(what)}</p>'
        f'<progress max="1"{value} aria-label="{escape(what)}"></progress>'
        f'<p class="mg-making-facts">{escape(facts)}</p></div>'
    )


def _day(made: str) -> str:
    return f'<time datetime="{escape(made)}">{datetime.fromisoformat(made):%Y-%m-%d %H:%M} UTC</time>' if made else "–"
