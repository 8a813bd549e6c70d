"""What the command line writes: answers as tables, progress bars, and errors as one line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rag_app.progress import duration

if TYPE_CHECKING:
    from rag_app.answers import Answer
    from rag_app.progress import StepProgress

# Results go to standard output; everything else to standard error, so that --json can be piped.
out = Console()
err = Console(stderr=True)

EXCERPT_WORDS = 28
LINE_SECONDS = 10


def log(line: str) -> None:
    """A line about what is being done."""
    err.print(f"[dim]{escape(line)}[/dim]", highlight=False)


def note(line: str) -> None:
    """What a person should know before reading anything into the results."""
    err.print(f"[yellow]note:[/yellow] {escape(line)}", highlight=False, soft_wrap=True)


def fail(message: str) -> None:
    """An error, in one line."""
    err.print(f"[red]error:[/red] {escape(' '.join(message.split()))}", highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """A value as JSON on standard output, as it is: no colours, no wrapping."""
    print(json.dumps(value, ensure_ascii=False))


@contextmanager
def progress_bar() -> Iterator[StepProgress]:
    """A bar with count, rate and time left; give the value to a pipeline as its `progress`.

    Where standard error is no terminal, a line every few seconds instead.
    """
    if not err.is_terminal:
        yield progress_lines()
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_rate(task.speed or 0.0))

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=err, transient=False, speed_estimate_period=60) as bars:
        tasks: dict[str, Any] = {}
        reached: dict[str, int] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            elif done < reached[what]:  # another of its kind, such as the next training of a sweep
                bars.reset(tasks[what], total=total)
            reached[what] = done
            bars.update(tasks[what], completed=done, total=max(total, done) if total else None)

        yield report


def progress_lines(clock: Callable[[], float] = time.monotonic) -> StepProgress:
    """Lines in place of bars.

    Args:
        clock: Seconds.
    """
    last: dict[str, tuple[float, int]] = {}
    timed: set[str] = set()
    reached: dict[str, int] = {}

    def report(what: str, done: int, total: int | None) -> None:
        now = clock()
        if done < reached.get(what, 0):  # another of its kind, such as the next training of a sweep
            last.pop(what)
            timed.discard(what)
        reached[what] = done
        before, done_before = last.setdefault(what, (now, done))
        if now - before < LINE_SECONDS:
            return
        last[what] = (now, done)
        # The rate since the last line, and none in the first: that one holds the loading, and what a resumed step found.
        rate = (done - done_before) / (now - before)
        pace = ""
        if what in timed:
            pace = f", {_rate(rate)}" if rate else ""
            if total and rate and done < total:
                pace += f", {duration((total - done) / rate)} left"
        timed.add(what)
        log(f"{what}: {done:,}{f' of {total:,}' if total else ''}{pace}")

    return report


def _rate(a_second: float) -> str:
    """As "3.2/s", or "one in 4.0 s"; "" for none."""
    if not a_second:
        return ""
    return f"{a_second:,.1f}/s" if a_second >= 1 else f"one in {1 / a_second:,.1f} s"


def print_answer(answer: Answer) -> None:
    """One retriever's answer with its passages and the factors of their scores."""
    title = f"[bold]{escape(answer.retriever)}[/bold]"
    if answer.error:
        out.print(f"{title}: [red]no answer[/red] ({escape(answer.error)})", highlight=False)
    elif answer.prompt:
        text = escape(answer.answer) or "[dim](the reader gave no answer)[/dim]"
        out.print(f"{title}: [green]{text}[/green]", highlight=False)
    else:
        out.print(title)
    if answer.hits:
        out.print(_passages(answer))
    elif answer.retriever != "closed-book":
        out.print("[dim]no passage found[/dim]")
    if answer.dropped:
        out.print(f"[dim]{answer.dropped} passage(s) left out of the prompt for length[/dim]")
    if answer.timings:
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in answer.timings.items())
        out.print(f"[dim]seconds: {stages}[/dim]", highlight=False)
    out.print()


def _passages(answer: Answer) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    dense = answer.hits[0].cosine is not None
    for heading in ("#", "score", *(("cosine", "|d|") if dense else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("passage")
    for hit in answer.hits:
        words = hit.passage.text.split()
        excerpt = " ".join(words[:EXCERPT_WORDS]) + (" …" if len(words) > EXCERPT_WORDS else "")
        factors = [f"{hit.cosine:.3f}", f"{hit.norm:.2f}"] if hit.cosine is not None else []
        heading = f"[bold]{escape(hit.passage.title)}[/bold]: " if hit.passage.title else ""
        table.add_row(str(hit.rank), f"{hit.score:.3f}", *factors, heading + escape(excerpt))
    return table
