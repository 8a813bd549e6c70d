"""Exact Match and F1 under named rules, each the one a published script uses; a score without its rule means nothing.

A rule is a normaliser, a style of F1 and a way to read the golds. Sources: SQuAD evaluate-v2.0.py, DPR
qa_validation.py, google-research/language orqa eval_utils.py (NQ-open, CuratedTREC), triviaqa_evaluation.py,
hotpot_evaluate_v1.py, 2wikimultihop_evaluate_v1.1.py and MuSiQue metrics/answer.py, whose values are reproduced,
oddities included:

- EM and F1 are each the maximum over the golds, separately.
- Golds that are empty are dropped, and when none is left the gold is "". Only the SQuAD v2 script calls a gold empty
  when nothing is left of it after normalisation ("The The"); the others compare it like any gold.
- EM is at most F1, but for one case that the scripts themselves have: when the normal forms of prediction and gold are
  both empty, EM is 1, and F1 is 0 under every style but `squad_v2`. Such questions are marked
  (`AnswerScore.empty_match`) and counted in reports, neither hidden nor mended; any other EM above F1 is a defect and
  raises AssertionError.
"""

from __future__ import annotations

import difflib
import logging
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import regex  # type: ignore[import-untyped]

from eval.errors import EvalError

F1Style = Literal["plain", "hotpotqa", "squad_v2"]

_log = logging.getLogger(__name__)

# `re`, not `regex`: they disagree on whether a combining mark belongs to a word, which decides what NFD text keeps.
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPACE_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))  # noqa: RUF001
_DPR_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
_VERDICTS = frozenset({"yes", "no", "noanswer"})


def normalise_squad(text: str) -> str:
    """Lower case, delete ASCII punctuation, articles to a space, collapse white space: in this order."""
    return _finish(text.lower().translate(_DELETE_PUNCTUATION))


def normalise_nq_open(text: str) -> str:
    """As `normalise_squad`, after Unicode NFD, so that composed and decomposed accents agree."""
    return normalise_squad(unicodedata.normalize("NFD", text))


def normalise_triviaqa(text: str) -> str:
    """As `normalise_squad`, but punctuation, with the quotes ‘ ’ ´ and the grave accent, becomes a space."""  # noqa: RUF002
    return _finish(text.lower().translate(_SPACE_PUNCTUATION))


def _finish(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text).split())


@dataclass(frozen=True, slots=True)
class Rule:
    """How answers are compared.

    Attributes:
        name: What results are labelled with.
        normalise: Applied to prediction and gold before they are compared.
        f1_style: "plain": bags of tokens, 0 when either is empty. "hotpotqa": plain, and 0 when either normal form is
            yes, no or noanswer and the two differ. "squad_v2": plain, and 1 when both are empty. None: no F1.
        patterns: Golds are regular expressions, matched at the start of the prediction without regard to case.
        drops_normalised_empty: A gold with an empty normal form is dropped too, not only a blank one.
        source: Whose script it follows.
    """

    name: str
    normalise: Callable[[str], str]
    f1_style: F1Style | None
    source: str
    patterns: bool = False
    drops_normalised_empty: bool = False


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("squad", normalise_squad, "plain", "SQuAD v1.1, DPR, FiD, Atlas, KILT, FlashRAG, BERGEN"),
        Rule("nq_open", normalise_nq_open, "plain", "ORQA and the NQ-open (EfficientQA) script"),
        Rule("triviaqa", normalise_triviaqa, "plain", "TriviaQA's own script; golds are the normalised aliases"),
        Rule("hotpotqa", normalise_squad, "hotpotqa", "hotpot_evaluate_v1.py"),
        Rule("2wikimultihopqa", normalise_squad, "hotpotqa", "2wikimultihop_evaluate_v1.1.py"),
        Rule("musique", normalise_squad, "squad_v2", "MuSiQue metrics/answer.py; golds are the answer and its aliases"),
        Rule("squad_v2", normalise_squad, "squad_v2", "SQuAD evaluate-v2.0.py", drops_normalised_empty=True),
        Rule("curatedtrec", normalise_squad, None, "ORQA and DPR on CuratedTREC", patterns=True),
    )
}


def get_rule(rule: str | Rule) -> Rule:
    """The rule of that name; a Rule passes through.

    Raises:
        EvalError: No rule has this name; the message offers the nearest one.
    """
    if isinstance(rule, Rule):
        return rule
    if rule in RULES:
        return RULES[rule]
    near = difflib.get_close_matches(rule, RULES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(RULES)}"
    raise EvalError(f"there is no scoring rule {rule!r}: {hint}")


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """One prediction against its golds.

    Attributes:
        em: Exact Match.
        f1: In [0, 1]; None under a rule without F1.
        contains: See `contains_match`.
        empty_match: EM holds because nothing is left of prediction and gold after normalisation.
    """

    em: bool
    f1: float | None
    contains: bool
    empty_match: bool


def score_answer(prediction: str, golds: Sequence[str], rule: str | Rule) -> AnswerScore:
    """All the scores of one prediction.

    Raises:
        EvalError: No such rule, or golds are a single string.
        AssertionError: EM above F1 where the scripts allow none; a defect of this module.
    """
    rule = get_rule(rule)
    em = exact_match(prediction, golds, rule)
    f1_value = None if rule.f1_style is None else f1(prediction, golds, rule)
    empty_match = em and not rule.patterns and not rule.normalise(prediction)
    if f1_value is not None and em > f1_value and not empty_match:
        raise AssertionError(f"EM 1 but F1 {f1_value} for {prediction!r} against {list(golds)!r} under {rule.name}")
    return AnswerScore(em, f1_value, contains_match(prediction, golds, rule), empty_match)


