"""The Documents tab as HTML. Names of files and corpora and all passages come from outside and are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from eval.report.html.markup import text
from rag_app.gathering import Preview, PreviewChunk, clean_name
from rag_app.page.making import Making
from rag_app.page.progress import pace, render_progress
from rag_app.shelf import Added, Shelved

SHOWN_CHARACTERS = 3000
"""Of a previewed passage, which in a table may be as long as a book."""
SHOWN_NAMES, SHOWN_OF_A_NAME = 8, 40

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
    fault = f'<p class="mg-note">{text(preview.fault)}</p>' if preview.fault else ""
    names = ", ".join(name[:SHOWN_OF_A_NAME] for name in preview.header[:SHOWN_NAMES])
    more = ", …" if len(preview.header) > SHOWN_NAMES else ""
    header = f" · columns, by the first line: {text(names)}{more}" if names else ""
    return (
        f'<section class="mg-preview" aria-label="Preview"><h2>{text(preview.name)}</h2>'
        f'<p class="mg-how">{count} · lengths in tokens of {text(measure)}{header}</p>{fault}'
        + (f'<ol class="mg-chunks">{cards}</ol>' if cards else "")
        + "</section>"
    )


def render_reading(name: str) -> str:
    """That a file's preview is being made."""
    return render_progress(f"Reading {clean_name(name)} …", "")


def render_making(making: Making) -> str:
    """How far the making of a corpus is: a bar, the rate and the time left."""
    step = making.step
    if making.cancelled:
        return render_progress("Stopping …", "after the passages that are being encoded")
    if making.waiting:
        return render_progress("Waiting …", "another corpus is being made; yours comes after it")
    if step is None:
        return render_progress("Starting …", "")
    if step.stage == "reading":
        return render_progress(f"Reading {step.what}", passages(step.done) if step.done else "")
    count = f"{step.done:,} of {step.total:,} passages" if step.total else passages(step.done)
    return render_progress(
        f"Encoding with {step.what}", count + pace(making.rate, making.left_s), step.done, step.total
    )


def render_added(added: Added) -> str:
    """A corpus that was just made, and what was left out."""
    left_out = "".join(f"<li>{text(fault)}</li>" for fault in added.faults)
    return (
        '<div class="mg-verdict" role="status"><p class="mg-words mg-first">'
        f"<strong>{text(added.corpus.name)}</strong> can be asked now: {passages(added.corpus.passages)}.</p>"
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
        f'<tr><th scope="row">{text(corpus.name)}</th><td>{f"{corpus.passages:,}" if corpus.passages else "–"}</td>'
        f"<td>{_day(corpus.made)}</td><td>{text(corpus.source)}</td></tr>"
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


def _count(total: int | None, shown: int) -> str:
    if total is None:
        return f"thousands of passages, the first {shown}"
    return passages(total) if total <= shown else f"{passages(total)}, the first {shown}"


def _chunk(number: int, chunk: PreviewChunk, longest: int) -> str:
    page = f" · page {text(str(chunk.passage.meta['page']))}" if "page" in chunk.passage.meta else ""
    over = ""
    if chunk.tokens > longest:
        over = f'<p class="mg-note">Only the first {longest} tokens are encoded: choose shorter passages.</p>'
    return (
        f'<li class="mg-card"><div class="mg-top"><span class="mg-rank">{number}</span>'
        f'<h3>{text(chunk.passage.title or chunk.passage.id)}</h3><span class="mg-tokens">{chunk.tokens} tokens{page}</span>'
        f'</div><p class="mg-text">{text(_shortened(chunk.passage.text))}</p>{over}</li>'
    )


def _shortened(whole: str) -> str:
    words = " ".join(whole[: 2 * SHOWN_CHARACTERS].split())
    return words if len(words) <= SHOWN_CHARACTERS else f"{words[:SHOWN_CHARACTERS]} …"


def _day(made: str) -> str:
    return f'<time datetime="{text(made)}">{datetime.fromisoformat(made):%Y-%m-%d %H:%M} UTC</time>' if made else "–"
