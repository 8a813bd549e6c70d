"""Adapters are found by name or folder, refused on other weights, and merged once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from generator.tuning import TuningSettings, load_for_tuning, save_adapter
from rag_app.adapters import check_base, find_adapter, merged
from rag_app.config import load_config
from rag_app.errors import ConfigError, WeightsError
from rag_app.reader import reader_folder
from rag_app.weight_hashes import model_hash
from tests.random_llama import random_llama


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_llama(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapter")
    model, _ = load_for_tuning(base, TuningSettings(rank=2))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3)
    save_adapter(model, folder, {"base": {"name": "a llama", "weights": model_hash(base)}})
    return folder


def test_merged_weights_answer_as_base_and_adapter_do(base: Path, adapter: Path, tmp_path: Path) -> None:
    said: list[str] = []
    folder = merged(base, adapter, data_dir=tmp_path, log=said.append)
    assert len(said) == 1
    assert merged(base, adapter, data_dir=tmp_path, log=said.append) == folder
    assert len(said) == 1
    ids = torch.arange(40)[None]
    plain = AutoModelForCausalLM.from_pretrained(base)
    untuned = plain(ids).logits
    expected = PeftModel.from_pretrained(plain, str(adapter))(ids).logits
    got = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert (got - untuned).abs().max() > 0.1


def test_a_configuration_reads_with_the_merged_weights(base: Path, adapter: Path, tmp_path: Path) -> None:
    settings = [f'data_dir="{tmp_path}"', f'generator.model="{base}"', "generator.backend=transformers"]
    plain = load_config(overrides=settings, environ={})
    assert reader_folder(plain, lambda line: None) == base
    tuned = load_config(overrides=[*settings, f'generator.adapter="{adapter}"'], environ={})
    assert reader_folder(tuned, lambda line: None) == merged(base, adapter, data_dir=tmp_path)


def test_another_model_is_refused_by_name(adapter: Path, tmp_path: Path) -> None:
    other = random_llama(tmp_path / "other", seed=1)
    with pytest.raises(ConfigError, match="was trained on a llama and does not fit another"):
        check_base(adapter, other, "another", "generator.adapter", tmp_path)


def test_adapters_of_others_say_nothing_of_their_base_and_may_still_not_fit(adapter: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (foreign / name).write_bytes((adapter / name).read_bytes())
    other = random_llama(tmp_path / "other", seed=1)
    check_base(foreign, other, "another", "generator.adapter", tmp_path)
    config = json.loads((foreign / "adapter_config.json").read_text())
    (foreign / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["no_such_layer"]}))
    with pytest.raises(WeightsError, match="does not fit"):
        merged(other, foreign, data_dir=tmp_path)


def test_a_name_that_is_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="encoders.minilm.adapter = 'nothing' is neither a folder nor the name"):
        find_adapter("nothing", "encoders.minilm.adapter")
    with pytest.raises(ConfigError, match="holds no adapter_config.json"):
        find_adapter(str(tmp_path), "generator.adapter")


def test_a_damaged_description_is_told(base: Path, adapter: Path, tmp_path: Path) -> None:
    for said in ('{"base": {"name"', '{"base": "a llama"}', "[]"):
        broken = tmp_path / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(adapter, broken)
        (broken / "magrag.json").write_text(said)
        with pytest.raises(ConfigError, match="magrag.json is damaged"):
            check_base(broken, base, "a llama", "generator.adapter", tmp_path)


def test_another_scale_is_another_adapter(base: Path, adapter: Path, tmp_path: Path) -> None:
    louder = tmp_path / "louder"
    shutil.copytree(adapter, louder)
    config = json.loads((louder / "adapter_config.json").read_text())
    (louder / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 2 * config["lora_alpha"]}))
    assert merged(base, louder, data_dir=tmp_path) != merged(base, adapter, data_dir=tmp_path)


def test_a_server_has_weights_of_its_own(adapter: Path) -> None:
    settings = ["generator.base_url=http://127.0.0.1:1/v1", f'generator.adapter="{adapter}"']
    with pytest.raises(ConfigError, match="a server has weights of its own"):
        reader_folder(load_config(overrides=settings, environ={}), lambda line: None)
