"""Why a question was not answered exactly: each one ends as exactly one of `CAUSES`.

The first that holds, in this order:

1. correct: Exact Match under the run's rule.
2. missing: no row, or an error in place of an answer.
3. no gold: the question has no answer to match, and the prediction is not empty.
4. alias near-miss: only the notation differs, as `near_miss_reason` says; no passage could have mended that.
5. no passages: the reader was offered none (a closed-book row), so no retrieval is to blame.
6. no answer in corpus: the corpus was looked through and holds no answer string.
7. retrieval miss: none of the passages that were offered to the reader (the first k, not all that are recorded) holds
   an answer.
8. prompt cut: one does, but each that does was left out of the prompt for length, or was its shortened last passage.
9. reader miss: a whole passage with an answer was in the prompt.

Whether a passage holds an answer is the row's `has_answer`, which was decided under the data set's own reading of golds
(patterns for CuratedTREC). The strings yes and no stand in most passages and prove nothing: a question whose golds are
all yes or no needs its `supporting_ids` instead (its `gold_ids` where it has none), ALL of them, since a comparison of
two things needs both; and `no answer in corpus` is not said of it. Where no passage is marked either, nothing shows
that retrieval failed, and the reader is held to account.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from eval.data.datasets import Question
from eval.metrics import RULES, Rule, exact_match, get_rule, kept_golds, normalise_squad

Row = Mapping[str, Any]

CORRECT, MISSING, NO_GOLD, NEAR_MISS = "correct", "missing", "no gold", "alias near-miss"
NO_PASSAGES, NOT_IN_CORPUS, RETRIEVAL_MISS = "no passages", "no answer in corpus", "retrieval miss"
PROMPT_CUT, READER_MISS = "prompt cut", "reader miss"

# As tables and charts show them: from the answer that was right back to the question that had none.
CAUSES = (
    CORRECT,
    NEAR_MISS,
    READER_MISS,
    PROMPT_CUT,
    RETRIEVAL_MISS,
    NOT_IN_CORPUS,
    NO_PASSAGES,
    MISSING,
    NO_GOLD,
)

_VERDICTS = frozenset({"yes", "no"})
_NO_ARTICLES = {
    **str.maketrans("", "", "anthe"),
    ord("\N{GREEK SMALL LETTER FINAL SIGMA}"): "\N{GREEK SMALL LETTER SIGMA}",
}


def cause_of(question: Question, row: Row | None, rule: str | Rule, answerable: bool | None = None) -> str:
    """The one of `CAUSES` that a question ends as.

    Args:
        question: With its golds.
        row: As stored; None where there is none.
        rule: The run's for this data set.
        answerable: Whether the corpus holds an answer string; None where nobody looked.

    Raises:
        EvalError: No such rule.
    """
    if row is None or row["error"] is not None:
        return MISSING
    rule = get_rule(rule)
    if exact_match(row["prediction"], question.answers, rule):
        return CORRECT
    if not any(answer.strip() for answer in question.answers):
        return NO_GOLD
    if near_miss_reason(row["prediction"], question.answers, rule) is not None:
        return NEAR_MISS
    if row["k"] == 0:
        return NO_PASSAGES
    if answerable is False and not _is_verdict(question):
        return NOT_IN_CORPUS
    offered = row["passages"][: row["k"]]
    if not _suffices(question, offered):
        return RETRIEVAL_MISS
    whole = offered[: len(offered) - row["dropped"]]
    if row["cut"]:
        whole = whole[:-1]
    return READER_MISS if _suffices(question, whole) else PROMPT_CUT


def count_causes(
    questions: Sequence[Question],
    rows: Sequence[Row | None],
    rule: str | Rule,
    answerable: Mapping[str, bool] | None = None,
) -> dict[str, int]:
    """How many questions end as each of `CAUSES`, all of them in that order; the counts add up to len(questions).

    Args:
        questions: Of one data set.
        rows: One system's row of each question, or None.
        rule: The data set's.
        answerable: By question id; a question that is not in it was not looked for.

    Raises:
        EvalError: No such rule.
        ValueError: Questions and rows differ in number.
    """
    known = answerable or {}
    counts = dict.fromkeys(CAUSES, 0)
    for question, row in zip(questions, rows, strict=True):
        counts[cause_of(question, row, rule, known.get(question.id))] += 1
    return counts


def near_miss_reason(prediction: str, golds: Sequence[str], rule: str | Rule) -> str | None:
    """What would make a prediction match exactly that does not match under the rule; None where nothing here would.

    Tried in this order: the other rules of `eval.metrics.RULES` ("rule triviaqa": U.S.A. | U S A under squad); Unicode
    punctuation and symbols taken out, or to spaces, on both sides ("Unicode punctuation": £5 | 5); accents folded,
    punctuation still out ("accents": Beyonce | Beyoncé). Folded are the marks of U+0300 to U+036F, those of Latin,
    Greek and Cyrillic letters; marks of other scripts tell letters apart. Something must be left of the prediction,
    since an empty answer is no notation of anything.

    Where the golds are patterns, no other rule can read them, and signs are taken out of the prediction alone.

    Raises:
        EvalError: No such rule, or golds are a single string.
    """
    rule = get_rule(rule)
    golds = [gold for gold in kept_golds(golds, rule) if gold]
    if not rule.patterns:
        # Nearly all misses end here, at a tenth of the price: some questions have hundreds of aliases.
        skeleton = _skeleton(prediction)
        golds = [gold for gold in golds if _skeleton(gold) == skeleton]
    tried = {rule.normalise}
    for other in RULES.values():
        if not (rule.patterns or other.patterns or other.normalise in tried):
            tried.add(other.normalise)
            if _equal(prediction, golds, other.normalise):
                return f"rule {other.name}"
    for reason, prepare in (("Unicode punctuation", str), ("accents", _folded)):
        wanted = [prepare(gold) for gold in golds]
        for filler in ("", " "):
            plain = _without_signs(prepare(prediction), filler).strip()
            if rule.patterns:
                found = plain != "" and exact_match(plain, wanted, rule)
            else:
                found = _equal(plain, [_without_signs(gold, filler) for gold in wanted], normalise_squad)
            if found:
                return reason
    return None


def answer_passages(question: Question, row: Row | None) -> Iterator[Row]:
    """The recorded passages that hold an answer (for yes and no: that are marked), best first, to the recorded depth."""
    return (passage for passage in (row["passages"] if row is not None else []) if _is_answer(question, passage))


def _is_verdict(question: Question) -> bool:
    """Whether no gold says more than yes or no."""
    kept = [answer for answer in question.answers if answer.strip()]
    return bool(kept) and all(normalise_squad(answer) in _VERDICTS for answer in kept)


def _needed(question: Question) -> frozenset[str]:
    return frozenset(question.supporting_ids or question.gold_ids)


def _is_answer(question: Question, passage: Row) -> bool:
    if _is_verdict(question):
        return passage["id"] in _needed(question)
    return bool(passage["has_answer"])


def _suffices(question: Question, passages: Sequence[Row]) -> bool:
    """Whether these passages allow the answer."""
    if _is_verdict(question):
        return _needed(question) <= {passage["id"] for passage in passages}
    return any(passage["has_answer"] for passage in passages)


def _equal(prediction: str, golds: Sequence[str], normalise: Callable[[str], str]) -> bool:
    normal = normalise(prediction)
    return normal != "" and any(normal == normalise(gold) for gold in golds)


def _skeleton(text: str) -> str:
    """What no comparison here takes out: texts that any of them calls equal have the same.

    That is letters and digits without marks, less those that make up the articles; the two small sigmas are one, since
    which of them a capital becomes depends on the signs around it.
    """
    bare = "".join(filter(str.isalnum, unicodedata.normalize("NFD", text.lower())))
    return bare.translate(_NO_ARTICLES)


def _without_signs(text: str, filler: str) -> str:
    """The text with `filler` in place of whatever Unicode calls punctuation or a symbol."""
    return "".join(filler if unicodedata.category(sign)[0] in "PS" else sign for sign in text)


def _folded(text: str) -> str:
    """The text without accents."""
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(sign for sign in decomposed if not "\u0300" <= sign <= "\u036f"))
