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
from eval.data.datasets import Question, default_rule
from eval.data.pairs import Pair
from eval.data.sources import DataSet, PairSet
from eval.errors import EvalError
from eval.folder import RunFolder
from eval.publish import publish
from eval.run import RunResult, run_evaluation
from eval.view import CorpusFacts, PairScore, RunView

QUESTIONS = [
    Question("q1", "nq", "capital of France?", ("Paris",), ("p1",), ("p1", "p2")),
    Question("q2", "nq", "author of Emma?", ("Jane Austen", "Austen"), ("p3",), ()),
    Question("q3", "nq", "first band?", ("The The",), (), ("p9",)),
    Question("q4", "nq", "largest planet?", ("Jupiter",), (), ()),
    Question("q5", "hotpotqa", "is it?", ("yes it is",), (), ("p1", "p2")),
]


def sets(questions: Sequence[Question] = QUESTIONS, rule: str = "", **source: Any) -> list[DataSet]:
    """The questions as data sets, each under its own rule."""
    names = dict.fromkeys(question.dataset for question in questions)
    return [
        DataSet(name, "qa", [q for q in questions if q.dataset == name], rule or default_rule(name), "", dict(source))
        for name in names
    ]


def passages(*entries: tuple[str, str]) -> list[RankedPassage]:
    return [RankedPassage(rank, id, "", text, 1 / rank, 0.5, 2.0) for rank, (id, text) in enumerate(entries, start=1)]


@dataclass
class Scripted:
    """Answers from a table; notes the batches it was asked."""

    name: str
    records: dict[str, Record]
    fingerprint: str = "v1"
    reader: str = ""
    asked: list[list[str]] = field(default_factory=list)

    def asks(self, dataset: str) -> bool:
        return True

    def retrieve(self, batch: Sequence[Question]) -> list[str]:
        return [question.id for question in batch]

    def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
        assert found == [question.id for question in batch]
        self.asked.append([question.id for question in batch])
        for question in batch:
            yield self.records.get(question.id) or Record(question.id, "nothing")


def closed_book() -> Scripted:
    answers = {"q1": "paris.", "q2": "Emma", "q3": "", "q4": "Saturn", "q5": "yes"}
    return Scripted(
        "closed", {id: Record(id, text, prompt_tokens=10, seconds={"generate": 0.5}) for id, text in answers.items()}
    )


def cosine() -> Scripted:
    def read(id: str, text: str, *entries: tuple[str, str], **facts: Any) -> Record:
        return Record(id, text, passages(*entries), k=2, **facts)

    answers = (
        read(
            "q1",
            "It is Paris",
            ("p9", "Lyon"),
            ("p1", "Paris, city"),
            dropped=1,
            prompt_tokens=30,
            seconds={"encode": 0.2},
        ),
        read("q2", "Austen", ("p3", "by Jane Austen"), ("p4", "x"), prompt_tokens=20, seconds={"encode": 0.4}),
        read("q3", "", ("p5", "The The"), error="prompt too long"),
        read("q4", "Jupiter", ("p6", "x"), ("p7", "y"), dropped=2, prompt_tokens=40, seconds={"encode": 0.3}),
        read("q5", "yes it is", ("p2", "yes"), ("p8", "so yes it is")),
    )
    return Scripted("cosine", {record.id: record for record in answers})


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]


def run(tmp_path: Path, *systems: Scripted, **settings: Any) -> RunResult:
    return run_evaluation(sets(), systems, tmp_path / "run", batch_size=2, **settings)


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

    by_name = {(c.dataset, c.measure): c for c in metrics.comparisons}
    assert list(by_name) == [("nq", "EM"), ("nq", "F1"), ("hotpotqa", "EM"), ("hotpotqa", "F1")]
    # closed right: q1, q3; cosine right: q2, q4.
    nq = by_name["nq", "EM"]
    assert (nq.baseline, nq.system, nq.n, nq.wins, nq.losses, nq.ties) == ("closed", "cosine", 4, 2, 2, 0)
    assert (nq.difference, nq.p) == (0.0, 1.0)
    assert nq.interval is not None and nq.interval[0] < 0 < nq.interval[1]
    other = by_name["hotpotqa", "EM"]
    assert (other.difference, other.interval, other.wins, other.p) == (100.0, None, 1, None)


