"""Rankings read from TREC run files."""

from __future__ import annotations

from pathlib import Path

import pytest

from retriever.build import build_index
from retriever.errors import RetrieverError
from retriever.fusion import HybridRetriever
from retriever.index import Index
from retriever.lexical import BM25Retriever
from retriever.runfile import RunFileRetriever, bind_questions, read_run
from tests.vectors import ListCorpus, RandomEncoder, some_passages

RUN = """\
q1 Q0 p3 1 9.5 theirs
q1 Q0 p20 2 7.25 theirs
q2 Q0 p0 1 3 theirs

q1 Q0 p1 3 -1e-1 theirs
"""
QUESTIONS = {"what is a river?": "q1", "and a comet?": "q2"}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return build_index(ListCorpus(some_passages(30)), RandomEncoder(), tmp_path / "i", shard_size=12)


def written(folder: Path, text: str) -> Path:
    path = folder / "theirs.run"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_files_ranking_comes_back_with_the_corpus_s_passages(index: Index, tmp_path: Path) -> None:
    retriever = RunFileRetriever("theirs", index, written(tmp_path, RUN))
    retriever.bind(QUESTIONS)
    hits = retriever.retrieve(["and a comet?", "what is a river?"], 2).hits
    assert [[(hit.rank, hit.passage.id, hit.row, hit.score) for hit in own] for own in hits] == [
        [(1, "p0", 0, 3.0)],
        [(1, "p3", 3, 9.5), (2, "p20", 20, 7.25)],
    ]
    assert hits[1][1].passage == index.passage(20)
    assert all(hit.norm is None and hit.cosine is None for own in hits for hit in own)
    assert [hit.passage.id for hit in retriever.retrieve(["what is a river?"], 30).hits[0]] == ["p3", "p20", "p1"]
    assert retriever.notes == []


def test_scores_rank_and_the_rank_column_decides_between_equal_ones(tmp_path: Path) -> None:
    path = written(tmp_path, "q Q0 a 3 1.0 r\nq Q0 b 2 1.0 r\nq Q0 c 1 0.5 r\nq Q0 d 4 2.0 r\n")
    assert read_run(path) == {"q": [("d", 2.0), ("b", 1.0), ("a", 1.0), ("c", 0.5)]}


def test_ids_with_white_space_are_read_as_an_evaluation_writes_them(tmp_path: Path) -> None:
    path = written(tmp_path, "q%201 Q0 escaped:My%20notes.pdf#0003 1 2.5 r\n")
    assert read_run(path) == {"q%201": [("My notes.pdf#0003", 2.5)]}


def test_questions_whose_ids_were_not_told_are_refused(index: Index, tmp_path: Path) -> None:
    retriever = RunFileRetriever("theirs", index, written(tmp_path, RUN))
    with pytest.raises(RetrieverError, match="only ranks passages for the questions of .*theirs.run.*'what is a river"):
        retriever.retrieve(["what is a river?"], 2)
    with pytest.raises(RetrieverError, match="none of the 1 questions: its ids are like 'q1', theirs like 'Q-1'"):
        retriever.bind({"what is a river?": "Q-1"})


def test_questions_that_the_file_lacks_get_no_passages_and_a_note(index: Index, tmp_path: Path) -> None:
    retriever = RunFileRetriever("theirs", index, written(tmp_path, RUN))
    retriever.bind(QUESTIONS | {"who?": "q3"})
    assert retriever.retrieve(["who?"], 3).hits == [[]]
    assert retriever.notes == ["theirs.run ranks nothing for 1 of 3 questions: they get no passages"]


def test_passages_outside_the_corpus_are_counted(index: Index, tmp_path: Path) -> None:
    path = written(tmp_path, RUN + "q2 Q0 doc9 2 1 theirs\n")
    with pytest.raises(RetrieverError, match=r"1 of the 5 passages in .* \(20.0 %\) are not in index .*'doc9'"):
        RunFileRetriever("theirs", index, path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q1 Q0 p1 1 2.0\n", ":1: a line of a TREC run is QUESTION Q0 PASSAGE RANK SCORE NAME, got 'q1 Q0 p1 1 2.0'"),
        ("q1 Q0 p1 1 2.0 r\nq1 Q0 p2 two 1.0 r\n", ":2: a line of a TREC run"),
        ("q1 Q0 p1 1 high r\n", ":1: a line of a TREC run"),
        ("q1 Q0 p1 1 nan r\n", ":1: the score must be a finite number, got nan"),
        ("q1 Q0 p1 1 2 r\nq1 Q0 p1 2 1 r\n", ":2: passage 'p1' is ranked twice for question 'q1'"),
        ("\n", "is empty"),
    ],
)
def test_a_faulty_file_is_named_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RetrieverError) as caught:
        read_run(written(tmp_path, text))
    assert words in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="cannot read the TREC run .*absent.run"):
        read_run(tmp_path / "absent.run")
    (tmp_path / "latin.run").write_bytes("q Q0 é 1 1 r".encode("latin-1"))
    with pytest.raises(RetrieverError, match="cannot read the TREC run .*latin.run"):
        read_run(tmp_path / "latin.run")


def test_the_fingerprint_follows_the_file_and_not_its_place(index: Index, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    here = RunFileRetriever("a", index, written(tmp_path, RUN)).fingerprint
    assert RunFileRetriever("b", index, written(tmp_path / "elsewhere", RUN)).fingerprint == here
    assert RunFileRetriever("a", index, written(tmp_path, RUN.replace("9.5", "9.6"))).fingerprint != here


def test_a_run_file_can_be_part_of_a_hybrid_and_is_told_the_ids_there(index: Index, tmp_path: Path) -> None:
    theirs = RunFileRetriever("theirs", index, written(tmp_path, RUN))
    hybrid = HybridRetriever("both", [BM25Retriever("bm25", index), theirs])
    bind_questions(hybrid, QUESTIONS)
    hits = hybrid.retrieve(["what is a river?"], 30).hits[0]
    assert {"p3", "p20", "p1"} <= {hit.passage.id for hit in hits}


def test_ids_are_found_across_shards_and_missing_ones_left_out(index: Index) -> None:
    assert index.find({"p0", "p11", "p12", "p29", "absent"}) == {"p0": 0, "p11": 11, "p12": 12, "p29": 29}
    assert index.find(set()) == {}
