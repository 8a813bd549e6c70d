"""Sentence pairs and their rank correlation, against scipy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import bootstrap, spearmanr  # type: ignore[import-untyped]

from eval.data.pairs import Pair, read_pairs, spearman, spearman_difference
from eval.errors import EvalError

PAIRS = [Pair("A dog runs.", "A cat runs.", 2.5), Pair("x", 'say "x"', 0.0)]


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_jsonl_in_either_naming_and_tsv_hold_the_same_pairs(tmp_path: Path) -> None:
    ours = jsonl(tmp_path / "a.jsonl", *({"text1": p.text1, "text2": p.text2, "score": p.score} for p in PAIRS))
    theirs = jsonl(
        tmp_path / "b.jsonl", *({"sentence1": p.text1, "sentence2": p.text2, "score": str(p.score)} for p in PAIRS)
    )
    table = tmp_path / "c.tsv"
    lines = ["genre\tscore\tsentence1\tsentence2", *(f"news\t{p.score}\t{p.text1}\t{p.text2}" for p in PAIRS)]
    table.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    sick = tmp_path / "SICK.txt"
    lines = ["sentence_A\tsentence_B\trelatedness_score", *(f"{p.text1}\t{p.text2}\t{p.score}" for p in PAIRS)]
    sick.write_text("\n".join(lines), encoding="utf-8")
    columns = {"text1": "sentence_A", "text2": "sentence_B", "score": "relatedness_score"}
    assert read_pairs(ours) == read_pairs(theirs) == read_pairs(table) == read_pairs(sick, columns) == PAIRS


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text1": "a", "text2": "b"}, '"score" is missing'),
        ({"text1": "a", "score": 1}, '"text2" is missing'),
        ({"text1": "a", "text2": " ", "score": 1}, "must be strings that are not empty"),
        ({"text1": "a", "text2": 5, "score": 1}, "must be strings that are not empty"),
        ({"text1": "a", "text2": "b", "score": "high"}, "must be a finite number, got 'high'"),
        ({"text1": "a", "text2": "b", "score": None}, "must be a finite number, got None"),
        ({"text1": "a", "text2": "b", "score": "nan"}, "must be a finite number"),
        ({"text1": "a", "text2": "b", "score": True}, "must be a finite number"),
    ],
)
def test_a_bad_pair_is_named_by_file_and_line(tmp_path: Path, row: Any, message: str) -> None:
    path = jsonl(tmp_path / "x.jsonl", {"text1": "a", "text2": "b", "score": 1}, row)
    with pytest.raises(EvalError) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(f"{path}, line 2: ") and message in str(caught.value)


def test_tables_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    cut = tmp_path / "cut.tsv"
    cut.write_text("text1\ttext2\tscore\na\tb\t1\na\tb\n")
    with pytest.raises(EvalError, match=r'cut\.tsv, line 3: "score" is missing'):
        read_pairs(cut)
    latin = tmp_path / "latin.tsv"
    latin.write_bytes("text1\ttext2\tscore\né\tb\t1\n".encode("latin-1"))
    with pytest.raises(EvalError, match="invalid UTF-8"):
        read_pairs(latin)
    with pytest.raises(EvalError, match="No such file"):
        read_pairs(tmp_path / "absent.tsv")
    with pytest.raises(EvalError, match="no sentence pairs"):
        read_pairs(jsonl(tmp_path / "empty.jsonl"))


def sample(n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 11, n) / 2.0  # many ties, as people's scores have
    return gold + rng.normal(0, 2, n), gold


@pytest.mark.parametrize("seed", range(5))
def test_rho_is_scipys_ties_included(seed: int) -> None:
    scores, gold = sample(200, seed)
    assert spearman(list(scores), list(gold), resamples=10).value == pytest.approx(spearmanr(scores, gold).statistic)
    assert spearman(list(gold), list(gold), resamples=10).value == pytest.approx(1.0)
    assert spearman(list(-gold), list(gold), resamples=10).value == pytest.approx(-1.0)


def test_the_interval_is_scipys_percentile_bootstrap_but_for_chance() -> None:
    scores, gold = sample(150, 9)
    found = spearman(scores.tolist(), gold.tolist(), seed=1, resamples=4000)
    other = bootstrap(
        (scores, gold),
        lambda a, b: spearmanr(a, b).statistic,
        paired=True,
        vectorized=False,
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert found.interval == pytest.approx((other.low, other.high), abs=0.01)
    assert found.interval is not None and found.interval[0] < found.value < found.interval[1] and found.n == 150


def test_the_same_seed_gives_the_same_interval_and_the_scale_does_not_matter() -> None:
    scores, gold = sample(60, 3)
    first = spearman(scores.tolist(), gold.tolist(), seed=4, resamples=200)
    assert spearman((scores * 7 + 1).tolist(), gold.tolist(), seed=4, resamples=200) == first
    assert spearman(scores.tolist(), gold.tolist(), seed=5, resamples=200).interval != first.interval


def test_resamples_without_a_correlation_are_left_out() -> None:
    found = spearman([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], resamples=500)
    assert found.interval == pytest.approx((1.0, 1.0))
    assert spearman([1.0, 2.0], [1.0, 2.0]).interval is None


@pytest.mark.parametrize(
    ("scores", "golds", "message"),
    [
        ([1.0], [1.0], "2 or more pairs"),
        ([1.0, 2.0], [1.0], "got 2 scores and 1 golds"),
        ([1.0, float("nan")], [1.0, 2.0], "not finite"),
        ([3.0, 3.0], [1.0, 2.0], "all 2 scores are 3"),
        ([1.0, 2.0], [5.0, 5.0], "all 2 golds are 5"),
    ],
)
def test_what_has_no_rank_correlation_is_refused(scores: list[float], golds: list[float], message: str) -> None:
    with pytest.raises(EvalError, match=message):
        spearman(scores, golds)


def test_the_difference_of_two_correlations_is_paired() -> None:
    random = np.random.default_rng(4)
    golds = random.normal(size=200)
    base = golds + random.normal(size=200)
    better = base - 0.5 * (base - golds)
    found = spearman_difference(better.tolist(), base.tolist(), golds.tolist(), seed=1, resamples=3000)
    expected = spearmanr(better, golds).statistic - spearmanr(base, golds).statistic
    assert found.value == pytest.approx(expected) and found.n == 200 and found.interval is not None
    reference = bootstrap(
        (better, base, golds),
        lambda a, b, gold: spearmanr(a, gold).statistic - spearmanr(b, gold).statistic,
        paired=True, vectorized=False, method="percentile", n_resamples=3000, random_state=2,
    ).confidence_interval  # fmt: skip
    assert found.interval == pytest.approx((reference.low, reference.high), abs=0.01)
    same = spearman_difference(base.tolist(), base.tolist(), golds.tolist(), resamples=50)
    assert (same.value, same.interval) == (0.0, (0.0, 0.0))
