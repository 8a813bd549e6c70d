"""`magrag train` as people use it: configurations, the folder that is gone on with or refused, development scores, a whole run."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from rag_app.cli import app
from rag_app.config import load_config
from rag_app.config_layers import setting_paths
from rag_app.errors import USER_ERRORS, ConfigError
from rag_app.stores import load_configured_encoder
from rag_app.training.config import TrainConfig, load_train_config
from rag_app.training.dev import DevScorer, DevSet, hold_out, read_dev_set
from rag_app.training.encoder import figures_line
from retriever.passages import Passage
from retriever.similarity import COSINE, DOT, QNORM
from retriever.training.pairs import TrainingPair, read_pairs
from tests.config_files import CONFIGS, named_paths
from tests.server import free_port
from tests.tiny_encoder import load_tiny, tiny_pairs, write_rows, write_tiny_model
from tests.training_example import run, write_training

SHIPPED = sorted(path.name for path in [CONFIGS / "train-cpu.toml", *CONFIGS.glob("train-paper-*.toml")])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def config(tmp_path: Path, model: Path) -> Path:
    return write_training(tmp_path, model)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_names_every_setting_and_loads(name: str) -> None:
    text = (CONFIGS / name).read_text(encoding="utf-8")
    unset = re.sub(r"^# (?=\[?[\w.]+\]?( = .+)?$)", "", text, flags=re.MULTILINE)
    assert set(named_paths(tomllib.loads(unset), {("data", "columns")})) == set(setting_paths(TrainConfig))
    config = load_train_config(CONFIGS / name)
    assert config.settings().similarity == QNORM
    assert (
        load_train_config(CONFIGS / name, ["similarity=learnable", "gamma_d=0.3"]).settings().similarity.gamma_d == 0.3
    )


def test_the_papers_recipe_is_the_papers() -> None:
    rates = {}
    for name in ("contriever", "retromae", "e5"):
        settings = load_train_config(CONFIGS / f"train-paper-{name}.toml").settings()
        rates[name] = settings.learning_rate
        assert (settings.batch_size, settings.epochs, settings.betas, settings.eps) == (256, 100.0, (0.9, 0.98), 1e-8)
        assert (settings.weight_decay, settings.clip, settings.warmup, settings.alpha) == (0.01, 1.0, 0.0, 20.0)
        assert (settings.scale, settings.gamma_lr, settings.lora, settings.hard_negatives) == ("fixed", None, None, 0)
        assert settings.total_steps(81_795) == 31_952
    assert rates == {"contriever": 2e-6, "retromae": 5e-6, "e5": 5e-6}


def test_mistakes_in_a_configuration_are_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    for text, overrides, message in (
        (
            "[training]\nbatchsize = 3\n",
            [],
            r'unknown setting "training.batchsize"; did you mean "training.batch_size"\?',
        ),
        ("[data]\npairs = 'x'\n", ["training.batch_size=1"], r"training.batch_size must be at least 2, got 1 \(--set"),
        ("[data]\npairs = 'x'\n", ["training.betas=[0.9,1.0]"], r"training.betas.* must be less than 1, got 1.0"),
        ("[data]\npairs = 'x'\n", ["training.betas=[-0.1,0.9]"], r"training.betas.* must be at least 0, got -0.1"),
        ("[data]\npairs = 'x'\n", ["similarity=qnrm"], r'similarity must be one of .*; did you mean "qnorm"\?'),
        (
            "[data]\npairs = 'x'\n",
            ["training.betas=[0.9]"],
            r"^training.betas must have at least 2 values, got \[0.9\]",
        ),
        ("[data]\npairs = 'x'\n", ["training.betas=[0.9,0.9,0.9]"], "^training.betas must have at most 2 values"),
        ("[data]\npairs = 'x'\n", ["seed=99999999999999999999"], "^seed must be at most 4294967295, got 9"),
        ("[data]\npairs = 'x'\n", ["encoder.preset=minlm"], r'^encoder.preset: there is no preset .* mean "minilm"'),
        ("", [], "names nothing to train on: set data.pairs"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_train_config(path, overrides)


def test_mistakes_in_what_a_training_needs_are_told_by_the_names_of_its_settings(config: Path, tmp_path: Path) -> None:
    for override, message in (
        ("encoder.adapter=nosuch", "^encoder.adapter = 'nosuch' is neither a folder nor the name"),
        ("encoder.model=nosuch/model", "^encoder.model"),
        ('data.evaluation=["nosuch"]', "^data.evaluation: .*nosuch"),
        (f'data.pairs="{tmp_path}"', "is a folder: name the file of training pairs in it"),
    ):
        with pytest.raises(USER_ERRORS, match=message):
            run(config, tmp_path / "out", override)


def test_a_whole_training_and_the_same_again(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result, told = run(config, out, "similarity=qnorm", "mining.kind=bm25", "mining.negatives=3")
    lines = "\n".join(told)
    assert "60 pairs of" in lines and "1 pair left out, whose query an evaluation asks" in lines
    assert "49 pairs with 2.0 hard negatives each, 4 steps of 8 queries" in lines
    assert "step 0: nDCG@10 " in lines and "nDCG@10 cosine" in lines
    assert result.steps == 4 and result.best_step in (2, 4) and not result.stopped_early
    plain = SentenceTransformer(str(result.folder), device="cpu")
    ours = load_tiny(result.folder).encode_queries(["w1 w2"])
    np.testing.assert_allclose(plain.encode(["w1 w2"]), ours.units * ours.norms[:, None], rtol=1e-4, atol=1e-5)
    manifest = json.loads((result.folder / "magrag.json").read_text())
    assert manifest["similarity"] == "qnorm" and manifest["dev"]["nDCG@10"] == result.best["nDCG@10"]
    mined = [json.loads(line) for line in (out / "mined.jsonl").read_text().splitlines()]
    assert len(mined) == 49 and all(len(row["negatives"]) == 3 for row in mined)
    assert {"torch", "transformers"} <= json.loads((out / "train.json").read_text())["versions"].keys()
    again, _ = run(config, out, "similarity=qnorm", "mining.kind=bm25", "mining.negatives=3")
    assert again == result


def test_a_folder_of_another_training_is_refused(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(config, out, "training.steps=1", "training.eval_every=0", "dev.queries=0")
    same = ["training.steps=1", "training.eval_every=0", "dev.queries=0"]
    with pytest.raises(ConfigError, match=r"holds a training with similarity = \"cosine\", and this one has \"dot\""):
        run(config, out, *same, "similarity=dot")
    with pytest.raises(
        ConfigError, match=r"training.learning_rate = 0.001, and this one has 0.1: choose another --out"
    ):
        run(config, out, *same, "training.learning_rate=0.1")
    (tmp_path / "other.jsonl").write_text((tmp_path / "pairs.jsonl").read_text().replace("w11", "w12"))
    (tmp_path / "other.jsonl").replace(tmp_path / "pairs.jsonl")
    with pytest.raises(ConfigError, match="holds a training with pairs = "):
        run(config, out, *same)
    with pytest.raises(ConfigError, match="is no folder of a training, and not empty"):
        run(config, tmp_path)


def test_the_command_prints_where_the_checkpoint_is(config: Path, tmp_path: Path) -> None:
    arguments = [
        "train",
        str(config),
        "--set",
        "lora.rank=4",
        "--set",
        "training.steps=2",
        "--out",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert re.search(r"best after 2 of 2 steps, nDCG@10 [\d.]+ \(untrained [\d.]+\)", done.output)
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(done.stdout)["best_step"] == 2


@pytest.mark.parametrize("ranks", [(0,), (4,), (4, 4), (4, 0)])
def test_the_command_says_how_its_checkpoint_is_used(config: Path, tmp_path: Path, ranks: tuple[int, ...]) -> None:
    """From a model or on top of an adapter: a configuration of what it prints gives the vectors that were trained."""
    begun_on = ""
    for number, rank in enumerate(ranks):
        out = tmp_path / f"out{number}"
        settings = [f"lora.rank={rank}", "training.steps=2", f"encoder.adapter={json.dumps(begun_on)}"]
        arguments = [part for setting in settings for part in ("--set", setting)]
        done = CliRunner().invoke(app, ["train", str(config), *arguments, "--out", str(out)])
        assert done.exit_code == 0, done.output
        begun_on = str(out / "best")
    advice = done.stdout.split("to use it: ")[1].strip().split(", ")
    table = dict(setting.replace("NAME", "own").split(" = ", 1) for setting in advice)
    assert table.pop("retrievers.own.similarity") == "'cosine'"
    (tmp_path / "use.toml").write_text("".join(f"{name} = {value}\n" for name, value in table.items()))
    used = load_config(tmp_path / "use.toml", [f'data_dir="{tmp_path / "data"}"'], environ={})
    encoder = load_configured_encoder("own", used, lambda line: None)
    trained = load_tiny(out / "best" / "merged" if ranks[-1] else out / "best")
    queries = [pair.query for pair in tiny_pairs(5)]
    ours, theirs = encoder.encode_queries(queries), trained.encode_queries(queries)
    np.testing.assert_allclose(ours.units * ours.norms[:, None], theirs.units * theirs.norms[:, None], atol=1e-5)
    assert encoder.trained == COSINE and encoder.spec.query_max_tokens == 32


@pytest.mark.slow
def test_of_several_processes_one_prints_the_result(config: Path, tmp_path: Path) -> None:
    port = str(free_port())
    command = [sys.executable, "-m", "rag_app.cli", "train", str(config), "--json", "--out", str(tmp_path / "out")]
    command += ["--set", "mining.kind=bm25", "--set", "training.scale=matched"]
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    both = [
        subprocess.Popen(command, env={**shared, "RANK": rank, "LOCAL_RANK": rank}, stdout=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    said = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert json.loads(said[0])["steps"] == 4 and said[1] == ""


def test_held_out_queries_are_nowhere_in_training() -> None:
    pairs = [
        *tiny_pairs(40),
        *(
            TrainingPair(p.query, Passage("x" + p.positive.id, "", p.positive.text + " w1"))
            for p in tiny_pairs(40)[:10]
        ),
    ]
    kept, held, dev = hold_out(pairs, 12, 15, seed=0)
    assert {pair.query for pair in kept}.isdisjoint(pair.query for pair in held)
    assert len(kept) + len(held) == 50 and len(dev.questions) == 12
    texts = {passage.id: passage.text for passage in dev.passages}
    assert len(set(texts.values())) == len(texts)
    for question in dev.questions:
        own = {pair.positive.text for pair in held if pair.query == question.question}
        assert {texts[id] for id in question.relevance} == own
    closed = {pair.positive.text for pair in held}
    assert closed.isdisjoint(passage.text for pair in kept for passage in (pair.positive, *pair.negatives))
    assert hold_out(pairs, 12, 15, seed=0) == (kept, held, dev)
    assert hold_out(pairs, 12, 15, seed=1)[1] != held
    with pytest.raises(ConfigError, match="dev.queries is 40, but the pairs have 40 different queries"):
        hold_out(pairs, 40, 15, seed=0)


def test_what_answers_a_held_out_query_is_no_passage_of_the_training() -> None:
    """Under another query, another id, or as another pair's negative; and queries are held out with all their spellings."""
    first, *rest = tiny_pairs(20)
    copy = Passage("copy", "Title", first.positive.text)
    pairs = [
        first,
        TrainingPair(f"  {first.query.upper()}?", rest[0].positive),
        TrainingPair("w150 w151", copy),
        TrainingPair("w152 w153", rest[5].positive, (copy, rest[6].positive)),
        *rest[10:],
    ]
    seed = next(s for s in range(99) if first in hold_out(pairs, 1, 5, seed=s)[1])
    kept, held, dev = hold_out(pairs, 1, 5, seed=seed)
    assert held == pairs[:2]
    assert kept == [TrainingPair("w152 w153", rest[5].positive, (rest[6].positive,)), *rest[10:]]
    (question,) = dev.questions
    assert question.question == first.query and len(question.relevance) == 2
    with pytest.raises(ConfigError, match="dev.queries is 1, and their passages answer all other queries too"):
        hold_out([first, TrainingPair("w150 w151", copy)], 1, 5, seed=0)


