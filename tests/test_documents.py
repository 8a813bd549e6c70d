"""Folders of documents: each kind is made for real, parsed by its library and cut into passages."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retriever.chunking import Chunking, chunk_text
from retriever.corpora import read_corpus
from retriever.corpora.parsers import Document, parse_docx, parse_html, parse_markdown, parse_pdf, parse_text
from retriever.corpora.report import Fault
from retriever.errors import RetrieverError
from tests.test_chunking import word_tokenizer


def make_pdf(pages: list[str], title: str = "") -> bytes:
    """A PDF written by hand: one text line a page; an empty one has no text, as a scan has none."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for page in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET".encode() if page else b"0 0 m 100 100 l S"
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%b] /Count %d >>" % (b" ".join(kids), len(kids))
    objects.append(f"<< /Title ({title}) >>".encode())
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, size - 1, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n%b%b" % (size, table, trailer)


def encrypted(pdf: bytes, user: str, algorithm: str) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf)))
    writer.encrypt(user_password=user, owner_password="owner", algorithm=algorithm)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def make_docx(build: Callable[[Any], None]) -> bytes:
    from docx import Document as new_docx

    document = new_docx()
    build(document)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def parsed(result: Document | Fault) -> Document:
    assert isinstance(result, Document), result
    return result


def test_pdf_gives_title_and_text_by_page() -> None:
    document = parsed(parse_pdf(make_pdf(["First page.", "", "Third page."], title="A Study")))
    assert (document.title, [page.strip() for page in document.pages]) == (
        "A Study",
        ["First page.", "", "Third page."],
    )
    assert document.paged


@pytest.mark.parametrize("title", ["untitled", "Microsoft Word - report_v3.doc", "report.docx", ""])
def test_a_pdf_title_that_a_program_made_up_is_no_title(title: str) -> None:
    assert parsed(parse_pdf(make_pdf(["x"], title=title))).title == ""


def test_a_pdf_without_text_is_called_a_scan() -> None:
    fault = parse_pdf(make_pdf(["", ""]))
    assert isinstance(fault, Fault)
    assert (fault.kind, "2 pages" in fault.detail) == ("no text", True)


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_a_pdf_is_opened_when_it_needs_no_password_and_refused_when_it_does(algorithm: str) -> None:
    plain = make_pdf(["Secret text."])
    assert parsed(parse_pdf(encrypted(plain, "", algorithm))).pages[0].strip() == "Secret text."
    fault = parse_pdf(encrypted(plain, "password", algorithm))
    assert isinstance(fault, Fault)
    assert fault.kind == "encrypted file"


