"""The question files of the shared data folder, where it lies beside the checkout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from eval.base import Record
from eval.data.datasets import Question, content_hash, default_rule, read_questions, subset
from eval.data.sources import DataSet, load_dataset
from eval.data.specs import DataSetSpec
from eval.metrics import score_answer
from eval.run import run_evaluation
from tests.shared_data import DATA, needs_data

pytestmark = needs_data

FILES = [
    ("opendomain/nq.jsonl", "nq", 1481, "squad"),
    ("opendomain/triviaqa.jsonl", "triviaqa", 496, "squad"),
    ("hotpotqa/questions.jsonl", "hotpotqa", 839, "hotpotqa"),
    ("musique/questions.jsonl", "musique", 133, "musique"),
    ("2wiki/questions.jsonl", "2wiki", 78, "2wikimultihopqa"),
]


@pytest.mark.parametrize(("name", "dataset", "n", "rule"), FILES)
def test_real_files_are_read_whole_and_each_gold_is_right(name: str, dataset: str, n: int, rule: str) -> None:
    assert DATA is not None
    questions = read_questions(DATA / name)
    assert len(questions) == n
    assert {question.dataset for question in questions} == {dataset}
    assert default_rule(dataset) == rule
    assert all(question.kind and question.answers for question in questions)
    for question in questions:
        for gold in question.answers:
            score = score_answer(gold, question.answers, rule)
            assert score.em and (score.f1 == 1.0 or score.empty_match), (question.id, gold)
    assert content_hash(questions) == content_hash(read_questions(DATA / name))
    assert len(subset(questions, 50, seed=0)) == 50


class FirstGold:
    """Answers with the first gold for every second question."""

    name = "oracle"
    fingerprint = "v1"
    reader = ""

    def asks(self, dataset: str) -> bool:
        return True

    def retrieve(self, batch: Sequence[Question]) -> None:
        return None

    def answer(self, batch: Sequence[Question], found: None, *, fresh: bool = False) -> Iterable[Record]:
        return [Record(q.id, q.answers[0] if int(content_hash([q]), 16) % 2 else "unknown") for q in batch]


def test_an_evaluation_over_all_real_files_has_the_share_of_right_answers(tmp_path: Path) -> None:
    assert DATA is not None
    loaded = [load_dataset(DataSetSpec(dataset, path=str(DATA / name)), n=60) for name, dataset, *_ in FILES]
    datasets = [own for own in loaded if isinstance(own, DataSet)]
    result = run_evaluation(datasets, [FirstGold()], tmp_path / "run")
    assert [own.dataset for own in result.metrics.systems] == [dataset for _, dataset, *_ in FILES]
    for own, dataset in zip(result.metrics.systems, datasets, strict=True):
        right = sum(int(content_hash([q]), 16) % 2 for q in dataset.questions)
        assert own.em == pytest.approx(100 * right / len(dataset.questions))
