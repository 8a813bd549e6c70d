"""The comparison of trainings as tables: how it was made, an overview, each data set, answers, sentence pairs, the trainings.

Values and differences are in percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from eval.paired import Comparison
from eval.report.render import aligned, listed, markdown
from eval.report.tables import NONE, Table, brackets, p_value, with_interval
from eval.sweep import (
    ALL,
    BASELINE,
    IN_DOMAIN,
    OUT_OF_DOMAIN,
    RANKING,
    READING,
    UNTRAINED,
    Interval,
    Row,
    Sweep,
    domain_of,
    side,
)
from eval.sweep_pairs import PairChange

_SIDES = {1: "above 0", 0: "holds 0", -1: "below 0", None: NONE}
_SIGNS = {1: " +", 0: " =", -1: " −", None: ""}

_NOTES = (
    "Values and differences in percent, 95 % intervals of a bootstrap over questions; with several seeds a question counts "
    "with its mean over them, so that intervals do not hold the spread between seeds (by_seed in sweep.json).",
    "p: permutation test against the training by cosine, adjusted by Holm over all data sets and trainings of the measure.",
    "by cosine, by dot: the same encoder searched otherwise than it was trained for.",
    "+, = and − in an overview: the interval of the difference from the untrained encoder by cosine lies above 0, holds 0 or "
    "lies below; so do won, equal and lost count data sets. These intervals are not adjusted for their number; p is.",
    "d: Cohen's d of norms, passages that are relevant to one of the set's questions against those that no question over "
    "the same corpus marks; CV: variation of norms; length: correlation of norm and log tokens.",
    "Untrained, by dot (as qnorm ranks): nobody trained its magnitudes, and what they measure is mostly length.",
)


def sweep_text(sweep: Sweep) -> str:
    """For a terminal."""
    return _render(sweep, aligned, lambda title: title)


def sweep_markdown(sweep: Sweep) -> str:
    """As Markdown."""
    return "# Comparison of trainings\n\n" + _render(sweep, markdown, lambda title: f"## {title}") + "\n"


def percent(value: float | None, interval: Interval | None = None) -> str:
    """A share in percent, and its interval where it has one."""
    if value is None or math.isnan(value):
        return NONE
    return with_interval(100 * value, interval and _hundredfold(interval), "EM")


def points(found: Comparison | PairChange | None) -> str:
    """A difference of shares in percentage points, and its interval where it has one."""
    if found is None:
        return NONE
    within = f" {brackets(_hundredfold(found.interval), 'EM', '+')}" if found.interval else ""
    return f"{100 * found.difference:+.1f}{within}"


def _hundredfold(interval: Interval) -> Interval:
    return 100 * interval[0], 100 * interval[1]


def _render(sweep: Sweep, render: Callable[[Table], str], heading: Callable[[str], str]) -> str:
    found: list[Table | None] = [_trainings(sweep), _tallies(sweep)]
    for title, datasets in _groups(sweep):
        found += [
            _overview(title, RANKING, sweep.rows, datasets),
            *(_rankings(sweep, dataset) for dataset in datasets),
            _one_sided(title, [row for row in sweep.rows if row.dataset in datasets]),
            _answers(title, [row for row in sweep.rows if row.measure == READING and row.dataset in datasets]),
        ]
    found.append(_pairs(sweep))

    def shown(table: Table) -> str:
        return f"{heading(table.title)}\n\n{render(table)}"

    parts = [*_made(sweep), *(shown(table) for table in found if table is not None)]
    if sweep.rows:
        parts.append(listed(_NOTES))
    if (behind := _behind(sweep)) is not None:
        parts.append(shown(behind))
    return "\n\n".join(parts)


def _made(sweep: Sweep) -> list[str]:
    lines = [f"{name}: {value}" for name, value in sweep.made.items() if value]
    return [listed(lines)] if lines else []


def _groups(sweep: Sweep) -> list[tuple[str, list[str]]]:
    names = dict.fromkeys(row.dataset for row in sweep.rows)
    sets = {
        domain: [name for name in names if domain_of(name, sweep.in_domain) == domain]
        for domain in (ALL, IN_DOMAIN, OUT_OF_DOMAIN)
    }
    return [(domain.capitalize(), own) for domain, own in sets.items() if own]


def _tallies(sweep: Sweep) -> Table | None:
    """Sets won, equal and lost; a line for each training, measure and domain."""
    counts = {
        (own.measure, own.domain, _named(own.trained_for, own.searched_by), own.against): own for own in sweep.tallies
    }
    lines = []
    for measure, domain, label in dict.fromkeys(key[:3] for key in counts):
        cells = []
        for against in (UNTRAINED, BASELINE):
            own = counts.get((measure, domain, label, against))
            cells.append(NONE if own is None else f"{own.won} / {own.equal} / {own.lost}")
        lines.append((measure, domain, label, *cells))
    header = ("measure", "data sets", "trained for", "against untrained", "against cosine")
    return Table("Data sets won / equal / lost", header, lines, names=3) if lines else None


def _behind(sweep: Sweep) -> Table | None:
    """What each interval rests on."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for own in sweep.rows:
        seeds = found.get((own.dataset, own.measure), (0, 0))[1]
        found[own.dataset, own.measure] = own.n, max(seeds, len(own.by_seed))
    for pair in sweep.pairs:
        seeds = found.get((pair.dataset, "Spearman"), (0, 0))[1]
        found[pair.dataset, "Spearman"] = pair.n, max(seeds, len(pair.by_seed))
    lines: list[tuple[str, ...]] = [(*names, f"{n:,}", f"{seeds}") for names, (n, seeds) in found.items()]
    header = ("data set", "measure", "questions or pairs", "seeds")
    return Table("What each interval rests on", header, lines, names=2) if lines else None


