"""Formats of corpora of one passage a line: told by their content, mapped by their columns, refused with what to do."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from retriever.corpora import read_corpus
from retriever.corpora.detect import column_names
from retriever.corpora.records import guess_columns, split_contents
from retriever.errors import RetrieverError
from retriever.passages import Passage
from tests.corpus_files import GOOD, PASSAGES, write_beir, write_dpr, write_flashrag, write_jsonl, write_ours, zipped


@pytest.mark.parametrize("write", [write_ours, write_beir, write_flashrag, write_dpr])
@pytest.mark.parametrize("change", [lambda path: path, zipped], ids=["plain", "gzipped"])
def test_each_format_gives_the_same_passages(
    tmp_path: Path, write: Callable[[Path], Path], change: Callable[[Path], Path]
) -> None:
    corpus = read_corpus(change(write(tmp_path / "corpus")))
    assert list(corpus) == PASSAGES
    assert (corpus.report.read, corpus.report.kept, corpus.report.duplicates, corpus.report.skipped) == (3, 3, 0, {})


@pytest.mark.parametrize("name", ["passages.txt", "passages.md", "passages", "passages.data"])
def test_the_format_is_told_by_the_content_and_not_by_the_name(tmp_path: Path, name: str) -> None:
    assert list(read_corpus(write_ours(tmp_path / name))) == PASSAGES
    assert list(read_corpus(write_dpr(tmp_path / name))) == PASSAGES
    hidden = zipped(write_flashrag(tmp_path / name)).rename(tmp_path / name)
    assert list(read_corpus(hidden)) == PASSAGES


@pytest.mark.parametrize("change", [lambda path: path, zipped], ids=["plain", "gzipped"])
def test_a_beir_folder_is_read_through_its_corpus_file(tmp_path: Path, change: Callable[[Path], Path]) -> None:
    plain = write_beir(tmp_path / "corpus.jsonl")
    if change(plain) != plain:
        plain.unlink()
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q", "text": "?"}])
    assert list(read_corpus(tmp_path)) == PASSAGES


def test_other_fields_go_to_meta_and_a_whole_number_is_an_id(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "c.jsonl", [{"id": 7, "text": "t", "metadata": {"url": "u"}, "views": 3, "title": None}]
    )
    assert list(read_corpus(path)) == [Passage("7", "", "t", {"metadata": {"url": "u"}, "views": 3})]


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"A"\nB\nC', "A", "B\nC"),
        ('"The "Real" Thing"\nB', 'The "Real" Thing', "B"),
        ('"A"\r\nB', "A", "B"),
        ("A\nB", "", "A\nB"),
        ('"A" said\nB', "", '"A" said\nB'),
        ('"A"', "", '"A"'),
    ],
)
def test_flashrag_contents_give_the_quoted_first_line_as_title(contents: str, title: str, text: str) -> None:
    assert split_contents(contents) == (title, text)


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
@pytest.mark.parametrize("change", [lambda path: path, zipped], ids=["plain", "gzipped"])
def test_a_table_as_a_spreadsheet_writes_it(tmp_path: Path, delimiter: str, change: Callable[[Path], Path]) -> None:
    path = tmp_path / "table.csv"
    rows = [["", "Title ", "text", "year"], *([n, p.title, p.text, 1900 + n] for n, p in enumerate(PASSAGES))]
    rows.append([3, "Lines", 'first; one, or | another\n\nthird "line"', 1903])
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    found = list(read_corpus(change(path), columns={"title": "Title"}))
    assert [(p.title, p.text) for p in found] == [
        *((p.title, p.text) for p in PASSAGES),
        ("Lines", 'first; one, or | another\n\nthird "line"'),
    ]
    assert [p.id for p in found] == ["2", "3", "4", "5"]  # the lines they begin on, for there is no column of ids
    assert found[1].meta == {"": "1", "year": "1901"}


def test_columns_of_a_table_can_be_named_and_guessed(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text('Nr,Question,Answer,Text length\nq1,Why?,"Because, so.",12\n', encoding="utf-8")
    assert column_names(path) == ["Nr", "Question", "Answer", "Text length"]
    guessed = guess_columns(column_names(path))
    assert guessed == {"id": "Nr", "title": "Question", "text": "Answer"}
    assert list(read_corpus(path, columns=guessed)) == [Passage("q1", "Why?", "Because, so.", {"Text length": "12"})]
    with pytest.raises(RetrieverError, match='no field "Nummer"'):
        list(read_corpus(path, columns={**guessed, "id": "Nummer"}))
    jsonl = write_jsonl(tmp_path / "c.jsonl", [{"_id": "1", "body": "B", "text": "T"}])
    assert column_names(jsonl) == ["_id", "body", "text"]
    assert guess_columns(["x"]) == {} and guess_columns(["_id", "body", "text"]) == {"id": "_id", "text": "text"}
    prose = tmp_path / "prose.txt"
    prose.write_text("One, two; three.")
    assert column_names(prose) == []


def test_quotes_of_a_tsv_written_without_quoting_stand_for_themselves(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text('id\ttext\ttitle\n1\t"Hi" he said\tA\n2\t6" wide\tB\n3\t"open\tC\n')
    assert [p.text for p in read_corpus(path)] == ['"Hi" he said', '6" wide', '"open']


def test_a_quoted_text_may_go_on_over_lines_and_a_stray_quote_swallows_none(tmp_path: Path) -> None:
    texts = ['one\n\n"two"\tthree', "plain", "first\r\nlast"]
    path = tmp_path / "c.tsv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([("id", "title", "text"), *((at, "T", text) for at, text in enumerate(texts))])
    assert [p.text for p in read_corpus(path)] == ['one\n\n"two"\tthree', "plain", "first\nlast"]
    stray = [f'{at}\tT\t"never closed' if at == 3 else f"{at}\tT\ttext {at}" for at in range(500)]
    path.write_text("id\ttitle\ttext\n" + "\n".join(stray))
    assert [p.id for p in read_corpus(path)] == [str(at) for at in range(500)]
    path.write_text("id\ttext\ttitle\n" + '1\t"a\nb"\tT\n' + "2\t\tT\n")
    with pytest.raises(RetrieverError, match=r'c\.tsv:4: the text of passage "2" is empty'):
        list(read_corpus(path))


def test_columns_name_the_fields_of_other_formats(tmp_path: Path) -> None:
    columns = {"id": "pid", "title": "name", "text": "body"}
    record = {"pid": "1", "name": "N", "body": "B", "text": "other"}
    expected = [Passage("1", "N", "B", {"text": "other"})]
    assert list(read_corpus(write_jsonl(tmp_path / "c.jsonl", [record]), columns=columns)) == expected
    tsv = tmp_path / "c.tsv"
    tsv.write_text("pid\tname\tbody\ttext\n1\tN\tB\tother\n")
    assert list(read_corpus(tsv, columns=columns)) == expected
    with pytest.raises(RetrieverError, match='unknown column "body"'):
        read_corpus(tsv, columns={"body": "text"})


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("c.json", b'[{"id": 1}]', "JSON list"),
        ("c.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("c.jsonl", GOOD.encode("utf-16"), "UTF-16"),
        ("c.tsv", b"1\ttext\ttitle-without-header\n", "must be a header"),
        ("c.bin", bytes(range(200, 256)), "cannot tell the format"),
        ("c.csv", b"id,body\n1,a\n", "must be a header with a column for the text.*it has id, body"),
        ("c.csv", b"1,text,a\n", "must be a header"),
        ("c.csv", "id,text\n".encode("utf-16"), "UTF-16"),
        ("c.txt.bin", b"id,text\n1,a\n", "cannot tell the format"),
    ],
)
def test_files_of_other_formats_are_refused_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RetrieverError, match=words) as caught:
        list(read_corpus(path))
    assert str(path) in str(caught.value)


def test_a_missing_file_offers_the_one_that_was_probably_meant(tmp_path: Path) -> None:
    write_ours(tmp_path / "corpus.jsonl")
    with pytest.raises(RetrieverError, match=r'no file or folder .*; did you mean ".*corpus\.jsonl"'):
        read_corpus(tmp_path / "corpsu.jsonl")
    for source in ("", "x" * 5000):
        with pytest.raises(RetrieverError):
            read_corpus(source)
