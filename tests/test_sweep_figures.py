"""The comparison of trainings from run folders written by hand: answers over seeds, differences and what is undefined."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from eval.data.datasets import Question
from eval.report.sweep_tables import sweep_text
from eval.sweep import UNTRAINED, Evaluated, Norms, Sweep, compare_trainings
from tests.run_folders import row, write_run

N = 40
QUESTIONS = [Question(f"q{i}", "nq", f"question {i}", ("right",), supporting_ids=(f"p{i}",)) for i in range(N)]
NORMS = Norms(1.5, "", 9, 30, 0.1, -0.2)


def evaluated(folder: Path, trained_for: str, seed: int, right: np.ndarray, norms: Norms = NORMS) -> Evaluated:
    """Right answers, and rankings whose relevant passage is second where the answer is wrong."""
    systems = ["cosine", "dot"] if trained_for == UNTRAINED else list(dict.fromkeys((trained_for, "cosine", "dot")))
    rows = [
        row(name, question.id, "right" if good else "wrong", f"p{at}" if good else f"x p{at}")
        for name in systems
        for at, (question, good) in enumerate(zip(QUESTIONS, right, strict=True))
    ]
    path = folder / f"{trained_for}-{seed}"
    ranking = write_run(path / "ranking", QUESTIONS, systems, [{**own, "prediction": ""} for own in rows])
    return Evaluated(trained_for, seed, ranking, write_run(path / "reading", QUESTIONS, systems, rows), {"nq": norms})


@pytest.fixture(scope="module")
def right() -> dict[tuple[str, int], np.ndarray]:
    rng = np.random.default_rng(0)
    chances = {(UNTRAINED, 0): 0.3, ("cosine", 0): 0.5, ("cosine", 1): 0.5, ("qnorm", 0): 0.9, ("qnorm", 1): 0.8}
    return {key: rng.random(N) < chance for key, chance in chances.items()}


@pytest.fixture(scope="module")
def sweep(right: dict[tuple[str, int], np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("figures")
    undefined = Norms(math.nan, "the norms of neither side vary", 9, 30, 0.0, math.nan)
    untrained, *trained = (
        evaluated(folder, *key, own, undefined if key == ("qnorm", 1) else NORMS) for key, own in right.items()
    )
    return compare_trainings(trained, untrained, in_domain=["nq"], facts=[])


@pytest.mark.parametrize("measure", ["exact match", "nDCG@10"])
def test_a_question_counts_with_its_mean_over_seeds(
    sweep: Sweep, right: dict[tuple[str, int], np.ndarray], measure: str
) -> None:
    # A relevant passage at rank 2 has the gain 1 / log2(3).
    worth = {key: np.where(own, 1, 0 if measure == "exact match" else 1 / np.log2(3)) for key, own in right.items()}
    cosine = (worth["cosine", 0] + worth["cosine", 1]) / 2
    qnorm = (worth["qnorm", 0] + worth["qnorm", 1]) / 2
    found = {(own.trained_for, own.searched_by): own for own in sweep.rows if own.measure == measure}
    own = found["qnorm", "qnorm"]
    assert own.value == pytest.approx(qnorm.mean())
    assert own.by_seed == pytest.approx([worth["qnorm", 0].mean(), worth["qnorm", 1].mean()])
    assert own.against_cosine is not None and own.against_untrained is not None
    assert own.against_cosine.difference == pytest.approx((qnorm - cosine).mean())
    assert own.against_untrained.difference == pytest.approx((qnorm - worth[UNTRAINED, 0]).mean())
    assert (own.against_cosine.wins, own.against_cosine.losses) == ((qnorm > cosine).sum(), (qnorm < cosine).sum())
    # Whole questions are drawn, with both of their values.
    drawn = np.random.default_rng(7).integers(N, size=(20_000, N))
    expected = np.quantile((qnorm - cosine)[drawn].mean(axis=1), [0.025, 0.975])
    np.testing.assert_allclose(own.against_cosine.interval, expected, atol=0.01)
    assert found["cosine", "cosine"].against_cosine is None and found[UNTRAINED, "cosine"].against_untrained is None


def test_p_values_are_adjusted_for_all_comparisons_with_a_baseline(sweep: Sweep) -> None:
    # Cosine's and qnorm's difference from the untrained encoder are two hypotheses; the ranking by dot equals cosine's.
    changes = {own.trained_for: own.against_untrained for own in sweep.rows if own.measure == "exact match"}
    cosine, qnorm = changes["cosine"], changes["qnorm"]
    assert cosine is not None and qnorm is not None and cosine.p is not None and qnorm.p is not None
    assert qnorm.p < cosine.p
    assert qnorm.p_holm == pytest.approx(2 * qnorm.p)
    assert cosine.p_holm == pytest.approx(max(cosine.p, 2 * qnorm.p))


def test_what_is_undefined_is_null_and_shown_as_missing(sweep: Sweep) -> None:
    norms = {own.trained_for: own.norms for own in sweep.norms}
    assert norms["cosine"] == NORMS
    assert math.isnan(norms["qnorm"].d) and norms["qnorm"].reason == "the norms of neither side vary"
    told = {
        own["trained_for"]: own["norms"] for own in json.loads(json.dumps(sweep.to_json(), allow_nan=False))["norms"]
    }
    assert told["qnorm"]["d"] is None and told["qnorm"]["cv"] == pytest.approx(0.05)
    lines = sweep_text(sweep).splitlines()
    (own,) = (line.split() for line in lines if line.startswith("qnorm") and line.endswith("-"))
    assert own[-3:] == ["-", "5.0", "-"]