@pytest.mark.parametrize("damage", [b"%PDF-1.4\n", make_pdf(["x"])[:60], b"%PDF-1.7\n" + b"\xff" * 500])
def test_a_damaged_pdf_is_a_fault_and_prints_nothing(damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert isinstance(parse_pdf(damage), Fault)
    assert not [record for record in caplog.records if record.name.startswith("pypdf")]


def test_a_page_that_cannot_be_read_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    pdf = make_pdf(["Good page.", "Bad page."])
    # The second page's content claims a compression that nobody knows.
    at = pdf.rindex(b"<< /Length")
    broken = pdf[:at] + pdf[at:].replace(b"<< /Length", b"<< /Filter /Unknown /Length", 1)
    path = tmp_path / "a.pdf"
    path.write_bytes(broken)
    with pytest.raises(RetrieverError, match=r"a\.pdf: page 2: "):
        list(read_corpus(path))
    assert [p.text for p in read_corpus(path, on_error="skip")] == ["Good page."]


def test_docx_gives_paragraphs_tables_and_insertions_in_order_but_no_deletions() -> None:
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    def build(document: Any) -> None:
        document.add_heading("Report", level=1)
        document.add_paragraph("First").add_run(" bold").bold = True
        table = document.add_table(rows=2, cols=2)
        for cell, text in zip((cell for row in table.rows for cell in row.cells), "abcd", strict=True):
            cell.text = text
        last = document.add_paragraph("Last")
        for tag, body in (("ins", "<w:t> inserted</w:t>"), ("del", "<w:delText> deleted</w:delText>")):
            last._p.append(parse_xml(f"<w:{tag} {nsdecls('w')} w:id='1' w:author='x'><w:r>{body}</w:r></w:{tag}>"))

    document = parsed(parse_docx(make_docx(build)))
    assert document.title == "Report"
    assert document.pages == ["Report\n\nFirst bold\n\na | b\nc | d\n\nLast inserted"]


def test_a_docx_title_property_wins_over_its_heading() -> None:
    def build(document: Any) -> None:
        document.core_properties.title = "Property"
        document.add_heading("Heading", level=1)

    assert parsed(parse_docx(make_docx(build))).title == "Property"


def test_a_docx_with_a_password_or_damage_is_a_fault() -> None:
    locked = parse_docx(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    damaged = parse_docx(make_docx(lambda document: document.add_paragraph("x"))[:200])
    assert isinstance(locked, Fault)
    assert isinstance(damaged, Fault)
    assert (locked.kind, damaged.kind) == ("encrypted file", "unreadable file")


def test_html_gives_what_a_reader_sees() -> None:
    page = """<!DOCTYPE html><html><head><title> A  page </title><style>p {}</style></head><body>
      <h1>Head</h1><p>One <b>bo</b>ld
      line.<br>Next &amp; last.</p><!-- no --><script>var x = "no";</script>
      <ul><li>item</li><li>other</li></ul><table><tr><th>k</th><td>v</td></tr><tr><td><p>a</p></td>
      <td>b</td></tr></table>
      <pre>x = 1\n  y</pre></body></html>"""
    document = parsed(parse_html(page.encode()))
    assert document.title == "A page"
    assert document.pages == ["Head\n\nOne bold line.\nNext & last.\n\nitem\n\nother\n\nk | v\n\na | b\n\nx = 1\n  y"]


def test_html_is_decoded_as_it_says_and_may_be_nested_without_end() -> None:
    latin = '<html><head><meta charset="iso-8859-1"></head><body>café</body></html>'.encode("latin-1")
    assert parsed(parse_html(latin)).pages == ["café"]
    assert parsed(parse_html(b"<b>" * 2000 + b"deep")).pages == ["deep"]


def test_markdown_gives_text_without_marks_and_its_heading_as_title() -> None:
    source = (
        "# A *b*\n\nA [link](http://x)\nand `code` &amp; more.\n\n- one\n- two\n\n| k | v |\n|---|---|\n| a | b |\n\n"
        "```py\ndef f():\n    pass\n```\n"
    )
    document = parsed(parse_markdown(source.encode()))
    assert document.title == "A b"
    assert document.pages[0].startswith("A b\n\nA link and code & more.\n\none\n\ntwo\n\nk | v\na | b\n\ndef f():")
    assert parsed(parse_markdown(b'---\ntitle: "Front"\ntags: [x]\n---\n\nBody')).title == "Front"
    assert parsed(parse_markdown(b"---\ntitle: Front\n---\nBody")).pages == ["Body"]


def test_text_is_utf8_or_marked_utf16_and_anything_else_a_fault() -> None:
    assert parsed(parse_text("\ufeffa\r\nb\rc é".encode())).pages == ["a\nb\nc é"]
    assert parsed(parse_text("Grüße 😀".encode("utf-16"))).pages == ["Grüße 😀"]
    latin, binary = parse_text("a\nb\ncafé".encode("latin-1")), parse_text(b"PK\0\0")
    assert isinstance(latin, Fault)
    assert isinstance(binary, Fault)
    assert (latin.kind, "line 3" in latin.detail, binary.kind) == ("invalid UTF-8", True, "unreadable file")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "sub" / ".hidden").mkdir(parents=True)
    (folder / "b.txt").write_text("Plain text.")
    (folder / "a.PDF").write_bytes(make_pdf(["Page one here.", "Page two here."], title="Paged"))
    (folder / "sub" / "c.md").write_text("# Mark\n\nDown.")
    (folder / "sub" / "d.htm").write_text("<p>Hyper")
    (folder / "sub" / "e.docx").write_bytes(make_docx(lambda document: document.add_paragraph("Word.")))
    for name in ("z.xlsx", ".secret.txt", "~$e.docx", "sub/.hidden/f.txt"):
        (folder / name).write_text("not to be read")
    return folder


def test_a_folder_is_read_sorted_with_ids_titles_and_pages(folder: Path) -> None:
    corpus = read_corpus(folder, chunking=Chunking(4, 0))
    found = [(p.id, p.title, p.text, p.meta) for p in corpus]
    assert found == [
        ("a.PDF#0001", "Paged", "Page one here.", {"source": "a.PDF", "chunk": 1, "page": 1}),
        ("a.PDF#0002", "Paged", "Page two here.", {"source": "a.PDF", "chunk": 2, "page": 2}),
        ("b.txt#0001", "b", "Plain text.", {"source": "b.txt", "chunk": 1}),
        ("sub/c.md#0001", "Mark", "Mark\n\nDown.", {"source": "sub/c.md", "chunk": 1}),
        ("sub/d.htm#0001", "d", "Hyper", {"source": "sub/d.htm", "chunk": 1}),
        ("sub/e.docx#0001", "e", "Word.", {"source": "sub/e.docx", "chunk": 1}),
    ]
    assert (corpus.report.kept, corpus.report.ignored_files) == (6, 1)
    assert "1 files of other kinds ignored" in corpus.report.summary()
    assert corpus.estimated_total() == 6


@pytest.mark.parametrize("name", ["b.txt", "a.PDF", "sub/c.md", "sub/d.htm", "sub/e.docx"])
def test_a_single_document_is_a_corpus_too(folder: Path, name: str) -> None:
    (passage,) = read_corpus(folder / name)
    assert passage.id == f"{Path(name).name}#0001"


def test_chunks_are_those_of_chunk_text_by_the_given_tokenizer(folder: Path) -> None:
    text = " ".join(f"w{number}" for number in range(100))
    (folder / "b.txt").write_text(text)
    tokenizer, chunking = word_tokenizer(), Chunking(30, 5)
    passages = list(read_corpus(folder / "b.txt", chunking=chunking, tokenizer=tokenizer))
    assert [p.text for p in passages] == [chunk.text for chunk in chunk_text(text, tokenizer, chunking)]
    assert [p.id for p in passages] == [f"b.txt#{number:04d}" for number in range(1, 5)]


def test_a_faulty_document_is_named_or_counted(folder: Path) -> None:
    (folder / "bad.pdf").write_bytes(make_pdf([""]))
    (folder / "blank.txt").write_text(" \n")
    (folder / "latin.txt").write_bytes(b"x\ncaf\xe9")
    with pytest.raises(RetrieverError) as caught:
        list(read_corpus(folder))
    message = str(caught.value)
    assert message.startswith(f"{folder / 'bad.pdf'}: none of the 1 pages has text")
    assert "--on-error skip" in message
    corpus = read_corpus(folder, on_error="skip")
    assert len(list(corpus)) == 5
    assert corpus.report.skipped == {"no text": 2, "invalid UTF-8": 1}
    assert corpus.report.examples["invalid UTF-8"] == [
        f"{folder / 'latin.txt'}: line 2 is not valid UTF-8: save the file as UTF-8"
    ]


def test_a_wrongly_named_document_is_read_as_what_it_is(folder: Path) -> None:
    (folder / "a.PDF").rename(folder / "really-a-pdf.txt")
    assert "Page one here." in {p.text for p in read_corpus(folder, chunking=Chunking(4, 0))}


def test_the_fingerprint_follows_bytes_names_and_cutting(folder: Path) -> None:
    first = read_corpus(folder).fingerprint()
    assert read_corpus(folder).fingerprint() == first
    values = {
        first,
        read_corpus(folder, chunking=Chunking(100, 30)).fingerprint(),
        read_corpus(folder, chunking=Chunking(180, 20)).fingerprint(),
        read_corpus(folder, tokenizer=word_tokenizer()).fingerprint(),
    }
    (folder / "b.txt").rename(folder / "c.txt")
    values.add(read_corpus(folder).fingerprint())
    (folder / "c.txt").write_text("Other text.")
    values.add(read_corpus(folder).fingerprint())
    assert len(values) == 6


def test_the_fingerprint_does_not_depend_on_how_a_tokenizer_was_used_before(folder: Path) -> None:
    tokenizer = word_tokenizer()
    first = read_corpus(folder, tokenizer=tokenizer).fingerprint()
    tokenizer("a b c", truncation=True, max_length=2)
    assert read_corpus(folder, tokenizer=tokenizer).fingerprint() == first


def test_a_folder_without_documents_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "wiki.jsonl").write_text('{"id": "1", "text": "a"}\n')
    with pytest.raises(RetrieverError, match=r"neither corpus\.jsonl nor documents .*such as .*wiki\.jsonl"):
        read_corpus(tmp_path)


def test_documents_have_no_columns(folder: Path) -> None:
    for source in (folder, folder / "b.txt"):
        with pytest.raises(RetrieverError, match="no columns to map"):
            read_corpus(source, columns={"id": "x"})


def test_a_text_that_begins_with_some_json_is_still_a_text(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text('{"level": "info"}\nis what the log says.\n')
    assert [p.id for p in read_corpus(path)] == ["notes.txt#0001"]
