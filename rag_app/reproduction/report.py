"""reproduction.md: every claim with both figures and the verdict, then every figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eval.environment import versions_of
from rag_app.reproduction.claims import Judgement
from rag_app.reproduction.measures import Measure


def markdown(
    judged: Sequence[Judgement], measures: Mapping[str, Sequence[Measure]], command: str, environment: Mapping[str, Any]
) -> str:
    """The whole file.

    Args:
        judged: Claims in order.
        measures: Figures of the experiments that were run, by name.
        command: What a person typed.
        environment: Of `eval.environment.describe_environment`.
    """
    versions = versions_of(environment, "magrag", "torch", "transformers", "sentence-transformers")
    lines = [
        "# Reproduction",
        "",
        "Claims of Feng & Watanabe (arXiv 2602.09229v1), judged by rules that stand beside them in "
        "rag_app/reproduction/claims.py. Intervals are of 95 %.",
        "",
        f"{environment['hardware']}; {versions}",
        "",
        *([f"`{command}`", ""] if command else []),
        *_table(("claim", "the paper", "ours", "verdict", "rule"), map(_claim, judged)),
    ]
    for name, own in measures.items():
        rows = ((one.name, str(one), f"{one.n:,}") for one in own)
        lines += ["", f"## {name}", "", *_table(("figure", "value", "n"), rows)]
    return "\n".join(lines) + "\n"


def _claim(own: Judgement) -> tuple[str, ...]:
    found = "; ".join(f"{measure.name}: {measure}, {verdict}" for measure, verdict in own.found)
    rule = own.claim.why if own.claim.rule is None else own.claim.rule.words
    return own.claim.says, own.claim.theirs, found or "–", f"**{own.verdict}**", rule


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    shown = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in shown]
