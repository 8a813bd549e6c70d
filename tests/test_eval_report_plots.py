"""What the report draws: scales, dots, bars, correlations, and colours that stand out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eval.report.html import draw, html_report, norms
from tests.report_example import example, measured


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=9),
    st.booleans(),
)
def test_scales_hold_their_values_and_have_few_round_marks(values: list[float], tight: bool) -> None:
    scale = draw.scale_for(values, tight=tight)
    slack = 1e-6 * (scale.high - scale.low)
    assert scale.low - slack <= min(values) and max(values) <= scale.high + slack
    assert 2 <= len(scale.marks) <= 12
    assert all(0 <= scale.at(value) <= 100 for value in values)
    assert all(scale.low - slack <= mark <= scale.high + slack for mark in scale.marks)
    assert len({scale.label(mark) for mark in scale.marks}) == len(scale.marks)


def test_dots_and_whiskers_stand_where_the_axis_says() -> None:
    scale = draw.scale_for([12.0, 71.0])
    drawn, axis = draw.track(scale, 37.0, (20.0, 55.0)), draw.axis(scale)
    marks = [(float(x), float(label)) for x, label in re.findall(r'x="([\d.]+)%"[^>]*>(-?[\d.]+)<', axis)]
    slope = stats.linregress(*zip(*marks, strict=True))
    dot, whisker = (
        re.search(r'<circle[^>]*cx="([\d.]+)%"', drawn),
        re.search(r'whisker" x1="([\d.]+)%" x2="([\d.]+)%"', drawn),
    )
    assert dot and whisker and len(marks) >= 3
    read = [slope.intercept + slope.slope * float(x) for x in (dot[1], whisker[1], whisker[2])]
    assert read == pytest.approx([37.0, 20.0, 55.0], abs=0.05)


def test_bars_are_as_long_as_their_counts() -> None:
    widths = [
        float(width) for width in re.findall(r'width="([\d.]+)%"', draw.bar([(0, "a", 3), (1, "b", 0), (2, "c", 1)]))
    ]
    assert widths == [75.0, 25.0]
    assert "<rect" not in draw.bar([(0, "a", 0)])


def test_correlations_are_those_of_scipy_and_constant_norms_have_none() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 9, 60).tolist(), rng.normal(size=60).tolist()
    assert norms.ranks(x) == stats.rankdata(x).tolist()
    assert norms.correlation(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert norms.correlation(norms.ranks(x), norms.ranks(y)) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert norms.correlation((1 + 1e-7 * rng.normal(size=60)).tolist(), y) is None
    assert norms.correlation([1.0], [2.0]) is None


def test_a_question_of_another_data_set_has_no_part_in_a_plot() -> None:
    view = example(systems=1, datasets=2, n=10)
    points = re.findall(r'class="first" d="([^"]*)"', html_report(view, measured(view)))
    assert [path.count("M") for path in points] == [10, 10]


COLOUR = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out_from_what_is_behind_them(dark: bool) -> None:
    style = (Path(draw.__file__).parent / "report.css").read_text()
    light, _, rest = style.partition("@media (prefers-color-scheme: dark)")
    colours = dict(COLOUR.findall(rest.partition("\n}\n")[0] if dark else light))
    assert len(colours) > 25

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(colours[one]), luminance(colours[other])))
        return (high + 0.05) / (low + 0.05)

    for ink in ("ink", "soft", "accent", "bad"):
        for paper in ("page", "card"):
            assert contrast(ink, paper) >= 4.5, (ink, paper)
    assert contrast("warn-ink", "warn") >= 4.5
    for line in (*(f"s{at}" for at in range(draw.SERIES)), "accent"):
        assert contrast(line, "card") >= 3, line
