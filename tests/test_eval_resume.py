"""Evaluation folders: resume after SIGKILL, and refusal of whatever is not the same run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.base import Record
from eval.data.datasets import Question
from eval.errors import EvalError, Stopped
from eval.publish import figures, measure
from eval.run import run_evaluation
from eval.view import CorpusFacts, RunView
from tests.scripted import QUESTIONS, Scripted, closed_book, cosine, cut_lines, lines_of, run, sets


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_is_read_again_without_asking_anything(tmp_path: Path) -> None:
    first = run(tmp_path, closed_book(), cosine())
    before = contents(tmp_path / "run")
    again = [closed_book(), cosine()]
    second = run(tmp_path, *again)
    assert [system.asked for system in again] == [[], []]
    assert second.metrics == first.metrics and (second.kept, second.computed) == (10, 0)
    assert contents(tmp_path / "run") == before


def test_a_system_that_dies_keeps_its_rows_and_only_incomplete_batches_are_asked_again(tmp_path: Path) -> None:
    class Dying(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            for record in super().answer(batch, found):
                if record.id == "q4":
                    raise RuntimeError("engine is dead")
                yield record

    said: list[str] = []
    with pytest.raises(RuntimeError, match="engine is dead"):
        run(tmp_path, closed_book(), Dying("cosine", cosine().records), on_message=said.append)
    assert len(lines_of(tmp_path / "run")) == 5 + 3
    assert said == [f"8 of 10 answers are kept in {tmp_path / 'run'}: run the same again to go on"]
    assert not (tmp_path / "run" / "metrics.json").exists()

    said.clear()
    closed, alive = closed_book(), cosine()
    result = run(tmp_path, closed, alive, on_message=said.append)
    assert closed.asked == [] and alive.asked == [["q3", "q4"], ["q5"]]
    assert (result.kept, result.computed) == (8, 2)
    assert said == [f"resuming {tmp_path / 'run'}: 8 of 10 answers are there"]
    assert result.metrics == run_evaluation(sets(), [closed_book(), cosine()], tmp_path / "whole", batch_size=2).metrics
    assert lines_of(tmp_path / "run") == lines_of(tmp_path / "whole")


def test_metrics_of_a_run_that_is_no_longer_whole_do_not_stay(tmp_path: Path) -> None:
    class Dead(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            raise RuntimeError("engine is dead")

    run(tmp_path, cosine())
    cut_lines(tmp_path / "run", 4)
    with pytest.raises(RuntimeError):
        run(tmp_path, Dead("cosine", {}))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".lock",
        "predictions.jsonl",
        "questions.jsonl",
        "run.json",
        "trec",
    ]


def test_errors_are_asked_again_only_on_request_and_old_metrics_go(tmp_path: Path) -> None:
    run(tmp_path, cosine())
    mended = cosine()
    mended.records["q3"] = Record("q3", "the band The The")
    assert run(tmp_path, mended).metrics.systems[0].missing == 1
    result = run(tmp_path, mended, retry_errors=True)
    assert mended.asked == [["q3", "q4"]]
    assert (result.kept, result.computed, result.metrics.systems[0].missing) == (4, 1, 0)
    assert sorted(row["id"] for row in lines_of(tmp_path / "run")) == ["q1", "q2", "q3", "q4", "q5"]
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["systems"][0]["missing"] == 0


def test_answers_that_are_not_repeatable_are_reported_and_the_stored_ones_stay(tmp_path: Path) -> None:
    run(tmp_path, cosine())
    cut_lines(tmp_path / "run", 1)
    other = cosine()
    other.records["q1"] = Record("q1", "London")
    said: list[str] = []
    run(tmp_path, other, on_message=said.append)
    assert said[-1] == "cosine answered q1 otherwise when asked again: its answers are not repeatable"
    assert lines_of(tmp_path / "run")[0]["prediction"] == "It is Paris"


@pytest.mark.parametrize(
    "tail", [b'{"system": "cosine", "id": "q3", "pred', b'{"system"', b"\0\0\0", b"\0\0\0\n", b'{"id\n']
)
def test_a_torn_last_line_is_cut_and_computed_again(tmp_path: Path, tail: bytes) -> None:
    whole = run(tmp_path, cosine())
    before = lines_of(tmp_path / "run")
    cut_lines(tmp_path / "run", 2, tail)
    again = cosine()
    result = run(tmp_path, again)
    assert again.asked == [["q3", "q4"], ["q5"]]
    assert lines_of(tmp_path / "run") == before and result.metrics == whole.metrics


def test_every_cut_of_the_file_resumes_to_the_same_file(tmp_path: Path) -> None:
    run(tmp_path, cosine())
    path = tmp_path / "run" / "predictions.jsonl"
    whole = path.read_bytes()
    for end in range(0, len(whole), 37):
        path.write_bytes(whole[:end])
        run(tmp_path, cosine())
        assert path.read_bytes() == whole, end


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"k": 3, "page": 1}}, "config.k was 2, now 3; config.page was not there, now 1"),
        ({"config": {}}, "config.k was 2, now is not there"),
        ({"fingerprint": "v2"}, 'systems.cosine was "v1", now "v2"'),
        ({"name": "qnorm"}, 'systems.cosine was "v1", now is not there; systems.qnorm was not there, now "v1"'),
        ({"seed": 1}, "seed was 0, now 1"),
        ({"batch_size": 3}, "batch_size was 2, now 3"),
        ({"rule": "nq_open"}, 'datasets.nq.rule was "squad", now "nq_open"'),
        ({"measures": ["nDCG@10"]}, 'measures was [], now ["nDCG@10"]'),
        ({"questions": QUESTIONS[:4]}, "questions_sha256 was "),
    ],
)
def test_another_run_in_the_folder_is_refused_by_what_differs(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    run(tmp_path, cosine(), config={"k": 2})
    before = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    settings: dict[str, Any] = {"config": {"k": 2}, "batch_size": 2} | change
    system = cosine()
    system.fingerprint = settings.pop("fingerprint", "v1")
    system.name = settings.pop("name", "cosine")
    datasets = sets(settings.pop("questions", QUESTIONS), settings.pop("rule", ""))
    with pytest.raises(EvalError) as caught:
        run_evaluation(datasets, [system], tmp_path / "run", **settings)
    text = str(caught.value)
    assert message in text and "holds another run" in text and "give another folder" in text and "\n" not in text
    assert system.asked == [] and (tmp_path / "run" / "predictions.jsonl").read_bytes() == before


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("x")
    with pytest.raises(EvalError, match=r"not empty and no evaluation \(it has 'thesis\.tex' but no run\.json\)"):
        run(tmp_path, cosine())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(EvalError, match="is a file: give a folder"):
        run(tmp_path, cosine())


def test_an_empty_folder_or_one_killed_in_its_first_moment_is_used(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json.tmp").write_text('{"for')
    (tmp_path / "run" / ".lock").write_text("")
    assert run(tmp_path, cosine()).computed == 5


def test_two_runs_at_once_in_a_folder_are_refused(tmp_path: Path) -> None:
    class Nested(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            with pytest.raises(EvalError, match="in use by another evaluation"):
                run(tmp_path, cosine())
            return super().answer(batch, found)

    run(tmp_path, Nested("cosine", cosine().records))
    assert len(lines_of(tmp_path / "run")) == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"garbage\n", "line 2: invalid JSON"),
        (
            b'{"system": "cosine", "id": "zz", "error": null}\n',
            "line 2: system 'cosine', id 'zz' is no row of this run",
        ),
        (b'{"system": "x", "id": "q1", "error": null}\n', "line 2: system 'x', id 'q1' is no row of this run"),
        (b'{"system": "cosine", "id": "q1", "error": null}\n', "line 2: system 'cosine', id 'q1' is there twice"),
    ],
)
def test_damage_within_the_rows_is_named_by_line_and_not_counted(tmp_path: Path, line: bytes, message: str) -> None:
    run(tmp_path, cosine())
    path = tmp_path / "run" / "predictions.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + line + b"".join(rest))
    with pytest.raises(EvalError, match=message):
        run(tmp_path, cosine())


def test_a_changed_environment_is_said_on_resume(tmp_path: Path) -> None:
    run(tmp_path, cosine())
    path = tmp_path / "run" / "run.json"
    manifest = json.loads(path.read_text())
    manifest["environment"]["packages"]["numpy"] = "0.1"
    path.write_text(json.dumps(manifest))
    said: list[str] = []
    run(tmp_path, cosine(), on_message=said.append)
    assert any(f'packages.numpy was "0.1", now "{np.__version__}"' in line for line in said)


KILLABLE = """
import os, signal, sys, time
from eval.base import RankedPassage, Record
from eval.data.datasets import Question
from eval.run import run_evaluation
from eval.data.pairs import Pair
from eval.data.sources import DataSet, PairSet

