"""Files that people bring: names, limits, previews and passages, measured in words (no model)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_app.errors import ConfigError
from rag_app.gathering import (
    LONGEST_NAME,
    NO_COLUMN,
    Gathered,
    Step,
    check_files,
    clean_name,
    gather,
    preview,
    stage_files,
    table_columns,
)
from retriever.chunking import Chunking
from retriever.corpora import read_corpus


def run(files: list[Path], out: Path, **settings: object) -> tuple[Gathered, list[dict[str, object]]]:
    given_: dict[str, object] = {
        "chunking": Chunking(20, 0),
        "columns": {},
        "tokenizer": None,
        "most": 1000,
        "step": lambda step: None,
    }
    gathered = gather(files, out, **(given_ | settings))  # type: ignore[arg-type]
    return gathered, [json.loads(line) for line in out.open(encoding="utf-8")]


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd.txt", "_.._etc_passwd.txt"),
        ("..\\..\\x.md", "_.._x.md"),
        (".hidden.txt", "hidden.txt"),
        ("~$lock.docx", "lock.docx"),
        ("a\nb\x00c\u202e.txt", "a_b_c_.txt"),
        ("<img src=x onerror=alert(1)>.txt", "_img src=x onerror=alert(1)_.txt"),
        ("Žluťoučký kůň.txt", "Žluťoučký kůň.txt"),
        ("...", "file"),
        ("", "file"),
    ],
)
def test_names_are_made_safe(name: str, clean: str) -> None:
    assert clean_name(name) == clean


@given(st.text(max_size=300))
def test_any_name_is_one_short_visible_part_of_a_path(name: str) -> None:
    clean = clean_name(name)
    assert 0 < len(clean) <= LONGEST_NAME
    assert not set(clean) & set('/\\:*?"<>|\0\n') and not clean.startswith(".")
    assert Path("/folder", clean).resolve().parent == Path("/folder")


def test_copies_have_clean_names_of_which_each_stands_once(tmp_path: Path) -> None:
    for place, text in (("a", "one"), ("b", "two"), ("c", "three")):
        (tmp_path / place).mkdir()
        (tmp_path / place / ("Notes.TXT" if place == "c" else "notes.txt")).write_text(text)
    files = [next((tmp_path / place).iterdir()) for place in "abc"]
    copies = stage_files(files, tmp_path / "staged")
    assert [copy.name for copy in copies] == ["notes.txt", "notes (2).txt", "Notes (3).TXT"]
    assert [copy.read_text() for copy in copies] == ["one", "two", "three"]


def test_files_are_checked_before_they_are_read(tmp_path: Path) -> None:
    small = tmp_path / "small.txt"
    small.write_text("x" * 100)
    check_files([small], 100)
    with pytest.raises(ConfigError, match="more than the"):
        check_files([small, small], 199)
    with pytest.raises(ConfigError, match="501 files are too many"):
        check_files([small] * 501, 10**9)
    with pytest.raises(ConfigError, match="gone.txt is not on this machine any more: upload it again"):
        check_files([small, tmp_path / "gone.txt"], 10**9)


def test_files_of_all_kinds_become_one_corpus_with_ids_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Otters hold hands.")
    (tmp_path / "b.csv").write_text("id,title,text,year\n1,Lions,Lions sleep.,1900\n")
    (tmp_path / "c.jsonl").write_text('{"id": 1, "text": "Trains run.", "title": "Trains"}\n')
    (tmp_path / "d.html").write_text("<title>Page</title><p>Bees &amp; honey.</p>")
    files = sorted(tmp_path.glob("?.*"))
    steps: list[Step] = []
    gathered, rows = run(files, tmp_path / "out.jsonl", step=steps.append)
    assert gathered == Gathered(4)
    assert [(row["id"], row["title"], row["text"]) for row in rows] == [
        ("a.txt#0001", "a", "Otters hold hands."),
        ("b.csv:1", "Lions", "Lions sleep."),
        ("c.jsonl:1", "Trains", "Trains run."),
        ("d.html#0001", "Page", "Page\n\nBees & honey."),
    ]
    assert rows[1]["year"] == "1900" and rows[0]["source"] == "a.txt"
    assert [(step.what, step.done) for step in steps] == [("a.txt", 0), ("b.csv", 1), ("c.jsonl", 2), ("d.html", 3)]
    assert [passage.id for passage in read_corpus(tmp_path / "out.jsonl")] == [row["id"] for row in rows]


def test_columns_are_taken_as_chosen_else_guessed_else_known(tmp_path: Path) -> None:
    table = tmp_path / "faq.csv"
    table.write_text("Title,Body,Notes\nT,B,N\n")
    assert table_columns([tmp_path / "none.txt", table]) == ["Title", "Body", "Notes"]
    out = tmp_path / "out.jsonl"

    def row(**columns: str) -> tuple[object, ...]:
        (only,) = run([table], out, columns=columns)[1]
        return only["id"], only["title"], only["text"]

    assert row() == ("2", "T", "B")
    assert row(text="Notes", title="Body", id="Title") == ("T", "B", "N")
    assert row(text="Notes", title=NO_COLUMN, id=NO_COLUMN) == ("2", "", "N")
    assert row(text="Elsewhere") == ("2", "T", "B")  # of another table
    flash = tmp_path / "flash.jsonl"
    flash.write_text('{"id": "1", "contents": "\\"Title\\"\\nText."}\n')
    assert [(r["title"], r["text"]) for r in run([flash], out)[1]] == [("Title", "Text.")]


def test_what_cannot_be_read_is_left_out_and_told_without_our_folders(tmp_path: Path) -> None:
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    (tmp_path / "good.txt").write_text("Otters.")
    lines = "".join(f"{n},x,too many\n" for n in range(20))
    (tmp_path / "rows.csv").write_text(f"id,text\n1,Lions.\n{lines}")
    files = sorted(tmp_path.iterdir())
    gathered, rows = run(files, tmp_path / "out.jsonl")
    assert [row["text"] for row in rows] == ["Otters.", "Lions."]
    assert len(gathered.faults) <= 6 and gathered.faults[-1] == "rows.csv: and 17 more"
    assert gathered.faults[0].startswith("bad.pdf") and "rows.csv:3" in gathered.faults[1]
    assert str(tmp_path) not in " ".join(gathered.faults)
    with pytest.raises(ConfigError, match="nothing to search in these files: bad.pdf") as caught:
        run(files[:1], tmp_path / "out.jsonl")
    assert str(tmp_path) not in str(caught.value)


def test_every_file_that_could_not_be_read_is_named_however_many_bad_lines_there_are(tmp_path: Path) -> None:
    bad = "".join(f'{{"id": {n}}}\nx\n"y"\n[\n{{"id": {n}.5, "text": "a"}}\n' for n in range(9))
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(f'{{"id": "1", "text": "Lions."}}\n{bad}')
    for name in ("c.pdf", "d.txt", "e.txt"):
        (tmp_path / name).write_bytes(b"caf\xe9")
    gathered, _ = run(sorted(tmp_path.iterdir()), tmp_path / "out.jsonl")
    assert [fault[:5] for fault in gathered.faults[:3]] == ["c.pdf", "d.txt", "e.txt"]
    assert gathered.faults[1] == "d.txt holds no passages: line 1 is not valid UTF-8: save the file as UTF-8"
    assert [fault.split(":")[0] for fault in gathered.faults[3:]] == ["a.jsonl"] * 6 + ["b.jsonl"] * 6
    assert gathered.faults[-1] == "b.jsonl: and 40 more"
    with pytest.raises(ConfigError, match=r"in these files: c\.pdf .*; d\.txt .*; e\.txt"):
        run(sorted(tmp_path.glob("[cde].*")), tmp_path / "out.jsonl")


def test_a_first_line_that_seems_to_be_a_passage_is_not_lost_without_a_word(tmp_path: Path) -> None:
    table, out = tmp_path / "rows.csv", tmp_path / "out.jsonl"
    words = "rows.csv: the first line names the columns and is no passage, but seems to be no header"
    for first in ("1,Sea otters", "7.5,Otters", "Otters,Sea otters hold hands while asleep."):
        table.write_text(f"{first}\n2,Lions sleep in the sun all day.\n")
        columns = {"text": table_columns([table])[1]}
        gathered, rows = run([table], out, columns=columns)
        assert [row["text"] for row in rows] == ["Lions sleep in the sun all day."]
        assert len(gathered.faults) == 1 and gathered.faults[0].startswith(f"{words} ({first.replace(',', ', ')}): put")
        seen = preview(table, chunking=Chunking(), columns=columns, tokenizer=None, count=2, most=5)
        assert (seen.fault, seen.header) == (gathered.faults[0], tuple(first.split(",")))
    table.write_text("1,Otters\n")  # and nothing else
    with pytest.raises(ConfigError, match="rows.csv holds no passages: it has a header alone"):
        run([table], out, columns={"text": "Otters"})
    for first in ("Art. no.,What does it do all day?", "Animal,2019", "name,text"):
        table.write_text(f"{first}\n2,Lions\n")
        seen = preview(
            table, chunking=Chunking(), columns={"text": table_columns([table])[1]}, tokenizer=None, count=2, most=5
        )
        assert (seen.fault == "") == (first != "Animal,2019") and len(seen.chunks) == 1


def test_a_table_in_another_encoding_has_no_columns_to_choose(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    for encoding in ("latin-1", "utf-16"):
        table.write_text("Straße;Satz\nAm Weg;Löwen schlafen.\n", encoding=encoding)
        assert table_columns([table]) == []
        with pytest.raises(ConfigError, match=r"rows\.csv.*: save (the file|it) as UTF-8"):
            run([table], tmp_path / "out.jsonl")


def test_more_passages_than_allowed_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text\n" + "Lions.\n" * 4)
    assert run([file], tmp_path / "out.jsonl", most=4)[0].passages == 4
    with pytest.raises(ConfigError, match="more than the 3 passages"):
        run([file], tmp_path / "out.jsonl", most=3)


def test_a_preview_counts_up_to_a_limit_and_tells_the_first_fault(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text(" ".join(f"word{n}" for n in range(100)))

    def seen(most: int) -> tuple[list[int], int | None]:
        found = preview(file, chunking=Chunking(20, 0), columns={}, tokenizer=None, count=2, most=most)
        assert found.name == "long.txt" and found.fault == ""
        return [chunk.tokens for chunk in found.chunks], found.total

    assert seen(5) == ([20, 20], 5)
    assert seen(4) == ([20, 20], None)
    empty = tmp_path / "empty.txt"
    empty.write_text(" ")
    found = preview(empty, chunking=Chunking(), columns={}, tokenizer=None, count=2, most=5)
    assert found.chunks == () and "no text" in found.fault and str(tmp_path) not in found.fault
