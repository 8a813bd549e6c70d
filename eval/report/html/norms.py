"""Does a retriever put long vectors, or long texts, first? Norm against length: the corpus, and each system's first passages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from eval.report.html.draw import Scale, scale_for
from eval.report.html.markup import table_html, text
from eval.report.tables import NONE, Table
from eval.view import CorpusSample, RunView

# As many dots as the eye still tells apart; the figures below the charts are of all.
_DOTS = 1500
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 624, 20, 336
_WORDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
# Where passages are of much the same length.
_CLOSE_WORDS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200, 300, 400, 500, 700, 1000)

Points = list[tuple[float, int, float | None]]


def norms_html(view: RunView, dataset: str, systems: Sequence[str]) -> str:
    """Charts and their figures; "" where no system has norms.

    Args:
        view: The run.
        dataset: Its name.
        systems: Names.
    """
    firsts = {name: points for name in systems if (points := _firsts(view, dataset, name))}
    if not firsts:
        return ""
    facts = view.corpora.get(dataset)
    shown = _samples(facts.samples if facts else [], list(firsts))
    behind = {name: sample for names, sample in shown for name in names}
    pale = "; the pale dots are a sample of the corpus under the same encoder" if shown else ""
    return (
        "<h3>Norm and length of the passages ranked first</h3>"
        f'<p class="how">Each dark dot is the passage that a system ranked first for a question{pale}. Norm: length of a '
        "passage's vector. Each chart has axes of its own. Correlations are of the norm with the logarithm of the length in "
        "words.</p>"
        f'<div class="grid small">{"".join(_chart(name, own, behind.get(name, [])) for name, own in firsts.items())}</div>'
        + table_html(Table("Norm and length", _HEADER, _rows(shown, firsts), names=1))
    )


def _samples(samples: Sequence[CorpusSample], systems: list[str]) -> list[tuple[list[str], Points]]:
    """Each sample with the shown systems that it belongs to, where there are any."""
    found: list[tuple[list[str], Points]] = []
    for sample in samples:
        # Whose one of nobody knows is, was taken under the first one's encoder.
        names = [name for name in systems if sample.of(name)] if sample.retrievers else systems[:1]
        points: Points = [(norm, words, None) for norm, words in zip(sample.norms, sample.words, strict=False)]
        if names and points:
            found.append((names, points))
    return found


def _chart(system: str, firsts: Points, corpus: Points) -> str:
    scale = scale_for(norm for norm, _, _ in firsts + corpus)
    lengths = [words for _, words, _ in firsts + corpus]
    span = (math.log10(max(1, min(lengths))), math.log10(max(2, max(lengths))) + 1e-9)
    label = f"{system}: norms and lengths of the passages ranked first{', over those of the corpus' if corpus else ''}"
    cloud = f'<path class="cloud" d="{_dots(corpus, scale, span)}"/>' if corpus else ""
    return (
        f'<figure class="norm"><figcaption>{text(system)}</figcaption><svg class="chart" viewBox="0 0 640 420" '
        f'role="img" aria-label="{text(label)}">{_axes(scale, span)}{cloud}'
        f'<path class="first" d="{_dots(firsts, scale, span)}"/></svg></figure>'
    )


def cloud_html(
    points: Sequence[tuple[float, int]], label: str, unit: str, line: tuple[float, float], norm: str = "norm |d|"
) -> str:
    """One cloud of norms against lengths with the line through it.

    Args:
        points: (norm, length).
        label: What a screen reader says of the chart.
        unit: Of lengths, as the axis names it.
        line: Slope and height of norm in the natural logarithm of the length.
        norm: Under which the vertical axis stands.
    """
    lengths = [length for _, length in points]
    scale = scale_for((value for value, _ in points), tight=False)
    span = (math.log10(max(1, min(lengths))), math.log10(max(2, max(lengths))) + 1e-9)
    ends = []
    for x in span:
        y = line[0] * x * math.log(10) + line[1]
        ends.append(f"{_x(10**x, span):.1f},{_y(min(max(y, scale.low), scale.high), scale):.1f}")
    return (
        f'<svg class="chart" viewBox="0 0 640 420" role="img" aria-label="{text(label)}">{_axes(scale, span, unit, norm)}'
        f'<path class="cloud" d="{_dots([(value, length, None) for value, length in points], scale, span)}"/>'
        f'<polyline class="trend" fill="none" points="{" ".join(ends)}"/></svg>'
    )


def correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Pearson's; None where one of them does not vary by more than rounding does (norms that are all one)."""
    if len(x) < 2:
        return None
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if any(np.ptp(values) <= 1e-5 * np.abs(values).max() for values in (a, b)):
        return None
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, equal values sharing their mean."""
    _, place, count = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    return ((ends - (count - 1) / 2)[place]).tolist()


_HEADER = ("passages", "number", "median norm", "median words", "mean norm percentile", "Spearman", "Pearson")


def _rows(samples: list[tuple[list[str], Points]], firsts: dict[str, Points]) -> list[tuple[str, ...]]:
    alone = len(samples) == 1 and len(samples[0][0]) == len(firsts)
    corpus = [("corpus sample" if alone else f"corpus sample ({', '.join(names)})", own) for names, own in samples]
    return [_row(name, points) for name, points in [*corpus, *firsts.items()]]


def _row(name: str, points: Points) -> tuple[str, ...]:
    norms, words = [norm for norm, _, _ in points], [float(max(1, words)) for _, words, _ in points]
    percentiles = [percentile for _, _, percentile in points if percentile is not None]
    pearson = correlation(norms, [math.log(word) for word in words])
    spearman = None if pearson is None else correlation(ranks(norms), ranks(words))
    return (
        name,
        str(len(points)),
        f"{median(norms):.3f}",
        f"{median(words):g}",
        f"{fmean(percentiles):.1f}" if percentiles else NONE,
        NONE if spearman is None else f"{spearman:+.2f}",
        NONE if pearson is None else f"{pearson:+.2f}",
    )


def _firsts(view: RunView, dataset: str, system: str) -> Points:
    """(norm, words, percentile) of the passage that a system ranked first, by question."""
    points: Points = []
    for question in view.questions:
        row: dict[str, Any] | None = view.rows.get((system, question.id))
        if question.dataset == dataset and row and row["passages"]:
            first = row["passages"][0]
            if first["norm"] is not None:
                points.append((first["norm"], first["words"], first["percentile"]))
    return points


def _dots(points: Points, scale: Scale, span: tuple[float, float]) -> str:
    """Lines of no length, which round caps make dots: a tenth of the bytes that circles take."""
    stride = max(1, math.ceil(len(points) / _DOTS))
    return "".join(f"M{_x(words, span):.0f} {_y(norm, scale):.0f}h0" for norm, words, _ in points[::stride])


def _x(words: float, span: tuple[float, float]) -> float:
    return _LEFT + (_RIGHT - _LEFT) * (math.log10(max(1, words)) - span[0]) / (span[1] - span[0])


def _y(norm: float, scale: Scale) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * (norm - scale.low) / (scale.high - scale.low)


def _axes(scale: Scale, span: tuple[float, float], unit: str = "words", norm: str = "norm |d|") -> str:
    parts = []
    for mark in scale.marks:
        y = f"{_y(mark, scale):.0f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 10}" y="{float(y) + 7:.0f}" text-anchor="end">{scale.label(mark)}</text>')
    for words in _WORDS if span[1] - span[0] > 1.2 else _CLOSE_WORDS:
        if span[0] <= math.log10(words) <= span[1]:
            parts.append(f'<text x="{_x(words, span):.0f}" y="{_BOTTOM + 28}" text-anchor="middle">{words}</text>')
    parts.append(f'<text x="{(_LEFT + _RIGHT) / 2:.0f}" y="404" text-anchor="middle">length in {unit} (log)</text>')
    parts.append(
        f'<text transform="translate(22 {(_TOP + _BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">{text(norm)}</text>'
    )
    return "".join(parts)
