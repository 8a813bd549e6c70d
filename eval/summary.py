"""From stored rows to the figures of each system on each data set, and the comparison of systems.

All figures come from the rows as they lie on disk, taken in the order of the questions, so that they don't depend on
when a run was interrupted. Denominators are all questions: one without an answer counts 0 everywhere. Only what a data
set or system cannot have is left out, and never as a 0: ranking measures without judgments or without a retriever, EM
without answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from eval.causes import count_causes
from eval.data.datasets import Question
from eval.paired import Comparison as Comparison
from eval.paired import compare_values, with_holm
from eval.retrieval import complete_curve, hit_curve, mean_curve, recall_curve
from eval.scores import (
    EM,
    F1,
    QuestionScore,
    Row,
    Values,
    answer_values,
    has_passages,
    is_missing,
    ranking_values,
    score_question,
)
from eval.significance import LEVEL, RESAMPLES, measure_intervals

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """A ranking measure.

    Attributes:
        value: The mean over the judged questions, as ir-measures prints it.
        interval: Its bootstrap interval; None when n < 2.
        n: Judged questions.
    """

    value: float
    interval: Interval | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMetrics:
    """One system on one data set. Scores are percentages over all n questions, not rounded; `measures` are shares.

    Attributes:
        system: Its name.
        dataset: The data set's name.
        task: "qa"; or "retrieval", where nothing is read and so nothing of answers is known; or "sts", where nothing is ranked either.
        rule: The rule of EM and F1; None for retrieval.
        n: Questions.
        missing: Questions that ended in an error, counted 0.
        em: Exact Match, and its interval (None when n < 2).
        f1: Token F1, and its interval; None under a rule without F1.
        em_at_hit: Exact Match over the `em_at_hit_n` questions of which a passage that the reader was offered holds an
            answer string: what the reader makes of what it can know. With its interval; None where there are none.
        contains: Share of answers in which a gold stands; not Exact Match.
        empty: Answers of nothing but white space.
        empty_matches: Questions with EM though nothing is left of prediction and gold.
        answer_words: Mean length of the answers there are, in words; None when there are none.
        gold_words: Mean length of the longest golds.
        prompt_tokens: Mean length of the prompts of the answers there are.
        dropped: Passages that were left out of prompts for length, in all.
        k: Most passages that the reader was offered; 0 for closed book and retrieval.
        depth: Most passages recorded for a question; curves have a value for 1, 2, ... depth.
        hit: Share of questions with an answer string in the first passages, of those that have golds.
        hit_n: How many those are.
        without_golds: Questions that have no answer; EM takes nothing but an empty answer for right.
        recall_gold: Mean share of `gold_ids` in the first passages, over the `recall_gold_n` questions that have any.
        recall_supporting: The same of `supporting_ids`.
        all_supporting: Share of the `recall_supporting_n` questions with all `supporting_ids` in the first passages.
        measures: Ranking measures by name; {} for a system that retrieves nothing, or where nothing is judged.
        causes: How many questions ended how, every one of `eval.causes.CAUSES`; None for retrieval.
    """

    system: str
    dataset: str
    task: str
    n: int
    rule: str | None = None
    missing: int = 0
    em: float | None = None
    em_interval: Interval | None = None
    f1: float | None = None
    f1_interval: Interval | None = None
    em_at_hit: float | None = None
    em_at_hit_interval: Interval | None = None
    em_at_hit_n: int = 0
    contains: float | None = None
    empty: int = 0
    empty_matches: int = 0
    answer_words: float | None = None
    gold_words: float | None = None
    prompt_tokens: float | None = None
    dropped: int = 0
    k: int = 0
    depth: int = 0
    hit: list[float] | None = None
    hit_n: int = 0
    without_golds: int = 0
    recall_gold: list[float] | None = None
    recall_gold_n: int = 0
    recall_supporting: list[float] | None = None
    recall_supporting_n: int = 0
    all_supporting: list[float] | None = None
    measures: dict[str, Measured] = field(default_factory=dict)
    causes: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of a run; `to_json` gives the content of metrics.json.

    Attributes:
        seed: Of intervals and permutations.
        resamples: Of both.
        level: Of the intervals.
        systems: One for each data set and system, data sets together.
        comparisons: Every system but the first against the first, by data set and measure.
        notes: What was left out and why, a line each.
    """

    seed: int
    resamples: int = RESAMPLES
    level: float = LEVEL
    systems: list[SystemMetrics] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Metrics:
        """What `to_json` gave.

        Raises:
            KeyError: An older version wrote it, which had other fields; as TypeError.
        """
        systems = [
            SystemMetrics(
                **_with_intervals(own)
                | {"measures": {name: Measured(**_with_intervals(found)) for name, found in own["measures"].items()}}
            )
            for own in stored["systems"]
        ]
        comparisons = [Comparison(**_with_intervals(own)) for own in stored["comparisons"]]
        return cls(**{**stored, "systems": systems, "comparisons": comparisons})


