"""`magrag diagnose` where figures are undefined, an index is damaged or a folder is somebody else's: told, and why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rag_app.cli import app
from rag_app.config import load_config
from rag_app.errors import ConfigError
from rag_app.pipeline import Pipeline
from retriever.errors import RetrieverError
from retriever.index import Index
from tests.tiny_encoder import write_tiny_model

SETTINGS = """
corpus = "{root}/three"
data_dir = "{root}/data"
[encoders.tiny]
model = "{root}/model"
query_max_tokens = 32
passage_max_tokens = 8
[retrievers.cosine]
encoder = "tiny"
[eval]
retrievers = ["cosine"]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two BEIR folders over the same three passages, one of which is longer than the encoder reads; the second marks others."""
    root = tmp_path_factory.mktemp("faults")
    write_tiny_model(root / "model")
    (root / "tiny.toml").write_text(SETTINGS.format(root=root))
    texts = {"a": "w1 w2 w3", "b": "w4 w5", "c": " ".join(f"w{at}" for at in range(20, 40))}
    for name, marked in (("three", "ab"), ("elsewhere", "yz")):
        (root / name / "qrels").mkdir(parents=True)
        rows = [json.dumps({"_id": id, "title": "", "text": text}) + "\n" for id, text in texts.items()]
        (root / name / "corpus.jsonl").write_text("".join(rows))
        asked = [json.dumps({"_id": f"q{id}", "text": f"w{at} w9"}) + "\n" for at, id in enumerate(marked)]
        (root / name / "queries.jsonl").write_text("".join(asked))
        judged = ["query-id\tcorpus-id\tscore", *(f"q{id}\t{id}\t1" for id in marked)]
        (root / name / "qrels/test.tsv").write_text("\n".join(judged) + "\n")
    return root


def magrag(root: Path, *arguments: object) -> Any:
    command = ["diagnose", *map(str, arguments), "--encoder", "tiny", "--config", str(root / "tiny.toml")]
    return CliRunner().invoke(app, command)


def unexplained(value: Any, path: str = "") -> Iterator[str]:
    """Where a null has no reason beside it."""
    if isinstance(value, dict):
        for name, own in value.items():
            if own is None and not (value.get("undefined", {}).get(name) or value.get("reason")):
                yield f"{path}.{name}"
            yield from unexplained(own, f"{path}.{name}")


def test_of_three_passages_overlap_is_undefined_and_every_null_has_its_reason(root: Path) -> None:
    done = magrag(root, root / "three", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    figures = found["figures"]
    assert figures["questions"]["overlap"] is None and figures["questions"]["by_cosine"]["skewness"] is None
    assert "3 of 3 passages are ranked" in figures["questions"]["undefined"]["overlap"]
    assert "hardly matters" not in found["verdict"] and figures["passages"]["partial_interval"] is None
    assert figures["passages"]["at_limit"] == pytest.approx(1 / 3) and figures["passages"]["limit"] == 8
    assert list(unexplained(figures)) == []
    readings = {own["title"]: own for own in found["readings"]}
    for title, own in readings.items():
        assert own["value"] != "–" or own["meaning"].startswith("Cannot be told: "), title


def test_the_terminal_says_why_and_that_marked_passages_are_not_there(root: Path, tmp_path: Path) -> None:
    some = magrag(root, root / "three", "--out", tmp_path / "out").stdout
    assert "there are 2 and 1" in " ".join(some.split()) and "rankings at random would share 100 %" in " ".join(
        some.split()
    )
    assert "(Cohen's d): Cannot be told" in some and "without marked" not in some
    none = " ".join(magrag(root, root / "elsewhere").stdout.split())
    assert none.count("none of the passages that the questions mark is in this corpus") == 2

    # The same command goes on in its folder; in one of somebody else's nothing is written.
    assert magrag(root, root / "three", "--out", tmp_path / "out").exit_code == 0
    (tmp_path / "own").mkdir()
    (tmp_path / "own/thesis.txt").write_text("mine")
    refused = magrag(root, root / "three", "--out", tmp_path / "own")
    assert isinstance(refused.exception, ConfigError) and "is no folder of a diagnosis, and not empty" in str(
        refused.exception
    )
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["thesis.txt"]


@pytest.mark.filterwarnings("error:.*:RuntimeWarning")
@pytest.mark.parametrize(
    ("file", "place", "value"),
    [
        ("norms-00000.npy", 1, np.nan),
        ("norms-00000.npy", 1, 0.0),
        ("vectors-00000.npy", (1, 3), np.nan),
        ("vectors-00000.npy", (1, 3), 3e38),
        ("vectors-00000.npy", slice(1, 3), 0.0),
    ],
)
def test_damaged_vectors_are_told_in_a_line(root: Path, tmp_path: Path, file: str, place: Any, value: float) -> None:
    built = Pipeline(load_config(root / "tiny.toml", environ={})).index("tiny").folder
    Index(built).check_vectors(directions=True)
    folder = shutil.copytree(built, tmp_path / "index")
    values = np.load(folder / file)
    values[place] = value
    np.save(folder / file, values)
    done = magrag(root, root / "three", "--index", folder)
    assert isinstance(done.exception, RetrieverError), done.output
    said = str(done.exception)
    many = "2 vectors of 3 have" if isinstance(place, slice) else "1 vector of 3 has"
    assert said.startswith(f"index {folder} is damaged: {many} no positive finite norm")
    assert "the first that of passage 'b'; delete the folder and build it again" in said and "\n" not in said
