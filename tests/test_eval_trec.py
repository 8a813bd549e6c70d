"""Run, judgment and topic files: both ways, strictly, and as other readers of these formats read them."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.data.datasets import Question
from eval.data.trec import exported, read_qrels, read_topics, write_qrels, write_run
from eval.errors import EvalError
from retriever.runfile import read_run

ODD_IDS = [
    "d1",
    "My notes.pdf#0003",
    "tab\tand\nbreak",
    "no-break\u00a0space",
    "line\u2028separator",
    "\x1cfile separator",
    "",
    " ",
    "100%",
    "https://example.org/a%20b",
    "a %20b",
    "escaped:a%20b",
    "北京",
]


def asked(*ids: str) -> list[Question]:
    return [Question(id=id, dataset="d", question="?", answers=()) for id in ids]


def passages(*pairs: tuple[str, float]) -> dict[str, Any]:
    return {"passages": [{"id": id, "score": score} for id, score in pairs]}


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_run_file_has_six_columns_in_the_order_of_questions_and_rows(tmp_path: Path) -> None:
    rows = {"q1": passages(("b", 2.5), ("a", 0.1)), "q2": passages(("a", 7.0)), "other": passages(("a", 1.0))}
    write_run(tmp_path / "trec/x.run", asked("q2", "q1", "without a row"), rows, "my system")
    assert lines(tmp_path / "trec/x.run") == [
        "q2 Q0 a 1 7.0 my_system",
        "q1 Q0 b 1 2.5 my_system",
        "q1 Q0 a 2 0.1 my_system",
    ]


FLOATS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30)


@given(st.lists(FLOATS, max_size=30))
def test_scores_fall_strictly_in_32_bits_and_those_that_did_are_unchanged(scores: list[float]) -> None:
    got = [score for _, score in exported({"id": str(n), "score": score} for n, score in enumerate(scores))]
    single = np.array(got, dtype=np.float32)
    assert len(got) == len(scores) and (single[1:] < single[:-1]).all()
    for rank, score in enumerate(scores):
        if rank == 0 or np.float32(score) < single[rank - 1]:
            assert got[rank] == score


def test_a_tie_moves_a_score_by_the_least_that_trec_eval_can_see() -> None:
    (_, first), (_, second), (_, third) = exported(passages(("a", 0.5), ("b", 0.5), ("c", 0.4))["passages"])
    assert (first, third) == (0.5, 0.4)
    assert second == float(np.nextafter(np.float32(0.5), np.float32(0))) and 0.5 - second < 1e-7


@given(st.lists(FLOATS, max_size=20, unique_by=lambda score: np.float32(score)))
def test_scores_read_back_as_the_same_floats(tmp_path_factory: pytest.TempPathFactory, scores: list[float]) -> None:
    path = tmp_path_factory.mktemp("run") / "a.run"
    ranking = [(f"d{n}", score) for n, score in enumerate(sorted(scores, reverse=True))]
    write_run(path, asked("q"), {"q": passages(*ranking)}, "s")
    if ranking:
        assert read_run(path) == {"q": ranking}


@pytest.mark.parametrize("name", ["a.run", "a.run.gz"])
def test_any_id_reads_back_and_other_readers_see_six_columns(tmp_path: Path, name: str) -> None:
    ranking = [(id, float(-n)) for n, id in enumerate(ODD_IDS)]
    write_run(tmp_path / name, asked(*ODD_IDS), {id: passages(*ranking) for id in ODD_IDS}, "s")
    if name == "a.run":
        assert read_run(tmp_path / name) == {id: ranking for id in ODD_IDS}
    assert len(list(ir_measures.read_trec_run(str(tmp_path / name)))) == len(ODD_IDS) ** 2


@given(st.lists(st.text(), min_size=1, max_size=5, unique=True))
def test_ids_of_any_characters_read_back(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    folder = tmp_path_factory.mktemp("ids")
    ranking = [(id, float(-n)) for n, id in enumerate(ids)]
    write_run(folder / "a.run", asked(ids[0]), {ids[0]: passages(*ranking)}, "s")
    assert read_run(folder / "a.run") == {ids[0]: ranking}
    write_qrels(folder / "q", {ids[0]: dict.fromkeys(ids, 1)})
    assert read_qrels(folder / "q") == {ids[0]: dict.fromkeys(ids, 1)}


def test_only_an_id_that_a_column_cannot_hold_is_written_otherwise(tmp_path: Path) -> None:
    ranking = [(id, float(-n)) for n, id in enumerate(["https://e.org/a%20b", "100%", "My notes.pdf#0003"])]
    write_run(tmp_path / "a.run", asked("q"), {"q": passages(*ranking)}, "s")
    written = [line.split()[2] for line in lines(tmp_path / "a.run")]
    assert written == ["https://e.org/a%20b", "100%", "escaped:My%20notes.pdf#0003"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    write_run(path, asked("q"), {"q": passages(("a", 1.0))}, "s")
    before = path.read_bytes()
    with pytest.raises(EvalError, match=r"a.run: question 'q': passage 'b' has the score inf"):
        write_run(path, asked("q"), {"q": passages(("a", 1.0), ("b", math.inf))}, "s")
    with pytest.raises(EvalError, match="name of its system"):
        write_run(path, asked("q"), {}, " ")
    (tmp_path / "folder").mkdir()
    with pytest.raises(EvalError, match="cannot be written"):
        write_run(tmp_path / "folder", asked("q"), {}, "s")
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["a.run", "folder"]


def test_a_reader_that_opened_the_old_file_keeps_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    write_run(path, asked("q"), {"q": passages(("a", 1.0))}, "s")
    with path.open() as reader:
        write_run(path, asked("q"), {"q": passages(("b", 2.0), ("c", 1.0))}, "s")
        assert reader.read() == "q Q0 a 1 1.0 s\n"
    assert list(read_run(path)) == ["q"] and len(read_run(path)["q"]) == 2


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(EvalError, match=r"absent.qrels: cannot be read: No such file"):
        read_qrels(tmp_path / "absent.qrels")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"q 0 a 1\n" * 100)[:-9])
    with pytest.raises(EvalError, match=r"a.gz: not a whole gzip file"):
        read_qrels(tmp_path / "a.gz")
    (tmp_path / "plain.gz").write_bytes(b"q Q0 a 1 1 x\n")
    with pytest.raises(EvalError, match=r"plain.gz: not a whole gzip file"):
        read_qrels(tmp_path / "plain.gz")
    (tmp_path / "latin").write_bytes(b"1\tcaf\xe9\n")
    with pytest.raises(EvalError, match=r"latin, line 1: invalid UTF-8 at byte 6"):
        read_topics(tmp_path / "latin")


QRELS = {"q 1": {"My notes.pdf#0003": 2, "d1": 0}, "q2": {"d%20": -1, "北京": 1}}


def test_qrels_are_written_as_trecs_and_read_in_both_layouts(tmp_path: Path) -> None:
    write_qrels(tmp_path / "a.qrels", QRELS)
    rows = [f"{query}\t{document}\t{grade}" for query, grades in QRELS.items() for document, grade in grades.items()]
    (tmp_path / "a.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n", "utf-8")
    assert lines(tmp_path / "a.qrels")[:2] == ["escaped:q%201 0 escaped:My%20notes.pdf#0003 2", "escaped:q%201 0 d1 0"]
    assert read_qrels(tmp_path / "a.qrels") == read_qrels(tmp_path / "a.tsv") == QRELS
    assert [tuple(qrel)[2] for qrel in ir_measures.read_trec_qrels(str(tmp_path / "a.qrels"))] == [2, 0, -1, 1]


def test_qrels_with_byte_order_mark_carriage_returns_and_repeated_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbfquery-id\tcorpus-id\tscore\r\nq\td\t1\r\nq\td\t1\r\n")
    assert read_qrels(tmp_path / "a.tsv") == {"q": {"d": 1}}
    (tmp_path / "a.qrels.gz").write_bytes(gzip.compress(b"q 0 d 1\nq Q0 e 0\n"))
    assert read_qrels(tmp_path / "a.qrels.gz") == {"q": {"d": 1, "e": 0}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("q\td\t1\n", "line 1: must have 4 columns .*got 3: a BEIR file begins with the header"),
        ("query-id\tcorpus-id\tscore\nq d 1\n", "line 2: must have 3 columns between tabs .*got 1"),
        ("q 0 d high\n", "line 1: the grade must be a whole number, got 'high'"),
        ("q 0 d 1\nq 0 d 2\n", "line 2: document 'd' of query 'q' was already judged 1"),
        ("query-id\tcorpus-id\tscore\n", "holds no judgments"),
        ("", "holds no judgments"),
    ],
)
def test_bad_qrels_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "a.qrels").write_text(text)
    with pytest.raises(EvalError, match=complaint):
        read_qrels(tmp_path / "a.qrels")


def test_topics_are_read_from_tab_separated_lines(tmp_path: Path) -> None:
    (tmp_path / "topics.tsv").write_text("1\twho wrote  it?\r\n\n2\ta\tb\n")
    assert read_topics(tmp_path / "topics.tsv") == {"1": "who wrote it?", "2": "a b"}


CLASSIC = """\

