"""Two runs side by side: how far their scores differ, whether that could be chance, and whether answers repeat.

Only questions that both runs asked are compared: the same id with the same text and golds. Two runs of one
configuration should give the same predictions; `SystemPair.explanation` says how far they do, and where they do not,
what differs between the runs that could be the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from eval.causes import Row
from eval.data.datasets import Question
from eval.errors import EvalError
from eval.flips import Flip, count_flips, find_flips, require_system, rows_of
from eval.folder import differences
from eval.paired import Comparison, paired_comparisons, with_holm
from eval.scores import score_question
from eval.view import RunView

# What of a data set's facts can change an answer; the questions themselves are compared one by one.
_DATASET = ("task", "rule", "lang", "corpus", "index")
_CONDITIONS = ("config", "batch_size", "prompt_sha256", "environment")
# Differences that an explanation names; all of them are in `RunComparison.differences`.
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class SystemPair:
    """A system of the first run and one of the second, on one data set.

    Attributes:
        first: Name of the first run's system.
        second: Name of the second run's.
        dataset: The data set's name in the first run.
        rule: The first run's rule, by which both are scored; None where one of the runs has no answers.
        n: Common questions that both have a row of.
        unasked: Common questions that one of them has no row of; they are left out of everything.
        em: Exact Match of both in percent; None without a rule or questions.
        comparisons: Paired, the second system against the first; [] when n is 0.
        predictions_differ: Questions with another answer, or with an error on one side alone.
        same_prompt: How many of these had the same passages in the prompt.
        rankings_differ: Questions with other passages, or in another order, to `depth`.
        depth: To which both have recorded passages.
        flips: Questions that only one of them has right.
        explanation: Whether answers repeat, and if not, the likely reason.
    """

    first: str
    second: str
    dataset: str
    rule: str | None
    n: int
    unasked: int
    em: tuple[float, float] | None
    comparisons: list[Comparison]
    predictions_differ: int
    same_prompt: int
    rankings_differ: int
    depth: int
    flips: list[Flip]
    explanation: str

    @property
    def name(self) -> str:
        """The system, or both with a colon where they are not the same."""
        return self.first if self.first == self.second else f"{self.first}:{self.second}"


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs.

    Attributes:
        first: The first run's folder.
        second: The second's.
        same_folder: They are one and the same.
        common: Questions that both asked.
        only_first: Questions whose id only the first run has.
        only_second: Questions whose id only the second run has.
        changed: Questions whose id both have, with another text or other golds.
        differences: What differs in configuration, questions, versions and hardware, a phrase each.
        rechecks: What the runs' readers did when asked again in other batches, a phrase each.
        pairs: By pair of systems and data set.
    """

    first: Path
    second: Path
    same_folder: bool
    common: int
    only_first: int
    only_second: int
    changed: int
    differences: list[str]
    rechecks: list[str]
    pairs: list[SystemPair]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        pairs = [
            {name: getattr(pair, name) for name in pair.__slots__}
            | {
                "comparisons": [asdict(comparison) for comparison in pair.comparisons],
                "flips": [flip.to_json() for flip in pair.flips],
                "flip_counts": asdict(count_flips(pair.flips)),
            }
            for pair in self.pairs
        ]
        own = {name: getattr(self, name) for name in self.__slots__}
        return own | {"first": str(self.first), "second": str(self.second), "pairs": pairs}


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """What of two runs could make answers differ: phrases, and whether the code of both had uncommitted changes."""

    differences: list[str]
    rechecks: list[str]
    dirty: bool