def recipe(tmp_path: Path, model: Path, *overrides: str) -> tuple[Any, list[str]]:
    """configs/train-cpu.toml with one step of the tiny model, over pairs some of whose queries have several."""
    pairs = tiny_pairs(640)
    more = [TrainingPair(pairs[row // 3].query, pair.positive) for row, pair in enumerate(tiny_pairs(90, seed=1))]
    tmp_path.mkdir(exist_ok=True)
    data = tmp_path / "recipe.jsonl"
    write_rows(data, [TrainingPair(pair.query, pair.positive) for pair in (*pairs, *more)])
    own = ["preset=mean", f'model="{model}"', "query_max_tokens=32", "passage_max_tokens=64"]
    changed = [
        f'data.pairs="{data}"',
        f'data_dir="{tmp_path / "data"}"',
        "training.passage_max_tokens=64",
        "training.steps=1",
        *(f"encoder.{setting}" for setting in own),
    ]
    return run(CONFIGS / "train-cpu.toml", tmp_path / "out", *changed, *overrides)


def test_the_shipped_recipe_starts_and_matches_its_scale_on_what_training_sees(tmp_path: Path, model: Path) -> None:
    result, told = recipe(tmp_path, model)
    assert result.steps == 1 and any(line.startswith("scale matched") for line in told)
    assert not any("nan" in line for line in told)  # all norms are 1 before the first step
    pairs = read_pairs(tmp_path / "recipe.jsonl")
    kept, held, _ = hold_out(pairs, 200, 500, 0)
    assert max(Counter(pair.query for pair in held).values()) > 1
    mined = read_pairs(tmp_path / "out" / "mined.jsonl")
    assert [(pair.query, pair.positive) for pair in mined] == [(pair.query, pair.positive) for pair in (*kept, *held)]
    # Hard negatives on both sides, but what answers a held-out query is never taught to be one.
    for part in (mined[: len(kept)], mined[len(kept) :]):
        assert np.mean([len(pair.negatives) for pair in part]) > 3
    closed = {pair.positive.text for pair in held}
    assert closed.isdisjoint(negative.text for pair in mined for negative in pair.negatives)


def test_a_fixed_scale_needs_no_negatives_of_held_out_pairs_and_no_hard_negatives_no_mining(
    tmp_path: Path, model: Path
) -> None:
    recipe(tmp_path / "a", model, "training.scale=fixed")
    kept, *_ = hold_out(read_pairs(tmp_path / "a" / "recipe.jsonl"), 200, 500, 0)
    assert len(read_pairs(tmp_path / "a" / "out" / "mined.jsonl")) == len(kept)
    _, told = recipe(tmp_path / "b", model, "training.hard_negatives=0")
    assert not (tmp_path / "b" / "out" / "mined.jsonl").exists()
    assert not any("ranking" in line for line in told)


def test_dense_mining_ranks_with_the_encoder_that_is_there(config: Path, tmp_path: Path) -> None:
    _, told = run(config, tmp_path / "out", "mining.kind=dense", "mining.negatives=3", "training.steps=1")
    assert (tmp_path / "out" / "mined.jsonl").is_file()
    assert sum(line.startswith("loading encoder") for line in told) == 1


def test_a_line_says_whose_norms_it_tells_of_and_nothing_of_those_that_do_not_vary() -> None:
    figures = {"nDCG@10": 0.5, "held-out dev norm_length_corr": 0.25, "nq dev norm_length_corr": math.nan}
    line = figures_line(TrainConfig().settings(), figures)
    assert line == "nDCG@10 50.00, held-out norms with length +0.25"


def test_development_scores_are_ndcg_over_the_whole_pool(model: Path) -> None:
    *_, dev = hold_out(tiny_pairs(40), 10, 20, seed=0)
    encoder = load_tiny(model)
    scores = DevScorer([dev])(encoder, DOT)
    queries = encoder.encode_queries([question.question for question in dev.questions])
    passages = encoder.encode_passages(dev.passages)

    def ndcg(matrix: np.ndarray) -> float:
        gains = []
        for row, question in zip(matrix, dev.questions, strict=True):
            ranked = [dev.passages[i].id for i in np.argsort(-row)[:10]]
            (relevant,) = question.relevance
            gains.append(1 / np.log2(ranked.index(relevant) + 2) if relevant in ranked else 0.0)
        return float(np.mean(gains))

    cosine = queries.units @ passages.units.T
    assert next(iter(scores)) == "nDCG@10"
    assert scores["nDCG@10"] == pytest.approx(ndcg(cosine * passages.norms))
    assert scores["nDCG@10 cosine"] == pytest.approx(ndcg(cosine))
    assert scores["nDCG@10 half"] == pytest.approx(ndcg(cosine * np.sqrt(passages.norms)))
    assert scores["dev norm_cv"] == pytest.approx(passages.norms.std() / passages.norms.mean(), rel=1e-5)
    lengths = [len(p.text.split()) + 2 for p in dev.passages]
    expected = np.corrcoef(passages.norms, np.log(lengths))[0, 1]
    assert scores["dev norm_length_corr"] == pytest.approx(expected, rel=1e-4)
    both: Mapping[str, float] = DevScorer([dev, DevSet("other", dev.questions, dev.passages)])(encoder, COSINE)
    assert both["nDCG@10"] == pytest.approx(both["held-out nDCG@10"]) == pytest.approx(both["other nDCG@10"])


def test_a_development_set_of_questions_with_a_corpus(tmp_path: Path) -> None:
    from rag_app.training.config import DevSetConfig

    corpus, questions = tmp_path / "corpus.jsonl", tmp_path / "questions.jsonl"
    corpus.write_text("".join(json.dumps({"id": f"p{i}", "title": "", "text": f"text {i}"}) + "\n" for i in range(30)))
    questions.write_text(
        "".join(
            json.dumps({"id": f"q{i}", "question": f"what {i}", "answers": ["a"], "supporting_ids": [f"p{i}"]}) + "\n"
            for i in range(6)
        )
    )
    dev = read_dev_set("mine", DevSetConfig(path=str(questions), corpus=str(corpus), queries=4, pool=5), seed=0)
    assert len(dev.questions) == 4 and len(dev.passages) == 9
    assert {id for question in dev.questions for id in question.relevance} <= {p.id for p in dev.passages}
    with pytest.raises(ConfigError, match=r"dev.datasets.mine has no corpus"):
        read_dev_set("mine", DevSetConfig(path=str(questions)), seed=0)