<top>

<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations that take part.

<narr> Narrative:
A relevant document must name one.

</top>

<top>
<num> Number: 302 </num>
<title> Topic: Poliomyelitis
and Post-Polio < 1990 </title>
</top>
<top><num>303</num><title>Hubble R&D</title><desc>None</desc></top>
"""


def test_classic_topics_are_read_with_open_and_closed_tags(tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text(CLASSIC)
    assert read_topics(tmp_path / "topics.txt") == {
        "301": "International Organized Crime",
        "302": "Poliomyelitis and Post-Polio < 1990",
        "303": "Hubble R&D",
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no topics"),
        ("1 who wrote it?\n", "line 1: must be an id, a tab and a text"),
        ("1\t \n", "line 1: a topic needs an id and a text, got '1' and ''"),
        ("1\ta\n1\tb\n", "line 2: topic '1' was already given"),
        ("<top>\n<num> 1\n</top>\n", "line 1: a topic needs an id and a text, got '1' and ''"),
        ("<top>\n<title> a\n</top>\n", "line 1: a topic needs an id and a text, got '' and 'a'"),
        ("<top>\n<num> 1\n<title> a\n", "line 1: this topic is not closed"),
        ("<top>\n<num> 1\n<title> a\n<top>\n<num> 2\n<title> b\n</top>\n", "line 1: this topic is not closed"),
    ],
)
def test_bad_topics_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "topics").write_text(text)
    with pytest.raises(EvalError, match=complaint):
        read_topics(tmp_path / "topics")
