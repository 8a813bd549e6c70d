"""A table as plain text or as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from eval.report.tables import Table

# What a Markdown viewer would take for a tag or a comment.
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def aligned(table: Table) -> str:
    """For a terminal: columns of equal width, names to the left and figures to the right."""
    lines = [table.header, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < table.names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def markdown(table: Table) -> str:
    """As Markdown, its best cells in bold."""
    rows = [
        [f"**{_cell(cell)}**" if (at, column) in table.best else _cell(cell) for column, cell in enumerate(row)]
        for at, row in enumerate(table.rows)
    ]
    rule = ["---" if column < table.names else "---:" for column in range(len(table.header))]
    lines = [[_cell(title) for title in table.header], rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(text: str) -> str:
    """For Markdown: on one line, and no HTML."""
    return _TAG.sub("&lt;", " ".join(text.split()))


def listed(lines: Iterable[str]) -> str:
    """As a list of Markdown, which a terminal shows as well."""
    return "\n".join(f"- {plain(line)}" for line in lines)


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")
