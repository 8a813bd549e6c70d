"""`magrag reproduce` in its smallest form: gradients against differences, rules, and the whole of it with a kill in between."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.stats import bootstrap  # type: ignore[import-untyped]
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from eval.data.sources import load_dataset
from eval.data.specs import DataSetSpec
from rag_app.config_layers import setting_paths
from rag_app.errors import ConfigError
from rag_app.reproduction.claims import CLAIMS, judge
from rag_app.reproduction.gradients import FAMILY, autograd, gradients, growth, scores, softmax
from rag_app.reproduction.measures import (
    Measure,
    Rule,
    above,
    at_most,
    below,
    mean_of_trainings,
    near,
    share_of,
    together,
)
from rag_app.reproduction.run import EXPERIMENTS, reproduce
from rag_app.reproduction.settings import ReproduceConfig, find_configuration, load_reproduction
from retriever.similarity import Similarity
from tests.config_files import CONFIGS, named_paths
from tests.reproduction_example import figures_of, write_reproduction
from tests.test_cli import magrag, one_line_error

# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", FAMILY, ids=lambda one: one.name)
def test_gradients_are_autograds_and_those_of_finite_differences(similarity: Similarity) -> None:
    random = np.random.default_rng(1)
    queries, passages = 2 * random.normal(size=(5, 4)), random.normal(size=(5, 4))
    found = gradients(queries, passages, similarity, 1.5)
    for own, other in zip(found, autograd(queries, passages, similarity, 1.5), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-12)

    def loss(q: np.ndarray, d: np.ndarray) -> float:
        """From the formula as the paper writes it, as a quotient."""
        lengths = np.linalg.norm(q, axis=1)[:, None] ** similarity.gamma_q
        logits = 1.5 * (q @ d.T) / lengths / np.linalg.norm(d, axis=1)[None] ** similarity.gamma_d
        return float((np.log(np.exp(logits).sum(axis=1)) - np.diag(logits)).sum())

    for side, vectors in enumerate((queries, passages)):
        for place in np.ndindex(*vectors.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = vectors.copy()
                moved[place] += step
                ends.append(loss(moved, passages) if side == 0 else loss(queries, moved))
            assert found[side][place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("similarity", FAMILY, ids=lambda one: one.name)
def test_longer_queries_are_a_lower_temperature_where_their_norm_counts(similarity: Similarity) -> None:
    random = np.random.default_rng(2)
    queries, passages = random.normal(size=(6, 5)), random.normal(size=(6, 5))
    longer = softmax(3.0 * scores(7.0 * queries, passages, similarity))
    temperature = {"dot": 1 / 7, "dnorm": 1 / 7, "learnable": 7**-0.5}.get(similarity.name, 1.0)
    np.testing.assert_allclose(longer, softmax(3.0 / temperature * scores(queries, passages, similarity)), atol=1e-12)


def test_the_gradient_is_proportional_to_the_querys_norm_where_p_is_held_and_less_where_it_follows() -> None:
    """By equation 10 in numpy: ‖q‖ (1 − p), p from the softmax of all passages."""
    random = np.random.default_rng(3)
    queries = random.normal(size=(9, 5))
    passages = queries + 0.3 * random.normal(size=(9, 5))  # positives are ahead: p rises with the norm
    fixed, free = growth(queries, passages, 1.5, 4.0)
    assert fixed.value == pytest.approx(1.0, abs=1e-12) and near(1.0, 1e-6).judge(fixed) == "agrees"
    logits = 1.5 * queries @ (passages / np.linalg.norm(passages, axis=1)[:, None]).T
    sizes = []
    for c in (1.0, 4.0):
        odds = np.exp(c * logits)
        sizes.append((c * np.linalg.norm(queries, axis=1) * (1 - np.diag(odds) / odds.sum(axis=1))).mean())
    assert free.value == pytest.approx(np.log(sizes[1] / sizes[0]) / np.log(4.0)) and free.value < 0.9


# --- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "interval", "verdict"),
    [
        (above(), (0.1, 0.2), "agrees"),
        (above(), (-0.2, -0.1), "disagrees"),
        (above(), (-0.1, 0.2), "undecided"),
        (above(), (0.0, 0.0), "undecided"),
        (above(), None, "undecided"),
        (below(-0.1), (-0.3, -0.2), "agrees"),
        (below(-0.1), (-0.3, -0.05), "undecided"),
        (below(-0.1), (-0.09, -0.05), "disagrees"),
        (near(0.0, 0.01), (-0.01, 0.005), "agrees"),
        (near(0.0, 0.01), (0.02, 0.03), "disagrees"),
        (near(0.0, 0.01), (0.005, 0.03), "undecided"),
        (near(0.0, 0.01), (-0.5, 0.5), "undecided"),
    ],
)
def test_an_interval_decides(rule: Rule, interval: tuple[float, float] | None, verdict: str) -> None:
    assert rule.judge(Measure("x", 0.0 if interval is None else sum(interval) / 2, interval)) == verdict


def test_exact_figures_need_no_interval_and_all_must_say_the_same() -> None:
    assert at_most(1e-10).judge(Measure("x", 1e-15)) == "agrees"
    assert at_most(1e-10).judge(Measure("x", 1e-3)) == at_most(1e-10).judge(Measure("x", float("nan"))) == "disagrees"
    assert together(["agrees", "agrees"]) == "agrees" and together(["agrees", "disagrees"]) == "undecided"


def test_an_interval_over_trainings_is_students() -> None:
    found = mean_of_trainings("x", [1.0, 2.0, 4.0])
    assert found.interval is not None
    # 4.30265 is the 97.5 % quantile of t with two degrees of freedom, 1.52753 the deviation.
    assert found.interval == pytest.approx(
        (7 / 3 - 4.30265 * 1.52753 / 3**0.5, 7 / 3 + 4.30265 * 1.52753 / 3**0.5), abs=1e-4
    )
    assert mean_of_trainings("x", [1.0]).interval is None


def test_a_share_is_of_means_with_scipys_interval() -> None:
    random = np.random.default_rng(5)
    before = (random.random(400) < 0.4).astype(float)
    after = before * (random.random(400) < 0.5)
    found = share_of("x", after.tolist(), before.tolist())
    assert found.value == pytest.approx(after.sum() / before.sum()) and found.interval is not None
    theirs = bootstrap(
        (after, before),
        lambda a, b, axis: a.mean(axis=axis) / b.mean(axis=axis),
        paired=True,
        method="percentile",
        rng=np.random.default_rng(6),
    ).confidence_interval
    assert found.interval == pytest.approx((theirs.low, theirs.high), abs=0.015)
    assert str(share_of("x", [1.0, 0.0], [0.0, 0.0])) == "undefined"


# --- claims ----------------------------------------------------------------------------------------------------------

# The paper's tables 1, 2, 5 and 16 (cosine, qnorm; in table 5 dot and dnorm too, in table 16 dnorm), and 6 (recall@1).
BEIR_BRIGHT_HOPS = ("BEIR", "BRIGHT", "multi-hop")
FINE_TUNED = ((40.96, 44.01), (7.41, 12.74), (51.37, 57.38))
FROM_SCRATCH = ((24.38, 15.46), (3.09, 0.32), (27.87, 20.26))
E5_FEW = ((45.56, 30.36, 24.73), (8.94, 11.49, 3.37), (52.55, 53.00, 28.00))
E5_MANY = ((45.73, 31.97, 36.91), (9.47, 10.42, 11.71), (55.52, 56.84, 58.82))
STS = {"Contriever": (0.788, 0.784, 0.413, 0.371), "RetroMAE": (0.749, 0.750, 0.314, 0.328)}


def words(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("0.", ".").replace("-", "−") if abs(value) < 1 else signed(value, digits)


def signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def test_the_papers_differences_follow_from_its_tables() -> None:
    theirs = {claim.says: claim.theirs for claim in CLAIMS}
    leads = [[qnorm - cosine for cosine, qnorm in table] for table in (FINE_TUNED, FROM_SCRATCH)]
    both = [first - second for first, second in zip(*leads, strict=True)]
    for says, values in (
        ("From pre-trained weights qnorm is ahead of cosine", leads[0]),
        ("From random weights qnorm is behind cosine", leads[1]),
        ("qnorm stands better against cosine from pre-trained weights than from random ones", both),
    ):
        named = ", ".join(f"{name} {signed(value, 2)}" for name, value in zip(BEIR_BRIGHT_HOPS, values, strict=True))
        assert named in theirs[says]
    more = theirs["qnorm gains more from more pairs than cosine does"]
    for column in (1, 2):
        gains = [(b[column] - b[0]) - (a[column] - a[0]) for a, b in zip(E5_FEW, E5_MANY, strict=True)]
        assert all(words(value + 1e-9, 1) in more for value in gains), gains
    for model, (cosine, dot, qnorm, dnorm) in STS.items():
        lost = f"{model} {words(qnorm - cosine, 3)}, {words(dnorm - cosine, 3)}"
        assert lost in theirs["One-sided normalisation costs sentence pairs tens of points"]
        assert f"{model} {words(dot - cosine, 3)}" in theirs["On symmetric tasks dot is as good as cosine"]
        assert f"{model} {words(qnorm - dnorm, 3)}" in theirs["It does not matter which of two sentences is normalised"]
    for share, of in ((".34", 9.6 / 28.0), (".18", 6.9 / 38.4), (".01", 0.3 / 28.0), (".05", 1.9 / 38.4)):
        assert float(share) == pytest.approx(of, abs=5e-3) and f"share {share}" in " ".join(theirs.values())


def test_a_bound_on_gamma_is_the_sum_of_its_rates() -> None:
    """32,000 updates of half a cosine from the paper's rates, Adam's steps no longer than its rate, the sigmoid's slope ¼."""
    share = sum(0.5 * (1 + np.cos(np.pi * step / 32_000)) for step in range(32_000))
    (limits,) = [claim.limits for claim in CLAIMS if claim.says == "With the encoder's learning rate γ ends near ½"]
    for rate, told in ((2e-6, ".008"), (5e-6, ".020")):
        assert rate * share / 4 == pytest.approx(float(told), abs=1e-5) and told in limits


