"""Anisotropy, hubness and overlap, against numpy, scipy and chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from retriever.neighbours import anisotropy, hubness, overlap


def test_anisotropy_is_the_length_of_the_mean_and_its_square_the_mean_cosine() -> None:
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(50, 7)) + 0.5
    units = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    found = anisotropy([units[:20], units[20:]])
    assert found == pytest.approx(np.linalg.norm(units.mean(axis=0)))
    assert found**2 == pytest.approx((units @ units.T).mean())
    assert anisotropy([np.tile([0.6, 0.8], (5, 1))]) == pytest.approx(1)
    assert anisotropy([np.array([[1.0, 0.0], [-1.0, 0.0]])]) == 0
    assert math.isnan(anisotropy([])) and math.isnan(anisotropy([np.zeros((0, 3))]))


def test_hubness_is_scipy_s_skewness_of_the_counts() -> None:
    rng = np.random.default_rng(1)
    rows = np.array([rng.choice(40, 5, replace=False, p=np.arange(1, 41) / 820) for _ in range(60)])
    counts = np.array([(rows == row).sum() for row in range(40)])
    found = hubness(rows, 40)
    assert found.skewness == pytest.approx(stats.skew(counts))
    assert (found.most, found.never) == (counts.max(), np.mean(counts == 0))
    assert found.chance == pytest.approx(stats.binom(60, 5 / 40).stats("s"))


def test_by_chance_it_is_what_random_rankings_have() -> None:
    rng = np.random.default_rng(2)
    rows = np.argsort(rng.random((300, 2000)), axis=1)[:, :10]
    found = hubness(rows, 2000)
    assert found.skewness == pytest.approx(found.chance, abs=0.2)


def test_where_every_passage_is_ranked_alike_skewness_is_undefined() -> None:
    assert math.isnan(hubness([[0, 1], [2, 3]], 4).skewness)
    whole = hubness([[0, 1], [1, 0]], 2)
    assert math.isnan(whole.skewness) and math.isnan(whole.chance) and whole.never == 0


def test_overlap_counts_what_both_have_whatever_its_order() -> None:
    assert overlap([[1, 2, 3, 4], [5, 6, 7, 8]], [[4, 3, 2, 1], [8, 1, 2, 3]]).tolist() == [1.0, 0.25]
