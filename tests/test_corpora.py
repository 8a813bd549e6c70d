"""Reading corpora of one passage a line, and hub data sets: formats, faults, counts, memory, identity."""

from __future__ import annotations

import csv
import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.corpora import lines, read_corpus, seen
from retriever.corpora.detect import column_names
from retriever.corpora.records import guess_columns, split_contents
from retriever.corpora.seen import SeenStrings
from retriever.errors import RetrieverError
from retriever.passages import Passage

ROOT = Path(__file__).resolve().parent.parent
SHARED = next((place for place in (ROOT / "shared/data", ROOT.parent / "shared/data") if place.is_dir()), None)

PASSAGES = [
    Passage("1", "Aaron", 'Aaron ("the priest", Hebrew אַהֲרֹן) was a brother of Moses.'),
    Passage("2", 'The "Fifth" Season', '"Quoted" at the start, and\ta tab? No: a space.'.replace("\t", " ")),
    Passage("p-3", "Ålesund", "Ålesund er en by i Norge. 東京 😀"),
]


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def write_ours(path: Path) -> Path:
    return write_jsonl(path, [{"id": p.id, "title": p.title, "text": p.text} for p in PASSAGES])


def write_beir(path: Path) -> Path:
    return write_jsonl(path, [{"_id": p.id, "title": p.title, "text": p.text} for p in PASSAGES])


def write_flashrag(path: Path) -> Path:
    return write_jsonl(path, [{"id": p.id, "contents": f'"{p.title}"\n{p.text}'} for p in PASSAGES])


def write_dpr(path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([("id", "text", "title"), *((p.id, p.text, p.title) for p in PASSAGES)])
    return path


def zipped(path: Path) -> Path:
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


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


def test_a_line_with_another_number_of_cells_is_told_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("id,text\n1,a\n2,b,c\n3,d\n")
    corpus = read_corpus(path, on_error="skip")
    assert [p.id for p in corpus] == ["1", "3"]
    assert corpus.report.skipped == {"invalid CSV": 1}
    with pytest.raises(RetrieverError, match=r"c\.csv:3: the header has 2 columns, the line 3"):
        list(read_corpus(path))


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


GOOD = '{"id": "g", "title": "", "text": "good"}'

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


def test_equal_contents_are_counted_and_dropped_only_on_request(tmp_path: Path) -> None:
    rows = [("1", "T", "a  b"), ("2", "T", "a\nb "), ("3", "", "T a b"), ("4", "t", "a b"), ("5", "T", "a b")]
    path = write_jsonl(tmp_path / "c.jsonl", [dict(zip(("id", "title", "text"), row, strict=True)) for row in rows])
    kept = read_corpus(path)
    assert [p.id for p in kept] == ["1", "2", "3", "4", "5"]
    assert (kept.report.kept, kept.report.duplicates, kept.report.dropped) == (5, 2, 0)
    collapsed = read_corpus(path, collapse_duplicates=True)
    assert [p.id for p in collapsed] == ["1", "3", "4"]
    report = collapsed.report
    assert (report.read, report.kept, report.duplicates, report.dropped) == (5, 3, 2, 2)
    assert report.to_json()["dropped"] == 2


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


def test_a_corpus_can_be_gone_through_again_also_after_a_stop_in_the_middle(tmp_path: Path) -> None:
    corpus = read_corpus(write_ours(tmp_path / "c.jsonl"))
    assert next(iter(corpus)) == PASSAGES[0]
    assert list(corpus) == PASSAGES
    assert list(corpus) == PASSAGES
    assert corpus.report.kept == 3


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with path.open("w") as file:
        for number in range(6_000):
            file.write(json.dumps({"id": number, "text": f"{number} " + "word " * 400}) + "\n")
    corpus = read_corpus(path)
    tracemalloc.start()
    count = sum(1 for _ in corpus)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 6_000
    assert peak < 3_000_000 < path.stat().st_size / 4


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=3), max_size=200))
def test_strings_met_before_are_known_through_any_number_of_merges(strings: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "BUFFER", 5)
        remembered, oracle = SeenStrings(), set[str]()
        for string in strings:
            assert remembered.add(string) == (string not in oracle)
            oracle.add(string)
        assert len(remembered) == len(oracle)


