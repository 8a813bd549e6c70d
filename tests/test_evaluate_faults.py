"""What goes wrong in the middle of an evaluation: the reader's server, the disk."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eval.view import RunView
from generator.errors import GeneratorError
from rag_app.config import load_config
from rag_app.evaluate import run
from rag_app.experiment import open_experiment
from tests.server import Server

ROOT = Path(__file__).parents[1]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [{"id": f"q{n}", "question": f"What is {n} and {n}?", "answers": [f"sum {n}"]} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_server_that_dies_ends_the_run_with_a_line_and_the_run_goes_on_where_it_stopped(
    server: Server, questions: Path, tmp_path: Path
) -> None:
    asked: list[str] = []
    alive = 25

    def answer(request: dict[str, Any]) -> tuple[int, Any]:
        numbers = re.findall(r"What is (\d+) and", request.get("prompt", ""))
        with server.lock:
            if len(asked) >= alive:
                return 500, "engine is dead"
            asked.append(numbers[-1])
        return 200, f"sum {numbers[-1]}"

    def start() -> list[str]:
        said: list[str] = []
        settings = [
            f"data_dir={tmp_path / 'data'}", "generator.backend=openai", f"generator.base_url={server.url}",
            "generator.retries=0", "eval.retrievers=['closed-book']", "eval.batch_size=8", "eval.recheck=0",
        ]  # fmt: skip
        config = load_config(None, settings, {})
        run(config, open_experiment(config, [f"sums={questions}"], said.append), tmp_path / "run", log=said.append)
        return said

    server.answer = answer
    with pytest.raises(GeneratorError, match="engine is dead") as caught:
        start()
    assert "\n" not in str(caught.value)
    kept = RunView.open(tmp_path / "run").rows
    assert len(kept) == 24 and all(row["error"] is None for row in kept.values())
    assert not (tmp_path / "run" / "metrics.json").exists()

    alive = 1000
    said = start()
    assert any("24 of 40 answers are there" in line for line in said)
    rows = RunView.open(tmp_path / "run").rows
    assert len(rows) == 40 and {key: rows[key] for key in kept} == kept
    # What had come of the broken batch was kept too.
    assert len(set(asked)) == 40 and len(asked) == 41
    [figures] = json.loads((tmp_path / "run" / "metrics.json").read_text())["systems"]
    assert (figures["em"], figures["missing"], figures["n"]) == (100.0, 0, 40)


FILLS = """
import resource, signal, sys
from pathlib import Path
from eval.base import Record
from eval.data.datasets import Question
from eval.data.sources import DataSet
from eval.errors import EvalError
from eval.run import run_evaluation

class System:
    name, fingerprint, reader = "closed", "v1", ""
    def asks(self, dataset): return True
    def retrieve(self, batch): return None
    def answer(self, batch, found, *, fresh=False):
        for question in batch:
            yield Record(question.id, "x" * 500)

# A file that must not grow beyond a limit fails in the write, as on a full disk.
if sys.argv[2] == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12000, 12000))
questions = [Question(f"q{n}", "nq", "?", ("x",)) for n in range(40)]
try:
    run_evaluation([DataSet("nq", "qa", questions, "squad", "", {})], [System()], sys.argv[1], batch_size=4)
except EvalError as error:
    sys.exit(str(error))
"""


def test_a_full_disk_is_told_in_a_line_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    def start(disk: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", FILLS, str(tmp_path / "run"), disk]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    full = start("full")
    assert full.returncode == 1
    assert re.fullmatch(
        r".*predictions\.jsonl: File too large: mend that and run the same again to go on\n", full.stderr
    )
    kept = RunView.open(tmp_path / "run").rows
    assert 0 < len(kept) < 40
    assert start("roomy").returncode == 0
    rows = (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(row)["id"] for row in rows] == [f"q{n}" for n in range(40)]
