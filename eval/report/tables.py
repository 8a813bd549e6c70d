"""The figures of a run as tables, in no format yet; `eval.report.text`, `eval.report.latex` and `eval.report.html` write them out.

Percentages have one decimal: with a few thousand questions the interval is wider than a point, and a second decimal
would say nothing. Ranking measures have four, as ir-measures prints them. metrics.json has both unrounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eval.summary import Comparison, Interval, Measured, Metrics, SystemMetrics

NONE = "-"
_DEPTHS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_PERCENT = frozenset({"EM", "F1"})
# Answers this many times longer than the longest golds can hardly match exactly: a stop string or prompt is amiss.
_LONG = 3.0


@dataclass(frozen=True, slots=True)
class Table:
    """A table of strings.

    Attributes:
        title: What it shows.
        header: Of its columns.
        rows: As long as the header each.
        names: The first so many columns hold names and stand to the left; the rest are figures and stand to the right.
        best: (row, column) of cells that are set in bold.
    """

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    names: int = 1
    best: frozenset[tuple[int, int]] = frozenset()


def by_dataset(metrics: Metrics) -> dict[str, list[SystemMetrics]]:
    """The systems' figures by data set, in the order of the run."""
    sets: dict[str, list[SystemMetrics]] = {}
    for own in metrics.systems:
        sets.setdefault(own.dataset, []).append(own)
    return sets


def figures(own: SystemMetrics) -> dict[str, Measured]:
    """EM, F1 (in percent) and the ranking measures by name, of those that the system has."""
    found = {}
    if own.em is not None:
        found["EM"] = Measured(own.em, own.em_interval, own.n)
    if own.f1 is not None:
        found["F1"] = Measured(own.f1, own.f1_interval, own.n)
    return {**found, **own.measures}


def measures_of(systems: Iterable[SystemMetrics]) -> list[str]:
    """Every measure that one of them has, each once."""
    return list(dict.fromkeys(name for own in systems for name in figures(own)))


def main_measure(systems: Sequence[SystemMetrics]) -> str | None:
    """What a data set is judged by: EM; nDCG@10, or else the first measure, where there are no answers to match."""
    names = measures_of(systems)
    for name in ("EM", "nDCG@10", "Spearman"):
        if name in names:
            return name
    return names[0] if names else None


def heading(systems: Sequence[SystemMetrics]) -> str:
    """A data set's name and how it was scored."""
    first = systems[0]
    how = f"rule {first.rule}" if first.rule else {"sts": "sentence pairs"}.get(first.task, first.task)
    return f"{first.dataset} (n = {first.n}, {how})"


def overview(metrics: Metrics) -> Table:
    """Systems against data sets, each with its main measure.

    Bold is the best figure of a column, where its advantage over the baseline is significant after Holm's correction;
    so a column may have none, and the baseline is never bold.
    """
    sets = by_dataset(metrics)
    names = list(dict.fromkeys(own.system for own in metrics.systems))
    columns: list[dict[str, Measured]] = []
    header = ["system"]
    best: set[tuple[int, int]] = set()
    for column, (dataset, systems) in enumerate(sets.items(), start=1):
        measure = main_measure(systems) or ""
        header.append(f"{dataset} {measure}".rstrip())
        found = {own.system: figures(own)[measure] for own in systems if measure in figures(own)}
        columns.append(found)
        best.update((names.index(name), column) for name in _significantly_best(metrics, dataset, measure, found))
    titles = [main_measure(systems) or "" for systems in sets.values()]
    rows = [
        (name, *(number(found[name].value, measure) if name in found else NONE
                 for found, measure in zip(columns, titles, strict=True)))
        for name in names
    ]  # fmt: skip
    return Table("Overview", tuple(header), rows, best=frozenset(best))


def overview_note(metrics: Metrics) -> str:
    """What the overview's bold figures mean."""
    if not metrics.comparisons:
        return ""
    return (f"Bold: the best figure of its column, where it is above {metrics.comparisons[0].baseline}'s with "
            f"Holm-corrected p < {alpha(metrics):g}; where none is, nothing is bold.")  # fmt: skip


def significant(metrics: Metrics, pair: Comparison) -> bool:
    """Whether a difference stands after Holm's correction, at the level of the intervals."""
    return pair.p_holm is not None and pair.p_holm < alpha(metrics)


def alpha(metrics: Metrics) -> float:
    """What p must stay below: 0.05 for intervals of 95 %, and not the 0.05000000000000004 that floats make of it."""
    return round(1 - metrics.level, 9)


