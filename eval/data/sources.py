"""From a specification to the questions (or sentence pairs) of one data set: read, checked, counted and drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from eval.data.datasets import Question, default_rule, draw
from eval.data.hub import check_lock
from eval.data.pairs import Pair
from eval.data.reading import from_hub, from_path
from eval.data.registry import find
from eval.data.specs import DataSetSpec, completed
from eval.errors import EvalError
from eval.metrics import Rule, get_rule, rule_with_language

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DataSet:
    """Questions that are asked together and scored under one rule.

    Attributes:
        name: As in the spec.
        task: "qa" or "retrieval".
        questions: Those drawn.
        rule: EM rule; None where there are no answers. A set of questions whose task is "retrieval" keeps it, since it
            also says what an answer in a passage is.
        lang: Language code; "" where nobody said.
        source: Facts for the manifest: file or hub, sha256, questions_in_file, questions_used, subset_seed, ...
        corpus: Where its documents are, when the set comes with them (a BEIR folder); else "".
    """

    name: str
    task: Literal["qa", "retrieval"]
    questions: list[Question]
    rule: str | None
    lang: str
    source: dict[str, Any]
    corpus: str = ""


@dataclass(frozen=True, slots=True)
class PairSet:
    """Sentence pairs; `source` as a DataSet's, pairs counted as questions."""

    name: str
    pairs: list[Pair]
    source: dict[str, Any]


def load_dataset(
    spec: DataSetSpec, *, n: int | None = None, seed: int = 0, say: Say | None = None, locks: Path | None = None
) -> DataSet | PairSet:
    """Read a data set, check it, and draw n of its questions.

    Args:
        spec: Which.
        n: How many questions (or pairs); None or 0 takes all.
        seed: Of the draw, see `eval.data.datasets.subset`.
        say: Told in one line what a reader of the figures should know: a draw, questions without answers.
        locks: Folder where a hub set's content is remembered (`eval.data.hub.check_lock`); None remembers nothing.

    Raises:
        EvalError: Neither path nor hub is known, the hub cannot be reached (says which file to give instead), a file is
            bad (names the line), count or SHA-256 differ, or the rule is unknown.
    """
    tell = say or (lambda line: None)
    info = find(spec.name)
    spec = completed(spec, info)
    # TriviaQA's own rule goes with its normalised aliases, every other rule with the raw ones.
    normalised = get_rule(spec.rule or default_rule(spec.name)).name == "triviaqa"
    if spec.path:
        read = from_path(spec, info.columns if info is not None else {}, normalised=normalised)
    else:
        read = from_hub(spec, normalised=normalised)
    _check_count(spec, len(read.items))
    if n is not None and n > 0:
        chosen = draw(read.ids(), n, seed)
    elif n is not None and n < 0:
        raise EvalError(f"n must be at least 0 (0 asks all), got {n}")
    else:
        chosen = list(range(len(read.items)))
    source = read.source([read.items[position] for position in chosen], seed)
    _check_hash(spec, source["sha256"])
    if not spec.path and locks is not None:
        # Name and columns are part of what is hashed.
        columns = json.dumps(dict(spec.columns), sort_keys=True)
        key = ":".join(filter(None, (spec.hub, spec.subset, spec.split, spec.name, columns)))
        check_lock(locks, spec.name, key, source["sha256"], len(read.items))
    if info is not None and info.licence:
        source["licence"] = info.licence
    if len(chosen) < len(read.items):
        kind = "pairs" if read.pairs else "questions"
        tell(f"{spec.name}: {len(chosen):,} of {len(read.items):,} {kind}, drawn with seed {seed}")
    lang = _language(spec, read.questions, tell)
    # A rule that somebody names is meant as it is.
    rule = get_rule(spec.rule or rule_with_language(default_rule(spec.name), lang))
    if read.pairs:
        return PairSet(spec.name, [read.pairs[position] for position in chosen], source)
    questions = [
        replace(question, dataset=spec.name, lang=question.lang or lang)
        for question in (read.questions[position] for position in chosen)
    ]
    named = dict.fromkeys(question.dataset for question in read.questions)
    if len(named) > 1:
        tell(f"{spec.name}: rows name several data sets ({', '.join(named)}), which are scored as one")
    asked = any(question.answers for question in read.questions)
    judged = any(question.relevance for question in read.questions)
    if not judged and not asked:
        raise EvalError(f"{spec.name}: no question has answers or marked passages, so there is nothing to measure")
    if judged and not asked:
        return DataSet(spec.name, "retrieval", questions, None, lang, source, read.corpus)
    source.update(_empty_golds(questions, rule))
    if source["without_answers"]:
        tell(f"{spec.name}: {source['without_answers']:,} of {len(questions):,} questions have no answer")
    if source["golds_without_content"]:
        tell(f"{spec.name}: of {source['golds_without_content']:,} golds rule {rule.name} leaves nothing")
    return DataSet(spec.name, "qa", questions, rule.name, lang, source, read.corpus)


def _language(spec: DataSetSpec, questions: Sequence[Question], tell: Say) -> str:
    """The one that all rows name, else the spec's."""
    named = {question.lang for question in questions}
    if len(named - {""}) > 1:
        tell(
            f"{spec.name}: rows are in several languages ({', '.join(sorted(named - {''}))}), and are scored as {spec.lang or 'en'}"
        )
    return next(iter(named)) if len(named) == 1 and "" not in named else spec.lang


def _empty_golds(questions: Sequence[Question], rule: Rule) -> dict[str, int]:
    """Counts of questions without answers, and of golds of which normalisation leaves nothing."""
    golds = chain.from_iterable(question.answers for question in questions)
    empty = sum(not (gold.strip() if rule.patterns else rule.normalise(gold)) for gold in golds)
    return {"without_answers": sum(not question.answers for question in questions), "golds_without_content": empty}


def _check_count(spec: DataSetSpec, found: int) -> None:
    if spec.count and found != spec.count:
        raise EvalError(
            f"{spec.name}: {spec.path or spec.hub} has {found:,} rows, but should have {spec.count:,}: "
            "it is another split or not whole; mend the file, or the count"
        )


def _check_hash(spec: DataSetSpec, found: str) -> None:
    if spec.sha256 and found != spec.sha256.lower():
        raise EvalError(
            f"{spec.name}: {spec.path or spec.hub} has SHA-256 {found}, but should have {spec.sha256.lower()}: "
            "it is not the same data; mend the file, or the sha256"
        )
