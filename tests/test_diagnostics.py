"""What norms say: Cohen's d by its fixture and its formula, variation and length correlation by scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from retriever.diagnostics import cohens_d, length_correlation, variation


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
