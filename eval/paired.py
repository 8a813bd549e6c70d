"""Two systems on the same questions: by how much one is better, and whether that could be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from eval.data.datasets import Question
from eval.scores import EM, F1, Row, Values, answer_values, has_passages, ranking_values, score_question
from eval.significance import holm, mcnemar_p, measure_intervals, permutation_p

# Per-question values this close are the same number, computed in another order.
_TIE = 1e-9
_PERCENT = frozenset({EM, F1})


@dataclass(frozen=True, slots=True)
class Comparison:
    """A system against the baseline on the same questions, by one measure.

    Attributes:
        baseline: What it is compared with.
        system: The system.
        dataset: The data set's name.
        measure: "EM", "F1" or an ir-measures name.
        n: Questions that have both values.
        difference: Mean of the system minus mean of the baseline: percentage points for EM and F1, else the measure's
            own unit.
        interval: Its paired bootstrap interval; None when n < 2.
        wins: Questions on which the system is better; None where a measure is of all of them together (Spearman's).
        losses: Questions on which the baseline is, or None.
        ties: The others, or None.
        test: What p comes from, "McNemar exact" or "permutation"; "none" where there is no test.
        p: Two-sided; None when n < 2.
        p_holm: p adjusted for all comparisons by this measure in one table (`with_holm`); None before that.
        identical: No question differs.
    """

    baseline: str
    system: str
    dataset: str
    measure: str
    n: int
    difference: float
    interval: tuple[float, float] | None
    wins: int | None
    losses: int | None
    ties: int | None
    test: str
    p: float | None
    p_holm: float | None
    identical: bool


def paired_comparisons(
    baseline_name: str,
    system_name: str,
    dataset: str,
    questions: Sequence[Question],
    rows_a: Mapping[str, Row],
    rows_b: Mapping[str, Row],
    rule: str | None,
    seed: int,
    measures: Sequence[str] = (),
) -> list[Comparison]:
    """Compare two systems' rows, which may be of different runs, by every measure that both have.

    Args:
        baseline_name: Name of the system of `rows_a`.
        system_name: Name of the system of `rows_b`.
        dataset: The data set's name.
        questions: Its questions; one without a row counts 0.
        rows_a: All rows of the system, by question id: one that retrieves anywhere counts 0 where it failed.
        rows_b: The same.
        rule: The rule of EM and F1; None for a retrieval task, which has neither.
        seed: Of intervals and permutations.
        measures: ir-measures names; left out where a system has no passages or no question is judged.

    Returns:
        EM, F1 and the ranking measures, in this order; apply `with_holm` once the whole table is there.

    Raises:
        EvalError: An unknown rule or measure.
    """
    sides = []
    for rows in (rows_a, rows_b):
        scores = [score_question(question, rows.get(question.id), rule) for question in questions] if rule else []
        ranking = measures if has_passages(rows.values()) else ()
        sides.append((answer_values(scores) if rule else {}) | ranking_values(ranking, questions, rows))
    return compare_values(baseline_name, system_name, dataset, sides[0], sides[1], seed)


def compare_values(
    baseline: str, system: str, dataset: str, before: Values, after: Values, seed: int
) -> list[Comparison]:
    """Compare by the measures that both have (`before` is the baseline's), in the baseline's order.

    Raises:
        ValueError: A measure is over different questions on the two sides.
        EvalError: A value is not finite.
    """
    shared = [measure for measure in before if measure in after and before[measure]]
    changes = {measure: _changes(measure, before[measure], after[measure]) for measure in shared}
    intervals = measure_intervals(changes, seed)
    comparisons = []
    for measure, own in changes.items():
        values = list(own.values())
        unit = 100 if measure in _PERCENT else 1
        wins, losses = sum(value > 0 for value in values), sum(value < 0 for value in values)
        n, interval = len(values), intervals[measure]
        # McNemar's test is the permutation test of 0/1 outcomes, with its p in closed form.
        p = (mcnemar_p(wins, losses) if n > 1 else None) if measure == EM else permutation_p(values, seed)
        comparisons.append(
            Comparison(
                baseline=baseline,
                system=system,
                dataset=dataset,
                measure=measure,
                n=n,
                difference=unit * fmean(values),
                interval=(unit * interval[0], unit * interval[1]) if interval else None,
                wins=wins,
                losses=losses,
                ties=n - wins - losses,
                test="McNemar exact" if measure == EM else "permutation",
                p=p,
                p_holm=None,
                identical=wins == losses == 0,
            )
        )
    return comparisons


def with_holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same with `p_holm`, adjusted over all of them that are by the same measure.

    Systems that rank alike (one retriever with several readers or k; qnorm and dot) are one hypothesis and count once,
    and a system that differs nowhere is none.
    """
    adjusted: dict[int, float | None] = {}
    for measure in dict.fromkeys(comparison.measure for comparison in comparisons):
        members = [place for place, comparison in enumerate(comparisons) if comparison.measure == measure]
        kinds = {place: _hypothesis(comparisons[place]) for place in members}
        distinct = {kinds[place]: comparisons[place].p for place in members if not comparisons[place].identical}
        found = dict(zip(distinct, holm(list(distinct.values())), strict=True))
        adjusted |= {place: found.get(kinds[place], comparisons[place].p) for place in members}
    return [replace(comparison, p_holm=adjusted[place]) for place, comparison in enumerate(comparisons)]


def _hypothesis(one: Comparison) -> tuple[object, ...]:
    return one.baseline, one.dataset, one.n, one.difference, one.interval, one.wins, one.losses, one.p


def _changes(measure: str, before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    if before.keys() != after.keys():
        raise ValueError(f"{measure} must be over the same questions for both systems")
    changes = {id: after[id] - value for id, value in before.items()}
    return {id: 0.0 if abs(change) <= _TIE else change for id, change in changes.items()}
