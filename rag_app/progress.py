"""What a long command tells of its work: lines, steps done of how many, and the stages it is in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Stage = TypeVar("Stage")

Log = Callable[[str], None]
"""Is told, in a line, of what is done."""
StepProgress = Callable[[str, int, int | None], None]
"""Is told what is under way, how much of it is done, and of how much where that is known."""


def stages(
    what: str,
    all_of_them: Sequence[Stage],
    describe: Callable[[Stage], str],
    log: Log,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Stage]:
    """Each stage in turn, which lasts until the next one is asked for.

    Args:
        what: What they are, in one word ("training").
        all_of_them: In order.
        describe: A stage in a few words.
        log: Told, in a line, of each one's beginning and end. The time left is a bound, that all others take as long as
            the longest so far: those that an earlier start finished take none.
        clock: Seconds.
    """
    longest, total = 0.0, len(all_of_them)
    for number, stage in enumerate(all_of_them, start=1):
        log(f"{what} {number} of {total}: {describe(stage)}")
        began = clock()
        yield stage
        seconds = clock() - began
        longest = max(longest, seconds)
        line = f"{what} {number} of {total} took {duration(seconds)}"
        if left := total - number:
            line += f"; next is {describe(all_of_them[number])}; {left} left, at most about {duration(left * longest)}"
        log(line)


def duration(seconds: float) -> str:
    """As "40 s", "12 min" or "3 h 05 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