def test_like_is_compared_with_like_and_weak_trainings_decide_nothing() -> None:
    clip = [
        *(Measure(f"image_to_text/{own}/seed 0/Cohen's d, searched text", 1.0, (0.9, 1.1)) for own in ("dot", "qnorm")),
        Measure("text_to_image/cosine/recall@1 of the other way over both, cosine", 1.0, (0.9, 1.1)),
        Measure("text_to_image/dot/recall@1 of the other way over both, cosine", 0.1, (0.05, 0.2)),
    ]
    cut = Measure("sts/trained/dot - cosine", -0.3, (-0.4, -0.2))
    rate = Measure("paper/what the rate allows", 0.002)
    judged = judge({"clip": clip, "symmetry": [cut], "gamma": [rate]}, {"clip": 2, "symmetry": 1})
    found = {own.claim.says: own for own in judged}
    for own in judged:
        if own.claim.experiment == "clip":
            normalised = "normalised (qnorm)" in own.claim.says
            assert normalised != ("neither side normalised" in own.claim.says)
            assert ("NoNorm" in own.claim.theirs, "TxtNorm" in own.claim.theirs) == (not normalised, normalised)
            assert all(("/qnorm/" if normalised else "/dot/") in name for name in own.claim.figures)
            assert own.over.endswith("seeds: 2")
    lost = "CLIP: a one-directional loss costs more than half of retrieval the other way, neither side normalised"
    assert [one.name for one, _ in found[lost].found] == [clip[3].name] and found[lost].verdict == "agrees"
    weak = found["On symmetric tasks dot is as good as cosine"]
    assert weak.found == [(cut, "disagrees")] and weak.verdict == "undecided" and weak.claim.limits
    bound = found["With the encoder's learning rate γ ends near ½"]
    assert bound.found == [(rate, "")] and bound.verdict == "no verdict"


