"""Evaluations as HTML: how the running one stands, a run's figures, what flips, the list of runs, two runs compared.

Everything that a run holds goes through `text`, since questions and answers are untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from eval.compare import RunComparison
from eval.flips import Flip, FlipCounts, Side
from eval.report.compare_text import blocks
from eval.report.html.markup import items, table_html, text
from eval.report.html.page import figures_html, run_title
from eval.report.tables import NONE, Table, number
from eval.runs import RunSummary
from eval.summary import Metrics
from eval.view import RunView
from rag_app.evaluate import STEPS
from rag_app.page.evaluation import Status
from rag_app.page.progress import pace, render_progress

FLIPS_SHOWN = 100
MEASURE = "nDCG@10"
"""Of rankings, the one that the list of runs shows where a run has it, else its first."""


def render_status(status: Status, folder: Path, *, own: bool) -> str:
    """What is going on, with a bar while something is."""
    if status.state == "idle":
        return ""
    plan = status.plan
    what = f"{plan.dataset}: {', '.join(plan.retrievers)}" if plan else ""
    if status.busy:
        words = _going_on(status)
        whose = "" if own else " Somebody else began it, and they alone can pause it."
        return render_progress(f"Evaluating {what}", f"{words}.{whose}" if whose else words, status.done, status.total)
    place = f"<code>{text(folder / status.run)}</code>"
    if status.state == "failed":
        answered = status.step in STEPS and status.done > 0
        next_step = "What was answered is kept; Resume goes on from there." if answered else "Resume tries again."
        return (
            f'<p class="mg-error" role="alert">The evaluation of {text(what)} ended: {text(status.error.rstrip("."))}. '
            f"{next_step}</p>"
        )
    if status.state == "paused":
        said = f"Paused: {_count(status)}. Resume goes on from there, today or another day; they are in {place}."
    else:
        said = f"Finished: {text(what)}, {_count(status)}. All of it, with a report to send on, is in {place}."
    return f'<div class="mg-verdict mg-message" role="status"><p class="mg-words">{said}</p></div>'


def _going_on(status: Status) -> str:
    if status.state == "pausing":
        return f"{_count(status)}; pausing after the batch that is being answered"
    if not status.step:
        return f"Getting ready: {status.line}" if status.line else "Getting ready"
    if status.step not in STEPS:
        return f"Before the questions, {status.step}: {_count(status)}{pace(status.rate, status.seconds_left)}"
    if status.total is not None and status.done >= status.total:
        return f"{_count(status)}; now a few are asked again to see whether answers repeat, and the report is written"
    return f"{_count(status)}{pace(status.rate, status.seconds_left)}"


def _count(status: Status) -> str:
    step = status.step or "answers"
    return f"{status.done:,} {step}" if status.total is None else f"{status.done:,} of {status.total:,} {step}"


def render_run(view: RunView, metrics: Metrics, *, note: str = "") -> str:
    """A run's figures: overview, and for each data set measures with intervals, differences, curves, causes, norms."""
    told = f'<p class="mg-note">{text(note)}</p>' if note else ""
    return (
        f'<div class="mg-report"><h2 class="mg-title">{text(view.path.name)}</h2>'
        f'<p class="how">{text(run_title(view))}</p>{told}{figures_html(view, metrics)}</div>'
    )


def render_flips(found: Sequence[Flip], counts: FlipCounts, a: str, b: str, *, openable: bool, answers: bool) -> str:
    """The questions that one of two systems has right and the other wrong, each with a button that opens it."""
    if not answers:
        return '<p class="mg-empty">This run asked no reader, so there are no answers that could flip.</p>'
    if a == b:
        return '<p class="mg-empty">Choose two different systems.</p>'
    if not found:
        return f'<p class="mg-empty">No question flips: {text(a)} and {text(b)} are right on the same ones.</p>'
    shown = found[:FLIPS_SHOWN]
    left_out = f" The first {len(shown)} are shown." if len(found) > len(shown) else ""
    entries = "".join(_flip(flip, a, b, openable=openable) for flip in shown)
    return (
        f'<p class="mg-words">{text(flips_in_words(counts, a, b))}{left_out}</p>'
        f'<ol class="mg-flips" aria-label="Questions that flip">{entries}</ol>'
    )


