"""A comparison of two runs for people: plain text for a terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from eval.compare import RunComparison, SystemPair
from eval.flips import Flip, FlipGroup, Side, count_flips
from eval.report import tables
from eval.report.render import aligned, listed, markdown
from eval.report.tables import NONE, Table, number

# Flips of a pair that are shown; the JSON form has all of them.
FLIPS = 10
_CELL = 48


def comparison_text(comparison: RunComparison) -> str:
    """For a terminal."""
    return _render(comparison, aligned, lambda title: title)


def comparison_markdown(comparison: RunComparison) -> str:
    """For a file or a pull request."""
    return "# Comparison of two runs\n\n" + _render(comparison, markdown, lambda title: f"## {title}") + "\n"


def blocks(comparison: RunComparison) -> Iterator[str | list[str] | Table]:
    """What there is to say, in no format yet: headings, lists of sentences and tables, in their order."""
    yield f"{comparison.first} against {comparison.second}"
    yield _facts(comparison)
    if comparison.differences:
        yield "What differs between the runs"
        yield comparison.differences
    yield "Answers and rankings"
    yield _overview(comparison.pairs)
    # Of two systems by different names nobody expects the same answers.
    alike = [pair for pair in comparison.pairs if pair.first == pair.second]
    if alike:
        yield [f"{pair.name} on {pair.dataset}: {pair.explanation}" for pair in alike]
    for dataset in dict.fromkeys(pair.dataset for pair in comparison.pairs):
        own = [figure for pair in comparison.pairs if pair.dataset == dataset for figure in pair.comparisons]
        found = tables.comparisons(own)
        if found is not None:
            yield f"{found.title} on {dataset}"
            yield found
    for pair in comparison.pairs:
        if pair.flips:
            shown = f", the first {FLIPS} of {len(pair.flips)}" if len(pair.flips) > FLIPS else ""
            yield f"Flips of {pair.name} on {pair.dataset}{shown}"
            yield _flips(pair.flips[:FLIPS])
            yield _percentiles(pair)


def _render(comparison: RunComparison, render: Callable[[Table], str], heading: Callable[[str], str]) -> str:
    parts = []
    for block in blocks(comparison):
        if isinstance(block, str):
            parts.append(heading(block))
        else:
            parts.append(render(block) if isinstance(block, Table) else listed(block))
    return "\n\n".join(parts)


def _facts(comparison: RunComparison) -> list[str]:
    lines = [
        f"common questions: {comparison.common:,} (only in the first run: {comparison.only_first:,}; only in the second: "
        f"{comparison.only_second:,}; with another text or other golds: {comparison.changed:,})"
    ]
    if comparison.same_folder:
        lines.append("both are the same run")
    if not comparison.differences:
        lines.append("configuration, questions, versions and hardware are equal")
    lines += comparison.rechecks
    for pair in comparison.pairs:
        if pair.unasked:
            lines.append(f"{pair.name} on {pair.dataset}: questions without a row in one of the runs, left out: "
                         f"{pair.unasked:,}")  # fmt: skip
    return lines


def _overview(pairs: Sequence[SystemPair]) -> Table:
    header = ("system", "data set", "rule", "n", "EM first", "EM second", "other answers", "of these same prompt",
              "other rankings", "depth", "only first right", "only second right")  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for pair in pairs:
        before, after = pair.em or (None, None)
        counts = count_flips(pair.flips)
        figures = (pair.predictions_differ, pair.same_prompt, pair.rankings_differ, pair.depth, counts.a_only.n,
                   counts.b_only.n)  # fmt: skip
        names = (pair.name, pair.dataset, pair.rule or NONE)
        rows.append((*names, str(pair.n), number(before), number(after), *map(str, figures)))
    return Table("Answers and rankings", header, rows, names=3)


def _flips(flips: Sequence[Flip]) -> Table:
    header = ("question", "golds", "right", "first", "second", "cause of the miss", "rank first", "rank second")
    rows: list[tuple[str, ...]] = [
        (
            _short(flip.question.question),
            _short(" | ".join(flip.question.answers)),
            "first" if flip.a_correct else "second",
            _said(flip.a),
            _said(flip.b),
            (flip.b if flip.a_correct else flip.a).cause,
            _rank(flip.a),
            _rank(flip.b),
        )
        for flip in flips
    ]
    return Table("Flips", header, rows, names=6)


def _percentiles(pair: SystemPair) -> list[str]:
    """How long the answer passages' vectors are on both sides, where there are vectors."""
    counts = count_flips(pair.flips)
    groups = (("only the first right", counts.a_only), ("only the second right", counts.b_only))
    return [
        f"{what}: {group.n}; mean norm percentile of the first answer passage: {_means(group)}"
        for what, group in groups
    ]


def _means(group: FlipGroup) -> str:
    return (f"{number(group.a_percentile)} in the first (n = {group.a_n}), "
            f"{number(group.b_percentile)} in the second (n = {group.b_n})")  # fmt: skip


def _said(side: Side) -> str:
    return _short(side.prediction if side.error is None else f"({side.error})")


def _rank(side: Side) -> str:
    return str(side.answer.rank) if side.answer else NONE


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CELL else line[: _CELL - 1] + "…"
