"""Metrics as tables: plain text for a terminal, Markdown for the run folder.

Scores are percentages with one decimal: with a few thousand questions the interval is wider than a point, and a second
decimal would say nothing. metrics.json has them unrounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval.summary import Comparison, Interval, Metrics, SystemMetrics

_DEPTHS = (1, 2, 3, 5, 10, 20, 50, 100)
# Answers this many times longer than the longest golds can hardly match exactly: a stop string or prompt is amiss.
_LONG = 3.0
# Columns of names stand to the left, figures to the right.
_NAMES = frozenset({"system", "retrieval", "paired"})

Table = tuple[Sequence[str], list[Sequence[str]]]


def text_table(metrics: Metrics) -> str:
    """The tables for a terminal, in aligned columns, with the notes under them."""
    return _render(metrics, _aligned, lambda title: title)


def markdown_report(
    metrics: Metrics, manifest: Mapping[str, Any], seconds: Mapping[str, Mapping[str, float]] | None = None
) -> str:
    """The report of a run.

    Args:
        metrics: The figures.
        manifest: Content of run.json.
        seconds: Mean seconds a question by system and stage.
    """
    parts = ["# Evaluation", _render(metrics, _markdown, lambda title: f"## {title}")]
    if seconds:
        stages = list(dict.fromkeys(stage for own in seconds.values() for stage in own))
        lines: list[Sequence[str]] = [
            [system, *(_seconds(own.get(stage)) for stage in stages)] for system, own in seconds.items()
        ]
        parts += ["## Mean seconds a question", _markdown((["system", *stages], lines))]
    parts += ["## How it was made", _provenance(manifest)]
    return "\n\n".join(parts) + "\n"


def _render(metrics: Metrics, render: Callable[[Table], str], heading: Callable[[str], str]) -> str:
    parts: list[str] = []
    for dataset in dict.fromkeys(own.dataset for own in metrics.systems):
        systems = [own for own in metrics.systems if own.dataset == dataset]
        comparisons = [pair for pair in metrics.comparisons if pair.dataset == dataset]
        title = f"{dataset} (n = {systems[0].n}, rule {systems[0].rule})"
        parts += [heading(title), render(_answers(systems))]
        if any(own.hit is not None for own in systems):
            parts.append(render(_retrieval(systems)))
        if comparisons:
            parts.append(render(_comparisons(comparisons)))
    level = f"{100 * metrics.level:g} %"
    notes = [f"EM and F1 in percent of all questions; [{level} interval]: percentile bootstrap over questions, "
             f"{metrics.resamples} resamples, seed {metrics.seed}."]  # fmt: skip
    if metrics.comparisons:
        notes.append(f"EM difference in points against {metrics.comparisons[0].baseline}, paired by question; "
                     "p: McNemar's exact test.")  # fmt: skip
    notes.append("contains: a gold stands in the answer (not EM); words: mean length of the answers.")
    if any(own.hit is not None for own in metrics.systems):
        notes.append("hit: an answer string is in a passage; gold, supp. R: share of the marked passages found, over "
                     "the questions that have any; dropped: passages left out of prompts for length.")  # fmt: skip
    parts.append("\n".join(f"- {note}" for note in notes + _warnings(metrics)))
    return "\n\n".join(parts)


def _answers(systems: Sequence[SystemMetrics]) -> Table:
    columns: list[tuple[str, Callable[[SystemMetrics], str]]] = [
        ("system", lambda own: own.system),
        ("n", lambda own: str(own.n)),
        ("missing", lambda own: str(own.missing)),
        ("EM", lambda own: _with_interval(own.em, own.em_interval)),
        ("F1", lambda own: _with_interval(own.f1, own.f1_interval)),
        ("contains", lambda own: _number(own.contains)),
        ("words", lambda own: _number(own.answer_words)),
        ("k", lambda own: str(own.k)),
        ("hit@k", lambda own: _last(own.hit)),
        ("gold R@k", lambda own: _last(own.recall_gold)),
        ("supp. R@k", lambda own: _last(own.recall_supporting)),
        ("dropped", lambda own: str(own.dropped)),
    ]
    return [title for title, _ in columns], [[cell(own) for _, cell in columns] for own in systems]


def _retrieval(systems: Sequence[SystemMetrics]) -> Table:
    deepest = max(own.k for own in systems)
    depths = [depth for depth in _DEPTHS if depth < deepest] + [deepest]
    rows: list[Sequence[str]] = []
    for own in systems:
        curves = (
            ("hit (answer string)", own.hit, own.hit_n),
            ("recall of gold passages", own.recall_gold, own.recall_gold_n),
            ("recall of supporting passages", own.recall_supporting, own.recall_supporting_n),
        )
        for name, curve, n in curves:
            if curve is not None:
                values = [_number(curve[depth - 1] if depth <= own.k else None) for depth in depths]
                rows.append([own.system, name, str(n), *values])
    return ["system", "retrieval", "n", *(f"@{depth}" for depth in depths)], rows


def _comparisons(comparisons: Sequence[Comparison]) -> Table:
    rows: list[Sequence[str]] = []
    for pair in comparisons:
        low_high = pair.em_difference_interval
        interval = f" [{low_high[0]:+.1f}, {low_high[1]:+.1f}]" if low_high else ""
        ties = pair.n - pair.wins - pair.losses
        p = "<0.001" if pair.mcnemar_p < 0.001 else f"{pair.mcnemar_p:.3f}"
        counts = [str(pair.wins), str(pair.losses), str(ties)]
        rows.append([f"{pair.system} - {pair.baseline}", f"{pair.em_difference:+.1f}{interval}", *counts, p])
    return ["paired", "EM difference", "wins", "losses", "ties", "p"], rows


def _warnings(metrics: Metrics) -> list[str]:
    """What a reader must know before believing a figure."""
    found = []
    for own in metrics.systems:
        who = f"{own.system} on {own.dataset}"
        if own.missing:
            found.append(f"{who}: questions without an answer: {own.missing} of {own.n}; they count 0, "
                         "and their lines in predictions.jsonl say why.")  # fmt: skip
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


def _provenance(manifest: Mapping[str, Any]) -> str:
    environment = manifest.get("environment") or {}
    source = manifest.get("source") or {}
    git = environment.get("git")
    facts = {
        "started": manifest.get("started"),
        "systems": ", ".join(f"{name} ({mark})" for name, mark in manifest["systems"].items()),
        "questions": f"{manifest.get('questions')}, SHA-256 {manifest['questions_sha256']}",
        "data": _described(source),
        "seed": manifest.get("seed"),
        "batch size": manifest.get("batch_size"),
        "hardware": environment.get("hardware"),
        "platform": environment.get("platform"),
        "python": environment.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in (environment.get("packages") or {}).items()),
        "revision": f"{git['commit']}{' with changes' if git['changed'] else ''}" if git else None,
    }
    lines = [f"- {name}: {value}" for name, value in facts.items() if value not in (None, "")]
    return "\n".join([*lines, "", "The whole configuration is in run.json."])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _described(source: Mapping[str, Any]) -> str:
    """Names with their values; a description of several files is one in brackets for each."""
    parts = (f"{name} ({_described(value)})" if isinstance(value, Mapping) else f"{name} {value}"
             for name, value in source.items() if value is not None)  # fmt: skip
    return ", ".join(parts)


def _last(curve: Sequence[float] | None) -> str:
    return _number(curve[-1] if curve else None)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _with_interval(value: float | None, interval: Interval | None) -> str:
    return _number(value) + (f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else "")


def _aligned(table: Table) -> str:
    header, rows = table
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    lines = []
    for line in [header, *rows]:
        cells = [
            cell.ljust(width) if title in _NAMES else cell.rjust(width)
            for title, cell, width in zip(header, line, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _markdown(table: Table) -> str:
    header, rows = table
    lines = [header, ["---" if title in _NAMES else "---:" for title in header], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