def flips_in_words(counts: FlipCounts, a: str, b: str) -> str:
    """How many go each way, and how long the answers' vectors are in either ranking."""
    said = f"{a} alone is right on {_questions(counts.a_only.n)}, {b} alone on {_questions(counts.b_only.n)}."
    both = counts.both
    if both.a_percentile is not None and both.b_percentile is not None:
        said += (
            f" In these the first passage with an answer has a magnitude at percentile {both.a_percentile:.0f} of the "
            f"corpus in {a}'s ranking, and at {both.b_percentile:.0f} in {b}'s."
        )
    return said


def _questions(n: int) -> str:
    return "no question" if not n else f"{n:,} question{'' if n == 1 else 's'}"


def _flip(flip: Flip, a: str, b: str, *, openable: bool) -> str:
    question = flip.question
    golds = " | ".join(question.answers) or "no answer"
    label = text(f"Open in Compare: {question.question}")
    button = (
        f'<button type="button" class="mg-open" data-question="{text(question.id)}" aria-label="{label}">'
        "Open in Compare</button>"
        if openable
        else ""
    )
    return (
        f'<li><div class="mg-flip-head"><h3 dir="auto">{text(question.question)}</h3>{button}</div>'
        f'<p class="how" dir="auto">{text(question.dataset)} · {text(golds)}</p>'
        f'<div class="mg-flip-sides">{_side(flip.a, a)}{_side(flip.b, b)}</div></li>'
    )


def _side(side: Side, name: str) -> str:
    answer = f"({side.error})" if side.error is not None else side.prediction or "(nothing)"
    mark, word = ("✓", "right") if side.correct else ("✗", "wrong")
    facts = [side.cause] if not side.correct else []
    if side.answer is not None:
        facts.append(f"answer at rank {side.answer.rank}")
        if side.answer.percentile is not None:
            facts.append(f"|d| at percentile {side.answer.percentile:.0f}")
    else:
        facts.append("no passage with an answer")
    return (
        f'<p class="mg-flip-side mg-{word}"><b>{text(name)}</b> <span class="mg-mark" role="img" aria-label="{word}">'
        f'{mark}</span> <span dir="auto">{text(answer)}</span><small>{text(" · ".join(facts))}</small></p>'
    )


def render_runs(runs: Sequence[RunSummary], folder: Path) -> str:
    """The list: when, what, how far, and the main figures."""
    if not runs:
        return (
            f'<p class="mg-empty">No runs yet in <code>{text(folder)}</code>: begin one above, or with '
            "<code>magrag eval</code>.</p>"
        )
    rows: list[tuple[str, ...]] = []
    for run in runs:
        head = (run.path.name, run.started[:16].replace("T", " ") or NONE, run.state)
        for dataset, n in (run.datasets or {NONE: 0}).items():
            em = {system: number(value) for system, value in run.em.get(dataset, {}).items() if value is not None}
            measure, ranked = _ranked(run.measures.get(dataset, {}))
            cells = (dataset, f"{n:,}", _scores(em, run.systems), f"{measure} {_scores(ranked, run.systems)}".strip())
            rows.append((*head, *cells))
            head = ("", "", "")
    table = Table("Runs, newest first", _HEADER, rows, names=len(_HEADER))
    damaged = [f"{run.path.name}: {run.damage}" for run in runs if run.damage is not None]
    return f'<div class="mg-report mg-runs">{table_html(table)}{items(damaged)}</div>'


_HEADER = ("run", "started (UTC)", "state", "data", "questions", "EM (%)", "ranking")


def _ranked(measures: Mapping[str, Mapping[str, float]]) -> tuple[str, dict[str, str]]:
    names = list(dict.fromkeys(name for own in measures.values() for name in own))
    if not names:
        return "", {}
    name = MEASURE if MEASURE in names else names[0]
    return name, {system: number(own[name], name) for system, own in measures.items() if name in own}


def _scores(values: Mapping[str, str], systems: Sequence[str]) -> str:
    """In the order of the run; systems without a figure are named where no one has any."""
    return ", ".join(f"{system} {values[system]}" for system in systems if system in values) or NONE


def render_comparison(comparison: RunComparison) -> str:
    """Two runs: what differs, figures, tests and flips."""
    # The first block names the folders whole, which is for a terminal.
    names = f"{comparison.first.name} against {comparison.second.name}"
    parts = [f'<h2 class="mg-title">{text(names)}</h2>']
    for block in islice(blocks(comparison), 1, None):
        if isinstance(block, Table):
            parts.append(table_html(block))
        elif isinstance(block, str):
            parts.append(f"<h3>{text(block)}</h3>")
        else:
            parts.append(items(block))
    return f'<div class="mg-report mg-comparison"><section>{"".join(parts)}</section></div>'
