"""How far something is, as HTML: a bar, and beside it what is done, how fast, and how long it will still take."""

from __future__ import annotations

from eval.report.html.markup import text


def render_progress(what: str, facts: str, done: int = 0, total: int | None = None) -> str:
    """A bar with words; one that only says that something goes on where nobody knows the total."""
    share = f' max="{total}" value="{done}"' if total else ""
    return (
        f'<div class="mg-progress"><p>{text(what)}</p><progress{share} aria-label="{text(what)}"></progress>'
        f'<p class="mg-facts">{text(facts)}</p></div>'
    )


def pace(rate: float | None, left_s: float | None) -> str:
    """The rate a second and the time left, as they go on after a count; "" where nobody knows them."""
    if not rate:
        return ""
    speed = (
        f"{rate:,.0f} a second" if rate >= 10 else f"{rate:.1f} a second" if rate >= 1 else f"one in {1 / rate:.1f} s"
    )
    return f" · {speed}" + (f" · about {time_left(left_s)} left" if left_s is not None else "")


def time_left(seconds: float) -> str:
    """A duration, rounded as people say it."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
