"""Evaluation folders: right figures, resume after SIGKILL, and refusal of whatever is not the same run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.base import RankedPassage, Record
from eval.datasets import Question
from eval.errors import EvalError
from eval.run import RunResult, run_evaluation
from retriever.base import Hit
from retriever.passages import Passage

QUESTIONS = [
    Question("q1", "nq", "capital of France?", ("Paris",), ("p1",), ("p1", "p2")),
    Question("q2", "nq", "author of Emma?", ("Jane Austen", "Austen"), ("p3",), ()),
    Question("q3", "nq", "first band?", ("The The",), (), ("p9",)),
    Question("q4", "nq", "largest planet?", ("Jupiter",), (), ()),
    Question("q5", "hotpotqa", "is it?", ("yes it is",), (), ("p1", "p2")),
]


def passages(*entries: tuple[str, str]) -> list[RankedPassage]:
    return [RankedPassage(rank, id, "", text, 1 / rank, 0.5, 2.0) for rank, (id, text) in enumerate(entries, start=1)]


@dataclass
class Scripted:
    """Answers from a table; notes the batches it was asked."""

    name: str
    records: dict[str, Record]
    fingerprint: str = "v1"
    asked: list[list[str]] = field(default_factory=list)

    def answer(self, batch: Sequence[Question]) -> Iterable[Record]:
        self.asked.append([question.id for question in batch])
        for question in batch:
            yield self.records.get(question.id) or Record(question.id, "nothing")


def closed_book() -> Scripted:
    answers = {"q1": "paris.", "q2": "Emma", "q3": "", "q4": "Saturn", "q5": "yes"}
    return Scripted(
        "closed", {id: Record(id, text, prompt_tokens=10, seconds={"generate": 0.5}) for id, text in answers.items()}
    )


def cosine() -> Scripted:
    return Scripted(
        "cosine",
        {
            "q1": Record("q1", "It is Paris", passages(("p9", "Lyon"), ("p1", "Paris, city")), 1, 30, {"encode": 0.2}),
            "q2": Record("q2", "Austen", passages(("p3", "by Jane Austen"), ("p4", "x")), 0, 20, {"encode": 0.4}),
            "q3": Record(
                "q3",
                "",
                passages(
                    ("p5", "The The"),
                ),
                error="prompt too long",
            ),
            "q4": Record("q4", "Jupiter", passages(("p6", "x"), ("p7", "y")), 2, 40, {"encode": 0.3}),
            "q5": Record("q5", "yes it is", passages(("p2", "yes"), ("p8", "so yes it is"))),
        },
    )


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]


def run(tmp_path: Path, *systems: Scripted, **settings: Any) -> RunResult:
    return run_evaluation(QUESTIONS, systems, tmp_path / "run", batch_size=2, **settings)


def test_figures_are_those_computed_by_hand(tmp_path: Path) -> None:
    metrics = run(tmp_path, closed_book(), cosine()).metrics
    own = {(m.system, m.dataset): m for m in metrics.systems}
    assert list(own) == [("closed", "nq"), ("cosine", "nq"), ("closed", "hotpotqa"), ("cosine", "hotpotqa")]

    closed = own["closed", "nq"]
    # "paris." is right; "" against "The The" is an empty match (EM 1, F1 0); "Emma" and "Saturn" are wrong.
    assert (closed.n, closed.missing, closed.em, closed.f1, closed.empty_matches) == (4, 0, 50.0, 25.0, 1)
    assert (closed.rule, closed.k, closed.hit, closed.recall_gold, closed.recall_supporting) == (
        "squad",
        0,
        None,
        None,
        None,
    )
    assert (closed.answer_words, closed.gold_words, closed.prompt_tokens) == (0.75, 1.5, 10.0)

    open_book = own["cosine", "nq"]
    # q1 contains Paris but isn't equal (F1 of "it is paris": 1/2); q2 and q4 are right; q3 ended in an error.
    assert (open_book.n, open_book.missing, open_book.em, open_book.f1) == (4, 1, 50.0, 62.5)
    assert (open_book.contains, open_book.empty_matches, open_book.dropped, open_book.k) == (75.0, 0, 3, 2)
    # Answer strings: q1 at 2, q2 at 1, q3 at 1 (its retrieval went well), q4 nowhere.
    assert open_book.hit == [50.0, 75.0]
    assert (open_book.recall_gold, open_book.recall_gold_n) == ([50.0, 100.0], 2)  # q1: 0, 1; q2: 1, 1
    assert (open_book.recall_supporting, open_book.recall_supporting_n) == ([0.0, 25.0], 2)  # q1: 0, 1/2; q3: 0, 0
    assert (open_book.answer_words, open_book.prompt_tokens) == (5 / 3, 30.0)

    hotpot = own["closed", "hotpotqa"]
    assert (hotpot.rule, hotpot.em, hotpot.f1, hotpot.em_interval) == ("hotpotqa", 0.0, 0.0, None)
    assert own["cosine", "hotpotqa"].recall_supporting == [50.0, 50.0]

    nq, other = metrics.comparisons
    # closed right: q1, q3; cosine right: q2, q4.
    assert (nq.baseline, nq.system, nq.n, nq.wins, nq.losses, nq.em_difference, nq.mcnemar_p) == (
        "closed",
        "cosine",
        4,
        2,
        2,
        0.0,
        1.0,
    )
    assert nq.em_difference_interval is not None and nq.em_difference_interval[0] < 0 < nq.em_difference_interval[1]
    assert (other.em_difference, other.em_difference_interval, other.wins, other.mcnemar_p) == (100.0, None, 1, 1.0)


def test_the_folder_holds_configuration_rows_metrics_and_report(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    source = {"data/nq.jsonl": {"sha256": "ab", "subset_seed": None}, "data/hp.jsonl": {"sha256": "cd"}}
    result = run(
        tmp_path, closed_book(), cosine(), config={"k": 2, "model": {"name": "m"}}, seed=7, source=source,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    folder = tmp_path / "run"
    assert result.path == folder and (result.kept, result.computed) == (0, 10)
    assert seen == [(done, 10) for done in range(11)]

    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["config"] == {"k": 2, "model": {"name": "m"}}
    assert manifest["systems"] == {"closed": "v1", "cosine": "v1"}
    assert (manifest["seed"], manifest["batch_size"], manifest["source"], manifest["questions"]) == (7, 2, source, 5)
    assert manifest["rules"] == {"nq": "squad", "hotpotqa": "hotpotqa"}
    environment = manifest["environment"]
    assert environment["python"] == ".".join(map(str, sys.version_info[:3]))
    assert environment["packages"]["numpy"] == np.__version__
    assert "cores" in environment["hardware"]

    rows = lines_of(folder)
    assert [(row["system"], row["id"]) for row in rows] == [(s, q.id) for s in ("closed", "cosine") for q in QUESTIONS]
    assert rows[5] == {
        "system": "cosine",
        "id": "q1",
        "prediction": "It is Paris",
        "error": None,
        "dropped": 1,
        "prompt_tokens": 30,
        "passages": [
            {"rank": 1, "id": "p9", "has_answer": False, "score": 1.0, "cosine": 0.5, "norm": 2.0},
            {"rank": 2, "id": "p1", "has_answer": True, "score": 0.5, "cosine": 0.5, "norm": 2.0},
        ],
        "seconds": {"encode": 0.2},
    }
    assert rows[7]["error"] == "prompt too long" and rows[7]["passages"][0]["has_answer"] is True

    assert json.loads((folder / "metrics.json").read_text()) == json.loads(json.dumps(result.metrics.to_json()))
    report = (folder / "report.md").read_text()
    for part in (
        "## nq (n = 4, rule squad)",
        "| cosine | 4 | 1 | 50.0 [",
        "| cosine - closed | +0.0 [",
        "cosine on nq: questions without an answer: 1 of 4; they count 0",
        "closed on nq: exact matches with nothing left after normalisation: 1;",
        "| cosine | - | 0.225 |",  # 0.2, 0.4, 0.3 and nothing, of four answers
        "- data: data/nq.jsonl (sha256 ab), data/hp.jsonl (sha256 cd)",
    ):
        assert part in report, part
    assert "without an answer: 1 of 4" in result.table and "|" not in result.table


def test_rows_hold_plain_json_whatever_number_types_a_system_uses(tmp_path: Path) -> None:
    hit = Hit(1, Passage("p1", "t", "Paris"), float(np.float32(0.5)), cosine=None, norm=None)
    odd = RankedPassage(2, "p2", "", "x", *np.array([float("nan"), 0.25, 3], dtype=np.float32))
    record = Record("q1", "half \ud83d", [RankedPassage.from_hit(hit), odd], seconds={"encode": np.float64(1)})
    run_evaluation(QUESTIONS[:1], [Scripted("s", {"q1": record})], tmp_path / "run")
    row = lines_of(tmp_path / "run")[0]
    assert row["prediction"] == "half ?"
    assert [(p["score"], p["cosine"], p["norm"]) for p in row["passages"]] == [(0.5, None, None), (None, 0.25, 3.0)]


def test_a_finished_run_is_read_again_without_asking_anything(tmp_path: Path) -> None:
    first = run(tmp_path, closed_book(), cosine())
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    again = [closed_book(), cosine()]
    second = run(tmp_path, *again)
    assert [system.asked for system in again] == [[], []]
    assert second.metrics == first.metrics and (second.kept, second.computed) == (10, 0)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_system_that_dies_keeps_its_rows_and_only_incomplete_batches_are_asked_again(tmp_path: Path) -> None:
    class Dying(Scripted):
        def answer(self, batch: Sequence[Question]) -> Iterable[Record]:
            for record in super().answer(batch):
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
    assert (
        result.metrics == run_evaluation(QUESTIONS, [closed_book(), cosine()], tmp_path / "whole", batch_size=2).metrics
    )
    assert lines_of(tmp_path / "run") == lines_of(tmp_path / "whole")


def test_metrics_of_a_run_that_is_no_longer_whole_do_not_stay(tmp_path: Path) -> None:
    class Dead(Scripted):
        def answer(self, batch: Sequence[Question]) -> Iterable[Record]:
            raise RuntimeError("engine is dead")

    run(tmp_path, cosine())
    cut_lines(tmp_path / "run", 4)
    with pytest.raises(RuntimeError):
        run(tmp_path, Dead("cosine", {}))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock", "predictions.jsonl", "run.json"]


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


def test_answers_are_matched_by_id_and_a_question_without_record_is_an_error(tmp_path: Path) -> None:
    class Careless(Scripted):
        def answer(self, batch: Sequence[Question]) -> Iterable[Record]:
            return [record for record in reversed(list(super().answer(batch))) if record.id != "q2"]

    result = run(tmp_path, Careless("cosine", cosine().records))
    rows = {row["id"]: row for row in lines_of(tmp_path / "run")}
    assert rows["q4"]["prediction"] == "Jupiter" and list(rows) == ["q1", "q2", "q4", "q3", "q5"]
    assert rows["q2"]["error"] == "the system gave no record for this question"
    assert result.metrics.systems[0].missing == 2


@pytest.mark.parametrize(("extra", "fault"), [("q1", "'q1' twice"), ("zz", "'zz' without being asked")])
def test_a_record_too_many_ends_the_run(tmp_path: Path, extra: str, fault: str) -> None:
    class Chatty(Scripted):
        def answer(self, batch: Sequence[Question]) -> Iterable[Record]:
            yield from super().answer(batch)
            yield Record(extra, "more")

    with pytest.raises(EvalError, match=f"system 'cosine' answered {fault}"):
        run(tmp_path, Chatty("cosine", cosine().records))
    assert [row["id"] for row in lines_of(tmp_path / "run")] == ["q1", "q2"]


def cut_lines(folder: Path, keep: int, tail: bytes = b"") -> None:
    path = folder / "predictions.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]) + tail)


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
        ({"rule": "nq_open"}, 'rules.nq was "squad", now "nq_open"'),
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
    questions = settings.pop("questions", QUESTIONS)
    with pytest.raises(EvalError) as caught:
        run_evaluation(questions, [system], tmp_path / "run", **settings)
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
        def answer(self, batch: Sequence[Question]) -> Iterable[Record]:
            with pytest.raises(EvalError, match="in use by another evaluation"):
                run(tmp_path, cosine())
            return super().answer(batch)

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


def test_runs_that_make_no_sense_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for questions, systems, settings, message in (
        ([], [cosine()], {}, "no questions"),
        (QUESTIONS, [], {}, "no systems"),
        (QUESTIONS, [cosine()], {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (QUESTIONS, [cosine(), cosine()], {}, "system 'cosine' is there twice"),
        (QUESTIONS + QUESTIONS[:1], [cosine()], {}, "question id 'q1' is there twice"),
        (QUESTIONS, [cosine()], {"rule": "em"}, "no scoring rule 'em'"),
        (QUESTIONS, [cosine()], {"config": {"x": {1, 2}}}, "plain JSON values"),
    ):
        with pytest.raises(EvalError, match=message):
            run_evaluation(questions, systems, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_answers_far_longer_than_golds_are_warned_of(tmp_path: Path) -> None:
    rambling = Scripted("s", {q.id: Record(q.id, "well I think that the answer may be Paris") for q in QUESTIONS})
    result = run_evaluation(QUESTIONS[:4], [rambling], tmp_path / "run")
    assert "answers have 9.0 words, the longest golds 1.5" in result.table


KILLABLE = """
import os, signal, sys, time
from eval.base import RankedPassage, Record
from eval.datasets import Question
from eval.run import run_evaluation

