"""Ranking measures (nDCG, RR, AP, recall ...) of retrieved passages against judgments, question by question.

Measures are named in the grammar of ir-measures (https://ir-measur.es): NAME@CUTOFF, as nDCG@10, RR@10 (or MRR@10), AP
(MAP), R@100 (Recall@100), P@5, Success@5, with parameters in brackets where a measure has some: R(rel=2)@100. Values
come from trec_eval's own code (pytrec_eval); only RR with a cutoff, which trec_eval lacks, from the MS MARCO script.
Measured is the ranking that `eval.data.trec` exports, so the command line `ir_measures QRELS RUN MEASURE ...` prints the
same figures. As in trec_eval: nDCG's gain is the grade itself and its discount log2(rank + 1), the other measures take
grades of at least 1 as relevant, and R@k divides by all the relevant passages.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eval.data.datasets import Question
from eval.data.trec import exported
from eval.errors import EvalError, UsageError

if TYPE_CHECKING:
    from ir_measures import Measure

_GRAMMAR = "write NAME@CUTOFF, as nDCG@10, RR@10, AP, R@100, P@5 or Success@5"
# trec_eval aborts the whole process at a cutoff below 1, and keeps cutoffs in C integers.
_LARGEST_CUTOFF = 1_000_000
_NAME = re.compile(r"\s*(\w+)(.*)", re.DOTALL)


def parse_measures(names: Sequence[str]) -> list[Measure]:
    """The measures of these names, each known to be computable.

    Raises:
        EvalError: A name that cannot be read or isn't known (the message offers the nearest, or the grammar), lacks its
            cutoff, is a count over all questions rather than a mean, or isn't among trec_eval's measures.
    """
    if isinstance(names, str):
        raise EvalError(f"measures must be a list of names, got the string {names!r}: write [{names!r}]")
    return [_parse(name) for name in names]


def deepest_cutoff(names: Sequence[str]) -> int:
    """How many passages the measures look at; 0 where none names a cutoff.

    Raises:
        EvalError: As `parse_measures`.
    """
    return max((int(measure.params.get("cutoff", 0)) for measure in parse_measures(names)), default=0)


def applicable(names: Sequence[str], questions: Sequence[Question]) -> list[str]:
    """The measures that can tell rankings of these questions apart.

    Left out are those that ask for a grade (rel=2) which no passage of the set has: they would be 0 for everybody, as TREC
    DL's are on a set of one grade.

    Raises:
        EvalError: As `parse_measures`.
    """
    highest = max((grade for question in questions for grade in question.relevance.values()), default=0)
    parsed = zip(names, parse_measures(names), strict=True)
    return [name for name, measure in parsed if int(measure.params.get("rel", 1)) <= highest]


def per_question(
    measures: Sequence[str], questions: Sequence[Question], rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """The value of each measure for each judged question.

    Args:
        measures: Names, as for `parse_measures`.
        questions: Those without judgments (`Question.relevance`) are left out.
        rows: One system's, by question id, each with "passages", best first; excluded documents are not among them. A
            judged question without row or passages counts 0.

    Returns:
        By name as given, then by question id.

    Raises:
        EvalError: As `parse_measures`; or a passage's score is not a finite 32-bit number.
    """
    parsed = parse_measures(measures)
    qrels = {question.id: question.relevance for question in questions if question.relevance}
    run: dict[str, dict[str, float]] = {}
    for id in qrels:
        row = rows.get(id)
        if row and row["passages"]:
            run[id] = dict(exported(row["passages"]))
    return {name: _values(name, measure, qrels, run) for name, measure in zip(measures, parsed, strict=True)}


def _values(
    name: str, measure: Measure, qrels: dict[str, dict[str, int]], run: dict[str, dict[str, float]]
) -> dict[str, float]:
    # A measure at a time: of two that trec_eval calls alike, ir-measures would leave one at 0.
    values = dict.fromkeys(qrels, 0.0)
    if not run:
        return values
    computed = {metric.query_id: float(metric.value) for metric in _provider().iter_calc([measure], qrels, run)}
    missing = [id for id in qrels if not math.isfinite(computed.get(id, math.nan))]
    if missing:
        raise EvalError(f"measure {name!r} has no value for {len(missing)} questions, the first {missing[0]!r}")
    return values | {id: computed[id] for id in qrels}


def _parse(name: str) -> Measure:
    import ir_measures

    try:
        measure = ir_measures.parse_measure(name.strip())
    except NameError:
        raise UsageError(f"there is no measure {name!r}: {_nearest(name)}") from None
    except Exception:  # noqa: BLE001 (a name may break its parser in many ways, and all are mistakes of whoever wrote it)
        raise UsageError(f"measure {name!r} cannot be read: {_GRAMMAR}") from None
    if "cutoff" in measure.SUPPORTED_PARAMS and measure.SUPPORTED_PARAMS["cutoff"].required:
        measure.params.setdefault("cutoff", None)
    cutoff = measure.params.get("cutoff", 1)
    if cutoff is None:
        raise UsageError(f"measure {name!r} needs a cutoff: write {name.strip()}@10")
    if isinstance(cutoff, bool) or not isinstance(cutoff, int) or not 1 <= cutoff <= _LARGEST_CUTOFF:
        raise UsageError(f"measure {name!r}: the cutoff must be a whole number from 1 to {_LARGEST_CUTOFF}: {_GRAMMAR}")
    if not isinstance(measure.aggregator(), ir_measures.MeanAgg):
        raise UsageError(f"measure {name!r} is a count over all questions, not a mean of theirs: choose another")
    _try(name, measure)
    return measure


def _try(name: str, measure: Measure) -> None:
    """Compute it once, so that what cannot be computed stops an evaluation before it begins."""
    try:
        supported = _provider().supports(measure)
        if supported:
            list(_provider().iter_calc([measure], {"q": {"d": 1}}, {"q": {"d": 1.0}}))
    except Exception as error:  # noqa: BLE001 (assertions, type errors ...: whatever the library answers odd parameters with)
        raise EvalError(f"measure {name!r} cannot be computed: {error}") from None
    if not supported:
        raise UsageError(f"measure {name!r} is not among those of trec_eval: {_GRAMMAR}")


@lru_cache(maxsize=1)
def _provider() -> Any:
    import ir_measures

    # Its classes have no type hints.
    fallback: Any = ir_measures.providers.FallbackProvider
    provider = fallback([ir_measures.pytrec_eval, ir_measures.msmarco])
    for part in provider.providers:
        if not part.is_available():
            raise EvalError(f"ranking measures need {part.NAME}: {part.install_instructions()}")
    return provider


def _nearest(name: str) -> str:
    """Which measure may have been meant, with the cutoff that was written."""
    import ir_measures

    # Backwards: where two spellings differ in case alone (nDCG, NDCG), the first is the usual one.
    known = {known.lower(): known for known in reversed(ir_measures.measures.registry) if known.isascii()}
    found = _NAME.fullmatch(name)
    near = difflib.get_close_matches(found[1].lower(), known, n=1) if found else []
    return f"did you mean {known[near[0]] + found[2]!r}?" if near and found else _GRAMMAR
