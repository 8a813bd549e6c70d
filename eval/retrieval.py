"""Did the ranked passages hold the answer (hit@k), and did they hold the marked passages (recall@k)?

The two answer different needs. Many relevant passages of open-domain sets are unmarked, so hit@k looks for the answer
string in any passage (`eval.metrics.has_answer`); multi-hop sets mark every passage that is needed, so recall@k asks
what share of them was found. Curves have one value for each k from 1: `curve[k - 1]` is the value at k.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eval.errors import EvalError


def hit_curve(flags: Sequence[bool], k: int) -> list[float]:
    """1.0 from the first passage that holds an answer on, 0.0 before.

    Args:
        flags: Whether each passage holds an answer, best passage first; fewer than k are taken as they are.
        k: Length of the curve.

    Raises:
        EvalError: k is below 1.
    """
    _check_k(k)
    first = next((rank for rank, flag in enumerate(flags) if flag), k)
    return [float(rank >= first) for rank in range(k)]


def recall_curve(ranked_ids: Sequence[str], relevant: Collection[str], k: int) -> list[float] | None:
    """The share of the relevant passages among the first 1, 2, ... k; None when none is marked.

    A passage that is ranked twice counts once.

    Raises:
        EvalError: k is below 1.
    """
    _check_k(k)
    wanted = set(relevant)
    if not wanted:
        return None
    found: set[str] = set()
    curve = []
    for rank in range(k):
        if rank < len(ranked_ids) and ranked_ids[rank] in wanted:
            found.add(ranked_ids[rank])
        curve.append(len(found) / len(wanted))
    return curve


def complete_curve(ranked_ids: Sequence[str], relevant: Collection[str], k: int) -> list[float] | None:
    """1.0 from the passage on with which all the relevant ones are found, 0.0 before; None when none is marked.

    A multi-hop question cannot be answered from a part of its passages: HotpotQA's papers count "both found".

    Raises:
        EvalError: k is below 1.
    """
    recall = recall_curve(ranked_ids, relevant, k)
    return None if recall is None else [float(share == 1) for share in recall]


def mean_curve(curves: Sequence[Sequence[float] | None]) -> tuple[list[float] | None, int]:
    """The mean over the questions that have a curve, and how many they are; (None, 0) when there are none.

    Raises:
        EvalError: The curves differ in length.
    """
    present = [curve for curve in curves if curve is not None]
    if not present:
        return None, 0
    if len({len(curve) for curve in present}) > 1:
        raise EvalError("curves to average must share one k: compute each with the same k")
    return [sum(values) / len(present) for values in zip(*present, strict=True)], len(present)


def _check_k(k: int) -> None:
    if k < 1:
        raise EvalError(f"k must be at least 1, got {k}")