out, die_at = sys.argv[1], int(sys.argv[2])
questions = [Question(f"q{i}", "nq", f"question {i}?", (f"answer {i}", "x"), (f"p{i}",)) for i in range(23)]
given = 0

class System:
    fingerprint = "v1"

    def __init__(self, name, step):
        self.name, self.step = name, step

    def answer(self, batch):
        # The answer depends on the neighbours in the batch, as a batched kernel's last digit may.
        mates = sum(int(q.id[1:]) for q in batch) + len(batch)
        for q in batch:
            global given
            if given == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            given += 1
            i = int(q.id[1:])
            start = time.perf_counter()
            found = [RankedPassage(r, f"p{i * r % 29}", "t", f"answer {i * r}", mates / 7 / r) for r in (1, 2, 3)]
            wrong = None if i % 9 else "too long"
            text = f"answer {i if (i + mates) % self.step else 0}"
            yield Record(q.id, text, found, mates % 3, mates, {"s": time.perf_counter() - start}, wrong)

run_evaluation(questions, [System("a", 2), System("b", 3)], out, config={"k": 3}, seed=1, batch_size=5)
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


def test_evaluation_needs_no_torch() -> None:
    code = (
        "import sys, eval.run, eval.score, eval.retrieval, eval.report, eval.significance;"
        "heavy = {'torch', 'transformers', 'datasets', 'vllm', 'gradio', 'scipy', 'pandas'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
