"""Tables for a paper: LaTeX with booktabs."""

from __future__ import annotations

import re

from eval.report import tables
from eval.report.tables import Table
from eval.summary import Metrics

_SIGNS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
}
_PAIR = re.compile(r"(['-])(?=\1)")
_NUMBER = re.compile(r"(?<![\w.-])[+-](?=\d)")


def latex_tables(metrics: Metrics) -> str:
    r"""Every table of the run, each in a table environment of its own, for \input into a paper."""
    overview = tables.overview(metrics)
    note = tables.overview_note(metrics)
    measures = " ".join(tables.notes(metrics)[:1])
    parts = [
        "% Needs \\usepackage{booktabs}, \\usepackage{textcomp} and, for \\textquotedbl, \\usepackage[T1]{fontenc}."
    ]
    # A table is often copied without what stands around it.
    unfinished = "UNFINISHED RUN. " if any(note.startswith("UNFINISHED") for note in metrics.notes) else ""
    parts.append(_environment(overview, f"{unfinished}Main figures. {note}".rstrip(), "overview"))
    for at, (_, systems) in enumerate(tables.by_dataset(metrics).items(), start=1):
        dataset = systems[0].dataset
        pairs = [pair for pair in metrics.comparisons if pair.dataset == dataset]
        made = (tables.answers(systems), tables.rankings(systems), tables.curves(systems), tables.comparisons(pairs),
                tables.causes(systems))  # fmt: skip
        for table in made:
            if table is not None:
                caption = f"{unfinished}{table.title}: {tables.heading(systems)}. {measures if '[' in str(table.rows) else ''}".rstrip()
                parts.append(_environment(table, caption, f"{at}-{table.title.lower().replace(' ', '-')}"))
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text as LaTeX prints it, sign for sign; white space becomes one space."""
    escaped = "".join(_SIGNS.get(sign, sign) for sign in " ".join(text.split()))
    # Two hyphens would be drawn as a dash, two apostrophes as a quotation mark.
    return _PAIR.sub(r"\1{}", escaped)


def _environment(table: Table, caption: str, label: str) -> str:
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escape(caption)}}}",
        rf"  \label{{tab:magrag-{label}}}",
        rf"  \begin{{tabular}}{{{'l' * table.names}{'r' * (len(table.header) - table.names)}}}",
        r"    \toprule",
        f"    {_row([escape(title) for title in table.header])}",
        r"    \midrule",
    ]
    for at, row in enumerate(table.rows):
        cells = [_cell(cell, figure=column >= table.names) for column, cell in enumerate(row)]
        cells = [rf"\textbf{{{cell}}}" if (at, column) in table.best else cell for column, cell in enumerate(cells)]
        lines.append(f"    {_row(cells)}")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"])


def _row(cells: list[str]) -> str:
    # After \\ of the line before, [ would open its optional argument and * its starred form.
    if cells[0].startswith(("[", "*")):
        cells = [f"{{}}{cells[0]}", *cells[1:]]
    return " & ".join(cells) + r" \\"


def _cell(text: str, *, figure: bool) -> str:
    if not figure:
        return escape(text)
    if text == tables.NONE:
        return "--"
    # A hyphen before a figure is a minus, which only mathematics has.
    return _NUMBER.sub(lambda sign: f"${sign.group()}$", escape(text))