# --- the configuration -----------------------------------------------------------------------------------------------


NAMED = {("sets",), ("symmetry", "sets"), ("gamma", "rates")}


def test_the_shipped_file_names_every_setting_and_every_claim_has_an_experiment() -> None:
    path = find_configuration("cpu")
    assert path.resolve() == CONFIGS / "reproduce-cpu.toml"
    assert set(named_paths(tomllib.loads(path.read_text("utf-8")), NAMED)) == set(setting_paths(ReproduceConfig))
    settings = load_reproduction(path)
    for name in sorted(EXPERIMENTS.keys() - {"clip"}):
        identity = settings.identity(name)
        # The paper's recipe has none of ours.
        recipe = identity["training"]["training"]
        assert (recipe["projection"], recipe["anchor"], recipe["hard_negatives"]) == (False, 0.0, 0)
    for claim in CLAIMS:
        assert (claim.experiment not in EXPERIMENTS) == bool(claim.why) and bool(claim.experiment) == bool(
            claim.figures
        )
        assert not claim.weak or (claim.rule and claim.limits)
        # What is exact has no interval.
        assert bool(claim.over) == (
            bool(claim.experiment) and "at most" not in (claim.rule.words if claim.rule else "")
        )


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    assert "no configs/reproduce-gpu.toml" in one_line_error(magrag("reproduce", "gpu"), 2)
    settings = load_reproduction(CONFIGS / "reproduce-cpu.toml")
    with pytest.raises(ConfigError, match='there is no experiment "gama"; did you mean "gamma"'):
        reproduce(settings, tmp_path, only=["gama"], log=print, progress=lambda *_: None)
    for override, message in (
        ("gamma.seeds=[0, 0]", r"gamma.seeds must name each once, got 0, 0 \(--set gamma.seeds\)"),
        ('pairs.similarities=["qnorm"]', "pairs.similarities must have cosine, .* got qnorm"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_reproduction(CONFIGS / "reproduce-cpu.toml", [override])


# --- the whole -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction")
    write_reproduction(folder)
    return folder


def go_on(root: Path, *overrides: str) -> tuple[dict[str, Any], list[str]]:
    told: list[str] = []
    settings = load_reproduction(root / "reproduce-tiny.toml", overrides)
    return reproduce(settings, root / "out", log=told.append, progress=lambda *_: None), told


@pytest.fixture(scope="module")
def finished(root: Path) -> dict[str, Any]:
    """Killed in the middle of its second experiment, and gone on with."""
    out = root / "out"
    command = [sys.executable, "-m", "rag_app.cli", "reproduce", str(root / "reproduce-tiny.toml"), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    until = time.monotonic() + 240
    while not (out / "symmetry" / "cosine-0" / "best").is_dir():
        assert process.poll() is None and time.monotonic() < until, process.communicate()[1]
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (out / "symmetry" / "figures.json").exists()
    before = (out / "gradients" / "figures.json").stat().st_mtime_ns
    result, told = go_on(root)
    assert told[0] == "to do: symmetry, clip, gamma, initialisation, pairs; there already: gradients"
    assert (out / "gradients" / "figures.json").stat().st_mtime_ns == before
    return result


def test_what_is_finished_is_not_made_again_and_other_settings_are_refused(
    root: Path, finished: dict[str, Any]
) -> None:
    def written() -> dict[Path, int]:
        paths = (path for path in (root / "out").rglob("*") if path.is_file())
        return {path: path.stat().st_mtime_ns for path in paths if not path.name.startswith("reproduction.")}

    before = written()
    again, told = go_on(root)
    assert (written(), told, again) == (before, [], finished)
    path = root / "out/gradients/figures.json"
    noted = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({key: value for key, value in noted.items() if key != "version"}), "utf-8")
    anew, told = go_on(root)
    assert told[0].startswith("to do: gradients; there already: symmetry, clip") and anew == finished
    with pytest.raises(ConfigError, match=r"gamma holds figures of other settings \(gamma\): choose another --out"):
        go_on(root, "gamma.seeds=[0]")
    with pytest.raises(ConfigError, match=r"settings \(training\)"):
        go_on(root, 'gamma.set=["training.steps=5"]')


def test_the_table_has_every_claim_with_its_figures(root: Path, finished: dict[str, Any]) -> None:
    text = (root / "out" / "reproduction.md").read_text("utf-8")
    assert json.loads((root / "out" / "reproduction.json").read_text("utf-8")) == finished
    verdicts = [claim["verdict"] for claim in finished["claims"]]
    assert len(verdicts) == len(CLAIMS) and "not run yet" not in verdicts
    for claim in finished["claims"]:
        assert re.search(rf"^\| {re.escape(claim['claim'])} \|.*\*\*{claim['verdict']}\*\*", text, re.MULTILINE)
    by_words = {claim["claim"]: claim for claim in finished["claims"]}
    assert by_words["The gradient is the formula's"]["verdict"] == "agrees"
    (one,) = by_words["qnorm stands better against cosine from pre-trained weights than from random ones"]["ours"]
    assert one["name"] == "asked/pre-trained - random/qnorm - cosine/nDCG@10" and one["n"] == 12


def test_cosine_is_the_evaluators_of_sentence_transformers(root: Path, finished: dict[str, Any]) -> None:
    found = figures_of(root / "out", "symmetry")
    pairs = load_dataset(DataSetSpec("sts", path=str(root / "sts.jsonl")), n=12, seed=0).pairs  # type: ignore[union-attr]
    golds = [pair.score for pair in pairs]
    evaluator = EmbeddingSimilarityEvaluator(
        [pair.text1 for pair in pairs],
        [pair.text2 for pair in pairs],
        golds,
        similarity_fn_names=["cosine"],
        write_csv=False,
    )
    for name, folder in (("trained/cosine", "cosine-0"), ("trained/qnorm, by cosine", "qnorm-0")):
        model = SentenceTransformer(str(root / "out/symmetry" / folder / "best"), device="cpu")
        assert found[f"sts/{name}"]["value"] == pytest.approx(evaluator(model)["spearman_cosine"], abs=5e-5)
    change = found["sts/trained/qnorm - cosine"]["value"]
    assert change == pytest.approx(found["sts/trained/qnorm"]["value"] - found["sts/trained/cosine"]["value"])  # type: ignore[operator]


def test_exponents_and_leads_are_those_of_the_trainings(root: Path, finished: dict[str, Any]) -> None:
    found = figures_of(root / "out", "gamma")
    for name, rate in (("paper", 5e-2), ("own", 1e-2)):
        ends = []
        for seed in (0, 1):
            with (root / "out/gamma" / f"{name}-{seed}" / "log.csv").open() as file:
                ends.append(float(list(csv.DictReader(file))[-1]["gamma_q"]))
        assert found[f"{name}/gamma_q at the end"]["value"] == pytest.approx(np.mean(ends))
        # Half a cosine over four steps: 1, .854, .5, .146 of the rate.
        assert found[f"{name}/what the rate allows"]["value"] == pytest.approx(2.5 * rate / 4, rel=1e-3)
    found = figures_of(root / "out", "initialisation")
    leads = [found[f"asked/{start}/qnorm - cosine/nDCG@10"]["value"] for start in ("pre-trained", "random")]
    difference = found["asked/pre-trained - random/qnorm - cosine/nDCG@10"]["value"]
    assert difference == pytest.approx(leads[0] - leads[1])  # type: ignore[operator]
    fresh, first = (
        load_file(root / path / "model.safetensors") for path in ("out/initialisation/random-weights", "bert")
    )
    name = "embeddings.word_embeddings.weight"
    assert fresh[name].shape == first[name].shape and not np.allclose(fresh[name], first[name])


def test_two_towers_figures_are_those_of_their_trainings(root: Path, finished: dict[str, Any]) -> None:
    found, kept = figures_of(root / "out", "clip"), root / "out/clip/train"
    for direction, searched in (("text_to_image", "image"), ("image_to_text", "text")):
        asking = "text" if searched == "image" else "image"
        result = json.loads((kept / f"{direction}-dot-0" / "training.json").read_text("utf-8"))
        for side, name in ((searched, f"searched {searched}"), (asking, asking)):
            own = found[f"{direction}/dot/seed 0/Cohen's d, {name}"]
            assert own["value"] == result["norms"][side]["d"] and own["interval"] == result["norms"][side]["d_interval"]
        # The other way is ranked by raw lengths too, and compared with CLIP's own loss by cosine.
        other = {"text_to_image": "image_to_text", "image_to_text": "text_to_image"}[direction]
        clip = json.loads((kept / "both-cosine-0" / "training.json").read_text("utf-8"))
        lost = np.mean(result["hits"][other]["dot"]) - np.mean(clip["hits"][other]["cosine"])
        assert found[f"{direction}/dot/recall@1 of the other way - both, cosine"]["value"] == pytest.approx(lost)
        share = found[f"{direction}/dot/recall@1 of the other way over both, cosine"]["value"]
        before = np.mean(clip["hits"][other]["cosine"])
        assert share is None if before == 0 else share == pytest.approx(1 + lost / before)
