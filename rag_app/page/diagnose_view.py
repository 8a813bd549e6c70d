"""What norms say, as HTML: readings in words, a histogram, norm against length, and the same as tables."""

from __future__ import annotations

from eval.report.html.draw import columns
from eval.report.html.markup import details, table_html, text
from eval.report.html.norms import cloud_html
from eval.report.tables import Table
from rag_app.diagnose import Diagnosed
from rag_app.diagnosis_words import Reading, readings, verdict
from retriever.diagnostics import Diagnosis

_BANDS = 8


def render_diagnosis(found: Diagnosed) -> str:
    """The whole of it."""
    figures = found.figures
    cards = "".join(_card(reading) for reading in readings(found))
    title = f"{found.encoder} over {found.corpus}"
    return (
        f'<div class="mg-report mg-diagnosis"><h2 class="mg-title">{text(title)}</h2>'
        f'<p class="how">{figures.n:,} passages · {text(found.model)}</p>'
        f'<p class="mg-words">{text(verdict(found))}</p><div class="mg-readings">{cards}</div>'
        f'<section><div class="grid">{_histogram(figures)}{_cloud(figures)}</div></section></div>'
    )


def _card(reading: Reading) -> str:
    detail = f"<small>{text(reading.detail)}</small>" if reading.detail else ""
    return (
        f'<article class="mg-reading"><h3>{text(reading.title)}</h3>'
        f'<p class="mg-value">{text(reading.value)}</p>{detail}<p>{_prose(reading.meaning)}</p></article>'
    )


def _prose(words: str) -> str:
    """A number and its percent sign stay on one line."""
    return text(words).replace(" %", "&nbsp;%")


def _histogram(figures: Diagnosis) -> str:
    label = (
        f"Histogram of the magnitudes of {figures.n:,} passages: half of them are below {figures.median:.3f}, 90 % between "
        f"{figures.low:.3f} and {figures.high:.3f}. The table below has the counts."
    )
    edges, counts = figures.histogram.edges, figures.histogram.counts
    rows: list[tuple[str, ...]] = [
        (f"{lower:.3f} to {upper:.3f}", f"{count:,}")
        for lower, upper, count in zip(edges, edges[1:], counts, strict=False)
    ]
    table = table_html(Table("Passages by magnitude", ("|d|", "passages"), rows))
    return (
        f'<figure class="norm"><figcaption>How long the passages\' vectors are</figcaption>'
        f"{columns(edges, counts, label, 'norm |d|')}{details('As a table', table)}</figure>"
    )


def _cloud(figures: Diagnosis) -> str:
    label = (
        f"Magnitude against length in tokens of {figures.sampled:,} passages, with the line that fits best. The table "
        "below has the means by length."
    )
    table = table_html(Table("Magnitude by length", ("tokens", "passages", "mean |d|"), bands(figures.points)))
    return (
        '<figure class="norm"><figcaption>Magnitude against the length of the text</figcaption>'
        f"{cloud_html(figures.points, label, 'tokens', figures.line)}{details('As a table', table)}</figure>"
    )


def bands(points: list[tuple[float, int]]) -> list[tuple[str, ...]]:
    """(lengths from and to, how many, their mean norm) in bands of as equal numbers as lengths allow."""
    ordered = sorted(points, key=lambda point: point[1])
    rows: list[tuple[str, ...]] = []
    start = 0
    for band in range(1, _BANDS + 1):
        end = len(ordered) * band // _BANDS
        # Passages of one length stay together.
        while start < end < len(ordered) and ordered[end][1] == ordered[end - 1][1]:
            end += 1
        if end <= start:
            continue
        own = ordered[start:end]
        mean = sum(norm for norm, _ in own) / len(own)
        rows.append((f"{own[0][1]} to {own[-1][1]}", f"{len(own):,}", f"{mean:.3f}"))
        start = end
    return rows