def _trainings(sweep: Sweep) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            str(own["similarity"]),
            str(own["seed"]),
            f"{own['best_step']:,} of {own['steps']:,}",
            f"{own['scale']:.4g}",
            f"{own['gamma_q']:.3f}, {own['gamma_d']:.3f}",
            *(percent(next(iter(own.get(scores, {}).values()), None)) for scores in ("untrained", "dev")),
        )
        for own in sweep.trainings
    ]
    return Table(
        "Trainings",
        ("trained for", "seed", "best step", "scale", "gammas", "development, untrained", "development"),
        rows,
        names=2,
    )


def _overview(title: str, measure: str, rows: Sequence[Row], datasets: Sequence[str]) -> Table | None:
    values = {(_label(row), row.dataset): row.value for row in rows if row.measure == measure}
    signs = {(_label(row), row.dataset): _SIGNS[side(row.against_untrained)] for row in rows if row.measure == measure}
    labels = list(dict.fromkeys(label for label, dataset in values if dataset in datasets))
    if not labels:
        return None
    lines: list[tuple[str, ...]] = [
        (label, *(percent(values.get((label, name))) + signs.get((label, name), "") for name in datasets))
        for label in labels
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
                percent(row.value, row.interval),
                points(row.against_cosine),
                _p(row.against_cosine),
                points(row.against_untrained),
                _SIDES[side(row.against_untrained)],
                percent(row.under.get("cosine")),
                percent(row.under.get("dot")),
                *((_signed(own.d), percent(own.cv), _signed(own.length)) if own else (NONE,) * 3),
            )
        )
    header = (
        "trained for",
        RANKING,
        "against cosine",
        "p",
        "against untrained",
        "interval",
        "by cosine",
        "by dot",
        "d",
        "CV",
        "length",
    )
    return Table(f"{dataset} ({rows[0].n:,} questions)", header, lines)


def _one_sided(title: str, rows: Sequence[Row]) -> Table | None:
    """Which side to normalise."""
    lines: list[tuple[str, ...]] = [
        (
            row.dataset,
            row.measure,
            points(row.against_dnorm),
            _p(row.against_dnorm),
            _SIDES[side(row.against_dnorm)],
        )
        for row in rows
        if row.against_dnorm is not None
    ]
    header = ("data set", "measure", "qnorm - dnorm", "p", "interval")
    return Table(f"{title}: which side to normalise", header, lines, names=2) if lines else None


def _answers(title: str, rows: Sequence[Row]) -> Table | None:
    if not rows:
        return None
    lines: list[tuple[str, ...]] = [
        (
            row.dataset,
            _label(row),
            f"{row.n:,}",
            percent(row.value, row.interval),
            points(row.against_cosine),
            _p(row.against_cosine),
            points(row.against_untrained),
            _SIDES[side(row.against_untrained)],
        )
        for row in rows
    ]
    header = ("data set", "trained for", "n", "EM", "against cosine", "p", "against untrained", "interval")
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
            percent(row.value, row.interval),
            points(row.against_cosine),
            points(row.against_untrained),
            _SIDES[side(row.against_untrained)],
        )
        for row in sweep.pairs
    ]
    header = (
        "data set",
        "trained for",
        "scored by",
        "n",
        "Spearman",
        "against cosine",
        "against untrained",
        "interval",
    )
    return Table("Sentence pairs", header, lines, names=3)


def _label(row: Row) -> str:
    return _named(row.trained_for, row.searched_by)


def _named(trained_for: str, searched_by: str) -> str:
    return f"{UNTRAINED}, by {searched_by}" if trained_for == UNTRAINED else trained_for


def _signed(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:+.2f}"


def _p(found: Comparison | None) -> str:
    return NONE if found is None else p_value(found.p_holm)