def compare_runs(first: RunView, second: RunView, systems: Sequence[tuple[str, str]] | None = None) -> RunComparison:
    """Compare two runs, which may be unfinished, or one run with itself.

    Args:
        first: The baseline of all differences.
        second: What is compared with it.
        systems: (system of the first run, system of the second); None compares each system that both have with itself.

    Raises:
        EvalError: No common question, no common system, or no system of a name that was given.
    """
    shared = [(name, name) for name in first.systems if name in second.systems]
    pairs = list(dict.fromkeys(systems or shared))
    if not pairs:
        raise EvalError(
            f"the runs have no system in common ({', '.join(first.systems)} against {', '.join(second.systems)}): "
            "name a pair of them, as in cosine:qnorm"
        )
    for name, other in pairs:
        require_system(first, name)
        require_system(second, other)
    theirs = {question.id: question for question in second.questions}
    both = [question for question in first.questions if question.id in theirs]
    common = [question for question in both if _same(question, theirs[question.id])]
    if not first.questions and not second.questions:
        raise EvalError("these runs are of sentence pairs alone, which are not compared here: their own reports are")
    if not common:
        raise EvalError(
            f"{first.path} and {second.path} have no question in common (the same id, text and golds): "
            "compare runs of the same data sets, n and seed"
        )
    circumstances = _circumstances(first, second)
    compared: list[SystemPair] = []
    for names in pairs:
        own = [
            _pair(first, second, names, dataset, common, theirs, circumstances)
            for dataset in dict.fromkeys(question.dataset for question in common)
        ]
        # A system need not be asked every data set (closed book has no ranking); that is no gap.
        compared += [pair for pair in own if pair.n] or own
    return RunComparison(
        first=first.path,
        second=second.path,
        same_folder=_same_folder(first, second),
        common=len(common),
        only_first=len(first.questions) - len(both),
        only_second=len(second.questions) - len(both),
        changed=len(both) - len(common),
        differences=circumstances.differences,
        rechecks=circumstances.rechecks,
        pairs=_adjusted(compared),
    )


def parse_pair(text: str) -> tuple[str, str]:
    """(system of the first run, system of the second) from "a:b", or from "a" for one that both have.

    Raises:
        EvalError: One of the names is empty.
    """
    name, colon, other = (part.strip() for part in text.partition(":"))
    other = other if colon else name
    if not name or not other:
        raise EvalError(f"a pair of systems is written FIRST:SECOND, got {text!r}")
    return name, other


def _pair(
    first: RunView,
    second: RunView,
    names: tuple[str, str],
    dataset: str,
    common: Sequence[Question],
    theirs: Mapping[str, Question],
    circumstances: _Circumstances,
) -> SystemPair:
    members = [question for question in common if question.dataset == dataset]
    rows_a, rows_b = rows_of(first, names[0]), rows_of(second, names[1])
    asked = [question for question in members if question.id in rows_a and question.id in rows_b]
    both = [(rows_a[question.id], rows_b[question.id]) for question in asked]
    rule = first.rules[dataset]
    if any(second.rules[theirs[question.id].dataset] is None for question in members):
        rule = None
    comparisons: list[Comparison] = []
    em = None
    if asked:
        measures = [name for name in first.manifest["measures"] if name in second.manifest["measures"]]
        labels, seed = _labels(first, second, names), first.manifest["seed"]
        comparisons = paired_comparisons(*labels, dataset, asked, rows_a, rows_b, rule, seed, measures)
        if rule is not None:
            em = (_exact_match(asked, rows_a, rule), _exact_match(asked, rows_b, rule))
    depth = min(_depth(row for row, _ in both), _depth(row for _, row in both))
    # Where one of the runs asked no reader there are no answers to differ.
    other_answers = [pair for pair in both if _answer(pair[0]) != _answer(pair[1])] if rule is not None else []
    rankings = sum(_ranking(a, depth) != _ranking(b, depth) for a, b in both)
    marks = (first.manifest["systems"][names[0]], second.manifest["systems"][names[1]])
    return SystemPair(
        first=names[0],
        second=names[1],
        dataset=dataset,
        rule=rule,
        n=len(asked),
        unasked=len(members) - len(asked),
        em=em,
        comparisons=comparisons,
        predictions_differ=len(other_answers),
        same_prompt=sum(_prompt(a) == _prompt(b) for a, b in other_answers),
        rankings_differ=rankings,
        depth=depth,
        flips=find_flips(asked, rows_a, rows_b, {dataset: rule}, first.answerable, second.answerable),
        explanation=_explanation(len(asked), len(other_answers), rankings, marks, circumstances),
    )


