"""Mistakes in the configuration: one line that names the place, what was got, and what was probably meant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rag_app.config import Config, load_config
from rag_app.errors import ConfigError
from tests.config_files import write_config


def message(path: Path | None = None, overrides: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides, environ or {})
    text = str(caught.value)
    assert "\n" not in text
    return text


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
def test_a_mistake_in_a_file_is_named_with_what_would_do(tmp_path: Path, toml: str, words: str) -> None:
    text = message(write_config(tmp_path, toml))
    assert words in text
    if "may hold letters" not in words and "gamma_d is missing" not in words and "chunking" not in toml:
        assert "my.toml" in text


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = message(
        write_config(
            tmp_path, "[generator]\nretries = -1\ncontext_length = 1\n[page]\nport = 0\n[eval]\nbatch_size = 0\n"
        )
    )
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


def test_a_key_pasted_in_place_of_a_variable_name_is_refused_and_not_shown(tmp_path: Path) -> None:
    text = message(write_config(tmp_path, "[generator]\napi_key_env = 'sk-proj-123-abc'\n"))
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
