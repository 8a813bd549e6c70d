"""`magrag train-reader` from rows to an adapter that a configuration reads with; tiny models of random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from generator.errors import GeneratorError
from rag_app.config import load_config
from rag_app.errors import ConfigError
from rag_app.reader import reader_folder
from rag_app.training.reader import ReaderTraining, load_reader_training, train_reader
from tests.config_files import CONFIGS
from tests.random_llama import random_llama
from tests.tiny_encoder import write_tiny_model


def write_rows(path: Path, numbers: range) -> Path:
    rows = (
        {
            "question": f"where is w{n}",
            "answers": [f"w{n + 50}"],
            "passages": [{"title": f"w{n}", "text": f"w{n} is in w{n + 50} by w{n + 51}"}],
        }
        for n in numbers
    )
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A configuration of a training of a dozen updates."""
    (tmp_path / "magrag.toml").write_text(
        f"""
        data_dir = "{tmp_path / "data"}"
        [encoders.tiny]
        model = "{write_tiny_model(tmp_path / "bert")}"
        [retrievers.near]
        kind = "dense"
        encoder = "tiny"
        """
    )
    path = tmp_path / "train.toml"
    path.write_text(
        f"""
        model = "{random_llama(tmp_path / "llama")}"
        out = "{tmp_path / "out"}"
        config = "{tmp_path / "magrag.toml"}"
        retriever = "near"
        [data]
        train = "{write_rows(tmp_path / "rows.jsonl", range(24))}"
        dev = "{write_rows(tmp_path / "dev.jsonl", range(24, 30))}"
        [contexts]
        sizes = [1, 2]
        closed_book = 0.2
        [tuning]
        learning_rate = 0.01
        rank = 2
        save_every = 2
        """
    )
    return path


def train(recipe: Path, *overrides: str) -> tuple[Path, list[str]]:
    said: list[str] = []
    return train_reader(load_reader_training(recipe, overrides), said.append), said


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=-1", "seed must be at least 0, got -1 (--set seed)"),
        ("contexts.sizes=[0]", "contexts.sizes.0 must be at least 1, got 0 (--set contexts.sizes)"),
        ("contexts.sizes=[]", "contexts.sizes must not be empty (--set contexts.sizes)"),
    ],
)
def test_a_value_that_cannot_be_is_told_once(tmp_path: Path, override: str, message: str) -> None:
    (tmp_path / "train.toml").write_text("[data]\ntrain = 'x'\n")
    with pytest.raises(ConfigError) as told:
        load_reader_training(tmp_path / "train.toml", [override])
    assert str(told.value) == message


def test_an_adapter_is_trained_and_read_with(recipe: Path, tmp_path: Path) -> None:
    adapter, said = train(recipe)
    assert adapter == tmp_path / "out" / "adapter"
    manifest = json.loads((adapter / "magrag.json").read_text())
    assert manifest["dev"]["after"]["loss"] < manifest["dev"]["before"]["loss"]
    assert manifest["updates"] == len((tmp_path / "out/log.csv").read_text().splitlines()) - 1 > 3
    assert manifest["prompt"]["few_shot"] is False
    assert any(line.startswith("24 questions") for line in said)
    lines: list[str] = []
    settings = [
        f'generator.adapter="{adapter}"',
        f'generator.model="{tmp_path / "llama"}"',
        f'data_dir="{tmp_path / "data"}"',
    ]
    folder = reader_folder(
        load_config(overrides=[*settings, "prompt.few_shot=true", "generator.backend=transformers"]), lines.append
    )
    assert folder is not None and folder.parent.name == "merged"
    assert any("trained with prompt.few_shot = false and is asked with true" in line for line in lines)


def test_the_same_command_again_keeps_what_is_there(recipe: Path) -> None:
    adapter, _ = train(recipe)
    before = load_file(adapter / "adapter_model.safetensors")
    state = adapter.with_name("state") / "state.safetensors"
    whole = state.read_bytes()
    state.write_bytes(whole[:100])
    with pytest.raises(GeneratorError, match=r"state is damaged \(.*\): delete it"):
        train(recipe)
    state.write_bytes(whole)
    again, _ = train(recipe)
    after = load_file(again / "adapter_model.safetensors")
    assert before.keys() == after.keys()
    assert all(before[name].equal(after[name]) for name in before)


def test_another_training_in_the_folder_is_refused(recipe: Path, tmp_path: Path) -> None:
    train(recipe)
    with pytest.raises(ConfigError, match="another seed: 0, now 1"):
        train(recipe, "seed=1")
    write_rows(tmp_path / "rows.jsonl", range(23))
    with pytest.raises(ConfigError, match="another hash of data"):
        train(recipe)
    (tmp_path / "out/train.json").write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        train(recipe)


def test_a_training_that_never_began_makes_way(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(GeneratorError, match="no context fits into max_tokens = 8"):
        train(recipe, "tuning.max_tokens=8")
    assert (tmp_path / "out/before.json").is_file()
    _, said = train(recipe, "data.dev=''")
    assert any("held a training with data = " in line and "never began: it makes way" in line for line in said)
    assert json.loads((tmp_path / "out/adapter/magrag.json").read_text())["dev"] == {}


def test_questions_of_evaluations_are_dropped(recipe: Path, tmp_path: Path) -> None:
    questions = [{"id": str(n), "question": f"Where is W{n}?", "answers": ["a"]} for n in (3, 4, 25)]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps(question) for question in questions))
    _, said = train(recipe, f'data.evaluation=["{path}"]')
    assert any("rows.jsonl: 2 of 24 rows ask a question of an evaluation" in line for line in said)
    assert any("dev.jsonl: 1 of 6 rows" in line for line in said)
    assert any(line.startswith("22 questions") for line in said)
    text = (tmp_path / "out/passages.jsonl").read_text()
    assert '"w2 is' in text and '"w3 is' not in text
    write_rows(tmp_path / "rows.jsonl", range(3, 5))
    with pytest.raises(ConfigError, match="has no row to use"):
        train(recipe, f'data.evaluation=["{path}"]', f'out="{tmp_path / "other"}"')


def test_the_shipped_recipe_is_whole() -> None:
    path = CONFIGS / "train-reader.toml"
    settings = load_reader_training(path)
    import tomllib

    written = tomllib.loads(path.read_text())
    assert set(written) == set(ReaderTraining.model_fields)
    for name, table in written.items():
        if isinstance(table, dict):
            assert set(table) == set(type(getattr(settings, name)).model_fields), name
    with pytest.raises(ConfigError, match="tuning.ranks"):
        load_reader_training(path, ["tuning.ranks=3"])
