"""Plots of a comparison as inline SVG that takes its colours from the page, each with its figures as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.report.html.draw import Scale, scale_for
from eval.report.html.markup import text
from rag_app.page.dial import Candidates, Dialled
from rag_app.page.run import Snapshot

WIDTH, HEIGHT = 440.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 428.0, 12.0, 274.0
_NUMBERED = 8
"""So many of the dial's best have their rank beside them; more would cover one another."""

ROW, GAP = 28, 16
"""Pixels of the slope chart: of a passage, and between those that are shown and those that are not."""


def render_scatter(candidates: Candidates, turned: Sequence[Dialled], gamma_d: float) -> str:
    """Cosine against magnitude, with the line that each ranking draws between its k best and the others."""
    passages = candidates.passages
    x = _Axis(scale_for([passage.cosine for passage in passages], tight=False), _LEFT, _RIGHT)
    y = _Axis(scale_for([passage.norm for passage in passages], tight=False), _BOTTOM, _TOP)
    parts = [*_grid(x, y)]
    for side, gamma in enumerate(candidates.gammas):
        if gamma is not None:
            parts.append(_border(candidates, gamma, f"mg-line-{'ab'[side]}", x, y))
    parts.append(_border(candidates, gamma_d, "mg-line-dial", x, y))
    best = {one.place: one.rank for one in turned}
    for place, passage in enumerate(passages):
        parts.append(_point(candidates, place, (x(passage.cosine), y(passage.norm)), place in best))
    ranked = [candidates.passages[one.place] for one in turned[:_NUMBERED]]
    parts += _numbers([(x(passage.cosine), y(passage.norm)) for passage in ranked])
    title = "Cosine and magnitude of the candidates"
    return (
        f'<figure class="mg-plot"><svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" '
        f'aria-label="{title}. {text(_described(candidates, turned, gamma_d))}">{"".join(parts)}</svg>'
        f"{_legend(candidates)}</figure>"
    )