def answers(systems: Sequence[SystemMetrics]) -> Table | None:
    """Answers and what stood in the prompt; None where nothing was asked of a reader."""
    if all(own.em is None for own in systems):
        return None
    columns: list[tuple[str, Callable[[SystemMetrics], str]]] = [
        ("system", lambda own: own.system),
        ("n", lambda own: str(own.n)),
        ("missing", lambda own: str(own.missing)),
        ("empty", lambda own: str(own.empty)),
        ("EM", lambda own: with_interval(own.em, own.em_interval, "EM")),
        ("F1", lambda own: with_interval(own.f1, own.f1_interval, "F1")),
        ("contains", lambda own: number(own.contains)),
        ("words", lambda own: number(own.answer_words)),
        ("k", lambda own: str(own.k)),
        ("hit@k", lambda own: _at_k(own.hit, own.k)),
        ("EM at hit", lambda own: with_interval(own.em_at_hit, own.em_at_hit_interval, "EM")),
        ("gold R@k", lambda own: _at_k(own.recall_gold, own.k)),
        ("supp. R@k", lambda own: _at_k(own.recall_supporting, own.k)),
        ("all supp.@k", lambda own: _at_k(own.all_supporting, own.k)),
        ("dropped", lambda own: str(own.dropped)),
    ]
    if not any(own.all_supporting for own in systems):
        columns = [column for column in columns if column[0] != "all supp.@k"]
    return _table("Answers", columns, systems)


def rankings(systems: Sequence[SystemMetrics]) -> Table | None:
    """The measures of rankings (and of sentence pairs), with intervals."""
    names = [name for name in measures_of(systems) if name not in _PERCENT]
    ranked = [own for own in systems if own.measures]
    if not names:
        return None

    def cell(name: str) -> Callable[[SystemMetrics], str]:
        return lambda own: with_interval(*_figure(own, name), name)

    columns: list[tuple[str, Callable[[SystemMetrics], str]]] = [
        ("system", lambda own: own.system),
        ("n", lambda own: str(max(measured.n for measured in own.measures.values()))),
        ("missing", lambda own: str(own.missing)),
        ("depth", lambda own: str(own.depth)),
        *((name, cell(name)) for name in names),
    ]
    return _table("Rankings", columns, ranked)


def curves(systems: Sequence[SystemMetrics]) -> Table | None:
    """Hits and recall by depth, in percent."""
    deepest = max((own.depth for own in systems), default=0)
    depths = [*ticks(deepest - 1), deepest]
    rows = []
    for own in systems:
        for name, curve, n in curves_of(own):
            values = (number(curve[depth - 1] if depth <= len(curve) else None) for depth in depths)
            rows.append((own.system, name, str(n), *values))
    if not rows:
        return None
    return Table("Retrieval", ("system", "retrieval", "n", *(f"@{depth}" for depth in depths)), rows, names=2)


def curves_of(own: SystemMetrics) -> list[tuple[str, list[float], int]]:
    """(what, percent at depth 1, 2, ..., questions) of the curves that a system has."""
    found = (
        ("hit (answer string)", own.hit, own.hit_n),
        ("recall of gold passages", own.recall_gold, own.recall_gold_n),
        ("recall of supporting passages", own.recall_supporting, own.recall_supporting_n),
        ("all supporting passages", own.all_supporting, own.recall_supporting_n),
    )
    return [(name, curve, n) for name, curve, n in found if curve]


def ticks(deepest: int) -> list[int]:
    """The depths that tables and charts show, up to `deepest`."""
    return [depth for depth in _DEPTHS if depth <= deepest]


def comparisons(pairs: Sequence[Comparison]) -> Table | None:
    """Paired differences from the baseline, with tests."""
    rows = []
    for pair in pairs:
        counts = won(pair)
        test = "identical" if pair.identical else pair.test
        rows.append((f"{pair.system} - {pair.baseline}", pair.measure, test, str(pair.n), difference(pair), *counts,
                     p_value(pair.p), p_value(pair.p_holm)))  # fmt: skip
    header = ("paired", "measure", "test", "n", "difference", "wins", "ties", "losses", "p", "p (Holm)")
    return Table("Paired differences", header, rows, names=3) if rows else None


def causes(systems: Sequence[SystemMetrics]) -> Table | None:
    """How many questions ended as each cause, of the causes that occur."""
    counted = [(own, own.causes) for own in systems if own.causes]
    names = causes_that_occur(systems)
    if not counted:
        return None
    rows = [(own.system, *(str(found.get(name, 0)) for name in names)) for own, found in counted]
    return Table("Why questions were missed", ("system", *names), rows)


def causes_that_occur(systems: Sequence[SystemMetrics]) -> list[str]:
    """Causes that one of the systems has, in the order of `eval.causes.CAUSES`."""
    return list(dict.fromkeys(name for own in systems for name in own.causes or {}
                              if any((each.causes or {}).get(name) for each in systems)))  # fmt: skip


def seconds_table(seconds: Mapping[str, Mapping[str, float]]) -> Table | None:
    """Mean seconds by system and stage."""
    stages = list(dict.fromkeys(stage for own in seconds.values() for stage in own))
    rows = [
        (system, *(f"{own[stage]:.3f}" if stage in own else NONE for stage in stages))
        for system, own in seconds.items()
    ]
    return Table("Mean seconds a question", ("system", *stages), rows) if stages else None


