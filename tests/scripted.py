"""Systems that answer from a table, and five questions for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.base import RankedPassage, Record
from eval.data.datasets import Question, default_rule
from eval.data.sources import DataSet
from eval.run import RunResult, run_evaluation

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


def cut_lines(folder: Path, keep: int, tail: bytes = b"") -> None:
    path = folder / "predictions.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]) + tail)
