"""From stored rows to the figures of each system on each data set, and the comparison of systems.

All figures come from the rows as they lie on disk, taken in the order of the questions, so that they don't depend on
when a run was interrupted. Denominators are all questions: one without an answer counts 0 everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from eval.datasets import Question
from eval.metrics import get_rule, score_answer
from eval.retrieval import hit_curve, mean_curve, recall_curve
from eval.significance import LEVEL, RESAMPLES, bootstrap_interval, mcnemar_p, wins_losses

Interval = tuple[float, float]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """One system's answer to one question, scored.

    Attributes:
        question: The question.
        missing: There is no answer: an error, or no row.
        em: Exact Match, False when missing.
        f1: In [0, 1], 0.0 when missing; None under a rule without F1.
        contains: A gold stands in the answer; not Exact Match.
        empty_match: EM holds with nothing left of prediction and gold (see `eval.metrics`).
        words: White-space separated words of the answer.
        gold_words: The same of the longest gold.
    """

    question: Question
    missing: bool
    em: bool
    f1: float | None
    contains: bool
    empty_match: bool
    words: int
    gold_words: int


@dataclass(frozen=True, slots=True)
class SystemMetrics:
    """One system on one data set. Scores are percentages over all n questions, not rounded.

    Attributes:
        system: Its name.
        dataset: The data set's name.
        rule: The rule of EM and F1.
        n: Questions.
        missing: Questions without an answer, counted 0.
        em: Exact Match, and its interval (None when n < 2).
        f1: Token F1, and its interval; None under a rule without F1.
        contains: Share of answers in which a gold stands; not Exact Match.
        empty_matches: Questions with EM though nothing is left of prediction and gold.
        answer_words: Mean length of the answers there are, in words; None when there are none.
        gold_words: Mean length of the longest golds.
        prompt_tokens: Mean length of the prompts of the answers there are.
        dropped: Passages that were left out of prompts for length, in all.
        k: Most passages that a question got; 0 for closed book.
        hit: Share of questions with an answer string in the first 1, 2, ... k passages, of those that have golds.
        hit_n: How many those are.
        without_golds: Questions that have no answer; EM takes nothing but an empty answer for right.
        recall_gold: Mean share of `gold_ids` in the first 1 ... k, over the `recall_gold_n` questions that have any.
        recall_supporting: The same of `supporting_ids`.
    """

    system: str
    dataset: str
    rule: str
    n: int
    missing: int
    em: float
    em_interval: Interval | None
    f1: float | None
    f1_interval: Interval | None
    contains: float
    empty_matches: int
    answer_words: float | None
    gold_words: float
    prompt_tokens: float | None
    dropped: int
    k: int
    hit: list[float] | None
    hit_n: int
    without_golds: int
    recall_gold: list[float] | None
    recall_gold_n: int
    recall_supporting: list[float] | None
    recall_supporting_n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A system against the first one, on the same questions.

    Attributes:
        baseline: The first system.
        system: The other.
        dataset: The data set's name.
        n: Questions.
        em_difference: EM of the system minus EM of the baseline, in percentage points.
        em_difference_interval: Its paired bootstrap interval; None when n < 2.
        wins: Questions that the system alone has right.
        losses: Questions that the baseline alone has right.
        mcnemar_p: Two-sided exact McNemar p.
    """

    baseline: str
    system: str
    dataset: str
    n: int
    em_difference: float
    em_difference_interval: Interval | None
    wins: int
    losses: int
    mcnemar_p: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of a run; `to_json` gives the content of metrics.json."""

    seed: int
    resamples: int = RESAMPLES
    level: float = LEVEL
    systems: list[SystemMetrics] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def score_question(question: Question, row: Row | None, rule: str) -> QuestionScore:
    """Score a stored row; None is a missing answer."""
    gold_words = max((len(answer.split()) for answer in question.answers), default=0)
    if row is None or row.get("error") is not None:
        f1 = None if get_rule(rule).f1_style is None else 0.0
        return QuestionScore(question, True, False, f1, False, False, 0, gold_words)
    prediction = row["prediction"]
    score = score_answer(prediction, question.answers, rule)
    words = len(prediction.split())
    return QuestionScore(question, False, score.em, score.f1, score.contains, score.empty_match, words, gold_words)


def summarise(
    questions: Sequence[Question],
    systems: Sequence[str],
    rows: Mapping[tuple[str, str], Row],
    rules: Mapping[str, str],
    seed: int,
) -> Metrics:
    """The figures of all systems on all data sets.

    Args:
        questions: All of them; data sets are told apart by `Question.dataset` and keep the order of their first one.
        systems: Names; the first is what the others are compared with.
        rows: Stored rows by (system, question id).
        rules: Rule by data set.
        seed: Of the bootstrap.
    """
    metrics = Metrics(seed)
    for dataset in dict.fromkeys(question.dataset for question in questions):
        members = [question for question in questions if question.dataset == dataset]
        outcomes: dict[str, list[bool]] = {}
        for system in systems:
            own = [rows.get((system, question.id)) for question in members]
            scores = [score_question(q, row, rules[dataset]) for q, row in zip(members, own, strict=True)]
            outcomes[system] = [score.em for score in scores]
            metrics.systems.append(_system_metrics(system, dataset, rules[dataset], scores, own, seed))
        for system in systems[1:]:
            before, after = outcomes[systems[0]], outcomes[system]
            metrics.comparisons.append(compare(systems[0], system, dataset, before, after, seed))
    return metrics


def compare(
    baseline: str, system: str, dataset: str, before: Sequence[bool], after: Sequence[bool], seed: int
) -> Comparison:
    """Compare two systems' Exact Match, question by question (`before` is the baseline's).

    Raises:
        ValueError: They are of different length.
    """
    wins, losses = wins_losses(before, after)
    changes = [float(new) - float(old) for old, new in zip(before, after, strict=True)]
    interval = bootstrap_interval(changes, seed)
    return Comparison(
        baseline=baseline,
        system=system,
        dataset=dataset,
        n=len(changes),
        em_difference=100 * fmean(changes),
        em_difference_interval=_percent_interval(interval[0]) if interval else None,
        wins=wins,
        losses=losses,
        mcnemar_p=mcnemar_p(wins, losses),
    )


def mean_seconds(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Mean wall seconds a question, by system and stage, over the answers there are."""
    sums: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        if row["error"] is None:
            counts[row["system"]] += 1
            sums.setdefault(row["system"], Counter()).update(row["seconds"])
    return {system: {stage: value / counts[system] for stage, value in total.items()} for system, total in sums.items()}


