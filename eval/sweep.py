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
from eval.sweep_pairs import PairChange, PairRow, PairValues, pair_rows
from eval.view import RunView

RANKING = "nDCG@10"
READING = "exact match"
UNTRAINED = "untrained"
BASELINE = "cosine"
IN_DOMAIN, OUT_OF_DOMAIN, ALL = "in domain", "out of domain", "all data sets"

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Norms:
    """Passage norms of one encoder over one data set's corpus; NaN where a figure is undefined.

    Attributes:
        d: Cohen's d of the passages that are relevant to one of the set's questions, asked or not, against those that no
            question of any set over the same corpus marks.
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
        norms: By data set; those that were evaluated for some seeds only are missing in the others', as in the runs.
        pairs: Scores of sentence pairs, by set.
    """

    trained_for: str
    seed: int
    ranking: RunView
    reading: RunView | None
    norms: Mapping[str, Norms]
    pairs: Mapping[str, PairValues] = field(default_factory=dict)


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
        by_seed: Means over questions, in the order of the seeds that the set was evaluated for.
        against_cosine: Against the training by cosine, paired; None for that one itself.
        against_untrained: Against the untrained encoder searched by cosine, paired; None for that one itself.
        against_dnorm: Of the training by qnorm alone, against the one by dnorm, paired: which side to normalise.
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
    against_dnorm: Comparison | None = None
    under: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NormRow:
    """One training's norms on one data set: means over its seeds, as `Norms`."""

    dataset: str
    trained_for: str
    norms: Norms


@dataclass(frozen=True, slots=True)
class Tally:
    """On how many data sets a training is better than another by one measure: where the interval of the difference lies.

    Attributes:
        trained_for: A similarity, or `UNTRAINED`.
        searched_by: The similarity that ranks.
        measure: `RANKING` or `READING`.
        domain: `IN_DOMAIN` or `OUT_OF_DOMAIN`; `ALL` where nobody said which are which.
        against: `BASELINE`, trained alike, or `UNTRAINED`, searched by cosine.
        won: Above 0.
        equal: 0 is in it.
        lost: Below 0.
    """

    trained_for: str
    searched_by: str
    measure: str
    domain: str
    against: str
    won: int
    equal: int
    lost: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """A comparison of trainings.

    Attributes:
        in_domain: Data sets that are like what was trained on.
        trainings: What each training is and how it ended, as JSON values.
        rows: By measure, data set and training.
        pairs: Sentence pairs.
        norms: By data set and training.
        tallies: By measure, domain and training.
        made: How it was made: command, data, model, hardware.
    """

    in_domain: list[str]
    trainings: list[dict[str, Any]]
    rows: list[Row] = field(default_factory=list)
    pairs: list[PairRow] = field(default_factory=list)
    norms: list[NormRow] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    made: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; what is undefined is null."""
        found: dict[str, Any] = _without_nan({"format": 2, **asdict(self)})
        return found


def compare_trainings(
    trainings: Sequence[Evaluated],
    untrained: Evaluated,
    *,
    in_domain: Sequence[str],
    facts: Sequence[dict[str, Any]],
    made: Mapping[str, Any],
) -> Sweep:
    """The figures of a sweep.

    Args:
        trainings: Every similarity with every seed, a similarity's seeds in one order.
        untrained: The encoder they started from, searched by cosine and by dot.
        in_domain: Names of data sets.
        facts: Of each training, for `Sweep.trainings`.
        made: For `Sweep.made`.

    Raises:
        EvalError: As `eval.ranking.per_question`.
    """
    by_similarity: dict[str, list[Evaluated]] = {}
    for one in trainings:
        by_similarity.setdefault(one.trained_for, []).append(one)
    groups = [(UNTRAINED, name, [untrained]) for name in ("cosine", "dot")]
    groups += [(name, name, members) for name, members in by_similarity.items()]
    sweep = Sweep(list(in_domain), list(facts), made=dict(made))
    for measure, view_of, values_of in (
        (RANKING, lambda one: one.ranking, _ranking),
        (READING, lambda one: one.reading, _reading),
    ):
        sweep.rows.extend(_rows(measure, groups, view_of, values_of))
    everything = {UNTRAINED: [untrained], **by_similarity}
    seed = int(untrained.ranking.manifest["seed"])
    sets = {trained_for: [one.pairs for one in members] for trained_for, members in everything.items()}
    sweep.pairs.extend(pair_rows(sets, untrained=UNTRAINED, baseline=BASELINE, seed=seed))
    for trained_for, members in everything.items():
        for dataset in untrained.norms:
            if own := [one.norms[dataset] for one in members if dataset in one.norms]:
                sweep.norms.append(NormRow(dataset, trained_for, _mean_norms(own)))
    sweep.tallies.extend(_tallies(sweep))
    return sweep


def side(change: Comparison | PairChange | None) -> int | None:
    """Where the interval of a difference lies: 1 above 0, -1 below, 0 where it holds 0; None without an interval."""
    if change is None or change.interval is None:
        return None
    low, high = change.interval
    return 1 if low > 0 else -1 if high < 0 else 0


def domain_of(dataset: str, in_domain: Sequence[str]) -> str:
    """`IN_DOMAIN`, `OUT_OF_DOMAIN`, or `ALL` where nobody said which data sets are like the training's."""
    if not in_domain:
        return ALL
    return IN_DOMAIN if dataset in in_domain else OUT_OF_DOMAIN


def _tallies(sweep: Sweep) -> list[Tally]:
    counts: dict[tuple[str, str, str, str, str], list[int]] = {}
    for domain in (IN_DOMAIN, OUT_OF_DOMAIN, ALL):
        for row in sweep.rows:
            if domain_of(row.dataset, sweep.in_domain) != domain:
                continue
            for against, change in ((UNTRAINED, row.against_untrained), (BASELINE, row.against_cosine)):
                if (where := side(change)) is not None:
                    key = (row.trained_for, row.searched_by, row.measure, domain, against)
                    counts.setdefault(key, [0, 0, 0])[1 - where] += 1
    return [Tally(*key, *found) for key, found in counts.items()]


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
            """By question, the mean over seeds; and by seed, the mean over questions. Empty where a system was not asked.

            A data set may have been asked for some of the seeds only.
            """
            views = [view for one in members if (view := view_of(one)) is not None]
            asked = [view for view in views if system in view.systems and questions[0].dataset in view.datasets]
            found = [values for view in asked if (values := values_of(view, system, questions))]
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
            dnorm = values.get(("dnorm", "dnorm"), ({}, []))[0] if trained == "qnorm" else {}
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
                    against_dnorm=_difference("dnorm", trained, dataset, measure, dnorm, own, seed) if dnorm else None,
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
    dnorm = iter(with_holm([row.against_dnorm for row in rows if row.against_dnorm]))
    return [
        replace(
            row,
            against_cosine=row.against_cosine and next(cosine),
            against_untrained=row.against_untrained and next(untrained),
            against_dnorm=row.against_dnorm and next(dnorm),
        )
        for row in rows
    ]


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
