"""The comparison of trainings from run folders written by hand: answers over seeds, differences and what is undefined."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from eval.data.datasets import Question
from eval.data.pairs import spearman
from eval.report.sweep_tables import sweep_text
from eval.sweep import UNTRAINED, Evaluated, Norms, Sweep, Tally, compare_trainings
from eval.sweep_pairs import PairRow, PairValues, pair_rows
from rag_app.progress import stages
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
    return compare_trainings(trained, untrained, in_domain=["nq"], facts=[], made={"command": "magrag sweep"})


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


def test_sets_are_counted_by_where_the_interval_lies(
    sweep: Sweep, right: dict[tuple[str, int], np.ndarray], tmp_path: Path
) -> None:
    def tallies(of: Sweep) -> dict[tuple[str, str], tuple[int, int, int]]:
        read = [own for own in of.tallies if own.measure == "exact match"]
        assert {own.domain for own in read} == {"in domain"} if of.in_domain else {"all data sets"}
        return {(own.trained_for, own.against): (own.won, own.equal, own.lost) for own in read}

    # By a t interval of the differences, qnorm is far above both, and "untrained, by dot" ranks as by cosine does.
    for baseline in (right["cosine", 0] / 2 + right["cosine", 1] / 2, right[UNTRAINED, 0]):
        change = (right["qnorm", 0] / 2 + right["qnorm", 1] / 2) - baseline
        assert stats.ttest_1samp(change, 0).confidence_interval(0.99).low > 0
    found = tallies(sweep)
    assert found["qnorm", UNTRAINED] == found["qnorm", "cosine"] == (1, 0, 0)
    assert found[UNTRAINED, UNTRAINED] == (0, 1, 0) and ("cosine", "cosine") not in found
    # The other way round it is lost.
    swapped = [(UNTRAINED, 0, right["qnorm", 0]), ("cosine", 0, right["qnorm", 1]), ("qnorm", 0, right[UNTRAINED, 0])]
    untrained, *trained = (evaluated(tmp_path, *own) for own in swapped)
    turned = compare_trainings(trained, untrained, in_domain=[], facts=[], made={})
    assert tallies(turned)["qnorm", UNTRAINED] == tallies(turned)["qnorm", "cosine"] == (0, 0, 1)
    lines = sweep_text(sweep).splitlines()
    assert lines[0] == "- command: magrag sweep"
    cells = next(line for line in lines if line.startswith("nDCG@10") and " qnorm " in line).split("  ")
    assert [cell.strip() for cell in cells if cell.strip()] == [
        "nDCG@10",
        "in domain",
        "qnorm",
        "1 / 0 / 0",
        "1 / 0 / 0",
    ]
    assert sum("above 0" in line for line in lines if line.startswith("qnorm")) == 1
    assert any(line.startswith("qnorm ") and line.endswith(" +") for line in lines)
    assert lines[-2].split() == ["nq", "nDCG@10", "40", "2"]
    text = sweep_text(turned)
    assert "below 0" in text and " −" in text
    assert Tally("qnorm", "qnorm", "nDCG@10", "all data sets", UNTRAINED, 0, 0, 1) in turned.tallies


def test_one_sided_trainings_are_held_against_each_other(
    right: dict[tuple[str, int], np.ndarray], tmp_path: Path
) -> None:
    values = {("qnorm", 0): right["qnorm", 0], ("qnorm", 1): right["qnorm", 1]}
    values |= {("dnorm", 0): right["cosine", 0], ("dnorm", 1): right["cosine", 1]}
    untrained = evaluated(tmp_path, UNTRAINED, 0, right[UNTRAINED, 0])
    found = compare_trainings(
        [evaluated(tmp_path, *key, own) for key, own in values.items()], untrained, in_domain=[], facts=[], made={}
    )
    [own] = [row.against_dnorm for row in found.rows if row.measure == "exact match" and row.against_dnorm]
    mean = {
        name: np.mean([own for (key, _), own in values.items() if key == name], axis=0) for name in ("qnorm", "dnorm")
    }
    change = mean["qnorm"] - mean["dnorm"]
    assert own.system == "qnorm" and own.difference == pytest.approx(change.mean()) and own.p_holm == own.p
    low, high = stats.bootstrap((change,), np.mean, method="percentile", rng=5).confidence_interval
    np.testing.assert_allclose(own.interval, (low, high), atol=0.02)
    assert "which side to normalise" in sweep_text(found)


def test_a_set_asked_for_one_seed_is_compared_on_that_one(
    right: dict[tuple[str, int], np.ndarray], tmp_path: Path
) -> None:
    other = [Question(f"x{i}", "more", f"other {i}", ("right",), supporting_ids=(f"p{i}",)) for i in range(3)]

    def both(trained_for: str, seed: int, first: bool) -> Evaluated:
        systems = ["cosine", "dot"] if trained_for == UNTRAINED else list(dict.fromkeys((trained_for, "cosine", "dot")))
        questions = [*QUESTIONS, *(other if first else [])]
        rows = [row(name, question.id, "", "p0") for name in systems for question in questions]
        run = write_run(tmp_path / f"{trained_for}-{seed}", questions, systems, rows)
        return Evaluated(trained_for, seed, run, None, {"nq": NORMS, **({"more": NORMS} if first else {})})

    trained = [both(name, seed, seed == 0) for name in ("cosine", "qnorm") for seed in (0, 1)]
    found = compare_trainings(trained, both(UNTRAINED, 0, True), in_domain=[], facts=[], made={})
    seeds = {(own.dataset, own.trained_for): len(own.by_seed) for own in found.rows}
    assert seeds["nq", "qnorm"] == seeds["nq", "cosine"] == 2
    assert seeds["more", "qnorm"] == seeds["more", "cosine"] == 1
    # Of the three questions the first alone finds its passage.
    (own,) = (own for own in found.rows if (own.dataset, own.trained_for) == ("more", "qnorm"))
    assert own.value == pytest.approx(1 / 3) and own.against_cosine is not None and own.against_cosine.n == 3
    assert [one.dataset for one in found.norms if one.trained_for == "qnorm"] == ["nq", "more"]


N_PAIRS = 60


@pytest.fixture(scope="module")
def scored() -> tuple[np.ndarray, dict[tuple[str, int], np.ndarray]]:
    """Golds, and scores that follow them more or less; the second seed of dot has scores that are all the same."""
    rng = np.random.default_rng(3)
    golds = rng.integers(0, 6, N_PAIRS).astype(float)
    noise = {
        (UNTRAINED, 0): 4.0,
        ("cosine", 0): 2.0,
        ("cosine", 1): 2.5,
        ("qnorm", 0): 1.0,
        ("qnorm", 1): 1.2,
        ("dot", 1): 3.0,
    }
    scores = {key: golds + spread * rng.normal(size=N_PAIRS) for key, spread in noise.items()}
    return golds, {**scores, ("dot", 0): np.ones(N_PAIRS)}


@pytest.fixture(scope="module")
def paired(scored: tuple[np.ndarray, dict[tuple[str, int], np.ndarray]]) -> dict[str, PairRow]:
    golds, scores = scored
    trainings: dict[str, list[dict[str, PairValues]]] = {}
    for (trained_for, _), own in sorted(scores.items()):
        values = PairValues(golds.tolist(), {"cosine": own.tolist(), "dot": own.tolist()})
        trainings.setdefault(trained_for, []).append({"sts": values})
    rows = pair_rows(trainings, untrained=UNTRAINED, baseline="cosine", seed=0)
    return {own.trained_for: own for own in rows if own.scored_by == "cosine"}


def test_differences_of_correlations_have_paired_intervals(
    scored: tuple[np.ndarray, dict[tuple[str, int], np.ndarray]], paired: dict[str, PairRow]
) -> None:
    golds, scores = scored
    names = [key for key in scores if key != ("dot", 0)]
    table = np.column_stack([*(scores[key] for key in names), golds])

    def means(at: np.ndarray) -> list[float]:
        """Of each training the mean over its seeds, by scipy."""
        rho = stats.spearmanr(table[at]).statistic[-1]
        return [np.mean([rho[names.index(key)] for key in names if key[0] == name]) for name in paired]

    # The draws of a single set (eval.data.pairs) with this seed: the same pairs for all.
    drawn = np.random.default_rng(0).integers(0, N_PAIRS, size=(2000, N_PAIRS), dtype=np.int32)
    whole, resampled = (dict(zip(paired, np.array(own).T, strict=True)) for own in (
        [means(np.arange(N_PAIRS))], [means(at) for at in drawn]))  # fmt: skip
    for name, own in paired.items():
        assert own.value == pytest.approx(whole[name][0])
        np.testing.assert_allclose(own.interval, np.quantile(resampled[name], [0.025, 0.975]), rtol=1e-9)
        for change, baseline in ((own.against_cosine, "cosine"), (own.against_untrained, UNTRAINED)):
            if name in (baseline, UNTRAINED):
                assert change is None
                continue
            assert change is not None
            assert change.difference == pytest.approx(whole[name][0] - whole[baseline][0])
            changes = resampled[name] - resampled[baseline]
            np.testing.assert_allclose(change.interval, np.quantile(changes, [0.025, 0.975]), rtol=1e-9)
    assert [len(own.by_seed) for own in paired.values()] == [2, 1, 2, 1]
    # One seed is what a set has by itself.
    assert paired[UNTRAINED].interval == pytest.approx(spearman(scores[UNTRAINED, 0], golds).interval)


def test_stages_tell_how_long_they_took_and_what_is_next() -> None:
    told: list[str] = []
    times = iter([0, 40, 40, 40 + 7500, 7540, 7541])
    for stage in stages("ranking", ["a", "b", "c"], str.upper, told.append, clock=lambda: next(times)):
        told.append(stage)
    assert told == [
        "ranking 1 of 3: A", "a", "ranking 1 of 3 took 40 s; next is B; 2 left, at most about 80 s",
        "ranking 2 of 3: B", "b", "ranking 2 of 3 took 2 h 05 min; next is C; 1 left, at most about 2 h 05 min",
        "ranking 3 of 3: C", "c", "ranking 3 of 3 took 1 s",
    ]  # fmt: skip
