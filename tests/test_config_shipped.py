"""The configuration files that come with the program: every setting is named, loads, and says what holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from rag_app.config import Config, load_config
from rag_app.config_layers import setting_paths
from tests.config_files import CONFIGS, named_paths


def with_unset_ones(text: str) -> str:
    """A file's text in which the commented settings and tables are set."""
    return re.sub(r"^# (\w+ = \S+|\[\S+\])$", r"\1", text, flags=re.MULTILINE)


CHOSEN_BY_PEOPLE = [
    ("encoders",),
    ("retrievers",),
    ("eval", "readers"),
    ("eval", "datasets"),
    ("eval", "datasets", "NAME", "columns"),
]


@pytest.mark.parametrize("name", ["demo.toml", "gpu.toml"])
def test_a_shipped_file_names_every_setting_and_loads(name: str) -> None:
    text = (CONFIGS / name).read_text(encoding="utf-8")
    assert set(named_paths(tomllib.loads(with_unset_ones(text)), CHOSEN_BY_PEOPLE)) == set(setting_paths(Config))
    assert isinstance(load_config(CONFIGS / name, environ={}), Config)


@pytest.mark.parametrize("name", ["demo.toml", "gpu.toml"])
def test_the_unset_settings_of_a_shipped_file_hold_values_that_load(tmp_path: Path, name: str) -> None:
    text = with_unset_ones((CONFIGS / name).read_text(encoding="utf-8"))
    first = text.replace('similarity = "cosine"\n', 'similarity = "learnable"\n', 1)
    (tmp_path / name).write_text(first, encoding="utf-8")
    assert load_config(tmp_path / name, environ={}).retriever("cosine").gamma_q == 0.5


def test_the_demo_file_says_the_defaults() -> None:
    assert load_config(CONFIGS / "demo.toml", environ={}) == Config()


def test_the_unset_values_shown_are_those_of_the_preset() -> None:
    from retriever.encoder import PRESETS

    for name in ("demo.toml", "gpu.toml"):
        tree = tomllib.loads(with_unset_ones((CONFIGS / name).read_text(encoding="utf-8")))
        encoder = next(iter(tree["encoders"].values()))  # the first shows them
        preset = PRESETS[encoder["preset"]]
        for key in (
            "pooling",
            "query_prefix",
            "passage_prefix",
            "query_max_tokens",
            "passage_max_tokens",
            "trained_for",
        ):
            assert encoder[key] == getattr(preset, key), (name, key)


def test_the_gpu_file_is_the_large_setup() -> None:
    config = load_config(CONFIGS / "gpu.toml", environ={})
    assert [encoder.model for encoder in config.encoders.values()] == ["facebook/contriever"]
    assert config.encoder("contriever").precision == "bfloat16"
    assert {retriever.searcher for retriever in config.retrievers.values() if retriever.kind == "dense"} == {"faiss"}
    assert config.generator.backend == "vllm"
