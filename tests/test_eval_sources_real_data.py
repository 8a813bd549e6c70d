"""Every data set of the shared data folder, where it lies beside the checkout, loads with the counts it is known to have."""

from __future__ import annotations

import pytest

from eval.data.pairs import spearman
from eval.data.sources import DataSet, PairSet, load_dataset
from eval.data.specs import DataSetSpec, resolve_spec
from eval.metrics import score_answer
from tests.shared_data import DATA, needs_data

pytestmark = needs_data


def load(name: str, path: str, **spec: str) -> DataSet | PairSet:
    assert DATA is not None
    return load_dataset(DataSetSpec(name, path=str(DATA / path), **spec))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "name", "n", "rule"),
    [
        ("opendomain/nq.jsonl", "nq", 1481, "squad"),
        ("opendomain/triviaqa.jsonl", "triviaqa", 496, "squad"),
        ("hotpotqa", "hotpotqa", 839, "hotpotqa"),
        ("musique", "musique", 133, "musique"),
        ("2wiki", "2wikimultihopqa", 78, "2wikimultihopqa"),
    ],
)
def test_question_sets(path: str, name: str, n: int, rule: str) -> None:
    assert DATA is not None
    loaded = load_dataset(resolve_spec(str(DATA / path)))
    assert isinstance(loaded, DataSet)
    assert (loaded.name, loaded.task, loaded.rule, len(loaded.questions)) == (name, "qa", rule, n)
    assert loaded.source["without_answers"] == 0
    # One question of NQ has "*" among its golds, of which nothing is left.
    assert loaded.source["golds_without_content"] == (name == "nq")
    assert loaded.corpus == ("" if path.endswith(".jsonl") else str(DATA / path))
    assert all(score_answer(q.answers[0], q.answers, rule).em for q in loaded.questions)
    assert sum(bool(q.relevance) for q in loaded.questions) > 0.7 * n


@pytest.mark.parametrize(("name", "n", "judgments"), [("scifact", 300, 339), ("trec_dl19", 43, 4337)])
def test_retrieval_sets(name: str, n: int, judgments: int) -> None:
    loaded = load(name, name)
    assert isinstance(loaded, DataSet)
    assert (loaded.task, loaded.rule, len(loaded.questions)) == ("retrieval", None, n)
    # One line of the file is its header.
    assert sum(len(q.qrels) for q in loaded.questions) == judgments
    assert all(any(grade > 0 for grade in q.qrels.values()) for q in loaded.questions)


@pytest.mark.parametrize(
    ("path", "n"),
    [("stsb/sts.train.jsonl", 5749), ("stsb/sts.dev.jsonl", 1500), ("stsb/sts.test.jsonl", 1379), ("sick", 4927)],
)
def test_sentence_pairs(path: str, n: int) -> None:
    loaded = load(path.split("/")[0], path)
    assert isinstance(loaded, PairSet) and len(loaded.pairs) == n
    golds = [pair.score for pair in loaded.pairs]
    # Sharing words says something about meaning, and far from all.
    words = [(set(pair.text1.lower().split()), set(pair.text2.lower().split())) for pair in loaded.pairs]
    overlap = spearman([len(a & b) / len(a | b) for a, b in words], golds, resamples=50)
    assert overlap.n == n and 0.3 < overlap.value < 0.9


def test_any_questions_with_mapped_columns() -> None:
    loaded = load("reader", "reader_pairs/dev.jsonl", columns={"question": "question", "answers": "answers"})  # type: ignore[arg-type]
    assert isinstance(loaded, DataSet) and len(loaded.questions) == 400
    pairs = load("retrieval", "train_pairs/wiki.jsonl", columns={"question": "query", "answers": "positive"})  # type: ignore[arg-type]
    assert isinstance(pairs, DataSet) and len(pairs.questions) == 20_600