def exact_match(prediction: str, golds: Sequence[str], rule: str | Rule) -> bool:
    """Whether the prediction equals one of the golds under the rule (`curatedtrec`: matches one of the patterns).

    Raises:
        EvalError: No such rule, or golds are a single string.
    """
    rule = get_rule(rule)
    kept = kept_golds(golds, rule)
    if rule.patterns:
        compiled = (_compile(gold) for gold in kept if gold)
        return any(pattern.match(prediction) is not None for pattern in compiled if pattern is not None)
    normal = rule.normalise(prediction)
    return any(normal == rule.normalise(gold) for gold in kept)


def f1(prediction: str, golds: Sequence[str], rule: str | Rule) -> float:
    """The best token F1 over the golds, in [0, 1], tokens counted as often as they occur.

    Raises:
        EvalError: No such rule, golds are a single string, or the rule has no F1 (its golds are patterns).
    """
    rule = get_rule(rule)
    if rule.f1_style is None:
        raise EvalError(f"rule {rule.name!r} has no F1, because its golds are regular expressions: use exact_match")
    normal = rule.normalise(prediction)
    style = rule.f1_style
    return max(_token_f1(normal, rule.normalise(gold), style) for gold in kept_golds(golds, rule))


def contains_match(prediction: str, golds: Sequence[str], rule: str | Rule) -> bool:
    """Whether the tokens of a gold stand together in the prediction, both normalised; this is NOT Exact Match.

    "not Mark Twain" contains "Mark Twain". Whole tokens only ("ten" is not in "often"). A gold with an empty normal
    form never counts, or it would be in every prediction. Under `curatedtrec` the pattern is searched for anywhere.

    Raises:
        EvalError: No such rule, or golds are a single string.
    """
    rule = get_rule(rule)
    kept = kept_golds(golds, rule)
    if rule.patterns:
        return any(p.search(prediction) is not None for p in map(_compile, filter(None, kept)) if p is not None)
    inside = f" {rule.normalise(prediction)} "
    normal_golds = (rule.normalise(gold) for gold in kept)
    return any(f" {gold} " in inside for gold in normal_golds if gold)


def has_answer(answers: Sequence[str], text: str, *, patterns: bool = False) -> bool:
    """Whether a passage holds an answer, as DPR decides it for hit@k.

    Both are brought to NFD, cut into tokens (runs of letters, digits and marks, or single other visible characters) and
    lower-cased; an answer counts when its tokens stand together in the text. Punctuation and articles are kept. Answers
    without tokens are dropped.

    Args:
        answers: The golds.
        text: The passage's text, without its title.
        patterns: The answers are regular expressions (CuratedTREC), searched for anywhere in the text.

    Raises:
        EvalError: `answers` is a single string.
    """
    _check_golds(answers)
    if patterns:
        decomposed = unicodedata.normalize("NFD", text)
        compiled = (_compile(unicodedata.normalize("NFD", answer)) for answer in answers if answer.strip())
        return any(pattern.search(decomposed) is not None for pattern in compiled if pattern is not None)
    inside = _dpr_tokens(text)
    return any(tokens in inside for answer in answers if len(tokens := _answer_tokens(answer)) > 1)


def kept_golds(golds: Sequence[str], rule: str | Rule) -> list[str]:
    """The golds that count: without the empty ones, and [""] when none is left.

    Raises:
        EvalError: No such rule, or golds are a single string.
    """
    _check_golds(golds)
    rule = get_rule(rule)
    kept = [gold for gold in golds if (rule.normalise(gold) if rule.drops_normalised_empty else gold.strip())]
    return kept or [""]


def _check_golds(golds: Sequence[str]) -> None:
    # A string is a sequence of strings: "Paris" would be five golds of one letter each.
    if isinstance(golds, str):
        raise EvalError(f"golds must be a list of strings, got the string {golds!r}: write [{golds!r}]")


def _token_f1(prediction: str, gold: str, style: F1Style) -> float:
    """F1 of two normal forms."""
    if style == "hotpotqa" and prediction != gold and (prediction in _VERDICTS or gold in _VERDICTS):
        return 0.0
    predicted, wanted = prediction.split(), gold.split()
    if not predicted or not wanted:
        return float(style == "squad_v2" and predicted == wanted)
    common = sum((Counter(predicted) & Counter(wanted)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _dpr_tokens(text: str) -> str:
    """The tokens, each between NULs, which no token holds: a run of tokens is then found as a substring."""
    tokens = _DPR_TOKEN.findall(unicodedata.normalize("NFD", text))
    return "\0" + "".join(f"{token.lower()}\0" for token in tokens)


@lru_cache(maxsize=65536)
def _answer_tokens(answer: str) -> str:
    """`_dpr_tokens`, kept: a question's aliases (up to hundreds) are looked for in each of its passages."""
    return _dpr_tokens(answer)


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str] | None:
    """The pattern, or None when Python cannot read it: the official scripts then count no match, and so do we."""
    try:
        return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        _log.warning("the gold %r is not a regular expression and matches nothing: %s", pattern, error)
        return None
