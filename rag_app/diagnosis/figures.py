"""Cards and charts of what norms say, for the page and for reports; each chart has its figures as a table."""

from __future__ import annotations

from collections.abc import Sequence

from eval.report.html.draw import axis, columns, scale_for, track
from eval.report.html.markup import details, scroller, table_html, text
from eval.report.html.norms import cloud_html
from eval.report.tables import Table
from eval.summary import Interval
from rag_app.diagnosis.words import Reading
from retriever.diagnostics import Diagnosis

_BANDS = 8


def cards(readings: Sequence[Reading]) -> str:
    """Every figure with its meaning."""
    return f'<div class="mg-readings">{"".join(map(_card, readings))}</div>'


def _card(reading: Reading) -> str:
    detail = f"<small>{text(reading.detail)}</small>" if reading.detail else ""
    return (
        f'<article class="mg-reading"><h3>{text(reading.title)}</h3>'
        f'<p class="mg-value">{text(reading.value)}</p>{detail}<p>{_prose(reading.meaning)}</p></article>'
    )


def _prose(words: str) -> str:
    """A number and its percent sign stay on one line."""
    return text(words).replace(" %", "&nbsp;%")


def norm_charts(figures: Diagnosis, what: str = "passages", symbol: str = "|d|") -> str:
    """How norms spread, and norm against length.

    Args:
        figures: One or more vectors.
        what: Whose vectors they are, in the plural.
        symbol: Of their norm.
    """
    return _histogram(figures, what, symbol) + _cloud(figures, what, symbol)


def _histogram(figures: Diagnosis, what: str, symbol: str) -> str:
    label = (
        f"Histogram of the magnitudes of {figures.n:,} {what}: half of them are below {figures.median:.3f}, 90 % between "
        f"{figures.low:.3f} and {figures.high:.3f}. The table below has the counts."
    )
    edges, counts = figures.histogram.edges, figures.histogram.counts
    rows: list[tuple[str, ...]] = [
        (f"{lower:.3f} to {upper:.3f}", f"{count:,}")
        for lower, upper, count in zip(edges, edges[1:], counts, strict=False)
    ]
    table = table_html(Table(f"{what.capitalize()} by magnitude", (symbol, what), rows))
    return (
        f'<figure class="norm"><figcaption>How long the vectors of {text(what)} are</figcaption>'
        f"{columns(edges, counts, label, f'norm {symbol}', what)}{details('As a table', table)}</figure>"
    )


def _cloud(figures: Diagnosis, what: str, symbol: str) -> str:
    label = (
        f"Magnitude against length in tokens of {figures.sampled:,} {what}, with the line that fits best. The table "
        "below has the means by length."
    )
    rows = bands(figures.points)
    until = f", cut at {figures.limit:,} tokens" if figures.at_limit > 0 else ""
    table = table_html(Table(f"Magnitude of {what} by length", ("tokens", what, f"mean {symbol}"), rows))
    return (
        f'<figure class="norm"><figcaption>Magnitude of {text(what)} against the length of their text{until}</figcaption>'
        f"{cloud_html(figures.points, label, 'tokens', figures.line, f'norm {symbol}')}{details('As a table', table)}</figure>"
    )


def count_chart(counts: Sequence[int], caption: str, axis_label: str, counted: str) -> str:
    """A column for each whole number from 0.

    Args:
        counts: Of 0, 1, 2, ...
        caption: Over the chart.
        axis_label: What the whole number is.
        counted: What the columns count.
    """
    edges = [at - 0.5 for at in range(len(counts) + 1)]
    rows: list[tuple[str, ...]] = [(str(at), f"{count:,}") for at, count in enumerate(counts)]
    table = table_html(Table(caption, (axis_label, counted), rows))
    chart = columns(edges, counts, f"{caption}. The table below has the counts.", axis_label, counted)
    return (
        f'<figure class="norm"><figcaption>{text(caption)}</figcaption>{chart}{details("As a table", table)}</figure>'
    )


def interval_table(caption: str, rows: Sequence[tuple[str, float, Interval | None, str]], *, zero: bool = False) -> str:
    """Figures with their intervals, drawn beside their words.

    Args:
        caption: Over the table.
        rows: (name, figure, interval, the two in words).
        zero: Whether 0 is what figures are held against.
    """
    ends = [end for _, value, interval, _ in rows for end in (value, *(interval or ()))]
    scale = scale_for(ends, include=(0.0,) if zero else ())
    drawn = "".join(
        f'<tr><th scope="row">{text(name)}</th><td>{track(scale, value, interval, zero=zero)}</td>'
        f'<td class="figure">{text(words)}</td></tr>'
        for name, value, interval, words in rows
    )
    table = (
        f'<table class="drawn"><caption>{text(caption)}</caption><thead class="hidden"><tr><th scope="col">what</th>'
        '<th scope="col">drawn</th><th scope="col">figure [95 % interval]</th></tr></thead>'
        f'<tbody>{drawn}</tbody><tfoot aria-hidden="true"><tr><td></td><td>{axis(scale, "+" if zero else "")}</td><td></td></tr>'
        "</tfoot></table>"
    )
    return scroller(table, caption)


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