def test_the_folder_holds_configuration_rows_metrics_and_report(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    result = run_evaluation(
        sets(sha256="ab", subset_seed=None),
        [closed_book(), cosine()],
        tmp_path / "run",
        batch_size=2,
        config={"k": 2, "model": {"name": "m"}},
        seed=7,
        measures=["R@2"],
        facts={"prompt_sha256": {"": "cd"}},
        corpus_facts=lambda dataset: CorpusFacts({"q4": False}, [3, 5], [1.0, 2.0]),
        progress=lambda done, total: seen.append((done, total)),
    )
    folder = tmp_path / "run"
    assert result.path == folder and (result.kept, result.computed) == (0, 10)
    assert seen == [(done, 10) for done in range(11)]

    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["config"] == {"k": 2, "model": {"name": "m"}}
    assert manifest["systems"] == {"closed": "v1", "cosine": "v1"}
    assert (manifest["seed"], manifest["batch_size"], manifest["questions"]) == (7, 2, 5)
    facts = {"task": "qa", "lang": "", "sha256": "ab", "subset_seed": None}
    assert manifest["datasets"] == {"nq": facts | {"rule": "squad"}, "hotpotqa": facts | {"rule": "hotpotqa"}}
    assert (manifest["measures"], manifest["prompt_sha256"]) == (["R@2"], {"": "cd"})
    environment = manifest["environment"]
    assert environment["python"] == ".".join(map(str, sys.version_info[:3]))
    assert environment["packages"]["numpy"] == np.__version__
    assert "cores" in environment["hardware"]

    rows = lines_of(folder)
    assert [(row["system"], row["id"]) for row in rows] == [(s, q.id) for s in ("closed", "cosine") for q in QUESTIONS]
    factors = {"cosine": 0.5, "norm": 2.0, "percentile": None}
    assert rows[5] == {
        "system": "cosine",
        "id": "q1",
        "prediction": "It is Paris",
        "error": None,
        "k": 2,
        "dropped": 1,
        "cut": False,
        "prompt_tokens": 30,
        "passages": [
            {"rank": 1, "id": "p9", "title": "", "has_answer": False, "score": 1.0, "words": 1} | factors,
            {"rank": 2, "id": "p1", "title": "", "has_answer": True, "score": 0.5, "words": 2} | factors,
        ],
        "seconds": {"encode": 0.2},
    }
    assert rows[7]["error"] == "prompt too long" and rows[7]["passages"][0]["has_answer"] is True

    assert json.loads((folder / "metrics.json").read_text()) == json.loads(json.dumps(result.metrics.to_json()))
    # q1: p1 of {p1, p2}; q3: none of {p9}; q2 by its gold passage p3.
    assert result.metrics.systems[1].measures["R@2"].value == pytest.approx((1 / 2 + 1 + 0) / 3)
    report = (folder / "report.md").read_text()
    for part in (
        "nq (n = 4, rule squad)",
        "questions without an answer: 1 of 4; they count 0",
        "| cosine | - | 0.300 |",
    ):
        assert part in report, part
    assert "without an answer: 1 of 4" in result.table and "|" not in result.table
    assert "<table" in (folder / "report.html").read_text()
    assert sorted(path.name for path in (folder / "trec").iterdir()) == [
        "hotpotqa.cosine.run",
        "hotpotqa.qrels",
        "nq.cosine.run",
        "nq.qrels",
    ]
    view = RunView.open(folder)
    assert view.questions == QUESTIONS and list(view.rows.values()) == rows
    assert view.answerable == {"q4": False} and view.rules == {"nq": "squad", "hotpotqa": "hotpotqa"}


def test_rows_hold_plain_json_whatever_number_types_a_system_uses(tmp_path: Path) -> None:
    plain = RankedPassage(1, "p1", "t", "Paris", float(np.float32(0.5)))
    odd = RankedPassage(2, "p2", "", "x", *np.array([0.25, float("nan"), 3], dtype=np.float32))
    record = Record("q1", "half \ud83d", [plain, odd], seconds={"encode": np.float64(1)})
    run_evaluation(sets(QUESTIONS[:1]), [Scripted("s", {"q1": record})], tmp_path / "run")
    row = lines_of(tmp_path / "run")[0]
    assert row["prediction"] == "half ?"
    assert [(p["score"], p["cosine"], p["norm"]) for p in row["passages"]] == [(0.5, None, None), (0.25, None, 3.0)]
    nameless = Record("q1", "", [RankedPassage(1, "p1", "", "x", float("nan"))])
    with pytest.raises(EvalError, match="system 's' gave passage 'p1' of question 'q1' no finite score"):
        run_evaluation(sets(QUESTIONS[:1]), [Scripted("s", {"q1": nameless})], tmp_path / "other")


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


def test_answers_are_matched_by_id_and_a_question_without_record_is_an_error(tmp_path: Path) -> None:
    class Careless(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            return [record for record in reversed(list(super().answer(batch, found))) if record.id != "q2"]

    result = run(tmp_path, Careless("cosine", cosine().records))
    rows = {row["id"]: row for row in lines_of(tmp_path / "run")}
    assert rows["q4"]["prediction"] == "Jupiter" and list(rows) == ["q1", "q2", "q4", "q3", "q5"]
    assert rows["q2"]["error"] == "the system gave no record for this question"
    assert result.metrics.systems[0].missing == 2


@pytest.mark.parametrize(("extra", "fault"), [("q1", "'q1' twice"), ("zz", "'zz' without being asked")])
def test_a_record_too_many_ends_the_run(tmp_path: Path, extra: str, fault: str) -> None:
    class Chatty(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            yield from super().answer(batch, found)
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


def test_runs_that_make_no_sense_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for datasets, systems, settings, message in (
        ([], [cosine()], {}, "no questions"),
        ([DataSet("empty", "qa", [], "squad", "", {})], [cosine()], {}, "data set 'empty' holds no questions"),
        (sets(), [], {}, "no systems"),
        (sets(), [cosine()], {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (sets(), [cosine(), cosine()], {}, "system 'cosine' is there twice"),
        (sets() + sets()[:1], [cosine()], {}, "data set 'nq' is there twice"),
        (sets(QUESTIONS + QUESTIONS[:1]), [cosine()], {}, "question id 'q1' is there twice"),
        (sets(), [cosine()], {"measures": ["nDGC@10"]}, "nDGC@10"),
        (sets(), [cosine()], {"config": {"x": {1, 2}}}, "plain JSON values"),
    ):
        with pytest.raises(EvalError, match=message):
            run_evaluation(datasets, systems, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_answers_far_longer_than_golds_are_warned_of(tmp_path: Path) -> None:
    rambling = Scripted("s", {q.id: Record(q.id, "well I think that the answer may be Paris") for q in QUESTIONS})
    result = run_evaluation(sets(QUESTIONS[:4]), [rambling], tmp_path / "run")
    assert "answers have 9.0 words, the longest golds 1.5" in result.table


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


def test_evaluation_needs_no_torch() -> None:
    code = (
        "import sys, eval.run, eval.score, eval.compare, eval.runs, eval.publish;"
        "heavy = {'torch', 'transformers', 'datasets', 'vllm', 'gradio', 'scipy', 'pandas'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_answers_that_change_in_other_batches_are_counted_and_said(tmp_path: Path) -> None:
    class Moody(Scripted):
        def answer(self, batch: Sequence[Question], found: list[str], *, fresh: bool = False) -> Iterable[Record]:
            for record in super().answer(batch, found):
                yield Record(record.id, "London") if fresh and record.id == "q1" else record

    steady, moody = cosine(), Moody("moody", cosine().records, reader="other")
    steady.reader = "one"
    table = run(tmp_path, steady, moody, recheck=3).table
    assert steady.asked[3:] == [["q3"], ["q2"], ["q1"]]
    assert "reader one: 3 questions of cosine were asked again in other batches; all answers were the same." in table
    assert "reader other: 3 questions of moody were asked again in other batches; 1 answers differ (q1)" in table
    steady.asked.clear()
    assert run(tmp_path, steady, moody, recheck=3).table == table and steady.asked == []


def test_a_retrieval_set_is_ranked_by_those_who_rank_and_read_by_nobody(tmp_path: Path) -> None:
    class Reader(Scripted):
        def asks(self, dataset: str) -> bool:
            return dataset != "scifact"

    judged = [
        Question("s1", "scifact", "a claim", (), qrels={"p1": 2, "p2": 1}),
        Question("s2", "scifact", "b", (), qrels={"p9": 1}),
    ]
    ranking = {
        "s1": Record("s1", "", passages(("p2", ""), ("p1", ""))),
        "s2": Record("s2", "", passages(("p3", ""), ("p9", ""))),
    }
    result = run_evaluation(
        [*sets(), DataSet("scifact", "retrieval", judged, None, "", {})],
        [Scripted("ranker", cosine().records | ranking), Reader("closed", closed_book().records)],
        tmp_path / "run",
        measures=["nDCG@10", "RR@10"],
    )
    [own] = [own for own in result.metrics.systems if own.dataset == "scifact"]
    assert (own.system, own.task, own.n, own.em, own.causes) == ("ranker", "retrieval", 2, None, None)
    # s1: gains 1 and 2 at ranks 1 and 2 against the ideal 2 and 1; s2: the one relevant passage at rank 2.
    first = (1 + 2 / np.log2(3)) / (2 + 1 / np.log2(3))
    assert own.measures["nDCG@10"].value == pytest.approx((first + 1 / np.log2(3)) / 2)
    assert own.measures["RR@10"].value == pytest.approx((1 + 1 / 2) / 2)


def test_sentence_pairs_stand_in_the_figures_and_a_refusal_in_the_notes(tmp_path: Path) -> None:
    scores = [
        PairScore("stsb", "cosine", 10, 0.82, (0.8, 0.84)),
        PairScore("stsb", "dot", 10, 0.5, (0.4, 0.6), "", "cosine", -0.32, (-0.4, -0.3)),
        PairScore("stsb", "qnorm", 10, None, None, "one-sided"),
    ]
    sets_of_pairs = [PairSet("stsb", [Pair("a", "b", 1.0)] * 10, {"sha256": "ef"})]
    result = run(tmp_path, cosine(), pair_sets=sets_of_pairs, score_pairs=lambda: scores)
    own, _ = [own for own in result.metrics.systems if own.dataset == "stsb"]
    assert (own.task, own.n, own.measures["Spearman"].value) == ("sts", 10, 0.82)
    [pair] = [pair for pair in result.metrics.comparisons if pair.dataset == "stsb"]
    assert (pair.measure, pair.difference, pair.interval, pair.p) == ("Spearman", -0.32, (-0.4, -0.3), None)
    assert RunView.open(result.path).manifest["datasets"]["stsb"]["task"] == "sts"
    assert "stsb: qnorm was refused: one-sided" in result.table and "0.82" in result.table


def test_pairs_alone_are_an_evaluation_and_other_pairs_are_another_run(tmp_path: Path) -> None:
    def score(sha256: str) -> RunResult:
        pairs = [PairSet("stsb", [Pair("a", "b", 1.0)] * 10, {"sha256": sha256})]
        scores = [PairScore("stsb", "cosine", 10, 0.82, (0.8, 0.84))]
        return run_evaluation([], [], tmp_path / "run", pair_sets=pairs, score_pairs=lambda: scores)

    assert [own.measures["Spearman"].value for own in score("ef").metrics.systems] == [0.82]
    with pytest.raises(EvalError, match='datasets.stsb.sha256 was "ef", now "00"'):
        score("00")


def test_an_unfinished_run_is_published_as_what_it_is(tmp_path: Path) -> None:
    run(tmp_path, cosine())
    cut_lines(tmp_path / "run", 3)
    (tmp_path / "run" / "metrics.json").unlink()
    with RunFolder.existing(tmp_path / "run") as folder:
        metrics, table = publish(folder)
    assert "UNFINISHED: 3 of 5 answers are there; the others count 0 in every figure." in table
    assert metrics.systems[0].missing == 2 and not (tmp_path / "run" / "metrics.json").exists()
    assert "UNFINISHED" in (tmp_path / "run" / "report.md").read_text()
    assert "UNFINISHED" in (tmp_path / "run" / "report.html").read_text()


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


def test_exported_rankings_carry_the_data_sets_own_ids(tmp_path: Path) -> None:
    renamed = [question.renamed() for question in QUESTIONS[:2]]
    ranked = {q.id: Record(q.id, "x", passages(("p1", "Paris"), ("p3", "x")), k=2) for q in renamed}
    run_evaluation(sets(renamed), [Scripted("cosine", ranked)], tmp_path / "run")
    lines = (tmp_path / "run" / "trec" / "nq.cosine.run").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["q1", "q1", "q2", "q2"] and renamed[0].id == "nq:q1"
    assert [line.split()[0] for line in (tmp_path / "run" / "trec" / "nq.qrels").read_text().splitlines()] == [
        "q1",
        "q1",
        "q2",
    ]


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
