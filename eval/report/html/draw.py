"""Charts as inline SVG.

Rows of a table are drawn with horizontal positions in percent, so that they take any width while lines and dots keep
their size. Every chart stands beside the figures that it draws, and tells its parts apart by shape too, not by colour
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from eval.report.html.markup import text
from eval.report.tables import ticks
from eval.summary import Interval

SERIES = 8
"""So many systems have a colour, dash and glyph of their own; then they start over."""

_EDGE = 3.0
_MINOR = ' class="minor"'


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `high` with round marks."""

    low: float
    high: float
    marks: tuple[float, ...]
    digits: int

    def at(self, value: float) -> float:
        """Position in percent of the width."""
        return _EDGE + (100 - 2 * _EDGE) * (value - self.low) / (self.high - self.low)

    def label(self, mark: float, sign: str = "") -> str:
        """A mark in words."""
        return "0" if abs(mark) < 1e-12 else f"{mark:{sign}.{self.digits}f}"


def scale_for(values: Iterable[float], *, include: Sequence[float] = (), tight: bool = True) -> Scale:
    """A scale around values with three to eight marks; one that is not tight starts and ends at marks."""
    found = [*values, *include] or [0.0]
    low, high = min(found), max(found)
    largest = max(abs(low), abs(high))
    if high - low < max(1e-6, 1e-6 * largest):
        pad = 0.05 * largest if largest > 1e-3 else 0.5
        low, high = low - pad, high + pad
    step = _round_step((high - low) / 3)
    if not tight:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return Scale(low, high, tuple(at * step for at in range(first, last + 1)), digits)


def track(scale: Scale, value: float, interval: Interval | None, *, filled: bool = True, zero: bool = False) -> str:
    """A dot with its whisker, for a cell of a table."""
    parts = [
        f'<line class="{"zero" if zero and abs(mark) < 1e-12 else "grid"}" x1="{scale.at(mark):.2f}%" '
        f'x2="{scale.at(mark):.2f}%" y1="0" y2="28"/>'
        for mark in scale.marks
    ]
    if interval:
        low, high = (f"{scale.at(end):.2f}%" for end in interval)
        parts.append(f'<line class="whisker" x1="{low}" x2="{high}" y1="14" y2="14"/>')
        parts += [f'<line class="whisker" x1="{end}" x2="{end}" y1="10" y2="18"/>' for end in (low, high)]
    parts.append(f'<circle class="{"dot" if filled else "ring"}" cx="{scale.at(value):.2f}%" cy="14" r="4.5"/>')
    return f'<svg class="track" aria-hidden="true">{"".join(parts)}</svg>'


def axis(scale: Scale, sign: str = "") -> str:
    """The marks of a column of tracks: at most four have a label, and where the window is narrow about half of these."""
    zero = next((at for at, mark in enumerate(scale.marks) if abs(mark) < 1e-12), 0)
    shown = range(zero % 2, len(scale.marks), 2) if len(scale.marks) > 4 else range(len(scale.marks))
    labels = "".join(
        f'<text{_MINOR if len(shown) > 3 and order % 2 else ""} x="{scale.at(scale.marks[at]):.2f}%" y="12" '
        f'text-anchor="middle">{scale.label(scale.marks[at], sign)}</text>'
        for order, at in enumerate(shown)
    )
    return f'<svg class="axis" aria-hidden="true">{labels}</svg>'


def bar(parts: Sequence[tuple[int, str, int]]) -> str:
    """A stacked bar of (pattern, name, count)."""
    total = sum(count for _, _, count in parts)
    left, drawn = 0.0, []
    for pattern, name, count in parts:
        width = 100 * count / total if total else 0.0
        if count:
            drawn.append(
                f'<rect class="part" x="{left:.3f}%" width="{width:.3f}%" height="22" fill="url(#cause{pattern})">'
                f"<title>{text(name)}: {count} of {total} ({width:.1f} %)</title></rect>"
            )
        left += width
    return f'<svg class="bar" aria-hidden="true">{"".join(drawn)}</svg>'