out, die_at = sys.argv[1], int(sys.argv[2])
questions = [Question(f"q{i}", "nq", f"question {i}?", (f"answer {i}", "x"), (f"p{i}",)) for i in range(23)]
given = 0

class System:
    fingerprint, reader = "v1", ""

    def __init__(self, name, step):
        self.name, self.step = name, step

    def asks(self, dataset):
        return True

    def retrieve(self, batch):
        return [[RankedPassage(r, f"p{int(q.id[1:]) * r % 29}", "t", f"answer {int(q.id[1:]) * r}", 9 / r) for r in (1, 2, 3)]
                for q in batch]

    def answer(self, batch, found, *, fresh=False):
        # The answer depends on the neighbours in the batch, as a batched kernel's last digit may.
        mates = sum(int(q.id[1:]) for q in batch) + len(batch)
        for q, passages in zip(batch, found):
            global given
            if given == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            given += 1
            i = int(q.id[1:])
            start = time.perf_counter()
            wrong = None if i % 9 else "too long"
            text = f"answer {i if (i + mates) % self.step else 0}"
            seconds = {"s": time.perf_counter() - start}
            yield Record(q.id, text, passages, 3, mates % 3, False, mates, seconds, wrong)

datasets = [DataSet("nq", "qa", questions, "squad", "", {})]
run_evaluation(datasets, [System("a", 2), System("b", 3)], out, config={"k": 3}, measures=["nDCG@3"], seed=1, batch_size=5)
"""


def start_killable(out: Path, die_at: int) -> int:
    command = [sys.executable, "-c", KILLABLE, str(out), str(die_at)]
    return subprocess.run(command, cwd=Path(__file__).parents[1], timeout=120, check=False).returncode


def without_seconds(folder: Path) -> list[bytes]:
    """The lines as bytes, their time taken out."""
    rows = [json.dumps(row | {"seconds": sorted(row["seconds"])}, ensure_ascii=False) for row in lines_of(folder)]
    return [row.encode() for row in rows]


def test_a_run_killed_half_way_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    assert start_killable(tmp_path / "whole", -1) == 0
    # Within a batch of the first system, between batches, and within the second one; then to the end.
    killed = [start_killable(tmp_path / "killed", die_at) for die_at in (7, 10, 12)]
    assert killed == [-signal.SIGKILL] * 3
    half = lines_of(tmp_path / "killed")
    assert 23 <= len(half) < 46 and not (tmp_path / "killed" / "metrics.json").exists()
    with (tmp_path / "killed" / "predictions.jsonl").open("ab") as handle:
        handle.write(b'{"system": "b", "id": "q')  # as if killed within a write
    assert start_killable(tmp_path / "killed", -1) == 0

    assert without_seconds(tmp_path / "killed") == without_seconds(tmp_path / "whole")
    names = [(row["system"], row["id"]) for row in lines_of(tmp_path / "killed")]
    assert len(names) == len(set(names)) == 46
    whole, mended = ((tmp_path / name / "metrics.json").read_bytes() for name in ("whole", "killed"))
    assert whole == mended


def test_a_run_that_goes_on_under_other_versions_says_so_in_its_report(tmp_path: Path) -> None:
    run(tmp_path, cosine())
    cut_lines(tmp_path / "run", 3)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    manifest["environment"]["packages"]["numpy"] = "0.1"
    (tmp_path / "run" / "run.json").write_text(json.dumps(manifest))
    table = run(tmp_path, cosine()).table
    assert (
        f'after 3 of 5 answers the run went on under other conditions: packages.numpy was "0.1", now "{np.__version__}"'
        in table
    )


@pytest.mark.parametrize("name", ["corpus.json", "questions.jsonl", "recheck.json"])
def test_damage_in_any_file_of_a_run_is_one_line(tmp_path: Path, name: str) -> None:
    run(tmp_path, cosine(), corpus_facts=lambda dataset: CorpusFacts(), recheck=1)
    (tmp_path / "run" / name).write_text('{"a": ')
    with pytest.raises(EvalError) as caught:
        RunView.open(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_run_of_another_format_is_told_as_that(tmp_path: Path) -> None:
    run(tmp_path, cosine())
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps(manifest | {"format": 1}))
    with pytest.raises(EvalError, match="has format 1, and this version reads 2"):
        RunView.open(tmp_path / "run")


def test_a_run_that_is_asked_to_stop_ends_between_batches_and_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole = run_evaluation(sets(), [closed_book(), cosine()], tmp_path / "whole", batch_size=2)
    system = cosine()
    asked = iter([False, False, False, True])
    with pytest.raises(Stopped):
        run_evaluation(sets(), [closed_book(), system], tmp_path / "run", batch_size=2, stop=lambda: next(asked))
    # Two batches of two and one of one by the first system: the second one had not begun.
    assert len(lines_of(tmp_path / "run")) == 5 and not system.asked
    assert not (tmp_path / "run/metrics.json").exists()
    resumed = run_evaluation(sets(), [closed_book(), cosine()], tmp_path / "run", batch_size=2)
    assert (resumed.kept, resumed.computed) == (5, 5)
    assert resumed.metrics == whole.metrics and lines_of(tmp_path / "run") == lines_of(tmp_path / "whole")


def test_asking_again_can_be_stopped_too(tmp_path: Path) -> None:
    ask = {"batch_size": 4, "recheck": 4}
    stop = iter([False, False, False, False, True])
    with pytest.raises(Stopped):
        run_evaluation(sets(), [closed_book(), cosine()], tmp_path / "run", stop=lambda: next(stop), **ask)
    assert len(lines_of(tmp_path / "run")) == 10 and not (tmp_path / "run/recheck.json").exists()
    run_evaluation(sets(), [closed_book(), cosine()], tmp_path / "run", **ask)
    assert (tmp_path / "run/recheck.json").exists()


def test_figures_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    result = run_evaluation(sets(), [closed_book(), cosine()], tmp_path / "run", batch_size=2, measures=["nDCG@3"])
    view = RunView.open(tmp_path / "run")
    assert figures(view) == result.metrics == measure(view)
    (tmp_path / "run/metrics.json").write_text('{"systems": [{"older": 1}]}')
    assert figures(view) == result.metrics