def _system_metrics(
    system: str, dataset: str, rule: str, scores: Sequence[QuestionScore], rows: Sequence[Row | None], seed: int
) -> SystemMetrics:
    em = [float(score.em) for score in scores]
    f1 = [score.f1 for score in scores if score.f1 is not None]
    intervals = bootstrap_interval(list(zip(em, f1, strict=True)) if f1 else em, seed)
    answered = [score for score in scores if not score.missing]
    present = [row for row in rows if row is not None]
    prompts = [row["prompt_tokens"] for row in present if row["error"] is None]
    k = max((len(row["passages"]) for row in present), default=0)
    hit, gold, supporting = _retrieval_curves(scores, rows, k)
    return SystemMetrics(
        system=system,
        dataset=dataset,
        rule=rule,
        n=len(scores),
        missing=len(scores) - len(answered),
        em=100 * fmean(em),
        em_interval=_percent_interval(intervals[0]) if intervals else None,
        f1=100 * fmean(f1) if f1 else None,
        f1_interval=_percent_interval(intervals[1]) if intervals and f1 else None,
        contains=100 * fmean(score.contains for score in scores),
        empty_matches=sum(score.empty_match for score in scores),
        answer_words=fmean(score.words for score in answered) if answered else None,
        gold_words=fmean(score.gold_words for score in scores),
        prompt_tokens=fmean(prompts) if prompts else None,
        dropped=sum(row["dropped"] for row in present),
        k=k,
        hit=hit[0],
        hit_n=hit[1],
        without_golds=sum(not score.question.answers for score in scores),
        recall_gold=gold[0],
        recall_gold_n=gold[1],
        recall_supporting=supporting[0],
        recall_supporting_n=supporting[1],
    )


def _retrieval_curves(
    scores: Sequence[QuestionScore], rows: Sequence[Row | None], k: int
) -> list[tuple[list[float] | None, int]]:
    """(percentages at 1 ... k, questions) for answer strings, gold ids and supporting ids."""
    if k == 0:
        return [(None, 0)] * 3
    hits, golds, supportings = [], [], []
    for score, row in zip(scores, rows, strict=True):
        passages = row["passages"] if row is not None else []
        ids = [passage["id"] for passage in passages]
        # Without a gold no passage can hold it; such a question says nothing of the retriever.
        flags = [passage["has_answer"] for passage in passages]
        hits.append(hit_curve(flags, k) if score.question.answers else None)
        golds.append(recall_curve(ids, score.question.gold_ids, k))
        supportings.append(recall_curve(ids, score.question.supporting_ids, k))
    means = [mean_curve(hits), mean_curve(golds), mean_curve(supportings)]
    return [([100 * value for value in curve] if curve is not None else None, n) for curve, n in means]


def _percent_interval(interval: Interval) -> Interval:
    return 100 * interval[0], 100 * interval[1]