def line_chart(lines: Sequence[tuple[int, Sequence[float]]], label: str, k: int) -> str:
    """Curves by depth (logarithmic) in percent.

    Args:
        lines: (series, values at depth 1, 2, ...).
        label: What a screen reader says of the chart.
        k: Depth to mark, 0 for none.
    """
    left, right, top, bottom = 44.0, 408.0, 14.0, 200.0
    deepest = max(len(values) for _, values in lines)
    scale = scale_for((value for _, values in lines for value in values), tight=False)
    span = math.log2(deepest) or 1.0

    def x(depth: int) -> float:
        return left + (right - left) * (math.log2(depth) / span if deepest > 1 else 0.5)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - scale.low) / (scale.high - scale.low)

    parts = []
    for mark in scale.marks:
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{scale.label(mark)}</text>')
    shown = _spread([depth for depth in ticks(deepest) if depth != deepest] + [deepest], x, 24)
    parts += [f'<text x="{x(depth):.1f}" y="217" text-anchor="middle">{depth}</text>' for depth in shown]
    parts.append(f'<text x="{(left + right) / 2}" y="235" text-anchor="middle">passages, best first</text>')
    if 0 < k <= deepest:
        parts.append(f'<line class="zero" x1="{x(k):.1f}" x2="{x(k):.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text x="{x(k) + 4:.1f}" y="{bottom - 5}">k = {k}</text>')
    for series, values in lines:
        points = " ".join(f"{x(depth):.1f},{y(value):.1f}" for depth, value in enumerate(values, start=1))
        parts.append(f'<polyline class="line {_series(series)}" points="{points}"/>')
        for depth in shown:
            if depth <= len(values):
                parts.append(glyph(series, x(depth), y(values[depth - 1])))
    return f'<svg class="chart" viewBox="0 0 420 240" role="img" aria-label="{text(label)}">{"".join(parts)}</svg>'


def columns(
    edges: Sequence[float], counts: Sequence[int], label: str, axis_label: str, counted: str = "passages"
) -> str:
    """A histogram.

    Args:
        edges: Of the bins, one more than there are counts.
        counts: Of each bin.
        label: What a screen reader says of the chart.
        axis_label: Under the chart.
        counted: What the columns count.
    """
    left, right, top, bottom = 96.0, 624.0, 20.0, 336.0
    scale = scale_for([0, max(counts)], tight=False)
    across = scale_for(edges)
    width = (edges[-1] - edges[0]) or 1.0

    def x(value: float) -> float:
        return left + (right - left) * (value - edges[0]) / width

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - scale.low) / (scale.high - scale.low)

    parts = []
    for mark in scale.marks:
        parts.append(f'<line class="grid" x1="{left:.0f}" x2="{right:.0f}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        parts.append(f'<text x="{left - 10:.0f}" y="{y(mark) + 7:.1f}" text-anchor="end">{scale.label(mark)}</text>')
    for lower, upper, count in zip(edges, edges[1:], counts, strict=False):
        parts.append(
            f'<rect class="column" x="{x(lower):.1f}" width="{x(upper) - x(lower):.1f}" y="{y(count):.1f}" '
            f'height="{bottom - y(count):.1f}"><title>{lower:.3f} to {upper:.3f}: {count:,}</title></rect>'
        )
    for mark in across.marks:
        if edges[0] <= mark <= edges[-1]:
            parts.append(
                f'<text x="{x(mark):.1f}" y="{bottom + 28:.0f}" text-anchor="middle">{across.label(mark)}</text>'
            )
    parts.append(f'<text x="{(left + right) / 2:.0f}" y="404" text-anchor="middle">{text(axis_label)}</text>')
    middle = (top + bottom) / 2
    parts.append(
        f'<text transform="translate(22 {middle:.0f}) rotate(-90)" text-anchor="middle">{text(counted)}</text>'
    )
    return f'<svg class="chart" viewBox="0 0 640 420" role="img" aria-label="{text(label)}">{"".join(parts)}</svg>'


def legend(names: Sequence[tuple[int, str]]) -> str:
    """Names with the line and glyph of their series."""
    entries = "".join(
        f'<li><svg class="swatch" width="36" height="14" aria-hidden="true"><line class="line {_series(series)}" '
        f'x1="1" x2="35" y1="7" y2="7"/>{glyph(series, 18, 7)}</svg>{text(name)}</li>'
        for series, name in names
    )
    return f'<ul class="legend">{entries}</ul>'


def glyph(series: int, x: float, y: float) -> str:
    """The small shape of a series."""
    shapes = (
        "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        "m-3.5-3.5h7v7h-7z",
        "m0-4.5l4.5 8h-9z",
        "m0-5l4.5 5l-4.5 5l-4.5-5z",
        "m0 4.5l4.5-8h-9z",
        "m-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
        "m-4.5-2h9v4h-9z",
        "m-2-4.5h4v9h-4z",
    )
    return f'<path class="glyph {_series(series)}" d="M{x:.1f} {y:.1f}{shapes[series % SERIES]}"/>'


def _series(series: int) -> str:
    return f"s{series % SERIES}"


def _round_step(most: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is at most `most`."""
    power = 10.0 ** math.floor(math.log10(most) + 1e-9)
    return next(factor * power for factor in (5, 2, 1) if factor * power <= most * (1 + 1e-9))


def _spread(depths: Sequence[int], x: Callable[[int], float], least: float) -> list[int]:
    """Depths whose labels do not touch; the last one always stays."""
    kept: list[int] = []
    for depth in reversed(depths):
        if not kept or x(kept[-1]) - x(depth) >= least:
            kept.append(depth)
    return kept[::-1]
