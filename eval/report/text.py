"""A run's figures for people: plain text for a terminal, Markdown, LaTeX and one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eval.report import tables
from eval.report.html.page import html_report
from eval.report.latex import latex_tables
from eval.report.provenance import provenance
from eval.report.render import aligned, listed, markdown, plain
from eval.report.tables import Table
from eval.summary import Metrics
from eval.view import RunView

__all__ = ["html_report", "latex_tables", "markdown_report", "text_table"]


def text_table(metrics: Metrics) -> str:
    """The tables for a terminal, in aligned columns, with the notes under them."""
    return _render(metrics, aligned, lambda title: title, lambda line: line)


def markdown_report(view: RunView, metrics: Metrics, seconds: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """The report of a run.

    Args:
        view: The run; its manifest says how it was made.
        metrics: The figures.
        seconds: Mean seconds a question by system and stage (`eval.summary.mean_seconds`).
    """
    parts = ["# Evaluation", _render(metrics, markdown, lambda title: f"## {plain(title)}", plain)]
    table = tables.seconds_table(seconds or {})
    if table is not None:
        parts += [f"## {table.title}", markdown(table)]
    facts = listed(f"{name}: {value}" for name, value in provenance(view.manifest))
    parts += ["## How it was made", f"{facts}\n\nThe whole configuration is in run.json."]
    return "\n\n".join(parts) + "\n"


def _render(
    metrics: Metrics, render: Callable[[Table], str], heading: Callable[[str], str], safe: Callable[[str], str]
) -> str:
    parts: list[str] = []
    sets = tables.by_dataset(metrics)
    if len(sets) > 1:
        parts += [heading("Overview"), render(tables.overview(metrics))]
    for dataset, systems in sets.items():
        pairs = [pair for pair in metrics.comparisons if pair.dataset == dataset]
        found = (tables.answers(systems), tables.rankings(systems), tables.curves(systems), tables.comparisons(pairs),
                 tables.causes(systems))  # fmt: skip
        parts += [heading(tables.heading(systems)), *(render(table) for table in found if table is not None)]
    parts.append("\n".join(f"- {safe(line)}" for line in tables.notes(metrics) + tables.warnings(metrics)))
    return "\n\n".join(parts)
