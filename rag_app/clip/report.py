"""The trainings of two towers as tables: what they find both ways, what differs from CLIP's loss, what norms follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from eval.paired import Comparison
from eval.report.render import aligned, listed, markdown
from eval.report.sweep_tables import percent, points
from eval.report.tables import NONE, Table, p_value
from rag_app.clip.measures import I2T, RANKINGS, T2I
from retriever.wording import counted

_ARROWS = {"both": "both", T2I: "text → image", I2T: "image → text"}
_NOTES = (
    "recall@1 in percent: the picture that is found first has the caption, the caption that is found first is the picture's; "
    "95 % intervals of a bootstrap over queries, each with its mean over seeds. * ranks as the training's own scores do.",
    "unit, raw: whether the loss normalises that side. qnorm normalises the side that asks; with both directions, the text.",
    "Differences: against both directions by cosine, each ranked as it was trained; p by permutation, after Holm.",
    "d: Cohen's d of norms, items that are right for more queries than the median item against the others; CV: variation of "
    "norms; words, shapes: correlation of norm and log number. The loss does not see the norms of a unit side. Means over "
    "seeds with the seeds' values, or one seed's value with its interval.",
)


def clip_text(result: Mapping[str, Any]) -> str:
    """For a terminal."""
    return _render(result, aligned, "")


def clip_markdown(result: Mapping[str, Any]) -> str:
    """As Markdown."""
    made = listed(f"{name}: {value}" for name, value in result["made"].items() if isinstance(value, str) and value)
    return f"# Two towers\n\n{made}\n\n{_render(result, markdown, '## ')}\n"


def _render(result: Mapping[str, Any], render: Callable[[Table], str], mark: str) -> str:
    rows = result["rows"]
    tables = [_recall(rows), _differences(result["differences"]), _norms(rows)]
    parts = [f"{mark}{table.title}\n\n{render(table)}" for table in tables if table.rows]
    return "\n\n".join([*parts, listed(_NOTES)])


def _recall(rows: Sequence[Mapping[str, Any]]) -> Table:
    lines = []
    for row in rows:
        cells = []
        for asked in (T2I, I2T):
            for ranking in RANKINGS:
                found = row["recall"][asked]
                own = found[ranking]
                cells.append(percent(own["value"], own["interval"]) + (" *" if found["own"] == ranking else ""))
        lines.append((*_names(row), *cells))
    header = [f"{_ARROWS[asked]} by {ranking}" for asked in (T2I, I2T) for ranking in RANKINGS]
    counts = ", ".join(
        f"{rows[0]['recall'][asked]['n']:,} {what}" for asked, what in ((T2I, "captions"), (I2T, "pictures"))
    )
    return Table(
        f"Recall@1 ({counts}, {counted(len(rows[0]['by_seed']), 'seed')})",
        ("loss", "similarity", "text", "image", *header),
        lines,
        4,
    )


def _differences(differences: Sequence[Mapping[str, Any]]) -> Table:
    cells: dict[str, list[str]] = {}
    for one in differences:
        cells.setdefault(one["system"], []).extend((points(Comparison(**one)), p_value(one["p_holm"])))
    lines = []
    for system, own in cells.items():
        direction, similarity = system.split()
        lines.append((_ARROWS[direction], similarity, *own))
    header = ("loss", "similarity", _ARROWS[T2I], "p", _ARROWS[I2T], "p")
    return Table("Difference from both directions by cosine", header, lines, 2)


def _norms(rows: Sequence[Mapping[str, Any]]) -> Table:
    lines = []
    for row in rows:
        cells: list[str] = []
        for side in ("text", "image"):
            own = [one["norms"][side] for one in row["by_seed"]]
            cells += [f"{100 * fmean(one['cv'] for one in own):.1f} %", _mean(own, "d"), _mean(own, "size")]
        lines.append((*_names(row), *cells))
    header = ("loss", "similarity", "text", "image", "text CV", "d", "words", "image CV", "d", "shapes")
    return Table("Norms", header, lines, 4)


def _names(row: Mapping[str, Any]) -> tuple[str, ...]:
    kept = ("raw" if row["keeps"][side] else "unit" for side in ("text", "image"))
    return (_ARROWS[row["direction"]], row["similarity"], *kept)


def _mean(own: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [one[name] for one in own]
    if None in values:
        return NONE
    if len(values) > 1:
        within = f" ({', '.join(f'{value:+.2f}' for value in values)})"
    else:
        interval = own[0][f"{name}_interval"]
        within = "" if interval is None else f" [{interval[0]:+.2f}, {interval[1]:+.2f}]"
    return f"{fmean(values):+.2f}{within}"
