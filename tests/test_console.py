"""What the command line tells while something takes long."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from rag_app import console


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[tuple[float, int, int]]], list[str]]:
    """The lines for reports of (seconds, done, total)."""

    def told(reports: list[tuple[float, int, int]]) -> list[str]:
        seconds, written = iter([when for when, *_ in reports]), io.StringIO()
        monkeypatch.setattr(console, "err", Console(file=written, width=200))
        report = console.progress_lines(lambda: next(seconds))
        for _, done, total in reports:
            report("rankings", done, total)
        return written.getvalue().splitlines()

    return told


def test_a_count_that_begins_anew_is_another_and_never_runs_backwards(
    lines: Callable[[list[tuple[float, int, int]]], list[str]],
) -> None:
    assert lines([(0, 0, 150), (11, 60, 150), (22, 104, 150), (30, 150, 150), (40, 0, 150), (52, 24, 150)]) == [
        "rankings: 60 of 150",
        "rankings: 104 of 150, 4.0/s, 12 s left",
        "rankings: 24 of 150",
    ]
    # The next one may begin above the last line, though not above what was reached.
    assert lines([(0, 0, 50), (11, 10, 50), (15, 50, 50), (23, 32, 90), (34, 54, 90), (45, 76, 90)]) == [
        "rankings: 10 of 50",
        "rankings: 54 of 90",
        "rankings: 76 of 90, 2.0/s, 7 s left",
    ]


def test_slow_rates_are_told_by_the_piece_and_none_where_nothing_moves(
    lines: Callable[[list[tuple[float, int, int]]], list[str]],
) -> None:
    assert lines([(0, 0, 9), (15, 1, 9), (45, 3, 9), (60, 3, 9)]) == [
        "rankings: 1 of 9",
        "rankings: 3 of 9, one in 15.0 s, 2 min left",
        "rankings: 3 of 9",
    ]


def test_a_bar_begins_anew_too(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=written, width=100, force_terminal=True))
    with console.progress_bar() as report:
        for done in (0, 5, 0, 2):
            report("rankings", done, 5)
    last = next(line for line in reversed(written.getvalue().splitlines()) if "rankings" in line)
    assert "2/5" in last and "-:--:--" in last  # unfinished again
