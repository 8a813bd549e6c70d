"""Retrieval sets: what is asked, what is judged, what is excluded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.data.datasets import Question
from eval.data.judged import beir_qrels, beir_queries, bright_questions, find_trec, is_beir, read_beir, read_trec
from eval.errors import EvalError

HEADER = "query-id\tcorpus-id\tscore\n"


def beir(folder: Path, queries: list[Any], qrels: str, split: str = "test") -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries), encoding="utf-8")
    (folder / "qrels" / f"{split}.tsv").write_text(qrels, encoding="utf-8")
    return folder


QUERIES = [{"_id": "2", "text": "b?"}, {"_id": "1", "text": "a?"}, {"_id": "3", "text": "nobody judged it"}]


def test_beirs_judged_queries_are_asked_each_without_the_document_of_its_own_id(tmp_path: Path) -> None:
    folder = beir(tmp_path / "set", QUERIES, HEADER + "1\td1\t2\n2\t2\t1\n1\td2\t0\n")
    assert is_beir(folder)
    questions, files = read_beir(folder, "test", "set")
    assert questions == [
        Question("2", "set", "b?", (), qrels={"2": 1}, excluded_ids=("2",)),
        Question("1", "set", "a?", (), qrels={"d1": 2, "d2": 0}, excluded_ids=("1",)),
    ]
    assert files == [folder / "queries.jsonl", folder / "qrels" / "test.tsv"]


def test_a_folder_that_lacks_a_part_says_which(tmp_path: Path) -> None:
    folder = beir(tmp_path / "set", QUERIES, HEADER + "1\td1\t1\n", split="dev")
    with pytest.raises(EvalError, match=r"test\.tsv: there is no such file: set split to one that is there \(dev\)"):
        read_beir(folder, "test", "set")
    (folder / "queries.jsonl").unlink()
    assert not is_beir(folder)
    with pytest.raises(EvalError, match="holds no queries.jsonl"):
        read_beir(folder, "dev", "set")


def test_a_judged_query_without_text_is_refused(tmp_path: Path) -> None:
    folder = beir(tmp_path / "set", QUERIES, HEADER + "1\td1\t1\n9\td1\t1\n")
    with pytest.raises(EvalError, match="1 judged queries have no text, such as '9'"):
        read_beir(folder, "test", "set")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"_id": "1"}, '"_id" and "text"'),
        ({"_id": 1, "text": "a"}, '"_id" and "text"'),
        ({"_id": "1", "text": " "}, '"_id" and "text"'),
        ({"_id": "0", "text": "a"}, "query id '0' is there twice"),
    ],
)
def test_a_bad_query_is_named_by_its_place(row: Any, message: str) -> None:
    with pytest.raises(EvalError, match=f"^here: .*{message}"):
        beir_queries([("there", {"_id": "0", "text": "z"}), ("here", row)])


def test_the_hubs_judgments_have_scores_as_floats() -> None:
    rows = [{"query-id": "1", "corpus-id": "d", "score": 2.0}, {"query-id": "1", "corpus-id": "e", "score": 0}]
    assert beir_qrels(("x", row) for row in rows) == {"1": {"d": 2, "e": 0}}
    for bad in ({"query-id": "1", "corpus-id": "d", "score": 0.5}, {"query-id": "1", "corpus-id": "d"}):
        with pytest.raises(EvalError, match=r"^row 1: "):
            beir_qrels([("row 1", bad)])


BRIGHT: dict[str, Any] = {
    "id": "0",
    "query": "Why do bees dance?",
    "reasoning": "r",
    "gold_ids": ["bees/1.txt", "bees/2.txt"],
    "gold_ids_long": ["bees"],
    "excluded_ids": ["N/A"],
}


def test_brights_exclusions_are_kept_and_its_mark_for_none_is_not(tmp_path: Path) -> None:
    rows = [("1", BRIGHT), ("2", {**BRIGHT, "id": "1", "gold_ids": ["x"], "excluded_ids": ["y", "z"]})]
    first, second = bright_questions(rows, {}, "f", "bright")
    assert first == Question(
        "0", "bright", "Why do bees dance?", (), qrels={"bees/1.txt": 1, "bees/2.txt": 1}, excluded_ids=()
    )
    assert (second.qrels, second.excluded_ids) == ({"x": 1}, ("y", "z"))
    long = bright_questions(rows[:1], {"gold_ids": "gold_ids_long"}, "f", "bright")
    assert long[0].qrels == {"bees": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gold_ids": "bees"}, '"gold_ids" must be a list of document ids'),
        ({"excluded_ids": None}, '"excluded_ids" must be a list'),
        ({"excluded_ids": ["bees/1.txt"]}, "'bees/1.txt' is in gold_ids and excluded_ids"),
        ({"query": " "}, '"id" and "query" must be strings'),
        ({"id": None}, '"id" and "query" must be strings'),
        ({"id": "0"}, "id '0' is there twice"),
    ],
)
def test_a_bad_row_of_bright_is_named_by_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EvalError, match=f"^here: {message}"):
        bright_questions([("there", BRIGHT), ("here", {**BRIGHT, "id": "1", **change})], {}, "f", "bright")
    with pytest.raises(EvalError, match="f: holds no queries"):
        bright_questions([], {}, "f", "bright")


def test_trec_topics_are_asked_where_judged_and_exclude_nothing(tmp_path: Path) -> None:
    (tmp_path / "topics.tsv").write_text("51\twhat is x\n52\tunjudged\n")
    (tmp_path / "qrels.txt").write_text("51 0 51 3\n51 0 d2 0\n")
    (tmp_path / "run.txt").write_text("51 Q0 d2 1 0.5 tag\n")
    found = find_trec(tmp_path)
    assert found == (tmp_path / "topics.tsv", tmp_path / "qrels.txt")
    questions, files = read_trec(*found, "dl")
    assert questions == [Question("51", "dl", "what is x", (), qrels={"51": 3, "d2": 0})]
    assert files == list(found)
    (tmp_path / "qrels.dev.txt").write_text("51 0 d2 1\n")
    assert find_trec(tmp_path) is None, "two qrels: which one is meant cannot be told"
