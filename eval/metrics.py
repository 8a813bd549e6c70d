"""Exact Match and F1 under named rules, each the one a published script uses; a score without its rule means nothing.

A rule is a normaliser, a style of F1 and a way to read the golds. Sources: SQuAD evaluate-v2.0.py, DPR
qa_validation.py, google-research/language orqa eval_utils.py (NQ-open, CuratedTREC), triviaqa_evaluation.py,
hotpot_evaluate_v1.py, 2wikimultihop_evaluate_v1.1.py and MuSiQue metrics/answer.py, whose values are reproduced,
oddities included. "squad:LANG" is SQuAD's rule with the normal form of another language (`eval.languages`).

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
from eval.languages import language, normaliser, passage_tokens

F1Style = Literal["plain", "hotpotqa", "squad_v2"]

_log = logging.getLogger(__name__)

# `re`, not `regex`: they disagree on whether a combining mark belongs to a word, which decides what NFD text keeps.
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPACE_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))  # noqa: RUF001
_DPR_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
_VERDICTS = frozenset({"yes", "no", "noanswer"})
# Processor seconds that one gold's pattern may take on one text; real ones take microseconds.
_PATTERN_SECONDS = 1.0


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
        patterns: Golds are regular expressions, matched at the start of the prediction without regard to case; one that
            takes more than a second counts as no match.
        drops_normalised_empty: A gold with an empty normal form is dropped too, not only a blank one.
        source: Whose script it follows.
        lang: Two-letter code of the language it is for.
    """

    name: str
    normalise: Callable[[str], str]
    f1_style: F1Style | None
    source: str
    patterns: bool = False
    drops_normalised_empty: bool = False
    lang: str = "en"


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
    """The rule of that name ("squad:de" is made on demand, "squad:en" is "squad"); a Rule passes through.

    Raises:
        EvalError: No rule has this name; the message offers the nearest one, or lists the languages.
    """
    if isinstance(rule, Rule):
        return rule
    if rule in RULES:
        return RULES[rule]
    if rule.startswith("squad:") and rule != "squad:":
        return _squad_for(language(rule.removeprefix("squad:")))
    near = difflib.get_close_matches(rule, RULES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(RULES)}"
    raise EvalError(f"there is no scoring rule {rule!r}: {hint}")


def rule_with_language(rule_name: str, lang: str) -> str:
    """The rule for questions in a language: "squad" becomes "squad:LANG", English and every other rule stay.

    Other rules are scripts of one data set each; they are not defined for other languages, and whoever names one means it.

    Args:
        rule_name: As in `RULES`.
        lang: Code of the language ("de", "pt-BR"); "" is English.

    Raises:
        EvalError: The rule is "squad" and the language isn't known.
    """
    if rule_name != "squad":
        return rule_name
    return _squad_for(language(lang)).name


@lru_cache(maxsize=64)
def _squad_for(lang: str) -> Rule:
    if lang == "en":
        return RULES["squad"]
    source = "SQuAD v1.1 with the conventions of MLQA and MKQA for the language"
    return Rule(f"squad:{lang}", normaliser(lang), "plain", source, lang=lang)


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
    # Not "em > f1_value", which a nan would pass.
    if f1_value is not None and not em <= f1_value and not empty_match:
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
        return any(_found(gold, prediction, at_start=True) for gold in kept if gold)
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
        return any(_found(gold, prediction) for gold in kept if gold)
    inside = f" {rule.normalise(prediction)} "
    normal_golds = (rule.normalise(gold) for gold in kept)
    return any(f" {gold} " in inside for gold in normal_golds if gold)


def has_answer(answers: Sequence[str], text: str, *, patterns: bool = False, lang: str = "en") -> bool:
    """Whether a passage holds an answer, as DPR decides it for hit@k.

    Both are brought to NFD, cut into tokens (runs of letters, digits and marks, or single other visible characters) and
    lower-cased; an answer counts when its tokens stand together in the text. Punctuation and articles are kept. Answers
    without tokens are dropped.

    Args:
        answers: The golds.
        text: The passage's text, without its title.
        patterns: The answers are regular expressions (CuratedTREC), searched for anywhere in the text.
        lang: Two-letter code (`Rule.lang`). Where words are not spaced (zh, ja, th ...) a character of the script is a
            token, or no answer within a sentence would be found.

    Raises:
        EvalError: `answers` is a single string.
    """
    _check_golds(answers)
    if patterns:
        decomposed = unicodedata.normalize("NFD", text)
        return any(_found(unicodedata.normalize("NFD", gold), decomposed) for gold in answers if gold.strip())
    inside = dpr_tokens(text, lang)
    return any(tokens in inside for answer in answers if len(tokens := answer_tokens(answer, lang)) > 1)


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


def dpr_tokens(text: str, lang: str = "en") -> str:
    """The tokens, each between NULs, which no token holds: a run of tokens is then found as a substring."""
    pattern = passage_tokens(lang) or _DPR_TOKEN
    tokens = pattern.findall(unicodedata.normalize("NFD", text))
    return "\0" + "".join(f"{token.lower()}\0" for token in tokens)


@lru_cache(maxsize=65536)
def answer_tokens(answer: str, lang: str = "en") -> str:
    """`dpr_tokens`, kept: a question's aliases (up to hundreds) are looked for in each of its passages."""
    return dpr_tokens(answer, lang)


def _found(gold: str, text: str, *, at_start: bool = False) -> bool:
    """Whether a gold that is a regular expression matches; one that takes too long does not."""
    pattern = _compile(gold)
    if pattern is None:
        return False
    try:
        # The `regex` package, as DPR uses it, because `re` cannot be stopped.
        match = pattern.match if at_start else pattern.search
        return match(text, timeout=_PATTERN_SECONDS) is not None
    except TimeoutError:
        _log_slow(gold)
        return False


@lru_cache(maxsize=4096)
def _log_slow(gold: str) -> None:
    """Say it once a pattern, not for each of a run's passages."""
    _log.warning("the gold %r takes over %g s to match a text, which counts as no match", gold, _PATTERN_SECONDS)


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> regex.Pattern[str] | None:
    """The pattern, or None when it cannot be read: the official scripts then count no match, and so do we."""
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
    except (regex.error, OverflowError, RecursionError) as error:
        _log.warning("the gold %r is not a regular expression and matches nothing: %s", pattern, error)
        return None
