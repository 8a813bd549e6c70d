"""reproduction.md: every claim with both figures and the verdict, then every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.environment import versions_of
from eval.report import render
from eval.report.tables import NONE, Table
from rag_app.reproduction.claims import Judgement
from rag_app.reproduction.measures import Measure

_COLUMNS = ("claim", "the paper", "ours", "verdict", "rule", "intervals over", "limits")


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
        "rag_app/reproduction/claims.py. Intervals are of 95 %; what they are over stands beside each.",
        "",
        f"{environment['hardware']}; {versions}",
        "",
        *([f"`{command}`", ""] if command else []),
        render.markdown(Table("Claims", _COLUMNS, [_claim(own) for own in judged], names=len(_COLUMNS))),
    ]
    for name, own in measures.items():
        table = Table(name, ("figure", "value", "n"), [(one.name, str(one), f"{one.n:,}") for one in own])
        lines += ["", f"## {table.title}", "", render.markdown(table)]
    return "\n".join(lines) + "\n"


def _claim(own: Judgement) -> tuple[str, ...]:
    found = "; ".join(
        f"{measure.name}: {measure}" + (f", {verdict}" if verdict else "") for measure, verdict in own.found
    )
    rule = own.claim.why if own.claim.rule is None else own.claim.rule.words
    limits = own.claim.limits
    if own.claim.weak:
        limits = f"undecided at most, whatever the figures: {limits}"
    return (
        own.claim.says,
        own.claim.theirs,
        found or NONE,
        f"**{own.verdict}**",
        rule or NONE,
        own.over or NONE,
        limits or NONE,
    )
