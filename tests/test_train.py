"""`magrag train` as people use it: configurations, the folder that is gone on with or refused, development scores, a whole run."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from rag_app.cli import app
from rag_app.config_layers import setting_paths
from rag_app.errors import ConfigError
from rag_app.train import train
from rag_app.train_config import TrainConfig, load_train_config
from rag_app.train_dev import DevScorer, DevSet, hold_out, read_dev_set
from retriever.passages import Passage
from retriever.similarity import COSINE, DOT, QNORM
from retriever.training.pairs import TrainingPair
from tests.tiny_encoder import load_tiny, tiny_pairs, write_rows, write_tiny_model

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
SHIPPED = sorted(path.name for path in [CONFIGS / "train-cpu.toml", *CONFIGS.glob("train-paper-*.toml")])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def config(tmp_path: Path, model: Path) -> Path:
    pairs = write_rows(tmp_path / "pairs.jsonl", tiny_pairs(60))
    asked = tmp_path / "asked.jsonl"
    question = {"id": "1", "question": tiny_pairs(60)[7].query.upper() + "?", "answers": ["w1"]}
    asked.write_text(json.dumps(question) + "\n")
    path = tmp_path / "t.toml"
    path.write_text(
        f"""
        data_dir = "{tmp_path / "data"}"
        [encoder]
        model = "{model}"
        preset = "mean"
        query_max_tokens = 32
        passage_max_tokens = 64
        [data]
        pairs = "{pairs}"
        evaluation = ["{asked}"]
        [training]
        steps = 4
        batch_size = 8
        eval_every = 2
        hard_negatives = 2
        learning_rate = 1e-3
        [dev]
        queries = 10
        pool = 20
        """
    )
    return path


def run(config: Path, out: Path, *overrides: str) -> tuple[Any, list[str]]:
    told: list[str] = []
    result = train(load_train_config(config, overrides), out, log=told.append, progress=lambda *_: None)
    return result, told


def named_paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and path not in (("data", "columns"),):
        for key, below in value.items():
            yield from named_paths(below, (*path, key))
    else:
        yield (*path, "NAME") if path == ("data", "columns") else path


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_names_every_setting_and_loads(name: str) -> None:
    text = (CONFIGS / name).read_text(encoding="utf-8")
    unset = re.sub(r"^# (?=\[?[\w.]+\]?( = .+)?$)", "", text, flags=re.MULTILINE)
    assert set(named_paths(tomllib.loads(unset))) == set(setting_paths(TrainConfig))
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
        ("[data]\npairs = 'x'\n", ["similarity=qnrm"], r'similarity must be one of .*; did you mean "qnorm"\?'),
        ("", [], "names nothing to train on: set data.pairs"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_train_config(path, overrides)


def test_a_whole_training_and_the_same_again(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result, told = run(config, out, "similarity=qnorm", "mining.kind=bm25", "mining.negatives=3")
    lines = "\n".join(told)
    assert "60 pairs of" in lines and "1 pairs left out, since an evaluation asks their query" in lines
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
    assert "best after 2 of 2 steps, nDCG@10" in done.output and "encoders.NAME.adapter" in done.output
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(done.stdout)["best_step"] == 2


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
    assert hold_out(pairs, 12, 15, seed=0) == (kept, held, dev)
    assert hold_out(pairs, 12, 15, seed=1)[1] != held
    with pytest.raises(ConfigError, match="dev.queries is 40, but the pairs have 40 different queries"):
        hold_out(pairs, 40, 15, seed=0)


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
    from rag_app.train_config import DevSetConfig

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
