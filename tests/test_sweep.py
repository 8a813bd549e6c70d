"""Sweeps end to end with the tiny random BERT: figures against numpy and scipy, and nothing done twice."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from scipy import stats
from transformers import AutoModelForCausalLM

from rag_app.errors import ConfigError
from rag_app.stores import load_configured_encoder
from rag_app.sweep.run import sweep
from retriever.encoder import Encoder
from retriever.passages import Passage
from tests.sweep_example import experiment, run_sweep, training, write_example, write_lines
from tests.test_cli import magrag, one_line_error

SIMILARITIES, SEEDS = ("cosine", "qnorm"), (0, 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    write_example(folder)
    return folder


@pytest.fixture(scope="module")
def found(root: Path) -> dict[str, Any]:
    return run_sweep(root, root / "out", SIMILARITIES, SEEDS)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def encoder_of(root: Path, name: str) -> Encoder:
    """As a person would configure it."""
    config = experiment(root)
    table = training(root).encoder
    if name != "untrained":
        table = table.model_copy(update={"adapter": str(root / "out/train" / name / "best")})
    return load_configured_encoder("e", config.model_copy(update={"encoders": {"e": table}}), lambda line: None)


def ndcg(scores: np.ndarray, relevant: set[int]) -> float:
    best = np.argsort(-scores, kind="stable")[:10]
    gains = sum(1 / np.log2(rank + 2) for rank, row in enumerate(best) if row in relevant)
    return float(gains / sum(1 / np.log2(rank + 2) for rank in range(min(10, len(relevant)))))


def question_values(root: Path, name: str, magnitude: bool, dataset: str) -> np.ndarray:
    """nDCG@10 of each question, from the checkpoint alone."""
    encoder = encoder_of(root, name)
    passages = [Passage(row["id"], "", row["text"]) for row in rows_of(root / "corpus.jsonl")]
    places = {passage.id: place for place, passage in enumerate(passages)}
    questions = rows_of(root / f"{dataset}.jsonl")
    queries = encoder.encode_queries([row["question"] for row in questions])
    vectors = encoder.encode_passages(passages)
    scores = queries.units @ vectors.units.T * (vectors.norms if magnitude else 1)
    return np.array(
        [ndcg(own, {places[id] for id in row["supporting_ids"]}) for own, row in zip(scores, questions, strict=True)]
    )


def row(found: dict[str, Any], dataset: str, trained_for: str, searched_by: str = "", measure: str = "nDCG@10") -> Any:
    (own,) = (
        own
        for own in found["rows"]
        if (own["dataset"], own["trained_for"], own["measure"]) == (dataset, trained_for, measure)
        and own["searched_by"] == (searched_by or trained_for)
    )
    return own


@pytest.mark.parametrize("dataset", ["asked", "again"])
def test_figures_are_those_of_the_checkpoints(root: Path, found: dict[str, Any], dataset: str) -> None:
    values = {
        name: np.mean([question_values(root, f"{name}-{seed}", name == "qnorm", dataset) for seed in SEEDS], axis=0)
        for name in SIMILARITIES
    }
    untrained = question_values(root, "untrained", False, dataset)
    for name in SIMILARITIES:
        own = row(found, dataset, name)
        assert own["value"] == pytest.approx(values[name].mean(), abs=1e-6)
        assert own["n"] == len(values[name])
        assert len(own["by_seed"]) == 2 and np.mean(own["by_seed"]) == pytest.approx(own["value"])
        assert own["against_untrained"]["difference"] == pytest.approx((values[name] - untrained).mean(), abs=1e-6)
        # Another bootstrap than ours, so nearly the same interval.
        rng = np.random.default_rng(9)
        means = values[name][rng.integers(len(untrained), size=(20_000, len(untrained)))].mean(axis=1)
        np.testing.assert_allclose(own["interval"], np.quantile(means, [0.025, 0.975]), atol=0.02)
    change = values["qnorm"] - values["cosine"]
    against = row(found, dataset, "qnorm")["against_cosine"]
    assert against["difference"] == pytest.approx(change.mean(), abs=1e-6)
    assert (against["wins"], against["losses"]) == ((change > 1e-9).sum(), (change < -1e-9).sum())
    assert against["baseline"] == "cosine" and against["p_holm"] >= against["p"]
    assert row(found, dataset, "cosine")["against_cosine"] is None
    start = row(found, dataset, "untrained", "dot")
    assert start["value"] == pytest.approx(question_values(root, "untrained", True, dataset).mean(), abs=1e-6)
    assert start["against_cosine"] is None
    # A training searched otherwise than it was trained for.
    crossed = np.mean([question_values(root, f"cosine-{seed}", True, dataset).mean() for seed in SEEDS])
    assert row(found, dataset, "cosine")["under"] == {"dot": pytest.approx(crossed, abs=1e-6)}


def test_trainings_differ_in_the_similarity_alone(root: Path, found: dict[str, Any]) -> None:
    told = {
        (own["similarity"], own["seed"]): json.loads(
            (root / "out" / own["checkpoint"]).parent.joinpath("train.json").read_text()
        )
        for own in found["trainings"]
    }
    assert list(told) == [(name, seed) for seed, name in product(SEEDS, SIMILARITIES)]
    for seed in SEEDS:
        first, second = told["cosine", seed], told["qnorm", seed]
        assert first["facts"] == second["facts"]
        assert {**first["config"], "similarity": ""} == {**second["config"], "similarity": ""}
    # The pairs are the same for all, so they were mined once.
    assert len(list((root / "out/train").glob("mined-*.jsonl"))) == 1


def test_norms_are_told_beside_the_figures(root: Path, found: dict[str, Any]) -> None:
    passages = rows_of(root / "corpus.jsonl")
    marked = {id for own in rows_of(root / "asked.jsonl") for id in own["supporting_ids"]}
    # Relevant to a question of another set over the same corpus: on neither side.
    elsewhere = {id for own in rows_of(root / "again.jsonl") for id in own["supporting_ids"]} - marked
    relevant = np.array([own["id"] in marked for own in passages])
    others = np.array([own["id"] not in marked | elsewhere for own in passages])
    assert len(elsewhere) == 9
    lengths = np.log([len(own["text"].split()) + 2 for own in passages])  # a token a word, and two special ones
    own = {name: [] for name in ("d", "cv", "length")}
    for seed in SEEDS:
        norms = encoder_of(root, f"qnorm-{seed}").encode_passages([Passage("", "", p["text"]) for p in passages]).norms
        a, b = norms[relevant].astype(float), norms[others].astype(float)
        own["d"].append(stats.ttest_ind(a, b).statistic * np.sqrt(1 / len(a) + 1 / len(b)))
        own["cv"].append(stats.variation(norms))
        own["length"].append(stats.pearsonr(norms, lengths).statistic)
    (told,) = (n["norms"] for n in found["norms"] if (n["dataset"], n["trained_for"]) == ("asked", "qnorm"))
    for name, values in own.items():
        assert told[name] == pytest.approx(np.mean(values), rel=1e-4), name
    assert (told["relevant"], told["others"]) == (relevant.sum(), others.sum())
    # A judgment of 0 makes no passage relevant.
    (claims,) = (n["norms"] for n in found["norms"] if (n["dataset"], n["trained_for"]) == ("claims", "untrained"))
    assert claims["relevant"] == 7


def test_sentence_pairs_are_scored_by_cosine_and_dot(root: Path, found: dict[str, Any]) -> None:
    pairs = rows_of(root / "sts.jsonl")
    golds = [own["score"] for own in pairs]
    values: dict[tuple[str, str], float] = {}
    for name, scored_by in product(("untrained", *SIMILARITIES), ("cosine", "dot")):
        own = []
        for seed in SEEDS if name != "untrained" else (None,):
            encoder = encoder_of(root, name if seed is None else f"{name}-{seed}")
            left, right = (encoder.encode_queries([p[side] for p in pairs]) for side in ("text1", "text2"))
            scores = (left.units * right.units).sum(axis=1)
            own.append(
                stats.spearmanr(scores * left.norms * right.norms if scored_by == "dot" else scores, golds).statistic
            )
        values[name, scored_by] = float(np.mean(own))
    assert {(own["trained_for"], own["scored_by"]): own["value"] for own in found["pairs"]} == pytest.approx(
        values, abs=1e-6
    )
    told = {(own["trained_for"], own["scored_by"]): own for own in found["pairs"]}
    change = told["qnorm", "dot"]["against_cosine"]
    assert change["difference"] == pytest.approx(values["qnorm", "dot"] - values["cosine", "dot"], abs=1e-6)
    assert change["interval"][0] < change["difference"] < change["interval"][1]
    start = told["cosine", "dot"]["against_untrained"]
    assert start["difference"] == pytest.approx(values["cosine", "dot"] - values["untrained", "cosine"], abs=1e-6)
    assert told["untrained", "cosine"]["against_untrained"] is None


def test_answers_are_scored_where_the_experiment_says(root: Path, found: dict[str, Any]) -> None:
    read = [own for own in found["rows"] if own["measure"] == "exact match"]
    assert {own["dataset"] for own in read} == {"asked"}
    assert {(own["trained_for"], own["searched_by"], own["n"]) for own in read} == {
        ("untrained", "cosine", 6), ("untrained", "dot", 6), ("cosine", "cosine", 6), ("qnorm", "qnorm", 6)}  # fmt: skip
    assert (root / "out/eval/qnorm-1/reading/report.html").is_file()


def test_the_report_keeps_the_domains_apart(root: Path, found: dict[str, Any]) -> None:
    report = (root / "out/sweep.md").read_text("utf-8")
    order = [
        "- command: magrag sweep train.toml",
        f"- data: {root}/pairs.jsonl",
        "- evaluated on: asked, again, claims, pairs",
    ]
    order += [f"- model: {root}/bert", "- hardware: ", "## Trainings", "## Data sets won / equal / lost"]
    order += ["## In domain: nDCG@10", "## asked (12", "## In domain: exact match"]
    order += ["## Out of domain: nDCG@10", "## again (9", "## claims (7", "## Sentence pairs"]
    order += ["## What each interval rests on", "| asked | nDCG@10 | 12 | 2 |", "| claims | nDCG@10 | 7 | 2 |"]
    order += ["| asked | exact match | 6 | 2 |", "| pairs | Spearman | 15 | 2 |"]
    places = [report.index(title) for title in order]
    assert places == sorted(places)
    assert json.loads((root / "out/sweep.json").read_text("utf-8")) == found
    value, low, high = (
        100 * number for number in (row(found, "again", "qnorm")["value"], *row(found, "again", "qnorm")["interval"])
    )
    assert f"| qnorm | {value:.1f} [{low:.1f}, {high:.1f}] |" in report


def test_a_finished_sweep_encodes_nothing_again_and_can_grow(
    root: Path, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode = Encoder.encode_passages

    def counted(self: Encoder, passages: Any, progress: Any = None) -> Any:
        encoded.append(self.name)
        return encode(self, passages, progress)

    monkeypatch.setattr(Encoder, "encode_passages", counted)
    assert run_sweep(root, root / "out", SIMILARITIES, SEEDS) == found
    assert encoded == []
    grown = run_sweep(root, root / "out", (*SIMILARITIES, "learnable"), (0,), "training.steps=4")
    # Development scores of the new training before, at 2 and at 4 steps; then each of the two corpora once.
    best = str(root / "out/train/learnable-0/best")
    assert len(encoded) == 5 and [best in name for name in encoded] == [False] * 3 + [True] * 2
    one = row(grown, "asked", "qnorm")
    assert one["by_seed"] == row(found, "asked", "qnorm")["by_seed"][:1]
    (told,) = (own for own in grown["trainings"] if own["similarity"] == "learnable")
    assert told["gamma_d"] != 0.5


def test_no_training_sees_what_is_evaluated(root: Path, tmp_path: Path) -> None:
    questions, pairs = rows_of(root / "again.jsonl"), rows_of(root / "sts.jsonl")
    # Which question a draw leaves out does not matter.
    leaked = [*(own["question"].upper() + "?" for own in questions), pairs[3]["text1"], pairs[4]["text2"]]
    rows = [*rows_of(root / "pairs.jsonl"), *({"query": query, "positive": "w1 w2 w3"} for query in leaked)]
    write_lines(tmp_path / "pairs.jsonl", rows)
    told: list[str] = []
    run_sweep(
        root, tmp_path / "out", ["cosine"], [0], f'data.pairs="{tmp_path}/pairs.jsonl"', "training.steps=1",
        "training.eval_every=0", "dev.queries=0", asking=["eval.n=2", "sweep.read=[]"], told=told,
    )  # fmt: skip
    assert "71 pairs of" in "\n".join(told)
    assert "11 pairs left out, whose query an evaluation asks" in told
    (mined,) = (tmp_path / "out/train").glob("mined-*.jsonl")
    assert [own["query"] for own in rows_of(mined)] == [own["query"] for own in rows[:60]]


def test_sets_for_the_first_seed_only_and_questions_that_are_not_drawn(
    root: Path, found: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(root / "out/train", tmp_path / "out/train")
    asking = ["eval.n=5", 'sweep.read=["again"]', 'sweep.first_seed_only=["again","pairs"]']
    told: list[str] = []
    own = run_sweep(root, tmp_path / "out", SIMILARITIES, SEEDS, asking=asking, told=told)
    for name in SIMILARITIES:
        assert len(row(own, "asked", name)["by_seed"]) == 2
        assert len(row(own, "again", name)["by_seed"]) == 1
        assert len(row(own, "again", name, measure="exact match")["by_seed"]) == 1
    assert {len(one["by_seed"]) for one in own["pairs"]} == {1}
    assert json.loads((tmp_path / "out/eval/qnorm-1/ranking/run.json").read_text())["datasets"].keys() == {
        "asked",
        "claims",
    }
    assert not (tmp_path / "out/eval/qnorm-1/reading").exists()
    # Passages are relevant to questions whether these were drawn or not.
    sides = {(one["dataset"], one["trained_for"]): one["norms"] for one in own["norms"]}
    before = {(one["dataset"], one["trained_for"]): one["norms"] for one in found["norms"]}
    assert row(own, "asked", "qnorm")["n"] == 5
    assert sides["asked", "qnorm"] == before["asked", "qnorm"]
    # What is done, how long it took and what is next.
    assert "4 trainings, then 5 rankings on asked, again, claims, pairs, then answers on again" in told
    assert "training 2 of 4: qnorm, seed 0" in told and "ranking 5 of 5: qnorm-1 on asked, claims" in told
    (line,) = (line for line in told if line.startswith("ranking 4 of 5 took"))
    assert "; next is qnorm-1 on asked, claims; 1 left, at most about " in line
    assert "reading 3 of 3: qnorm-0 on again" in told


def test_a_reader_trained_anew_answers_anew(root: Path, found: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(root / "out/train/cosine-0", tmp_path / "out/train/cosine-0")
    asking = [f'generator.adapter="{tmp_path}/reader"']
    answers = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        llama = AutoModelForCausalLM.from_pretrained(root / "llama")
        lora = LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "v_proj", "o_proj"], init_lora_weights=False)
        get_peft_model(llama, lora).save_pretrained(tmp_path / "reader")
        run_sweep(root, tmp_path / "out", ["cosine"], [0], asking=asking)
        answers.append([own["prediction"] for own in rows_of(tmp_path / "out/eval/cosine-0/reading/predictions.jsonl")])
    assert len(answers[0]) == len(answers[1]) == 6
    assert answers[0] != answers[1]
    # Nothing is lost, and a third start finds the answers there.
    aside = rows_of(tmp_path / "out/eval/cosine-0/reading-1/predictions.jsonl")
    assert [own["prediction"] for own in aside] == answers[0]
    run_sweep(root, tmp_path / "out", ["cosine"], [0], asking=asking)
    assert not (tmp_path / "out/eval/cosine-0/reading-2").exists()


@pytest.mark.slow
def test_a_sweep_that_was_stopped_goes_on(
    root: Path, found: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [0]
    encode = Encoder.encode_queries

    def stopping(self: Encoder, *arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return encode(self, *arguments)

    monkeypatch.setattr(Encoder, "encode_queries", stopping)
    again: dict[str, Any] = {}
    stops = 0
    while not again:
        left[0] = 5 + stops
        try:
            again = run_sweep(root, tmp_path / "out", SIMILARITIES, (0,), data_dir=tmp_path / "data")
        except KeyboardInterrupt:
            stops += 1
    assert stops >= 3
    assert len(again["rows"]) == len(found["rows"])
    for one, other in zip(again["rows"], found["rows"], strict=True):
        assert one["by_seed"] == other["by_seed"][:1], one


def test_without_an_experiment_the_development_scores_are_compared(root: Path, found: dict[str, Any]) -> None:
    alone = sweep(
        training(root), root / "out", similarities=["qnorm"], seeds=[1], experiment=None,
        log=lambda line: None, progress=lambda what, done, total: None,
    )  # fmt: skip
    assert alone.rows == [] and alone.trainings == [own for own in found["trainings"] if own == alone.trainings[0]]
    assert "development" in (root / "out/sweep.md").read_text("utf-8")
    run_sweep(root, root / "out", SIMILARITIES, SEEDS)


def test_pairs_that_are_drawn_are_told_by_seed(root: Path, tmp_path: Path) -> None:
    drawing = training(root, "data.n=40", "training.steps=1", "training.eval_every=0", "mining.kind=none")
    found = sweep(
        drawing, tmp_path, similarities=["cosine"], seeds=[0, 1], experiment=None,
        log=lambda line: None, progress=lambda what, done, total: None,
    )  # fmt: skip
    hashes = [
        json.loads((tmp_path / f"train/cosine-{n}/train.json").read_text())["facts"]["pairs"][:12] for n in (0, 1)
    ]
    assert hashes[0] != hashes[1]
    assert f"{hashes[0]} (seed 0), {hashes[1]} (seed 1): each seed draws its own data.n pairs" in found.made["data"]


@pytest.mark.parametrize(
    ("similarities", "seeds", "changed", "message"),
    [
        (["cosine", "qnrom"], [0], {}, 'no similarity "qnrom"; did you mean "qnorm"'),
        (["cosine", "cosine"], [0], {}, "--similarities must name one or more, each once"),
        (["cosine"], [], {}, "--seeds must name one or more"),
        (["cosine"], [0], {"read": ("askd",)}, 'sweep.read: there is no data set "askd"; did you mean "asked"'),
        (["cosine"], [0], {"in_domain": ("x",)}, 'sweep.in_domain: there is no data set "x"'),
        (["cosine"], [0], {"first_seed_only": ("x",)}, 'sweep.first_seed_only: there is no data set "x"'),
        (["cosine"], [0], {"first_seed_only": ("asked", "again", "claims")}, "leaves further seeds nothing to rank"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(
    root: Path, tmp_path: Path, similarities: list[str], seeds: list[int], changed: dict[str, Any], message: str
) -> None:
    config = experiment(root)
    config = config.model_copy(update={"sweep": config.sweep.model_copy(update=changed)})
    with pytest.raises(ConfigError, match=message):
        sweep(
            training(root), tmp_path / "out", similarities=similarities, seeds=seeds, experiment=config,
            log=lambda line: None, progress=lambda what, done, total: None,
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_prints_the_comparison(root: Path, found: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(root / "out/train/cosine-0", tmp_path / "out/train/cosine-0")
    command = ("sweep", root / "train.toml", "--similarities", "cosine", "--out", tmp_path / "out")
    done = magrag(*command, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == []
    assert told["trainings"] == [own for own in found["trainings"] if (own["similarity"], own["seed"]) == ("cosine", 0)]
    assert magrag(*command, "--seeds", "one").returncode == 2
    assert "holds a training with training.steps = 4" in one_line_error(
        magrag(*command, "--set", "training.steps=5"), 2
    )
