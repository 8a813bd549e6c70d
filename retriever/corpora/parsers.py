"""From one document's bytes to its plain text, each kind through a library made for it."""

from __future__ import annotations

import codecs
import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from retriever.corpora.report import Fault

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

_OLE_MAGIC = b"\xd0\xcf\x11\xe0"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*\n", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
# Word processors put a file's name into a PDF when its author gave no title.
_NO_TITLE = re.compile(r"untitled|microsoft word|.*\.(docx?|pdf|tex|indd)$", re.IGNORECASE)
# What a browser starts on a new line; everything else flows with the text around it.
_BLOCKS = re.compile(
    r"address|article|aside|blockquote|body|caption|d[dlt]|details|dialog|div|fieldset|figcaption|figure|footer|form|"
    r"h[1-6r]|header|li|main|nav|ol|option|p|pre|section|summary|table|ul"
)
_GAPS = {"td": " | ", "th": " | ", "tr": "\n", "br": "\n"}
_UNSEEN = ("script", "style", "template", "noscript", "svg", "head")
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MC_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"


@dataclass(frozen=True, slots=True)
class Document:
    """The text of one document.

    Attributes:
        title: What the document says its title is; "" where it doesn't.
        pages: Its text; one entry a page for PDF, one in all for other kinds.
        paged: Whether the entries are pages that people know by number (from 1).
        faults: Parts that could not be read, each with its place in the document ("" or "page 3").
    """

    title: str
    pages: list[str]
    paged: bool = False
    faults: list[tuple[str, Fault]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Parser:
    """One kind of document.

    Attributes:
        kind: Its name.
        suffixes: Endings of files of this kind, small letters.
        parse: From bytes to Document, or the Fault that makes the file unreadable.
        packages: Distributions that decide what text comes out.
    """

    kind: str
    suffixes: tuple[str, ...]
    parse: Callable[[bytes], Document | Fault]
    packages: tuple[str, ...] = ()


def parse_text(data: bytes) -> Document | Fault:
    """Plain text: UTF-8, or UTF-16 with a byte-order mark."""
    text = _decode(data)
    return text if isinstance(text, Fault) else Document("", [text])


def parse_markdown(data: bytes) -> Document | Fault:
    """Markdown (CommonMark and tables): rendered to HTML, whose text is taken. Front matter gives only a title."""
    from markdown_it import MarkdownIt

    text = _decode(data)
    if isinstance(text, Fault):
        return text
    title = ""
    if front := _FRONT_MATTER.match(text):
        named = _FRONT_TITLE.search(front.group(1))
        title = named.group(1).strip("\"'") if named else ""
        text = text[front.end() :]
    document = _read_html(MarkdownIt("commonmark").enable("table").render(text))
    return Document(title or document.title, document.pages)


def parse_html(data: bytes) -> Document | Fault:
    """HTML in whatever encoding it declares; scripts, styles and the head are left out."""
    return _read_html(data)


def parse_pdf(data: bytes) -> Document | Fault:
    """The text layer of a PDF, page by page. Files that open without a password are opened even when encrypted."""
    from pypdf import PdfReader

    with _quiet("pypdf"):
        try:
            reader = PdfReader(io.BytesIO(data))
            if reader.is_encrypted and not reader.decrypt(""):
                return Fault("encrypted file", "the PDF needs a password: save a copy without one")
            count = len(reader.pages)
            title = str(reader.metadata.title or "") if reader.metadata else ""
        except Exception as error:  # noqa: BLE001 - damaged files raise KeyError, TypeError and more, besides its own
            return Fault("unreadable file", f"not a readable PDF: {_one_line(error)}")
        pages: list[str] = []
        faults: list[tuple[str, Fault]] = []
        for number in range(count):
            try:
                pages.append(_clean(reader.pages[number].extract_text()))
            except Exception as error:  # noqa: BLE001 - as above
                pages.append("")
                fault = Fault("unreadable page", f"the page cannot be read: {_one_line(error)}")
                faults.append((f"page {number + 1}", fault))
    if not faults and not any(page.strip() for page in pages):
        return Fault("no text", f"none of the {count} pages has text (a scan?): run text recognition over it first")
    if _NO_TITLE.match(title.strip()):
        title = ""
    return Document(_clean(title).strip(), pages, paged=True, faults=faults)


def parse_docx(data: bytes) -> Document | Fault:
    """Word: paragraphs, tables (a row a line) and text boxes in their order; inserted text counts, deleted doesn't."""
    from docx import Document as open_docx

    if data.startswith(_OLE_MAGIC):
        return Fault("encrypted file", "a Word file with a password, or an old .doc: save it as .docx without one")
    try:
        opened = open_docx(io.BytesIO(data))
        blocks = list(_docx_blocks(opened.element.body))
        title = opened.core_properties.title or ""
        if not title:
            styles = ("Title", "Heading 1")
            heads = (p for p in opened.paragraphs if p.style is not None and p.style.name in styles and p.text.strip())
            title = next((head.text for head in heads), "")
    except Exception as error:  # noqa: BLE001 - damage shows as KeyError, BadZipFile, XMLSyntaxError and others
        return Fault("unreadable file", f"not a readable .docx: {_one_line(error)}")
    return Document(title.strip(), [_clean("\n\n".join(block for block in blocks if block.strip()))])


PARSERS = {
    parser.kind: parser
    for parser in (
        Parser("txt", (".txt", ".text"), parse_text),
        Parser("md", (".md", ".markdown"), parse_markdown, ("markdown-it-py", "beautifulsoup4")),
        Parser("html", (".html", ".htm", ".xhtml"), parse_html, ("beautifulsoup4",)),
        Parser("pdf", (".pdf",), parse_pdf, ("pypdf",)),
        Parser("docx", (".docx",), parse_docx, ("python-docx",)),
    )
}


def document_kind(head: bytes, suffix: str) -> str | None:
    """Kind of a document by its first bytes, else by its name's ending; None when neither tells."""
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n")[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    kind = next((parser.kind for parser in PARSERS.values() if suffix.lower() in parser.suffixes), None)
    if kind is None and (head.startswith(_OLE_MAGIC) or (head.startswith(b"PK") and b"word/" in head)):
        return "docx"
    return kind


def _decode(data: bytes) -> str | Fault:
    encoding = "utf-16" if data.startswith(_UTF16_MARKS) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding == "utf-16":
            return Fault("invalid UTF-16", "not valid UTF-16 text: save it as UTF-8")
        line = data.count(b"\n", 0, error.start) + 1
        return Fault("invalid UTF-8", f"line {line} is not valid UTF-8: save the file as UTF-8")
    if "\0" in text:
        return Fault("unreadable file", "holds NUL bytes: not a text file, or UTF-16 without a byte-order mark")
    return _clean(text)


def _clean(text: str) -> str:
    """One kind of line end, no NUL, and no half characters (PDFs give surrogate pairs in two halves)."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", " ")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _read_html(markup: str | bytes) -> Document:
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(markup, "html.parser")
    heading = soup.find("title") or soup.find("h1")
    title = " ".join(heading.get_text().split()) if heading else ""
    for tag in soup(_UNSEEN):
        tag.decompose()
    return Document(_clean(title), [_clean(_html_text(soup))])


def _html_text(soup: BeautifulSoup) -> str:
    """Text as a browser would lay it out: blocks apart, white space folded except in <pre>, cells of a row joined."""
    from bs4.element import NavigableString, PreformattedString, Tag

    pieces: list[str] = []

    def add_gap(gap: str) -> None:
        if pieces and gap.startswith("\n"):
            pieces[-1] = pieces[-1].rstrip(" ") or " "
        pieces.append(gap)

    # A stack of our own, for pages nest deeper than Python may. Plain strings on it are gaps to come.
    stack: list[tuple[Any, bool]] = [(child, False) for child in reversed(soup.contents)]
    while stack:
        node, literal = stack.pop()
        if isinstance(node, Tag):
            gap = "\n\n" if _BLOCKS.fullmatch(node.name) else _GAPS.get(node.name, "")
            if gap == "\n\n":
                add_gap(gap)
            stack.append((gap, False))
            literal = literal or node.name in ("pre", "textarea")
            stack.extend((child, literal) for child in reversed(node.contents))
        elif isinstance(node, PreformattedString):  # comments, doctypes and the like
            continue
        elif not isinstance(node, NavigableString):
            if node:
                add_gap(node)
        elif literal:
            pieces.extend([str(node)] if node else [])
        else:
            text = re.sub(r"\s+", " ", str(node))
            text = text.lstrip() if not pieces or pieces[-1][-1].isspace() else text
            pieces.extend([text] if text else [])
    text = "".join(pieces)
    text = re.sub(r"\n+ \| ", " | ", text)  # paragraphs inside a cell
    text = re.sub(r"(?: \| ?)+(?=\n|$)", "", text)
    return re.sub(r"\n[ \t]*\n\s*\n|\n[ \t]+\n", "\n\n", text).strip()


def _docx_blocks(parent: Any) -> Iterator[str]:
    """Paragraphs and tables below an element, content controls and text boxes included."""
    for child in parent.iterchildren():
        if child.tag == f"{_W}p":
            yield _docx_paragraph(child)
            for box in child.iter(f"{_W}txbxContent"):
                if not any(above.tag == _MC_FALLBACK for above in box.iterancestors()):
                    yield from _docx_blocks(box)
        elif child.tag == f"{_W}tbl":
            rows = []
            for row in child.iterchildren(f"{_W}tr"):
                cells = (" ".join(" ".join(_docx_blocks(cell)).split()) for cell in row.iterchildren(f"{_W}tc"))
                rows.append(" | ".join(cells))
            yield "\n".join(rows)
        elif child.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins"):
            yield from _docx_blocks(child)


def _docx_paragraph(paragraph: Any) -> str:
    pieces = []
    for node in paragraph.iter(f"{_W}t", f"{_W}tab", f"{_W}br", f"{_W}cr"):
        owner = next(above for above in node.iterancestors() if above.tag in (f"{_W}p", f"{_W}pPr"))
        if owner is not paragraph:  # of a text box inside, or a tab stop's definition
            continue
        pieces.append((node.text or "") if node.tag == f"{_W}t" else "\t" if node.tag == f"{_W}tab" else "\n")
    return "".join(pieces)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a library's remarks on slightly odd files from people's terminals; errors are still raised."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".removesuffix(": ")
