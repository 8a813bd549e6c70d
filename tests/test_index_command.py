"""`magrag index` where the page's retrievers have encoders of their own: one index each, in one folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rag_app.cli import app
from rag_app.config import load_config
from rag_app.errors import ConfigError
from rag_app.stores import Stores
from retriever.errors import RetrieverError
from tests.tiny_encoder import write_tiny_model


@pytest.fixture
def config(tmp_path: Path) -> Path:
    model = write_tiny_model(tmp_path / "bert")
    path = tmp_path / "magrag.toml"
    path.write_text(
        f"""
        [encoders.a]
        model = "{model}"
        [encoders.b]
        model = "{model}"
        passage_max_tokens = 8
        [retrievers.cosine]
        encoder = "a"
        [retrievers.qnorm]
        encoder = "b"
        [retrievers.bm25]
        encoder = "b"
        """
    )
    rows = [{"id": str(n), "title": "", "text": " ".join(f"w{n + i}" for i in range(20))} for n in range(12)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_each_encoder_gets_an_index_and_finds_it(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["index", str(tmp_path / "corpus.jsonl"), str(out), "--config", str(config)]
    for _ in range(2):  # the second time finds them there
        done = CliRunner().invoke(app, [*command, "--json"])
        assert done.exit_code == 0, done.output
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(own["encoder"], own["passages"]) for own in told] == [("a", 12), ("b", 12)]
        assert [own["index"] for own in told] == [str(out / "a"), str(out / "b")]
    stores = Stores(load_config(config, [f'index.path="{out}"'], {}), lambda line: None)
    for name, encoder in (("cosine", "a"), ("qnorm", "b"), ("bm25", "b")):
        found = stores.retriever(name).retrieve(["w3 w4 w5"], 3).hits[0]
        assert stores.retriever(name).index.folder == out / encoder
        assert [hit.rank for hit in found] == [1, 2, 3]


def test_one_encoder_may_be_named(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["index", str(tmp_path / "corpus.jsonl"), str(out), "--config", str(config), "--encoder", "a"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (out / "manifest.json").is_file()
    stores = Stores(load_config(config, [f'index.path="{out}"'], {}), lambda line: None)
    assert stores.retriever("cosine").index.folder == out
    with pytest.raises(RetrieverError, match="passage_max_tokens"):
        stores.retriever("qnorm")


def test_an_encoder_that_a_folder_lacks_is_told_and_can_be_added(config: Path, tmp_path: Path) -> None:
    out, more = tmp_path / "out", tmp_path / "more.toml"
    with_dot = '[encoders.c]\nmodel = "%s"\n[retrievers.dot]\nencoder = "c"\nkind = "dense"\n' % (tmp_path / "bert")
    more.write_text(config.read_text() + with_dot)
    command = ["index", str(tmp_path / "corpus.jsonl"), str(out), "--config", str(more)]
    assert CliRunner().invoke(app, command).exit_code == 0
    stores = Stores(load_config(more, [f'index.path="{out}"'], {}), lambda line: None)
    with pytest.raises(
        ConfigError, match=r"no index of encoder c \(of a, b\); `magrag index CORPUS .*out --encoder c` adds"
    ):
        stores.retriever("dot")
    assert CliRunner().invoke(app, [*command, "--encoder", "c"]).exit_code == 0
    assert stores.retriever("dot").index.folder == out / "c"


@pytest.mark.parametrize("options", [["--json"], []])
def test_what_an_encoder_was_not_trained_for_is_noted_once_whatever_is_printed(
    config: Path, tmp_path: Path, options: list[str]
) -> None:
    settings = [f"data_dir={tmp_path / 'data'}", f"corpus={tmp_path / 'corpus.jsonl'}", "encoders.a.trained_for=qnorm"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    command = ["search", "w3 w4", "w9", "--retriever", "cosine", "--config", str(config), *arguments, *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("note:") == 1 and "trained for qnorm" in done.stderr
    assert "note:" not in done.stdout and (not options or len(done.stdout.splitlines()) == 2)
