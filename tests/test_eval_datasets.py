"""Question files: what is read, what is refused and where, and what subsets and hashes depend on."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval.data.datasets import Question, content_hash, default_rule, describe_source, read_questions, subset
from eval.errors import EvalError
from eval.metrics import RULES

OURS: dict[str, Any] = {
    "id": "q1",
    "dataset": "nq",
    "question": "who?",
    "answers": ["Ann", "Anne"],
    "gold_ids": ["p1"],
    "supporting_ids": ["p1", "p2"],
    "kind": "single-hop",
    "split": "dev",
}
FLASHRAG: dict[str, Any] = {
    "id": "q1",
    "question": "who?",
    "golden_answers": ["Ann"],
    "metadata": {"type": "bridge", "supporting_ids": ["p1"], "level": "hard"},
}


def write(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_our_rows_are_read_whole(tmp_path: Path) -> None:
    assert read_questions(write(tmp_path / "x.jsonl", OURS)) == [
        Question("q1", "nq", "who?", ("Ann", "Anne"), ("p1",), ("p1", "p2"), "single-hop", meta={"split": "dev"})
    ]


def test_flashrag_rows_are_read_with_their_metadata(tmp_path: Path) -> None:
    assert read_questions(write(tmp_path / "hotpotqa" / "questions.jsonl", FLASHRAG)) == [
        Question("q1", "hotpotqa", "who?", ("Ann",), (), ("p1",), "bridge", meta={"level": "hard"})
    ]


def test_type_is_another_name_of_kind(tmp_path: Path) -> None:
    row: dict[str, Any] = {"id": "q", "question": "who?", "answers": [], "type": "2hop", "gold_ids": None}
    question = read_questions(write(tmp_path / "x.jsonl", row))[0]
    assert (question.kind, question.answers, question.gold_ids) == ("2hop", (), ())


def test_judgments_exclusions_and_language_are_read(tmp_path: Path) -> None:
    row = {**OURS, "qrels": {"p1": 2, "p9": 0}, "excluded_ids": ["p5"], "lang": "de"}
    question = read_questions(write(tmp_path / "x.jsonl", row))[0]
    assert (question.qrels, question.excluded_ids, question.lang) == ({"p1": 2, "p9": 0}, ("p5",), "de")


def test_ranking_measures_use_qrels_else_supporting_else_gold_passages() -> None:
    judged = Question("q", "nq", "who?", (), ("g",), ("s", "t"), qrels={"j": 2})
    assert judged.relevance == {"j": 2}
    assert replace(judged, qrels={}).relevance == {"s": 1, "t": 1}
    assert replace(judged, qrels={}, supporting_ids=()).relevance == {"g": 1}
    assert replace(judged, qrels={}, supporting_ids=(), gold_ids=()).relevance == {}


def test_whole_contexts_of_multi_hop_rows_are_left_out_of_meta(tmp_path: Path) -> None:
    row = {**FLASHRAG, "metadata": {"level": "hard", "hops": 2, "context": {"title": ["t"] * 10}}}
    assert read_questions(write(tmp_path / "x.jsonl", row))[0].meta == {"level": "hard", "hops": 2}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nq/test.jsonl", "nq"),
        ("musique/questions.jsonl", "musique"),
        ("some/triviaqa.jsonl", "triviaqa"),
        ("stsb/sts.test.jsonl", "stsb"),
    ],
)
def test_the_data_set_is_named_after_file_or_folder_when_rows_do_not_say(
    tmp_path: Path, name: str, expected: str
) -> None:
    path = write(tmp_path / name, FLASHRAG)
    assert read_questions(path)[0].dataset == expected
    assert read_questions(path, dataset="mine")[0].dataset == "mine"


def test_compressed_and_list_files_equal_plain_ones(tmp_path: Path) -> None:
    rows = [OURS, {**OURS, "id": "q2", "question": "où?"}]
    plain = read_questions(write(tmp_path / "x.jsonl", *rows))
    compressed = tmp_path / "x.jsonl.gz"
    compressed.write_bytes(gzip.compress((tmp_path / "x.jsonl").read_bytes()))
    listed = tmp_path / "x.json"
    listed.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    assert plain == read_questions(compressed) == read_questions(listed)


def test_blank_lines_and_a_byte_order_mark_are_harmless_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(OURS).encode() + b"\r\n\r\n" + b"{}\n")
    with pytest.raises(EvalError, match=r"x\.jsonl, line 3: \"answers\""):
        read_questions(path)
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(OURS).encode() + b"\r\n\r\n")
    assert [question.id for question in read_questions(path)] == ["q1"]


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in OURS.items() if key != name}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (without("id"), '"id" is missing'),
        (without("question"), '"question" is missing'),
        (without("answers"), '"answers" (or "golden_answers") is missing'),
        ({**OURS, "id": 5}, '"id" must be a string, got 5 (int)'),
        ({**OURS, "id": " "}, '"id" is empty'),
        ({**OURS, "question": "\n"}, '"question" is empty'),
        ({**OURS, "question": None}, '"question" must be a string, got null'),
        ({**OURS, "answers": "Ann"}, '"answers" must be a list of strings, got "Ann" (str)'),
        ({**OURS, "answers": ["Ann", 7]}, '"answers" must be a list of strings, got 7 (int) in it'),
        ({**OURS, "gold_ids": [1]}, '"gold_ids" must be a list of strings, got 1 (int) in it'),
        ({**OURS, "supporting_ids": "p1"}, '"supporting_ids" must be a list'),
        ({**OURS, "dataset": ["nq"]}, '"dataset" must be a string'),
        ({**OURS, "kind": 2}, '"kind" must be a string'),
        ({**OURS, "excluded_ids": "p1"}, '"excluded_ids" must be a list'),
        ({**OURS, "qrels": ["p1"]}, '"qrels" must be an object of whole numbers by passage id, got ["p1"] (list)'),
        ({**OURS, "qrels": {"p1": 0.5}}, '"qrels" must be an object of whole numbers'),
        ({**OURS, "qrels": {"p1": True}}, '"qrels" must be an object of whole numbers'),
        ({**OURS, "lang": 3}, '"lang" must be a string, got 3 (int)'),
        ({**FLASHRAG, "metadata": [1]}, '"metadata" must be an object'),
        ({**OURS, "question": "\ud83d half"}, "invalid Unicode"),
        ({**OURS, "id": "q0"}, "id 'q0' was already used at"),
        ([1], "must be a JSON object {...}, got list"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, bad: Any, message: str) -> None:
    path = write(tmp_path / "x.jsonl", {**OURS, "id": "q0"}, bad)
    with pytest.raises(EvalError) as caught:
        read_questions(path)
    text = str(caught.value)
    assert text.startswith(f"{path}, line 2: ") and message in text and "\n" not in text


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"id": "q\xff"}', "invalid UTF-8 at byte 10"),
        (b'{"id": "q1"', "invalid JSON at column"),
        (b"[" * 100_000, "JSON that cannot be read"),
    ],
)
def test_bytes_that_are_no_json_are_named_by_file_and_line(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(json.dumps(OURS).encode() + b"\n" + raw + b"\n")
    with pytest.raises(EvalError) as caught:
        read_questions(path)
    assert str(caught.value).startswith(f"{path}, line 2: ") and message in str(caught.value)


def test_entries_of_a_list_are_named_by_number(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([OURS, without("id")]))
    with pytest.raises(EvalError, match=r"x\.json, entry 2: \"id\" is missing"):
        read_questions(path)
    path.write_text(json.dumps(OURS))
    with pytest.raises(EvalError, match=r"list of objects, got dict"):
        read_questions(path)


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "x.csv").write_text("id")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "plain.jsonl.gz").write_text("{}")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(json.dumps(OURS).encode())[:-20])
    for name, message in {
        "absent.jsonl": "there is no such file",
        "empty.jsonl": "holds no questions",
        "folder.jsonl": "cannot be read: Is a directory",
        "plain.jsonl.gz": "not a whole gzip file",
        "cut.jsonl.gz": "not a whole gzip file",
        "x.csv": "use .jsonl, .jsonl.gz, .json",
    }.items():
        with pytest.raises(EvalError, match=message):
            read_questions(tmp_path / name)


def many(n: int) -> list[Question]:
    return [Question(f"q{i}", "nq", f"question {i}?", (str(i),)) for i in range(n)]


def test_a_subset_keeps_the_files_order_and_depends_on_seed_and_ids_alone() -> None:
    questions = many(200)
    chosen = subset(questions, 30, seed=1)
    assert len(chosen) == 30
    assert [q for q in questions if q in chosen] == chosen
    shuffled = random.Random(0).sample(questions, len(questions))
    assert {q.id for q in subset(shuffled, 30, seed=1)} == {q.id for q in chosen}
    assert {q.id for q in subset(questions, 30, seed=2)} != {q.id for q in chosen}
    assert set(map(str, chosen)) < set(map(str, subset(questions, 60, seed=1)))


def test_a_subset_is_the_same_on_every_machine() -> None:
    # Smallest SHA-256 of "0 NUL q<i>"; by sha256sum.
    assert [q.id for q in subset(many(10), 3, seed=0)] == ["q5", "q7", "q8"]


def test_subsets_are_spread_over_the_file() -> None:
    # Each question is in about half of the samples: 5 standard deviations of binomial(400, 0.5).
    counts = dict.fromkeys((q.id for q in many(20)), 0)
    for seed in range(400):
        for question in subset(many(20), 10, seed):
            counts[question.id] += 1
    assert all(150 < count < 250 for count in counts.values())


def test_a_subset_of_all_or_more_is_all_and_of_none_is_refused() -> None:
    questions = many(3)
    assert subset(questions, 3, seed=0) == subset(questions, 99, seed=0) == questions
    with pytest.raises(EvalError, match="at least 1 question, got 0"):
        subset(questions, 0, seed=0)


def test_the_hash_changes_with_whatever_can_change_a_score_and_with_nothing_else() -> None:
    base = read_like()
    hashes = {content_hash(base)}
    for changed in (
        replace(base[1], id="z"),
        replace(base[1], dataset="z"),
        replace(base[1], question="z"),
        replace(base[1], answers=("z",)),
        replace(base[1], gold_ids=("z",)),
        replace(base[1], supporting_ids=("z",)),
        replace(base[1], qrels={"z": 1}),
        replace(base[1], excluded_ids=("z",)),
        replace(base[1], lang="de"),
    ):
        hashes.add(content_hash([base[0], changed]))
    hashes.add(content_hash(base[::-1]))
    hashes.add(content_hash(base[:1]))
    assert len(hashes) == 12
    assert content_hash([base[0], replace(base[1], kind="z", meta={"z": 1})]) == content_hash(base)
    judged = [replace(base[0], qrels={"a": 1, "b": 2}), replace(base[0], qrels={"b": 2, "a": 1})]
    assert content_hash(judged[:1]) == content_hash(judged[1:])


def read_like() -> list[Question]:
    return [
        Question("q1", "nq", "who?", ("Ann",), ("p1",), ("p2",)),
        Question("q2", "nq", "what?", ("x",), (), ("p2",)),
    ]


def test_the_source_of_a_run_is_described_with_the_files_own_hash(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"abc")
    described = describe_source(path, many(5), many(2), seed=7)
    # SHA-256 of "abc", FIPS 180-2 appendix B.1.
    assert described["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (described["questions_in_file"], described["questions_used"], described["subset_seed"]) == (5, 2, 7)
    assert describe_source(path, many(5), many(5), seed=7)["subset_seed"] is None


def test_several_files_are_hashed_one_after_the_other(tmp_path: Path) -> None:
    parts = [tmp_path / "1", tmp_path / "2"]
    parts[0].write_bytes(b"a")
    parts[1].write_bytes(b"bc")
    described = describe_source(tmp_path, many(1), many(1), 0, parts)
    assert described["file"] == str(tmp_path)
    assert described["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("dataset", "rule"),
    [
        ("nq", "squad"),
        ("nq_open", "nq_open"),
        ("triviaqa", "squad"),
        ("hotpotqa", "hotpotqa"),
        ("HotpotQA", "hotpotqa"),
        ("2wiki", "2wikimultihopqa"),
        ("2WikiMultihopQA", "2wikimultihopqa"),
        ("musique", "musique"),
        ("squad-v2", "squad_v2"),
        ("curatedtrec", "curatedtrec"),
        ("CuratedTREC", "curatedtrec"),
        ("web-questions", "squad"),
        ("scifact", "squad"),
        ("demo", "squad"),
    ],
)
def test_each_data_set_has_the_rule_its_papers_use(dataset: str, rule: str) -> None:
    assert default_rule(dataset) == rule
    assert rule in RULES
