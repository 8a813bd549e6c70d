"""Trainings that differ in the similarity alone, compared: figures as means over seeds, differences question by question.

A question's value is the mean of its values over the seeds of a training, so that intervals and tests are over questions
as everywhere else; how far seeds differ is in `by_seed`. All values are shares, not percentages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from eval.data.datasets import Question
from eval.paired import Comparison, compare_values, with_holm
from eval.scores import ranking_values, score_question
from eval.significance import measure_intervals
from eval.view import RunView

RANKING = "nDCG@10"
READING = "exact match"
UNTRAINED = "untrained"
BASELINE = "cosine"

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Norms:
    """Passage norms of one encoder over one data set's corpus; NaN where a figure is undefined.

    Attributes:
        d: Cohen's d of the passages that are relevant to a question against those that are relevant to none.
        reason: Why d is undefined; "" where it is not.
        relevant: Passages on the one side.
        others: Passages on the other.
        cv: Coefficient of variation over all.
        length: Correlation with the logarithm of the length in tokens, over all.
    """

    d: float
    reason: str
    relevant: int
    others: int
    cv: float
    length: float


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One encoder with its evaluations, whose systems are called by the similarity that searches.

    Attributes:
        trained_for: A similarity's name, or `UNTRAINED`.
        seed: Of its training.
        ranking: Retrieval alone, and sentence pairs.
        reading: Answers; None where none were asked for.
        norms: By data set.
    """

    trained_for: str
    seed: int
    ranking: RunView
    reading: RunView | None
    norms: Mapping[str, Norms]


@dataclass(frozen=True, slots=True)
class Row:
    """One training (all its seeds) on one data set by one measure.

    Attributes:
        dataset: Its name.
        measure: `RANKING` or `READING`.
        trained_for: A similarity, or `UNTRAINED`.
        searched_by: The similarity that ranks; a training's own.
        n: Questions.
        value: Mean over questions and seeds.
        interval: Bootstrap over questions; None when n < 2.
        by_seed: Means over questions, in the order of the seeds.
        against_cosine: Against the training by cosine, paired; None for that one itself.
        against_untrained: Against the untrained encoder searched by cosine, paired; None for that one itself.
        under: The same measure when searched by other similarities (rankings only).
    """

    dataset: str
    measure: str
    trained_for: str
    searched_by: str
    n: int
    value: float
    interval: Interval | None
    by_seed: list[float]
    against_cosine: Comparison | None = None
    against_untrained: Comparison | None = None
    under: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PairRow:
    """One training on one set of sentence pairs: Spearman's correlation, the mean over its seeds.

    Attributes:
        dataset: The set.
        trained_for: A similarity, or `UNTRAINED`.
        scored_by: "cosine" or "dot".
        n: Pairs.
        value: In [-1, 1].
        interval: Bootstrap over pairs, of a training with one seed; None with several.
        by_seed: In the order of the seeds.
        against_cosine: Difference from the training by cosine, scored alike.
        against_untrained: Difference from the untrained encoder, scored by cosine.
    """

    dataset: str
    trained_for: str
    scored_by: str
    n: int
    value: float
    interval: Interval | None
    by_seed: list[float]
    against_cosine: float | None = None
    against_untrained: float | None = None


@dataclass(frozen=True, slots=True)
class NormRow:
    """One training's norms on one data set: means over its seeds, as `Norms`."""

    dataset: str
    trained_for: str
    norms: Norms


