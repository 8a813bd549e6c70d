"""Intervals and tests against scipy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from eval.errors import EvalError
from eval.significance import bootstrap_interval, mcnemar_p, wins_losses


@given(wins=st.integers(0, 60), losses=st.integers(0, 60))
def test_mcnemar_p_equals_scipys_exact_binomial_test(wins: int, losses: int) -> None:
    expected = stats.binomtest(wins, wins + losses, 0.5).pvalue if wins + losses else 1.0
    assert mcnemar_p(wins, losses) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_p_of_a_whole_test_set_neither_overflows_nor_vanishes() -> None:
    assert mcnemar_p(2900, 2700) == pytest.approx(stats.binomtest(2900, 5600, 0.5).pvalue, rel=1e-9)
    assert mcnemar_p(11313, 0) == 0.0  # below the smallest float


def test_wins_and_losses_count_the_questions_that_one_alone_has_right() -> None:
    baseline = [True, True, False, False, False]
    system = [True, False, True, True, False]
    assert wins_losses(baseline, system) == (2, 1)
    with pytest.raises(ValueError):
        wins_losses([True], [])


def interval(values: npt.NDArray[np.float64], seed: int) -> tuple[float, float]:
    found = bootstrap_interval(values, seed)
    assert found is not None and len(found) == 1
    return found[0]


def test_bootstrap_interval_agrees_with_scipys_percentile_bootstrap() -> None:
    rng = np.random.default_rng(5)
    values = rng.random(150) ** 2
    (low, high) = interval(values, seed=1)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=rng).confidence_interval
    # Two Monte Carlo draws of the same bounds: each off by about 2 % of the standard error.
    tolerance = 0.15 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=tolerance)


def test_bootstrap_interval_of_a_proportion_has_the_binomial_quantiles() -> None:
    values = np.array([1.0] * 60 + [0.0] * 140)
    (low, high) = interval(values, seed=0)
    # The mean of a resample is binomial(200, 0.3) / 200 exactly.
    expected = stats.binom.ppf([0.025, 0.975], 200, 0.3) / 200
    assert (low, high) == pytest.approx(tuple(expected), abs=1 / 200 + 1e-9)


def test_columns_share_their_resamples_and_seeds_repeat() -> None:
    values = np.random.default_rng(0).random((40, 2))
    both = bootstrap_interval(values, seed=3)
    assert both == bootstrap_interval(values, seed=3)
    assert both == [interval(values[:, 0], seed=3), interval(values[:, 1], seed=3)]
    assert both != bootstrap_interval(values, seed=4)


def test_chunks_of_resamples_cover_all_of_them() -> None:
    # 300,000 questions force several chunks; a constant has an interval of no width.
    assert bootstrap_interval(np.full(300_000, 0.25), seed=0, resamples=20) == [(0.25, 0.25)]


def test_fewer_than_two_questions_have_no_interval() -> None:
    assert bootstrap_interval([1.0], seed=0) is None
    assert bootstrap_interval([], seed=0) is None


def test_nan_scores_are_refused() -> None:
    with pytest.raises(EvalError, match="not finite"):
        bootstrap_interval([1.0, float("nan")], seed=0)
