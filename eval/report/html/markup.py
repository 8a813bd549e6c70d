"""Pieces of HTML. Whatever a run holds (names, questions, answers, titles) is untrusted: it goes through `text`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from eval.report.tables import NONE, Table

# Signs that would turn the direction of what follows them; the browser finds the direction itself (dir="auto").
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def text(value: object) -> str:
    """Escaped for element content and for attributes in double quotes."""
    return escape(_TURNS.sub("", str(value)))


def table_html(table: Table, *, caption: str = "") -> str:
    """A table in a region that scrolls on its own where the window is too narrow."""
    head = "".join(
        f'<th scope="col"{"" if column < table.names else _FIGURE}>{text(title)}</th>'
        for column, title in enumerate(table.header)
    )
    rows = []
    for at, row in enumerate(table.rows):
        cells = []
        for column, cell in enumerate(row):
            shown = "–" if cell == NONE else text(cell)
            if (at, column) in table.best:
                shown = f"<strong>{shown}</strong>"
            if column == 0:
                cells.append(f'<th scope="row">{shown}</th>')
            else:
                cells.append(f"<td{'' if column < table.names else _FIGURE}>{shown}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    title = caption or table.title
    return scroller(
        f"<table><caption>{text(title)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>",
        title,
    )


def scroller(content: str, label: str) -> str:
    """A region that the keyboard can reach, since only then can it be scrolled without a mouse."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{text(label)}">{content}</div>'


def details(summary: str, content: str) -> str:
    """Content on demand."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def items(lines: Sequence[str], kind: str = "") -> str:
    """A list of sentences."""
    return f'<ul class="{kind}">' + "".join(f"<li>{text(line)}</li>" for line in lines) + "</ul>" if lines else ""


_FIGURE = ' class="figure"'