def notes(metrics: Metrics) -> list[str]:
    """How the figures are to be read."""
    level = f"{100 * metrics.level:g} %"
    found = [f"[{level} interval]: percentile bootstrap over questions, {metrics.resamples} resamples, "
             f"seed {metrics.seed}."]  # fmt: skip
    if any(own.em is not None for own in metrics.systems):
        found += [
            "EM and F1 in percent of all questions; a question without an answer counts 0.",
            "contains: a gold stands in the answer (not EM); words: mean length of the answers; empty: answers of no words.",
        ]
    if any(own.measures for own in metrics.systems):
        found.append("Ranking measures as ir-measures computes them, 0 to 1.")
    if any(curves_of(own) for own in metrics.systems):
        found.append("hit: an answer string is in a passage; gold, supp. R: share of the marked passages found, all supp.: "
                     "share of questions with every one of them, over the questions that have any; k: passages offered to "
                     "the reader; dropped: how many of these were left out of prompts for length; EM at hit: EM over the "
                     "questions of which a passage that the reader was offered holds an answer string.")  # fmt: skip
    if metrics.comparisons:
        found.append(f"Differences from {metrics.comparisons[0].baseline}, paired by question, EM and F1 in points; "
                     "p: two-sided, McNemar's exact test for EM, sign-flip permutation for the rest; p (Holm): corrected "
                     "over all comparisons of the same measure.")  # fmt: skip
    return found + metrics.notes


def warnings(metrics: Metrics) -> list[str]:
    """What a reader must know before believing a figure."""
    found = []
    for own in metrics.systems:
        who = f"{own.system} on {own.dataset}"
        if own.missing:
            what = "answer" if own.em is not None else "ranking"
            found.append(f"{who}: questions without an {what}: {own.missing} of {own.n}; they count 0, "
                         "and their lines in predictions.jsonl say why.".replace("an ranking", "a ranking"))  # fmt: skip
        if own.em is None:
            continue
        if own.without_golds:
            found.append(f"{who}: questions that have no answer: {own.without_golds} of {own.n}; any answer to them counts "
                         "as wrong, and hit leaves them out.")  # fmt: skip
        if own.empty_matches:
            found.append(f"{who}: exact matches with nothing left after normalisation: {own.empty_matches}; "
                         "their EM may exceed their F1, as in the official scripts.")  # fmt: skip
        if own.answer_words is not None and own.gold_words and own.answer_words > _LONG * own.gold_words:
            found.append(f"{who}: answers have {own.answer_words:.1f} words, the longest golds {own.gold_words:.1f}: "
                         "check prompt and stop strings before trusting EM.")  # fmt: skip
    return found


def number(value: float | None, measure: str = "EM") -> str:
    """One decimal in percent, four in [0, 1]."""
    return NONE if value is None else f"{value:.{digits(measure)}f}"


def digits(measure: str) -> int:
    """Decimals of a measure's figures."""
    return 1 if measure in _PERCENT else 4


def with_interval(value: float | None, interval: Interval | None, measure: str) -> str:
    """A figure and its interval in brackets, where it has one."""
    return number(value, measure) + (f" {brackets(interval, measure)}" if interval else "")


def brackets(interval: Interval, measure: str, sign: str = "") -> str:
    """An interval as text; `sign` "+" for differences."""
    low, high = (f"{end:{sign}.{digits(measure)}f}" for end in interval)
    return f"[{low}, {high}]"


def won(pair: Comparison) -> list[str]:
    """Questions won, equal and lost, where they can be counted."""
    return [NONE if count is None else str(count) for count in (pair.wins, pair.ties, pair.losses)]


def difference(pair: Comparison) -> str:
    """A signed difference and its interval."""
    value = f"{pair.difference:+.{digits(pair.measure)}f}"
    return value + (f" {brackets(pair.interval, pair.measure, '+')}" if pair.interval else "")


def p_value(p: float | None) -> str:
    """Three decimals, never 0."""
    return NONE if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _table(
    title: str, columns: list[tuple[str, Callable[[SystemMetrics], str]]], systems: Sequence[SystemMetrics]
) -> Table:
    return Table(
        title, tuple(name for name, _ in columns), [tuple(cell(own) for _, cell in columns) for own in systems]
    )


def _figure(own: SystemMetrics, name: str) -> tuple[float | None, Interval | None]:
    measured = own.measures.get(name)
    return (measured.value, measured.interval) if measured else (None, None)


def _at_k(curve: Sequence[float] | None, k: int) -> str:
    return number(curve[min(k, len(curve)) - 1] if curve and k else None)


def _significantly_best(metrics: Metrics, dataset: str, measure: str, found: Mapping[str, Measured]) -> list[str]:
    top = max((measured.value for measured in found.values()), default=0.0)
    return [
        pair.system
        for pair in metrics.comparisons
        if (pair.dataset, pair.measure) == (dataset, measure)
        and pair.system in found
        and found[pair.system].value == top
        and pair.difference > 0
        and significant(metrics, pair)
    ]
