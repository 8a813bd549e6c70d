"""Intervals and tests against scipy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]
from statsmodels.stats.contingency_tables import mcnemar  # type: ignore[import-untyped]
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from eval.errors import EvalError
from eval.significance import bootstrap_interval, holm, mcnemar_p, measure_intervals, permutation_p


@given(wins=st.integers(0, 60), losses=st.integers(0, 60))
def test_mcnemar_p_equals_scipys_exact_binomial_test(wins: int, losses: int) -> None:
    expected = stats.binomtest(wins, wins + losses, 0.5).pvalue if wins + losses else 1.0
    assert mcnemar_p(wins, losses) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (3, 11), (7, 7), (120, 87)])
def test_mcnemar_p_equals_statsmodels_exact_test(wins: int, losses: int) -> None:
    expected = mcnemar([[40, losses], [wins, 25]], exact=True).pvalue
    assert mcnemar_p(wins, losses) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_p_of_a_whole_test_set_neither_overflows_nor_vanishes() -> None:
    assert mcnemar_p(2900, 2700) == pytest.approx(stats.binomtest(2900, 5600, 0.5).pvalue, rel=1e-9)
    assert mcnemar_p(11313, 0) == 0.0  # below the smallest float


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
    apart = [interval(values[:, 0], seed=3), interval(values[:, 1], seed=3)]
    assert both is not None and np.array(both) == pytest.approx(np.array(apart), rel=1e-12)
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


def test_intervals_of_a_paired_difference_are_resampled_as_its_two_parts_are() -> None:
    before, after = np.random.default_rng(1).random((2, 60))
    # Where one system is the other plus a constant, every resample's difference is that constant.
    found = bootstrap_interval(np.stack([before, before + 0.25, after - before], axis=1), seed=0)
    assert found is not None
    assert np.subtract(found[1], found[0]) == pytest.approx([0.25, 0.25], abs=1e-12)
    assert found[2] == pytest.approx(interval(after - before, seed=0), abs=1e-12)


def test_measures_over_different_questions_each_get_the_interval_of_their_own() -> None:
    a, b = np.random.default_rng(2).random((2, 30))
    ids = [f"q{i}" for i in range(30)]
    values = {
        "EM": dict(zip(ids, a, strict=True)),
        "nDCG@10": dict(zip(ids[:20], b[:20], strict=True)),
        "F1": dict(zip(ids, b, strict=True)),
        "AP": {"q1": 1.0},
    }
    found = measure_intervals(values, seed=4)
    assert list(found) == list(values) and found["AP"] is None
    for measure, expected in (("EM", a), ("nDCG@10", b[:20]), ("F1", b)):
        assert found[measure] == pytest.approx(interval(expected, seed=4), rel=1e-12)


def scipys_permutation_p(differences: npt.NDArray[np.float64], resamples: int) -> float:
    result = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=resamples, rng=np.random.default_rng(9)
    )
    p: float = result.pvalue
    return p


# Fractions as F1 and nDCG are made of, so that sums tie, in one order of adding or another.
values = st.sampled_from([0.0, 1.0, 1 / 3, 2 / 3, 0.4, 2 / 7, 0.1, 0.6309297535714575])


@given(st.lists(st.tuples(values, values), min_size=2, max_size=9))
def test_permutation_p_of_few_questions_equals_scipys_exact_test(pairs: list[tuple[float, float]]) -> None:
    differences = np.array([after - before for before, after in pairs])
    assert permutation_p(differences, 0) == pytest.approx(scipys_permutation_p(differences, 10_000), rel=1e-9)


def test_permutation_p_counts_sums_that_tie_but_for_rounding() -> None:
    # 0.1 + 0.2 and 0.3 differ in the last digit. |sum| is 0.6 for 2 of 8 patterns and 0 for 2: of 0.3 - 0.2 - 0.1 = 0
    # every pattern is at least as far from 0.
    assert permutation_p([0.3, -0.2, -0.1], 0) == 1.0
    assert permutation_p([0.1, 0.2, 0.3], 0) == 0.25
    # Adding 0.1 ten times in different orders: only the two patterns of one sign reach the whole sum.
    assert permutation_p([0.1] * 10, 0) == 2 / 2**10


@pytest.mark.parametrize("shift", [0.0, 0.03, 0.06])
def test_permutation_p_of_many_questions_agrees_with_scipys_sampled_test(shift: float) -> None:
    rng = np.random.default_rng(3)
    differences = rng.choice([0, 0, 1 / 3, -1 / 3, 0.5, -0.5], 300) + shift
    p = permutation_p(differences, 5)
    expected = scipys_permutation_p(differences, 10_000)
    # Two Monte Carlo estimates of one share, each from 10,000 patterns.
    assert p is not None and abs(p - expected) < 5 * np.sqrt(2 * expected * (1 - expected) / 10_000) + 2e-4


def test_permutation_p_of_right_and_wrong_is_mcnemars() -> None:
    for wins, losses in ((9, 2), (4, 4), (13, 0)):
        outcomes = [1.0] * wins + [-1.0] * losses + [0.0] * 500
        assert permutation_p(outcomes, 0) == pytest.approx(mcnemar_p(wins, losses), rel=1e-9)
    sampled = permutation_p([1.0] * 60 + [-1.0] * 40, 0)
    assert sampled == pytest.approx(mcnemar_p(60, 40), abs=5 * np.sqrt(0.06 / 10_000))


def test_permutation_p_is_exact_up_to_as_many_patterns_as_resamples_and_never_zero_beyond() -> None:
    assert permutation_p([1.0] * 10, 0, resamples=1024) == 2 / 1024
    # None of 1,023 random patterns of 10 signs need be the observed one, which itself counts.
    sampled = permutation_p([1.0] * 10, 0, resamples=1023)
    assert sampled is not None and sampled * 1024 == pytest.approx(round(sampled * 1024)) and sampled > 0
    assert permutation_p([1.0] * 400, 0, resamples=500) == 1 / 501
    # Enumeration in several chunks.
    differences = np.arange(1.0, 17.0) - 6
    assert permutation_p(differences, 0, resamples=70_000) == pytest.approx(scipys_permutation_p(differences, 70_000))


def test_permutation_p_repeats_with_its_seed_and_needs_two_questions() -> None:
    differences = np.random.default_rng(0).normal(0.1, 1, 200)
    assert permutation_p(differences, 1) == permutation_p(differences, 1) != permutation_p(differences, 2)
    assert permutation_p([0.5], 0) is None and permutation_p([], 0) is None
    assert permutation_p([0.0] * 7, 0) == 1.0
    with pytest.raises(EvalError, match="not finite"):
        permutation_p([0.5, float("nan")], 0)


# statsmodels takes 0.07 s a call.
@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.01, 0.04])), max_size=12))
def test_holm_equals_statsmodels_over_the_tests_that_were_made(p_values: list[float | None]) -> None:
    made = [p for p in p_values if p is not None]
    expected = iter(multipletests(made, method="holm")[1] if made else [])
    found = holm(p_values)
    assert [p is None for p in found] == [p is None for p in p_values]
    assert [p for p in found if p is not None] == pytest.approx(list(expected), rel=1e-12)


def test_holm_refuses_what_is_no_p() -> None:
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(EvalError, match=r"p values must be in \[0, 1\], got"):
            holm([0.5, wrong])