def summarise(
    questions: Sequence[Question],
    systems: Sequence[str],
    rows: Mapping[tuple[str, str], Row],
    rules: Mapping[str, str | None],
    seed: int,
    *,
    measures: Sequence[str] = (),
    answerable: Mapping[str, bool] | None = None,
) -> Metrics:
    """The figures of all systems on all data sets.

    Args:
        questions: All of them; data sets are told apart by `Question.dataset` and keep the order of their first one.
        systems: Names; the first is what the others are compared with.
        rows: Stored rows by (system, question id). A system without any row on a data set was not asked there and is
            left out of its figures; a question without a row counts 0.
        rules: Rule of EM and F1 by data set; None for a retrieval task.
        seed: Of intervals and permutations.
        measures: ir-measures names, computed wherever questions are judged.
        answerable: Whether the corpus holds an answer, by question id, where somebody looked.

    Raises:
        EvalError: An unknown rule or measure.
        ValueError: A ranking measure lacks a value that it should have.
    """
    metrics = Metrics(seed)
    comparisons: list[Comparison] = []
    # Over the whole run: a retriever that failed on all of one data set counts 0 there, unlike closed book.
    retrieves = {name: has_passages(row for (system, _), row in rows.items() if system == name) for name in systems}
    for dataset in dict.fromkeys(question.dataset for question in questions):
        members = [question for question in questions if question.dataset == dataset]
        rule = rules[dataset]
        values: dict[str, Values] = {}
        for system in systems:
            own = {q.id: row for q in members if (row := rows.get((system, q.id))) is not None}
            if not own:
                metrics.notes.append(f"{dataset}: {system} was not asked.")
                continue
            scores = [score_question(question, own.get(question.id), rule) for question in members] if rule else []
            answers = answer_values(scores) if rule else {}
            values[system] = answers | ranking_values(measures if retrieves[system] else (), members, own)
            causes = count_causes(members, [own.get(q.id) for q in members], rule, answerable) if rule else None
            metrics.systems.append(
                _system_metrics(system, dataset, rule, members, scores, own, values[system], causes, seed)
            )
        for system in systems[1:]:
            if system in values and systems[0] in values:
                before, after = values[systems[0]], values[system]
                comparisons += compare_values(systems[0], system, dataset, before, after, seed)
        metrics.notes.extend(_notes(dataset, systems, retrieves, measures, members))
    metrics.comparisons.extend(with_holm(comparisons))
    return metrics