def test_the_total_is_estimated_on_the_way_and_exact_at_the_end(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", [{"id": n, "text": "word " * 50} for n in range(20_000)])
    for source in (path, zipped(path)):
        corpus = read_corpus(source)
        assert corpus.estimated_total() is None
        stream = iter(corpus)
        for _ in range(10_000):
            next(stream)
        estimate = corpus.estimated_total()
        assert estimate is not None
        assert 0.8 * 20_000 < estimate < 1.2 * 20_000
        list(stream)
        assert corpus.estimated_total() == 20_000


def test_the_fingerprint_follows_what_is_read_and_not_where_it_lies(tmp_path: Path) -> None:
    path = write_ours(tmp_path / "c.jsonl")
    first = read_corpus(path).fingerprint()
    (tmp_path / "other").mkdir()
    assert read_corpus(write_ours(tmp_path / "other" / "name")).fingerprint() == first
    assert read_corpus(path, on_error="skip").fingerprint() == first
    variants = {
        first,
        read_corpus(path, collapse_duplicates=True).fingerprint(),
        read_corpus(path, columns={"text": "title"}).fingerprint(),
    }
    path.write_bytes(path.read_bytes().replace(b"Moses", b"Noses"))
    variants.add(read_corpus(path).fingerprint())
    assert len(variants) == 4
    assert all(len(value) == 64 for value in variants)


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


def test_an_unknown_way_to_treat_errors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match='on_error must be "fail" or "skip", got "ignore"'):
        read_corpus(write_ours(tmp_path / "c.jsonl"), on_error="ignore")  # type: ignore[arg-type]


class TestHub:
    """The datasets library reads a folder as it reads a data set on the hub, so no network is needed."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "set"
        folder.mkdir()
        write_ours(folder / "train.jsonl")
        return folder

    def test_the_only_split_is_taken_and_read_as_often_as_wished(self, folder: Path) -> None:
        corpus = read_corpus(f"hub:{folder}")
        assert list(corpus) == PASSAGES
        assert list(corpus) == PASSAGES
        assert corpus.fingerprint() == read_corpus(f"hub:{folder}").fingerprint()

    def test_one_of_several_splits_must_be_named(self, folder: Path) -> None:
        write_jsonl(folder / "test.jsonl", [{"id": "9", "title": "", "text": "t"}])
        with pytest.raises(RetrieverError, match=r"several splits: name one.*train.*test"):
            read_corpus(f"hub:{folder}")
        with pytest.raises(RetrieverError, match=r'no split "dev".*train, test'):
            read_corpus(f"hub:{folder}:dev")
        for address in (f"hub:{folder}:test", f"hub:{folder}::test", f"hub:{folder}:default:test"):
            assert list(read_corpus(address)) == [Passage("9", "", "t")]
        assert read_corpus(f"hub:{folder}:test").fingerprint() != read_corpus(f"hub:{folder}:train").fingerprint()

    def test_columns_are_mapped_and_faults_name_the_row(self, folder: Path) -> None:
        write_jsonl(folder / "train.jsonl", [{"pid": 1, "passage": "a"}, {"pid": 2, "passage": None}])
        with pytest.raises(RetrieverError, match=r'no field "id" or "_id" .*pid, passage'):
            list(read_corpus(f"hub:{folder}"))
        corpus = read_corpus(f"hub:{folder}", columns={"id": "pid", "text": "passage"})
        with pytest.raises(RetrieverError, match=r'set:2: "passage" must be text, got null'):
            list(corpus)
        skipping = read_corpus(f"hub:{folder}", columns={"id": "pid", "text": "passage"}, on_error="skip")
        assert list(skipping) == [Passage("1", "", "a")]
        assert skipping.report.skipped == {"wrong type": 1}

    def test_a_damaged_file_stops_with_the_row_it_came_to(self, folder: Path) -> None:
        (folder / "train.jsonl").write_text(GOOD + "\n" + '{"id": "2", "title": "" "text"}\n')
        with pytest.raises(RetrieverError, match=r"stopped after row \d"):
            list(read_corpus(f"hub:{folder}", on_error="skip"))

    def test_an_address_that_leads_nowhere_is_an_error_of_one_line(self, tmp_path: Path) -> None:
        for address in (f"hub:{tmp_path}/absent", "hub:", "hub:a:b:c:d"):
            with pytest.raises(RetrieverError) as caught:
                read_corpus(address)
            assert "\n" not in str(caught.value)


@pytest.mark.skipif(SHARED is None, reason="the shared data folder is not beside the checkout")
@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("opendomain/corpus.jsonl", 21_477),
        ("hotpotqa/corpus.jsonl", 17_240),
        ("musique/corpus.jsonl", 8_674),
        ("2wiki/corpus.jsonl", 9_616),
        ("scifact", 5_183),
        ("trec_dl19", 14_581),
    ],
)
def test_real_corpora_have_the_counts_of_their_manifest(source: str, count: int) -> None:
    assert SHARED is not None
    corpus = read_corpus(SHARED / source)
    assert sum(1 for _ in corpus) == count
    assert (corpus.report.read, corpus.report.kept) == (count, count)
