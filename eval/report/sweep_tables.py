"""The comparison of trainings as tables: an overview, each data set, answers, sentence pairs, and the trainings themselves.

Values and differences are in percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from eval.paired import Comparison
from eval.report.render import aligned, markdown
from eval.report.tables import NONE, Table
from eval.sweep import RANKING, READING, UNTRAINED, Interval, Row, Sweep

_NOTES = (
    "Values and differences in percent, 95 % intervals of a bootstrap over questions; with several seeds a question counts "
    "with its mean over them, so that intervals do not hold the spread between seeds (by_seed in sweep.json).",
    "p: permutation test against the training by cosine, adjusted by Holm over all data sets and trainings of the measure.",
    "by cosine, by dot: the same encoder searched otherwise than it was trained for.",
    "d: Cohen's d of norms, passages that are relevant to some question against all others; CV: variation of norms; "
    "length: correlation of norm and log tokens.",
    "Untrained, by dot (as qnorm ranks): nobody trained its magnitudes, and what they measure is mostly length.",
)


def sweep_text(sweep: Sweep) -> str:
    """For a terminal."""
    return _render(sweep, aligned, lambda title: title)


def sweep_markdown(sweep: Sweep) -> str:
    """As Markdown."""
    return "# Comparison of trainings\n\n" + _render(sweep, markdown, lambda title: f"## {title}") + "\n"


def _render(sweep: Sweep, render: Callable[[Table], str], heading: Callable[[str], str]) -> str:
    found: list[Table | None] = [_trainings(sweep)]
    for title, datasets in _groups(sweep):
        found += [
            _overview(title, RANKING, sweep.rows, datasets),
            *(_rankings(sweep, dataset) for dataset in datasets),
            _answers(title, [row for row in sweep.rows if row.measure == READING and row.dataset in datasets]),
        ]
    found.append(_pairs(sweep))
    parts = [f"{heading(table.title)}\n\n{render(table)}" for table in found if table is not None]
    if sweep.rows:
        parts.append("\n".join(f"- {note}" for note in _NOTES))
    return "\n\n".join(parts)


def _groups(sweep: Sweep) -> list[tuple[str, list[str]]]:
    names = list(dict.fromkeys(row.dataset for row in sweep.rows))
    if not sweep.in_domain:
        return [("All data sets", names)] if names else []
    inside = [name for name in names if name in sweep.in_domain]
    outside = [name for name in names if name not in sweep.in_domain]
    return [(title, own) for title, own in (("In domain", inside), ("Out of domain", outside)) if own]


def _trainings(sweep: Sweep) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            str(own["similarity"]),
            str(own["seed"]),
            f"{own['best_step']:,} of {own['steps']:,}",
            f"{own['scale']:.4g}",
            f"{own['gamma_q']:.3f}, {own['gamma_d']:.3f}",
            _percent(next(iter(own["dev"].values()), None)),
        )
        for own in sweep.trainings
    ]
    return Table("Trainings", ("trained for", "seed", "best step", "scale", "gammas", "development"), rows, names=2)


def _overview(title: str, measure: str, rows: Sequence[Row], datasets: Sequence[str]) -> Table | None:
    values = {(_label(row), row.dataset): row.value for row in rows if row.measure == measure}
    labels = list(dict.fromkeys(label for label, dataset in values if dataset in datasets))
    if not labels:
        return None
    lines: list[tuple[str, ...]] = [
        (label, *(_percent(values.get((label, name))) for name in datasets)) for label in labels
    ]
    best = frozenset(
        (max(range(len(labels)), key=lambda at: values.get((labels[at], name), -1.0)), column)
        for column, name in enumerate(datasets, start=1)
    )
    return Table(f"{title}: {measure}", ("trained for", *datasets), lines, best=best)


def _rankings(sweep: Sweep, dataset: str) -> Table | None:
    rows = [row for row in sweep.rows if (row.dataset, row.measure) == (dataset, RANKING)]
    if not rows:
        return None
    norms = {own.trained_for: own.norms for own in sweep.norms if own.dataset == dataset}
    lines: list[tuple[str, ...]] = []
    for row in rows:
        own = norms.get(row.trained_for)
        lines.append(
            (
                _label(row),
                f"{_percent(row.value)}{_interval(row.interval)}",
                _difference(row.against_cosine),
                _p(row.against_cosine),
                _difference(row.against_untrained),
                _percent(row.under.get("cosine")),
                _percent(row.under.get("dot")),
                *((_signed(own.d), _percent(own.cv), _signed(own.length)) if own else (NONE,) * 3),
            )
        )
    header = (
        "trained for",
        RANKING,
        "against cosine",
        "p",
        "against untrained",
        "by cosine",
        "by dot",
        "d",
        "CV",
        "length",
    )
    return Table(f"{dataset} ({rows[0].n:,} questions)", header, lines)


def _answers(title: str, rows: Sequence[Row]) -> Table | None:
    if not rows:
        return None
    lines: list[tuple[str, ...]] = [
        (
            row.dataset,
            _label(row),
            f"{row.n:,}",
            f"{_percent(row.value)}{_interval(row.interval)}",
            _difference(row.against_cosine),
            _p(row.against_cosine),
            _difference(row.against_untrained),
        )
        for row in rows
    ]
    header = ("data set", "trained for", "n", "EM", "against cosine", "p", "against untrained")
    return Table(f"{title}: exact match", header, lines, names=2)


def _pairs(sweep: Sweep) -> Table | None:
    if not sweep.pairs:
        return None
    lines: list[tuple[str, ...]] = [
        (
            row.dataset,
            row.trained_for,
            row.scored_by,
            f"{row.n:,}",
            f"{_percent(row.value)}{_interval(row.interval)}",
            _points(row.against_cosine),
            _points(row.against_untrained),
        )
        for row in sweep.pairs
    ]
    header = ("data set", "trained for", "scored by", "n", "Spearman", "against cosine", "against untrained")
    return Table("Sentence pairs", header, lines, names=3)


def _label(row: Row) -> str:
    return f"{UNTRAINED}, by {row.searched_by}" if row.trained_for == UNTRAINED else row.trained_for


def _percent(value: float | None) -> str:
    return NONE if value is None or math.isnan(value) else f"{100 * value:.1f}"


def _points(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:+.1f}"


def _signed(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:+.2f}"


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def _difference(found: Comparison | None) -> str:
    if found is None:
        return NONE
    within = "" if found.interval is None else f" [{100 * found.interval[0]:+.1f}, {100 * found.interval[1]:+.1f}]"
    return f"{100 * found.difference:+.1f}{within}"


def _p(found: Comparison | None) -> str:
    return NONE if found is None or found.p_holm is None else f"{found.p_holm:.3f}"