def mean_seconds(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Mean wall seconds a question, by system and stage, over the answers for which the stage was computed.

    One that was known from before has no seconds, and counts in no mean.
    """
    seconds: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["error"] is None:
            stages = seconds.setdefault(row["system"], {})
            for stage, value in row["seconds"].items():
                stages.setdefault(stage, []).append(value)
    return {system: {stage: fmean(own) for stage, own in stages.items()} for system, stages in seconds.items()}


def _system_metrics(
    system: str,
    dataset: str,
    rule: str | None,
    questions: Sequence[Question],
    scores: Sequence[QuestionScore],
    rows: Mapping[str, Row],
    values: Values,
    causes: dict[str, int] | None,
    seed: int,
) -> SystemMetrics:
    """The figures from `scores` ([] for retrieval), from `rows` by question id, and from `values`."""
    intervals = measure_intervals(values, seed)
    means = {measure: fmean(own.values()) for measure, own in values.items()}
    answered = [score for score in scores if not score.missing]
    prompts = [row["prompt_tokens"] for row in rows.values() if rule and not is_missing(row)]
    depth = max((len(row["passages"]) for row in rows.values()), default=0)
    hit, gold, supporting, all_supporting = _retrieval_curves(questions, rows, depth)
    at_hit = {score.question.id: float(score.em) for score in scores if _is_hit(score, rows)}
    return SystemMetrics(
        system=system,
        dataset=dataset,
        task="retrieval" if rule is None else "qa",
        rule=rule,
        n=len(questions),
        missing=sum(is_missing(rows.get(question.id)) for question in questions),
        em=100 * means[EM] if EM in means else None,
        em_interval=_percent_interval(intervals.get(EM)),
        f1=100 * means[F1] if F1 in means else None,
        f1_interval=_percent_interval(intervals.get(F1)),
        em_at_hit=100 * fmean(at_hit.values()) if at_hit else None,
        em_at_hit_interval=_percent_interval(measure_intervals({EM: at_hit}, seed).get(EM)) if at_hit else None,
        em_at_hit_n=len(at_hit),
        contains=100 * fmean(score.contains for score in scores) if scores else None,
        empty=sum(not score.words for score in answered),
        empty_matches=sum(score.empty_match for score in scores),
        answer_words=fmean(score.words for score in answered) if answered else None,
        gold_words=fmean(score.gold_words for score in scores) if scores else None,
        prompt_tokens=fmean(prompts) if prompts else None,
        dropped=sum(row["dropped"] for row in rows.values()),
        k=max((row["k"] for row in rows.values()), default=0),
        depth=depth,
        hit=hit[0],
        hit_n=hit[1],
        without_golds=sum(not score.question.has_answers for score in scores),
        recall_gold=gold[0],
        recall_gold_n=gold[1],
        recall_supporting=supporting[0],
        recall_supporting_n=supporting[1],
        all_supporting=all_supporting[0],
        measures={
            measure: Measured(means[measure], intervals[measure], len(own))
            for measure, own in values.items()
            if measure not in (EM, F1)
        },
        causes=causes,
    )


def _is_hit(score: QuestionScore, rows: Mapping[str, Row]) -> bool:
    """Whether the reader was offered a passage that holds an answer string."""
    row = rows.get(score.question.id)
    if row is None or not score.question.has_answers:
        return False
    return any(passage["has_answer"] for passage in row["passages"][: row["k"]])


def _retrieval_curves(
    questions: Sequence[Question], rows: Mapping[str, Row], depth: int
) -> list[tuple[list[float] | None, int]]:
    """(percentages at 1 ... depth, questions) for answer strings, gold ids, supporting ids and all supporting ids."""
    if depth == 0:
        return [(None, 0)] * 4
    curves: list[list[list[float] | None]] = [[], [], [], []]
    for question in questions:
        passages = rows[question.id]["passages"] if question.id in rows else []
        ids = [passage["id"] for passage in passages]
        # Without a gold no passage can hold it; such a question says nothing of the retriever.
        flags = [passage["has_answer"] for passage in passages]
        curves[0].append(hit_curve(flags, depth) if question.has_answers else None)
        curves[1].append(recall_curve(ids, question.gold_ids, depth))
        curves[2].append(recall_curve(ids, question.supporting_ids, depth))
        curves[3].append(complete_curve(ids, question.supporting_ids, depth))
    means = [mean_curve(curve) for curve in curves]
    return [([100 * value for value in curve] if curve is not None else None, n) for curve, n in means]


def _notes(
    dataset: str,
    systems: Sequence[str],
    retrieves: Mapping[str, bool],
    measures: Sequence[str],
    questions: Sequence[Question],
) -> list[str]:
    """What this data set's tables lack of the ranking measures, and why."""
    from eval.ranking import applicable

    if not measures or not any(retrieves.values()):
        return []
    judged = sum(bool(question.relevance) for question in questions)
    if not judged:
        return [
            f"{dataset}: no passage is marked as relevant, so there are no ranking measures ({', '.join(measures)})."
        ]
    found = []
    if judged < len(questions):
        found.append(
            f"{dataset}: ranking measures are over the {judged} of {len(questions)} questions with marked passages."
        )
    fitting = applicable(measures, questions)
    if left_out := [name for name in measures if name not in fitting]:
        found.append(f"{dataset}: no passage has so high a grade, left out: {', '.join(left_out)}.")
    if not retrieves[systems[0]] and len(systems) > 1:
        found.append(
            f"{dataset}: {systems[0]}, which the others are compared with, retrieves nothing: ranking measures are not "
            "compared; put a system with a retriever first to compare them."
        )
    return found


def _with_intervals(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The same with intervals as tuples, of which JSON makes lists."""
    return {
        name: tuple(value) if name.endswith("interval") and value is not None else value
        for name, value in stored.items()
    }


def _percent_interval(interval: Interval | None) -> Interval | None:
    return (100 * interval[0], 100 * interval[1]) if interval else None
