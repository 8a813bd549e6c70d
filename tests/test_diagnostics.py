"""What norms say: Cohen's d by its fixture and its formula, variation and length correlation by scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from retriever.diagnostics import (
    Effect,
    chance_longer,
    cohens_d,
    correlation_interval,
    diagnose,
    effect_interval,
    histogram,
    length_correlation,
    partial_correlation,
    trend,
    variation,
    without_length,
)


def test_the_fixture() -> None:
    found = cohens_d([3, 5], [1, 2, 3])
    assert found.value == pytest.approx(1.7320508, abs=1e-7)
    assert (found.relevant, found.others, found.reason) == (2, 3, "")


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 30), st.integers(2, 30), st.integers(0, 10_000))
def test_it_is_student_s_t_without_the_sizes(n1: int, n2: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.normal(5, 1, n1), rng.normal(4, 2, n2)
    t = stats.ttest_ind(first, second).statistic  # pooled variance
    assert cohens_d(first, second).value == pytest.approx(t * math.sqrt(1 / n1 + 1 / n2), rel=1e-9, abs=1e-12)
    assert cohens_d(second, first).value == pytest.approx(-cohens_d(first, second).value)
    assert cohens_d(10 * first, 10 * second).value == pytest.approx(cohens_d(first, second).value)


@pytest.mark.parametrize(
    ("relevant", "others", "reason"),
    [
        ([3], [1, 2, 3], "there are 1 and 3"),
        ([], [1, 2], "there are 0 and 2"),
        ([1, 2], [3], "there are 2 and 1"),
        ([2, 2], [2, 2, 2], "neither side vary"),
        (np.float32([0.1, 0.1]), np.nextafter(np.float32([0.1, 0.1]), 1, dtype=np.float32), "neither side vary"),
    ],
)
def test_what_is_undefined_is_no_zero(relevant: object, others: object, reason: str) -> None:
    found = cohens_d(relevant, others)  # type: ignore[arg-type]
    assert math.isnan(found.value)
    assert reason in found.reason


def test_one_side_may_be_constant() -> None:
    assert cohens_d([2, 2], [1, 3]).value == pytest.approx(0)


def test_variation_and_length_correlation() -> None:
    rng = np.random.default_rng(0)
    norms, lengths = rng.uniform(1, 4, 200).astype(np.float32), rng.integers(3, 90, 200)
    assert variation(norms) == pytest.approx(stats.variation(norms), rel=1e-6)
    assert length_correlation(norms, lengths) == pytest.approx(
        stats.pearsonr(norms, np.log(lengths)).statistic, rel=1e-6
    )
    assert length_correlation(3 - np.log(lengths), lengths) == pytest.approx(-1)
    assert math.isnan(length_correlation(np.ones(5), range(1, 6)))
    assert math.isnan(length_correlation(norms, np.full(200, 7)))
    assert math.isnan(variation([]))


def test_a_histogram_counts_every_norm_once_the_last_edge_included() -> None:
    found = histogram([1.0, 1.5, 2.0, 2.9, 3.0, 5.0], 4)
    assert found.edges == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert found.counts == (2, 2, 1, 1)
    assert histogram([]).counts == ()


@pytest.mark.parametrize("n", [5, 40, 900])
def test_the_interval_of_a_correlation_is_scipy_s(n: int) -> None:
    rng = np.random.default_rng(n)
    lengths = rng.integers(5, 300, n)
    norms = 4 - 0.3 * np.log(lengths) + rng.normal(0, 0.2, n)
    found = correlation_interval(length_correlation(norms, lengths), n)
    assert found == pytest.approx(tuple(stats.pearsonr(norms, np.log(lengths)).confidence_interval(0.95)), rel=1e-6)


def test_a_partial_correlation_is_that_of_the_residuals() -> None:
    rng = np.random.default_rng(2)
    lengths = np.log(rng.integers(5, 300, 120))
    norms = 4 - 0.3 * lengths + rng.normal(0, 0.2, 120)
    marks = (lengths + rng.normal(0, 1, 120) > 4.5).astype(float)
    design = np.stack([np.ones(120), lengths], axis=1)
    left = [values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in (norms, marks)]
    found = partial_correlation(norms, marks, lengths)
    assert found == pytest.approx(stats.pearsonr(*left).statistic, rel=1e-9)
    assert abs(found) < abs(stats.pearsonr(norms, marks).statistic) / 2, "length was most of it"
    low, high = correlation_interval(found, 120, controls=1) or (0, 0)
    assert math.atanh(high) - math.atanh(low) == pytest.approx(2 * stats.norm.ppf(0.975) / math.sqrt(116))
    assert partial_correlation(norms, marks, np.ones(120)) == pytest.approx(stats.pearsonr(norms, marks).statistic)
    assert math.isnan(partial_correlation(lengths, marks, lengths)) and math.isnan(
        partial_correlation(norms, np.ones(120), lengths)
    )


def test_a_correlation_of_too_few_has_no_interval() -> None:
    assert correlation_interval(0.5, 3) is None
    assert correlation_interval(math.nan, 30) is None
    assert correlation_interval(1.0, 30) is None


def test_the_interval_of_an_effect_is_the_formula_and_covers_as_often_as_it_says() -> None:
    # By hand: 40/400 + 0.25/80 = 0.103125, whose root is 0.321131; 1.959964 of these are 0.629405.
    assert effect_interval(Effect(0.5, 20, 20)) == pytest.approx((0.5 - 0.629405, 0.5 + 0.629405), abs=1e-5)
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(600):
        interval = effect_interval(cohens_d(rng.normal(0.4, 1, 60), rng.normal(0, 1, 90)))
        assert interval is not None
        inside += interval[0] <= 0.4 <= interval[1]
    assert 0.93 <= inside / 600 <= 0.97
    assert effect_interval(Effect(math.nan, 1, 3, "too few")) is None


def test_the_chance_of_a_longer_vector_is_mann_whitney_s_u() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 12, 40), rng.integers(2, 14, 70)  # with ties
    u = stats.mannwhitneyu(first, second).statistic
    assert chance_longer(first, second) == pytest.approx(u / (40 * 70))
    assert chance_longer([2], [1, 2, 3]) == pytest.approx(0.5)
    assert math.isnan(chance_longer([], [1]))


def test_without_length_are_the_residuals_of_the_line_through_the_sample() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(5, 200, 80)
    norms = 3 - 0.4 * np.log(lengths) + rng.normal(0, 0.1, 80)
    fitted = np.arange(80) < 60
    slope, height = np.polyfit(np.log(lengths[fitted]), norms[fitted], 1)
    assert trend(norms[fitted], np.log(lengths[fitted])) == pytest.approx((slope, height))
    assert without_length(norms, lengths, fitted) == pytest.approx(norms - slope * np.log(lengths) - height)
    assert without_length([1.0, 3.0], [7, 7], [True, True]) == pytest.approx([-1, 1])


def test_a_difference_that_is_all_length_vanishes_when_length_is_taken_out() -> None:
    rng = np.random.default_rng(5)
    n = 600
    relevant = np.arange(n) < 200
    lengths = np.where(relevant, rng.integers(20, 60, n), rng.integers(80, 240, n))
    norms = 5 - 0.5 * np.log(lengths) + rng.normal(0, 0.1, n)
    found = diagnose(norms, np.arange(n), lengths, relevant, ~relevant)
    assert found.effect.value > 2 and found.effect.value == cohens_d(norms[relevant], norms[~relevant]).value
    assert abs(found.apart.value) < 0.2
    assert found.length == pytest.approx(stats.pearsonr(norms, np.log(lengths)).statistic)
    assert found.cv == pytest.approx(stats.variation(norms))
    assert (found.low, found.median, found.high) == pytest.approx(tuple(np.quantile(norms, (0.05, 0.5, 0.95))))
    assert found.longer == pytest.approx(stats.mannwhitneyu(norms[relevant], norms[~relevant]).statistic / (200 * 400))
    assert found.compared == n and found.relevance == pytest.approx(stats.pearsonr(norms, relevant).statistic)
    assert found.relevance > 0.7 and abs(found.partial) < 0.1 and found.partial_interval is not None
    assert sum(found.histogram.counts) == found.n == found.sampled == n


def test_relevant_passages_outside_of_the_sample_count_in_no_figure_of_length() -> None:
    rng = np.random.default_rng(6)
    norms, relevant = rng.uniform(1, 2, 50), np.zeros(50, dtype=bool)
    relevant[[3, 30, 40]] = True
    rows = np.array([1, 2, 3, 10, 20, 30, 40])
    lengths, sampled = np.array([5, 9, 30, 14, 60, 2, 90]), np.array([1, 1, 1, 1, 1, 0, 0], dtype=bool)
    found = diagnose(norms, rows, lengths, relevant, ~relevant, sampled=sampled)
    counted = rows[sampled]
    assert found.sampled == 5
    assert found.length == pytest.approx(stats.pearsonr(norms[counted], np.log(lengths[sampled])).statistic)
    assert [point[1] for point in found.points] == [5, 9, 30, 14, 60]
    assert (found.effect.relevant, found.effect.others) == (3, 47)
    assert (found.apart.relevant, found.apart.others) == (3, 4)
    chosen = rows[[0, 1, 2, 3, 4, 5, 6]]
    assert found.compared == 7 and found.relevance == pytest.approx(
        stats.pearsonr(norms[chosen], relevant[chosen]).statistic
    )


def test_every_figure_that_is_undefined_has_its_reason() -> None:
    marks = np.array([True, True, False])
    found = diagnose([2.0, 2.0, 2.0], range(3), [4, 9, 9], marks, ~marks, limit=9)
    assert found.at_limit == pytest.approx(2 / 3)
    unknown = {
        name for name in found.__slots__ if getattr(found, name) is None or getattr(found, name) != getattr(found, name)
    }
    assert unknown == set(found.undefined) >= {"length", "effect_interval", "apart_interval", "relevance", "partial"}
    assert found.undefined["length"] == "norms do not vary" and "2 and 1" in found.undefined["effect_interval"]
    alone = diagnose([2.0], [0], [5], [True], [False])
    assert alone.undefined["length"] == "it needs two texts, and there is 1" and "1 and 0" in alone.undefined["longer"]
    assert "limit" in alone.undefined and all(alone.undefined.values())
