"""The demo corpus is sound, and the check that says so finds each kind of fault."""

from __future__ import annotations

import copy
import json
from collections import Counter

import pytest

from eval.data.datasets import read_questions
from eval.metrics import has_answer
from rag_app.demo import PASSAGES, QUESTIONS
from rag_app.demo.check import find_faults
from retriever.corpora import read_corpus

PASSAGE_ROWS = [json.loads(line) for line in PASSAGES.read_text("utf-8").splitlines()]
QUESTION_ROWS = [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]


def test_demo_is_sound_and_large_enough() -> None:
    assert find_faults(PASSAGE_ROWS, QUESTION_ROWS) == []
    kinds = Counter(row["kind"] for row in QUESTION_ROWS)
    assert len(PASSAGE_ROWS) >= 400
    assert len({row["subject"] for row in PASSAGE_ROWS}) >= 12
    assert len(QUESTION_ROWS) >= 200
    assert kinds["multihop"] >= 60
    assert kinds["unanswerable"] >= 20


def test_demo_reads_as_corpus_and_questions() -> None:
    passages = {p.id: p for p in read_corpus(PASSAGES)}
    assert len(passages) == len(PASSAGE_ROWS)
    for question in read_questions(QUESTIONS):
        if question.gold_ids:
            gold = passages[question.gold_ids[-1]]
            assert has_answer(question.answers, f"{gold.title} {gold.text}"), question.id


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda p, q: p[0].update(text="too short"), "2 words"),
        (lambda p, q: p[1].update(id=p[0]["id"]), "is used 2 times"),
        (lambda p, q: p[1].update(text=p[0]["text"]), "2 passages have the text"),
        (lambda p, q: q[1].update(question=q[0]["question"].upper()), "2 questions ask"),
        (lambda p, q: q[0].update(gold_ids=["nowhere"]), "'nowhere' is not in the corpus"),
        (lambda p, q: q[0].update(answers=["a phrase nobody wrote"]), "does not stand in passage"),
        (lambda p, q: q[0].update(answers=[]), "no answer"),
        (lambda p, q: q[0].update(kind="riddle"), "kind 'riddle'"),
        (
            lambda p, q: next(x for x in q if x["kind"] == "unanswerable").update(answers=["x"]),
            "unanswerable question has",
        ),
        (lambda p, q: next(x for x in q if x["kind"] == "multihop").update(gold_ids=[p[0]["id"]]), "multihop has gold"),
    ],
)
def test_each_fault_is_found(change, fault: str) -> None:  # type: ignore[no-untyped-def]
    passages, questions = copy.deepcopy(PASSAGE_ROWS), copy.deepcopy(QUESTION_ROWS)
    change(passages, questions)
    assert any(fault in line for line in find_faults(passages, questions))
