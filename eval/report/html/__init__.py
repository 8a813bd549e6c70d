"""report.html: one self-contained page of a run."""

from eval.report.html.page import html_report

__all__ = ["html_report"]
