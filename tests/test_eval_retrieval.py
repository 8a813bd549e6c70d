"""hit@k and recall@k: values by hand, and a naive count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.errors import EvalError
from eval.retrieval import hit_curve, mean_curve, recall_curve


def test_hit_curve_rises_at_the_first_passage_with_an_answer() -> None:
    assert hit_curve([False, True, False], 4) == [0.0, 1.0, 1.0, 1.0]
    assert hit_curve([True], 2) == [1.0, 1.0]
    assert hit_curve([False, False], 3) == [0.0, 0.0, 0.0]
    assert hit_curve([], 2) == [0.0, 0.0]
    assert hit_curve([False, False, True], 2) == [0.0, 0.0]


def test_recall_curve_counts_each_relevant_passage_once() -> None:
    assert recall_curve(["x", "a", "a", "b"], ["a", "b"], 4) == [0.0, 0.5, 0.5, 1.0]
    assert recall_curve(["a"], ["a", "b", "b"], 3) == [0.5, 0.5, 0.5]
    assert recall_curve([], ["a"], 2) == [0.0, 0.0]


def test_recall_without_marked_passages_is_no_number() -> None:
    assert recall_curve(["a"], [], 2) is None


@given(ranked=st.lists(st.sampled_from("abcdef"), max_size=8), relevant=st.sets(st.sampled_from("abcdef"), min_size=1))
def test_recall_equals_the_share_of_the_intersection_at_every_depth(ranked: list[str], relevant: set[str]) -> None:
    expected = [len(relevant & set(ranked[:k])) / len(relevant) for k in range(1, 9)]
    assert recall_curve(ranked, relevant, 8) == expected


def test_mean_curve_is_over_the_questions_that_have_one() -> None:
    assert mean_curve([[0.0, 1.0], None, [1.0, 1.0]]) == ([0.5, 1.0], 2)
    assert mean_curve([None, None]) == (None, 0)
    with pytest.raises(EvalError, match="one k"):
        mean_curve([[1.0], [1.0, 1.0]])


def test_k_below_one_is_refused() -> None:
    with pytest.raises(EvalError, match="at least 1, got 0"):
        hit_curve([True], 0)
    with pytest.raises(EvalError, match="at least 1, got 0"):
        recall_curve(["a"], ["a"], 0)
