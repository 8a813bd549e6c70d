"""Faulty lines of corpora: named or counted, none taken for a passage, none hidden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retriever.corpora import lines, read_corpus
from retriever.errors import RetrieverError
from retriever.passages import Passage
from tests.corpus_files import GOOD, write_jsonl, write_ours, zipped

FAULTS = [
    ('{"id": "1", "text": "a"', "invalid JSON", "column"),
    ("null", "invalid JSON", "not a JSON object"),
    ("\0\0\0", "invalid JSON", "not valid JSON"),
    ("[" * 100_000, "invalid JSON", "RecursionError"),
    ('{"id": "1", "body": "a"}', "missing field", '"text"'),
    ('{"text": "a"}', "missing field", '"id"'),
    ('{"id": 1.5, "text": "a"}', "wrong type", '"id" must be text or a whole number, got a number'),
    ('{"id": true, "text": "a"}', "wrong type", "got true or false"),
    ('{"id": "1", "text": ["a"]}', "wrong type", '"text" must be text, got a list'),
    ('{"id": "1", "text": null}', "wrong type", "got null"),
    ('{"id": "1", "text": "a", "title": 5}', "wrong type", '"title" must be text, got a number'),
    ('{"id": " ", "text": "a"}', "empty id", '"id" is empty'),
    ('{"id": "1", "text": " \\n\\t"}', "empty text", 'passage "1" is empty'),
    ('{"id": "1", "text": "\\u0000"}', "empty text", 'passage "1" is empty'),
    ('{"id": "1", "text": "\\ud83d"}', "invalid Unicode", "without its other half"),
    ('{"id": "1", "text": "a", "m": {"k": ["\\uDE00"]}}', "invalid Unicode", "without its other half"),
    ('{"id": "g", "text": "another"}', "duplicate id", '"g"'),
]


@pytest.mark.parametrize(
    ("line", "kind", "words"), FAULTS, ids=[f"{kind}-{at}" for at, (_, kind, _) in enumerate(FAULTS)]
)
@pytest.mark.parametrize("change", [lambda path: path, zipped], ids=["plain", "gzipped"])
def test_a_faulty_line_is_named_or_counted(
    tmp_path: Path, line: str, kind: str, words: str, change: Callable[[Path], Path]
) -> None:
    path = tmp_path / "c.jsonl"
    # A byte-order mark, CRLF and blank lines: the numbers are those an editor shows.
    path.write_text(f"\ufeff{GOOD}\r\n\r\n  \r\n{line}\r\n" + '{"id": "last", "text": "end"}', newline="")
    path = change(path)
    with pytest.raises(RetrieverError) as caught:
        list(read_corpus(path))
    message = str(caught.value)
    assert message.startswith(f"{path}:4: ")
    assert words in message
    assert "--on-error skip" in message
    assert "\n" not in message

    corpus = read_corpus(path, on_error="skip")
    assert [p.id for p in corpus] == ["g", "last"]
    assert (corpus.report.read, corpus.report.kept, corpus.report.skipped) == (3, 2, {kind: 1})
    assert corpus.report.examples[kind][0].startswith(f"{path}:4: ")
    assert f"{kind} 1" in corpus.report.summary()


def test_invalid_utf8_is_a_fault_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(GOOD.encode() + b'\n{"id": "2", "text": "caf\xe9"}\n')
    with pytest.raises(RetrieverError, match=r"c\.jsonl:2: byte 25 of the line is not valid UTF-8"):
        list(read_corpus(path))
    corpus = read_corpus(path, on_error="skip")
    assert len(list(corpus)) == 1
    assert corpus.report.skipped == {"invalid UTF-8": 1}


@pytest.mark.parametrize("name", ["c.tsv", "c.csv"])
def test_a_passage_is_not_taken_for_the_header_where_that_is_in_another_encoding(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    separator = "\t" if name == "c.tsv" else ","
    path.write_bytes(separator.join(["id", "text", "Stra\xdfe\nid", "text", "x\n"]).encode("latin-1"))
    with pytest.raises(RetrieverError, match="header .*is not valid UTF-8: save the file as UTF-8"):
        list(read_corpus(path, on_error="skip"))


def test_a_line_with_another_number_of_cells_is_told_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("id,text\n1,a\n2,b,c\n3,d\n")
    corpus = read_corpus(path, on_error="skip")
    assert [p.id for p in corpus] == ["1", "3"]
    assert corpus.report.skipped == {"invalid CSV": 1}
    with pytest.raises(RetrieverError, match=r"c\.csv:3: the header has 2 columns, the line 3"):
        list(read_corpus(path))


def test_a_tsv_line_with_another_number_of_columns_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text('id\ttext\ttitle\n1\ta\tA\n2\tb\n3\tc\tC\tmore\n4\t"d\n5\te\n')
    with pytest.raises(RetrieverError, match=r"c\.tsv:3: the header has 3 columns, the line 2"):
        list(read_corpus(path))
    corpus = read_corpus(path, on_error="skip")
    assert [p.id for p in corpus] == ["1"]
    assert corpus.report.skipped == {"invalid TSV": 4}


def test_a_first_line_that_is_faulty_does_not_decide_the_format(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('oops\n{"version": 2}\n{"id": "1", "contents": "\\"T\\"\\nx"}\n')
    corpus = read_corpus(path, on_error="skip")
    assert list(corpus) == [Passage("1", "T", "x")]
    assert corpus.report.skipped == {"invalid JSON": 1, "missing field": 1}


def test_a_line_without_end_is_passed_over_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "c.jsonl"
    path.write_text(f'{GOOD}\n{{"id": "2", "text": "{"x" * 5000}"}}\n{{"id": "3", "text": "y"}}\n')
    corpus = read_corpus(path, on_error="skip")
    assert [p.id for p in corpus] == ["g", "3"]
    assert corpus.report.examples == {"line too long": [f"{path}:2: the line is longer than 64 MiB"]}


def test_nul_characters_become_spaces(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", [{"id": "a\0b", "title": "t\0", "text": "x\0y"}])
    assert list(read_corpus(path)) == [Passage("a b", "t ", "x y")]


def test_line_ends_of_unicode_inside_a_text_end_no_line(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", [{"id": "1", "text": "a\u2028b\x85c"}, {"id": "2", "text": "d"}])
    assert [p.text for p in read_corpus(path)] == ["a\u2028b\x85c", "d"]


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_gzip_file_cut_short_is_never_taken_for_the_whole(tmp_path: Path, on_error: Any) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", [{"id": n, "text": f"{n * 7919 % 10007}"} for n in range(5000)])
    packed = zipped(path)
    packed.write_bytes(packed.read_bytes()[:-2000])
    with pytest.raises(RetrieverError, match=r"c\.jsonl\.gz:\d+: cannot read on: .*fetch it again"):
        list(read_corpus(packed, on_error=on_error))


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("content", ["", "\n\r\n  \n", "id\ttext\ttitle\n"])
def test_an_empty_corpus_is_always_an_error(tmp_path: Path, on_error: Any, content: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    with pytest.raises(RetrieverError, match="holds no passages"):
        list(read_corpus(path, on_error=on_error))


def test_a_corpus_of_faults_alone_is_an_error_that_shows_the_first(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text("x\ny\n")
    with pytest.raises(
        RetrieverError, match=r"no passages: 2 of 2 records were skipped, the first at .*c\.jsonl:1: not valid"
    ):
        list(read_corpus(path, on_error="skip"))


def test_only_a_few_examples_of_each_fault_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(GOOD + "\nx" * 100)
    corpus = read_corpus(path, on_error="skip")
    list(corpus)
    assert corpus.report.skipped == {"invalid JSON": 100}
    assert len(corpus.report.examples["invalid JSON"]) == 3


def test_an_unknown_way_to_treat_errors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match='on_error must be "fail" or "skip", got "ignore"'):
        read_corpus(write_ours(tmp_path / "c.jsonl"), on_error="ignore")  # type: ignore[arg-type]