@dataclass(frozen=True, slots=True)
class Sweep:
    """A comparison of trainings.

    Attributes:
        in_domain: Data sets that are like what was trained on.
        trainings: What each training is and how it ended, as JSON values.
        rows: By measure, data set and training.
        pairs: Sentence pairs.
        norms: By data set and training.
    """

    in_domain: list[str]
    trainings: list[dict[str, Any]]
    rows: list[Row] = field(default_factory=list)
    pairs: list[PairRow] = field(default_factory=list)
    norms: list[NormRow] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; what is undefined is null."""
        found: dict[str, Any] = _without_nan({"format": 1, **asdict(self)})
        return found


def compare_trainings(
    trainings: Sequence[Evaluated], untrained: Evaluated, *, in_domain: Sequence[str], facts: Sequence[dict[str, Any]]
) -> Sweep:
    """The figures of a sweep.

    Args:
        trainings: Every similarity with every seed, a similarity's seeds in one order.
        untrained: The encoder they started from, searched by cosine and by dot.
        in_domain: Names of data sets.
        facts: Of each training, for `Sweep.trainings`.

    Raises:
        EvalError: As `eval.ranking.per_question`.
    """
    by_similarity: dict[str, list[Evaluated]] = {}
    for one in trainings:
        by_similarity.setdefault(one.trained_for, []).append(one)
    groups = [(UNTRAINED, name, [untrained]) for name in ("cosine", "dot")]
    groups += [(name, name, members) for name, members in by_similarity.items()]
    sweep = Sweep(list(in_domain), list(facts))
    for measure, view_of, values_of in (
        (RANKING, lambda one: one.ranking, _ranking),
        (READING, lambda one: one.reading, _reading),
    ):
        sweep.rows.extend(_rows(measure, groups, view_of, values_of))
    sweep.pairs.extend(_pair_rows(groups))
    for trained_for, members in ((UNTRAINED, [untrained]), *by_similarity.items()):
        for dataset in untrained.norms:
            sweep.norms.append(NormRow(dataset, trained_for, _mean_norms([one.norms[dataset] for one in members])))
    return sweep


Group = tuple[str, str, Sequence[Evaluated]]
ViewOf = Callable[[Evaluated], RunView | None]
ValuesOf = Callable[[RunView, str, Sequence[Question]], dict[str, float]]


def _ranking(view: RunView, system: str, questions: Sequence[Question]) -> dict[str, float]:
    rows = {question.id: row for question in questions if (row := view.rows.get((system, question.id)))}
    return ranking_values([RANKING], questions, rows).get(RANKING, {})


def _reading(view: RunView, system: str, questions: Sequence[Question]) -> dict[str, float]:
    rule = view.rules[questions[0].dataset]
    if rule is None:
        return {}
    return {q.id: float(score_question(q, view.rows.get((system, q.id)), rule).em) for q in questions}


def _rows(measure: str, groups: Sequence[Group], view_of: ViewOf, values_of: ValuesOf) -> list[Row]:
    first = view_of(groups[0][2][0])
    if first is None:
        return []
    seed, rows = int(first.manifest["seed"]), []
    for dataset in dict.fromkeys(question.dataset for question in first.questions):
        questions = [question for question in first.questions if question.dataset == dataset]

        def means(
            members: Sequence[Evaluated], system: str, questions: Sequence[Question] = questions
        ) -> tuple[dict[str, float], list[float]]:
            """By question, the mean over seeds; and by seed, the mean over questions. Empty where a system was not asked."""
            views = [view for one in members if (view := view_of(one)) is not None and system in view.systems]
            found = [values for view in views if (values := values_of(view, system, questions))]
            if not found:
                return {}, []
            return {id: fmean(own[id] for own in found) for id in found[0]}, [fmean(own.values()) for own in found]

        values = {(trained, system): means(members, system) for trained, system, members in groups}
        for trained, system, members in groups:
            own, by_seed = values[trained, system]
            if not own:
                continue
            against: dict[str, Comparison | None] = {}
            for baseline in (BASELINE, UNTRAINED):
                other = values.get((baseline, "cosine"), ({}, []))[0]
                skipped = (
                    not other
                    or (baseline, "cosine") == (trained, system)
                    or (baseline, trained) == (BASELINE, UNTRAINED)
                )
                against[baseline] = (
                    None if skipped else _difference(baseline, trained, dataset, measure, other, own, seed)
                )
            others = [
                name for name in ("cosine", "dot") if name != system and measure == RANKING and trained != UNTRAINED
            ]
            rows.append(
                Row(
                    dataset=dataset,
                    measure=measure,
                    trained_for=trained,
                    searched_by=system,
                    n=len(own),
                    value=fmean(own.values()),
                    interval=measure_intervals({measure: own}, seed)[measure],
                    by_seed=by_seed,
                    against_cosine=against[BASELINE],
                    against_untrained=against[UNTRAINED],
                    under={name: fmean(found) for name in others if (found := means(members, name)[1])},
                )
            )
    return _adjusted(rows)


def _difference(
    baseline: str, system: str, dataset: str, measure: str, before: dict[str, float], after: dict[str, float], seed: int
) -> Comparison:
    (found,) = compare_values(baseline, system, dataset, {measure: before}, {measure: after}, seed)
    return found


def _adjusted(rows: Sequence[Row]) -> list[Row]:
    """The same with p values adjusted over all comparisons with one baseline."""
    cosine = iter(with_holm([row.against_cosine for row in rows if row.against_cosine]))
    untrained = iter(with_holm([row.against_untrained for row in rows if row.against_untrained]))
    return [
        replace(
            row,
            against_cosine=row.against_cosine and next(cosine),
            against_untrained=row.against_untrained and next(untrained),
        )
        for row in rows
    ]


def _pair_rows(groups: Sequence[Group]) -> list[PairRow]:
    rows: list[PairRow] = []
    members_of = {trained: members for trained, _, members in groups}
    sets = dict.fromkeys(score.dataset for score in members_of[UNTRAINED][0].ranking.pairs)
    for dataset in sets:
        found: dict[tuple[str, str], PairRow] = {}
        for trained, members in members_of.items():
            for system in ("cosine", "dot"):
                scores = [
                    score
                    for one in members
                    for score in one.ranking.pairs
                    if (score.dataset, score.system) == (dataset, system)
                ]
                values = [score.spearman for score in scores if score.spearman is not None]
                if values:
                    interval = scores[0].interval if len(values) == 1 else None
                    row = PairRow(dataset, trained, system, scores[0].n, fmean(values), interval, values)
                    found[trained, system] = row
        for (trained, system), row in found.items():
            alike, start = found.get((BASELINE, system)), found.get((UNTRAINED, "cosine"))
            rows.append(
                replace(
                    row,
                    against_cosine=row.value - alike.value if alike and trained not in (UNTRAINED, BASELINE) else None,
                    against_untrained=row.value - start.value if start and row is not start else None,
                )
            )
    return rows


def _mean_norms(found: Sequence[Norms]) -> Norms:
    """Means over seeds; Cohen's d is undefined where it is for one of them."""
    d, cv, length = (fmean(getattr(one, name) for one in found) for name in ("d", "cv", "length"))
    return replace(found[0], d=d, cv=cv, length=length, reason=next((one.reason for one in found if one.reason), ""))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
