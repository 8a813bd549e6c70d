"""What threads share is made once, and nobody waits for what others make."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rag_app.config import load_config
from rag_app.once import Once
from rag_app.pipeline import Pipeline
from tests.tiny_encoder import write_tiny_model

SOON = 20


def test_each_is_made_once_however_many_ask() -> None:
    once: Once[str, object] = Once()
    together = threading.Barrier(8)
    made: list[str] = []

    def ask(number: int) -> object:
        together.wait(SOON)
        key = "ab"[number % 2]
        return once.get(key, lambda: made.append(key) or object())

    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(ask, range(8)))
    assert sorted(made) == ["a", "b"] and len({id(one) for one in got}) == 2
    assert {id(one) for one in once.values()} == {id(one) for one in got}


def test_what_could_not_be_made_is_tried_again() -> None:
    once: Once[str, int] = Once()
    with pytest.raises(ZeroDivisionError):
        once.get("a", lambda: 1 // 0)
    assert once.get("a", lambda: 5) == 5


def test_retrievers_that_are_there_answer_while_an_index_is_built(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "text": "w1 w2"}\n{"id": "2", "text": "w3 w4"}\n')
    tables = "".join(
        f'[encoders.{name}]\nmodel = "{model}"\npreset = "mean"\n'
        f'[retrievers.{name}]\nkind = "dense"\nencoder = "{name}"\nsimilarity = "dot"\n'
        for name in ("first", "second")
    )
    page = 'corpus = "{0}/corpus.jsonl"\ndata_dir = "{0}/data"\n[page]\nretrievers = ["first", "second"]\n'
    (tmp_path / "my.toml").write_text(page.format(tmp_path) + tables)
    building, go_on = threading.Event(), threading.Event()

    def log(line: str) -> None:
        if line.startswith("encoding") and "/corpus-second-" in line:
            building.set()
            assert go_on.wait(SOON)

    pipeline = Pipeline(load_config(tmp_path / "my.toml", environ={}), log=log)
    found = pipeline.search(["w3"], "first", 2)
    with ThreadPoolExecutor(2) as threads:
        built = threads.submit(pipeline.retriever, "second")
        assert building.wait(SOON)
        again = threads.submit(pipeline.search, ["w3"], "first", 2).result(SOON)
        assert not built.done()
        go_on.set()
        assert built.result(SOON) is pipeline.retriever("second")
    assert again[0].hits == found[0].hits and pipeline.stores.passages == 2