def _same(one: Question, other: Question) -> bool:
    return one.question == other.question and set(one.answers) == set(other.answers)


def _same_folder(first: RunView, second: RunView) -> bool:
    return first.path.resolve() == second.path.resolve()


def _labels(first: RunView, second: RunView, names: tuple[str, str]) -> tuple[str, str]:
    """The systems as the table of comparisons names them: with their run, where there are two."""
    if _same_folder(first, second):
        return names
    runs = (first.path.resolve().name, second.path.resolve().name)
    if runs[0] == runs[1]:
        runs = ("first", "second")
    return f"{names[0]} ({runs[0]})", f"{names[1]} ({runs[1]})"


def _circumstances(first: RunView, second: RunView) -> _Circumstances:
    changed = differences(_conditions(first), _conditions(second))
    if first.manifest["questions_sha256"] != second.manifest["questions_sha256"]:
        changed.append("questions were not all the same or in another order, so that batches were composed otherwise")
    repeated = []
    for recheck in dict.fromkeys(
        (r.reader or r.system, r.asked, len(r.differing)) for r in [*first.rechecks, *second.rechecks]
    ):
        reader, asked, differing = recheck
        repeated.append(f"{reader}, asked {asked} questions again in other batches, changed {differing} answers")
    return _Circumstances(changed, repeated, all(_dirty(view) for view in (first, second)))


def _conditions(view: RunView) -> dict[str, Any]:
    datasets = {name: {key: facts.get(key) for key in _DATASET} for name, facts in view.manifest["datasets"].items()}
    return {name: view.manifest.get(name) for name in _CONDITIONS} | {"datasets": datasets}


def _dirty(view: RunView) -> bool:
    return bool(((view.manifest.get("environment") or {}).get("git") or {}).get("changed"))


def _explanation(n: int, answers: int, rankings: int, marks: tuple[str, str], circumstances: _Circumstances) -> str:
    """Why two systems' rows are as alike as they are, given how many answers and rankings differ."""
    if n == 0:
        return "there is no question that both have answered yet"
    if not answers and not rankings:
        return "the same predictions and the same rankings"
    reasons = [f"the systems' fingerprints, {marks[0]} and {marks[1]}"] if marks[0] != marks[1] else []
    reasons += circumstances.differences
    if reasons:
        more = f" and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        return f"not one configuration under the same conditions; what differs: {'; '.join(reasons[:_SHOWN])}{more}"
    likely = (
        "passages whose scores are equal but for their last digits, which depend on the encoder's batches and threads"
        if rankings
        else "batching on the reader's side: the last digits of its sums depend on what is computed together"
    )
    parts = [f"configuration, fingerprints and versions are equal; the likely reason is {likely}"]
    if circumstances.dirty:
        parts.append("or the code itself, which in both runs had changes that are in no commit")
    return "; ".join([*parts, *circumstances.rechecks])


def _exact_match(questions: Sequence[Question], rows: Mapping[str, Row], rule: str) -> float:
    """In percent."""
    return 100 * fmean(score_question(question, rows[question.id], rule).em for question in questions)


def _adjusted(pairs: Sequence[SystemPair]) -> list[SystemPair]:
    """The pairs with p values corrected over all of their comparisons."""
    corrected = iter(with_holm([comparison for pair in pairs for comparison in pair.comparisons]))
    return [replace(pair, comparisons=[next(corrected) for _ in pair.comparisons]) for pair in pairs]


def _depth(rows: Iterable[Row]) -> int:
    return max((len(row["passages"]) for row in rows), default=0)


def _answer(row: Row) -> tuple[str, bool]:
    return row["prediction"], row["error"] is None


def _prompt(row: Row) -> tuple[list[str], int, bool]:
    """Which passages the reader saw."""
    return _ranking(row, row["k"]), row["dropped"], row["cut"]


def _ranking(row: Row, depth: int) -> list[str]:
    return [passage["id"] for passage in row["passages"][:depth]]