def render_candidates(candidates: Candidates, turned: Sequence[Dialled]) -> str:
    """The passages that the plot marks, as a table."""
    best = {one.place: one.rank for one in turned}
    marked = [
        place
        for place, passage in enumerate(candidates.passages)
        if place in best or any(rank is not None and rank <= candidates.k for rank in passage.ranks)
    ]
    marked.sort(key=lambda place: (best.get(place, candidates.k + 1), -candidates.passages[place].cosine))
    sides = [side for side in (0, 1) if candidates.names[side]]
    head = "".join(f'<th scope="col">rank under {text(candidates.names[side])}</th>' for side in sides)
    rows = "".join(
        f'<tr><th scope="row">{text(candidates.passages[place].title)}</th>'
        f"<td>{candidates.passages[place].cosine:.4f}</td><td>{candidates.passages[place].norm:.3f}</td>"
        + "".join(f"<td>{candidates.passages[place].ranks[side] or '–'}</td>" for side in sides)
        + f"<td>{best.get(place, '–')}</td></tr>"
        for place in marked
    )
    return (
        '<details class="mg-table"><summary>The plot as a table</summary><div class="mg-scroll" tabindex="0" role="region" '
        'aria-label="Candidates"><table><thead><tr><th scope="col">Passage</th><th scope="col">cosine</th>'
        f'<th scope="col">|d|</th>{head}<th scope="col">rank by the dial</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def render_slopes(snapshot: Snapshot) -> str:
    """Ranks from left to right; "" unless both sides found passages."""
    left, right = (answer.hits for answer in snapshot.answers)
    if not (left and right):
        return ""
    titles = {hit.passage.id: hit.passage.title or hit.passage.id for hit in (*left, *right)}
    ranks = [found.ranks for found in snapshot.found]
    shown = [{hit.passage.id for hit in hits} for hits in (left, right)]
    orders = [_order(titles, ranks[side], shown[side]) for side in (0, 1)]
    heights = [
        {id: ROW * place + ROW / 2 + (GAP if id not in shown[side] else 0) for place, id in enumerate(orders[side])}
        for side in (0, 1)
    ]
    height = ROW * len(titles) + GAP
    lines = []
    for id in titles:
        there, here = ranks[0].get(id), ranks[1].get(id)
        kind = "same" if there == here else "up" if (here or math.inf) < (there or math.inf) else "down"
        lines.append(
            f'<line class="mg-slope-{kind}" x1="0" x2="100" y1="{heights[0][id]:.0f}" y2="{heights[1][id]:.0f}"/>'
        )
    names = [text(side.name) for side in snapshot.sides]
    lists = [_ranked(orders[side], titles, ranks[side], shown[side]) for side in (0, 1)]
    rows = "".join(
        f'<tr><th scope="row">{text(titles[id])}</th><td>{ranks[0].get(id, "–")}</td><td>{ranks[1].get(id, "–")}</td></tr>'
        for id in orders[0]
    )
    return (
        '<h2 class="mg-heading">How the ranks move</h2><figure class="mg-slopes"><figcaption>Each passage’s rank on both '
        "sides; below the gap stands what a side does not show.</figcaption>"
        f'<div class="mg-slope-grid" aria-hidden="true"><b>{names[0]}</b><span></span><b>{names[1]}</b>{lists[0]}'
        f'<svg viewBox="0 0 100 {height}" height="{height}" preserveAspectRatio="none">{"".join(lines)}</svg>{lists[1]}</div>'
        '</figure><details class="mg-table"><summary>The ranks as a table</summary><div class="mg-scroll" tabindex="0" '
        'role="region" aria-label="Ranks"><table><thead><tr><th scope="col">Passage</th>'
        f'<th scope="col">{names[0]}</th><th scope="col">{names[1]}</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values to positions between `start` and `end`."""

    scale: Scale
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.scale.low) / (self.scale.high - self.scale.low)
        return self.start + (self.end - self.start) * share


def _grid(x: _Axis, y: _Axis) -> list[str]:
    parts = []
    for mark in x.scale.marks:
        at = x(mark)
        parts.append(f'<line class="mg-grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_BOTTOM + 17}" text-anchor="middle">{x.scale.label(mark)}</text>')
    for mark in y.scale.marks:
        at = y(mark)
        parts.append(f'<line class="mg-grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{y.scale.label(mark)}</text>')
    middle = (_TOP + _BOTTOM) / 2
    parts.append(
        f'<text class="mg-axis" x="{(_LEFT + _RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">cosine with the question</text>'
    )
    parts.append(
        f'<text class="mg-axis" x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">magnitude |d|</text>'
    )
    return parts


def _border(candidates: Candidates, gamma_d: float, kind: str, x: _Axis, y: _Axis) -> str:
    """Where a passage would score as the k-th best does under γd: cosine = score / |d|^(1 − γd)."""
    _, scores = candidates.contenders.rank(gamma_d, candidates.k)
    norms = np.linspace(max(y.scale.low, 1e-6), y.scale.high, 97)
    cosines = scores[-1] / norms ** (1.0 - gamma_d)
    inside = (cosines >= x.scale.low) & (cosines <= x.scale.high)
    points = " ".join(
        f"{x(cosine):.1f},{y(norm):.1f}" for cosine, norm in zip(cosines[inside], norms[inside], strict=True)
    )
    return f'<polyline class="mg-line {kind}" points="{points}"/>'


def _point(candidates: Candidates, place: int, at: tuple[float, float], is_best: bool) -> str:
    """A dot, ringed for the left side's best, boxed for the right side's, filled for the dial's."""
    passage, (x, y) = candidates.passages[place], at
    shapes = [f"<title>{text(passage.title)}: cosine {passage.cosine:.3f}, |d| {passage.norm:.2f}</title>"]
    if passage.ranks[0] is not None and passage.ranks[0] <= candidates.k:
        shapes.append(f'<circle class="mg-ring" cx="{x:.1f}" cy="{y:.1f}" r="7"/>')
    if passage.ranks[1] is not None and passage.ranks[1] <= candidates.k:
        shapes.append(f'<rect class="mg-box" x="{x - 9:.1f}" y="{y - 9:.1f}" width="18" height="18"/>')
    kind, radius = ("mg-best", 4.0) if is_best else ("mg-dot", 2.5)
    shapes.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>')
    return f"<g>{''.join(shapes)}</g>"


def _numbers(points: Sequence[tuple[float, float]]) -> list[str]:
    """Ranks from 1 beside their points, each on the first side where it covers no other and stays inside."""
    taken: list[tuple[float, float]] = []  # middles; a figure's foot is 4 below its own
    parts = []
    for rank, (x, y) in enumerate(points, 1):
        around = ((15, -5), (-15, -5), (15, 16), (-15, 16), (0, -14), (0, 24))
        free = (
            (x + right, y + down)
            for right, down in around
            if _LEFT < x + right < _RIGHT + 6
            and all(abs(x + right - a) > 13 or abs(y + down - b) > 13 for a, b in taken)
        )
        at = next(free, (x + 15, y - 5))
        taken.append((at[0], at[1] - 4))
        parts.append(f'<text class="mg-number" x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="middle">{rank}</text>')
    return parts


def _legend(candidates: Candidates) -> str:
    shapes = (
        '<circle class="mg-ring" cx="10" cy="9" r="6"/>',
        '<rect class="mg-box" x="3" y="2" width="14" height="14"/>',
        '<circle class="mg-best" cx="10" cy="9" r="4"/>',
    )
    entries = []
    for shape, name, kind, gamma in zip(
        shapes, (*candidates.names, "the dial"), ("a", "b", "dial"), (*candidates.gammas, 1.0), strict=True
    ):
        line = "" if gamma is None else f'<line class="mg-line mg-line-{kind}" x1="22" x2="48" y1="9" y2="9"/>'
        if name:
            entries.append(
                f'<li><svg width="{50 if line else 20}" height="18" aria-hidden="true">{shape}{line}</svg>'
                f"{text(name)}’s {candidates.k} best</li>"
            )
    return f'<ul class="mg-legend">{"".join(entries)}</ul>'


def _described(candidates: Candidates, turned: Sequence[Dialled], gamma_d: float) -> str:
    best = "; ".join(f"{one.rank} {one.candidate.title}" for one in turned[:_NUMBERED])
    return (
        f"{len(candidates.passages)} candidates. A line stands where scores equal that of the passage of rank {candidates.k}; "
        f"those to its right are the best. With gamma {gamma_d:.2f}: {best}."
    )


def _order(ids: Iterable[str], ranks: Mapping[str, int], shown: set[str]) -> list[str]:
    """Those that are shown by rank, then the others by rank, those without one last."""
    return sorted(ids, key=lambda id: (id not in shown, ranks.get(id, math.inf), id))


def _ranked(order: Sequence[str], titles: dict[str, str], ranks: Mapping[str, int], shown: set[str]) -> str:
    items, beyond = [], False
    for id in order:
        first = id not in shown and not beyond
        beyond = beyond or first
        kind = ' class="mg-beyond-first"' if first else ' class="mg-beyond"' if beyond else ""
        items.append(f"<li{kind}><i>{ranks.get(id) or '–'}</i><span>{text(titles[id])}</span></li>")
    return f"<ol>{''.join(items)}</ol>"
