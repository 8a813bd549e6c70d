"""Hard negatives: what a retriever ranks high for a query, under its own similarity, and what does not answer it.

A passage that is ranked high and isn't marked often answers the query all the same. What is taken is therefore filtered:
by known positives, by answer string, by rank, and by the positive's own score (the relative margin of NV-Retriever, Moreira
et al. 2024, arXiv 2407.15831, "percentage of the positive's score").
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from retriever.base import Hit, Retriever
from retriever.encoder import Progress
from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.training.guard import canonical
from retriever.training.masking import known_positives, passage_keys
from retriever.training.pairs import TrainingPair
from retriever.wording import counted

# Words are tokens; where words aren't spaced (Thai, Lao, Khmer, Burmese, kana, Han) each character is one.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
# They stand in any passage and say nothing of it.
_VERDICTS = frozenset({"yes", "no", "true", "false", "noanswer"})


@dataclass(frozen=True, slots=True)
class MiningSettings:
    """What is taken from a ranking.

    Attributes:
        negatives: Wanted for each pair, those that were given counted.
        depth: Ranks that are looked at.
        skip: Ranks left out at the top, where unmarked answers are likeliest.
        margin: Only passages that score at most this share of the positive's score, in (0, 1]; None takes any. With a
            score s below 0 the limit is s − (1 − margin)·|s|, so that a margin always lowers it [this project's own].
            A positive beyond `depth` scores below all that is looked at, and so leaves none.
        answer_filter: Leave out passages that hold an answer of the pair, in title or text.
        batch_size: Queries ranked at once.
    """

    negatives: int = 4
    depth: int = 50
    skip: int = 0
    margin: float | None = None
    answer_filter: bool = True
    batch_size: int = 256

    def __post_init__(self) -> None:
        for name in ("negatives", "depth", "batch_size"):
            if getattr(self, name) < 1:
                raise RetrieverError(f"mining: {name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.skip < self.depth:
            raise RetrieverError(f"mining: skip must be at least 0 and less than depth {self.depth}, got {self.skip}")
        if self.margin is not None and not 0 < self.margin <= 1:
            raise RetrieverError(f"mining: margin must be above 0 and at most 1, got {self.margin}")


@dataclass(slots=True)
class MiningReport:
    """What became of the candidates, each counted once, under the first reason that applies.

    Attributes:
        pairs: All there were.
        given: Negatives that the pairs had already, and kept.
        mined: Negatives that were added.
        dropped: Candidates left out, by reason: "positive" (of the query, see `passage_keys`), "reserved", "rank" (`skip`),
            "margin", "unscored" (a margin of a positive beyond `depth`), "answer", "repeated" (the text is among the pair's negatives already).
        short: Pairs that have fewer negatives than were wanted.
        bare: Those of them that have none.
        unanswered: Pairs without answers, whose negatives no answer filter could check.
        beyond: Pairs whose positive the retriever did not find within `depth`, of those that were ranked.
        ranked: Pairs that lacked negatives, and so were ranked.
    """

    pairs: int = 0
    given: int = 0
    mined: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    short: int = 0
    bare: int = 0
    unanswered: int = 0
    beyond: int = 0
    ranked: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "dropped": dict(self.dropped.most_common())}

    def summary(self) -> str:
        """One paragraph for people."""
        reasons = ", ".join(f"{_REASONS[name]} {count:,}" for name, count in self.dropped.most_common()) or "none"
        lines = [
            f"{counted(self.pairs, 'pair')}: {counted(self.mined, 'negative')} mined, {self.given:,} given; left out: {reasons}"
        ]
        if self.short:
            lines.append(
                f"{counted(self.short, 'pair')} with fewer than were asked for, {self.bare:,} of them with none"
            )
        if self.beyond:
            lines.append(f"{self.beyond:,} pairs whose own positive was not within the ranks looked at")
        if self.unanswered:
            lines.append(
                f"{counted(self.unanswered, 'pair')} without answers, so some of the negatives may answer the query"
            )
        return "\n".join(lines)


_REASONS = {
    "positive": "a positive",
    "reserved": "held out",
    "rank": "in the ranks skipped",
    "margin": "too near the positive's score",
    "unscored": "for want of a positive to measure the margin by",
    "answer": "holds an answer",
    "repeated": "the same text again",
}


def mine(
    pairs: Sequence[TrainingPair],
    retriever: Retriever,
    settings: MiningSettings,
    progress: Progress | None = None,
    *,
    known: Mapping[str, frozenset[str]] | None = None,
    reserved: Iterable[Passage] = (),
) -> tuple[list[TrainingPair], MiningReport]:
    """Fill up the negatives of pairs from a retriever's ranking, under its own similarity.

    Negatives that were given stay, before the mined ones; a pair that has enough is left as it is.

    Args:
        pairs: In any order; the result keeps it.
        retriever: Ranks a corpus that holds the positives. One pass in batches: memory grows with the result alone.
        settings: How many, and what is left out.
        progress: Told of (pairs done, all pairs).
        known: Positives of queries, see `retriever.training.masking.known_positives`; those of `pairs` when None.
        reserved: Passages that must not become negatives of any pair, see `passage_keys`.

    Returns:
        The pairs with up to `settings.negatives` negatives each, and what was left out.

    Raises:
        RetrieverError: The retriever cannot rank them.
    """
    known = known_positives(pairs) if known is None else known
    closed = frozenset(key for passage in reserved for key in passage_keys(passage))
    report = MiningReport(pairs=len(pairs))
    mined: list[TrainingPair] = []
    for start in range(0, len(pairs), settings.batch_size):
        batch = pairs[start : start + settings.batch_size]
        wanting = [pair for pair in batch if len(pair.negatives) < settings.negatives]
        rankings = iter(retriever.retrieve([pair.query for pair in wanting], settings.depth).hits if wanting else ())
        for pair in batch:
            own = (
                pair
                if len(pair.negatives) >= settings.negatives
                else _mined(pair, next(rankings), settings, known, closed, report)
            )
            _count(own, pair, settings, report)
            mined.append(own)
        if progress is not None:
            progress(len(mined), len(pairs))
    return mined, report


def holds_answer(passage: Passage, answers: Sequence[str]) -> bool:
    """Whether the words of an answer stand together in a passage's title or text, case and punctuation aside.

    Stricter than the match of evaluations (DPR's, which reads the text alone): a negative that is dropped for nothing costs
    less than one that answers. "yes" and "no" are looked for nowhere.
    """
    wanted = [tokens for answer in answers if (tokens := _answer_tokens(answer))]
    if not wanted:
        return False
    inside = (_tokens(passage.title), _tokens(passage.text))
    return any(tokens in part for tokens in wanted for part in inside)


def _mined(
    pair: TrainingPair,
    hits: Sequence[Hit],
    settings: MiningSettings,
    known: Mapping[str, frozenset[str]],
    closed: frozenset[str],
    report: MiningReport,
) -> TrainingPair:
    own = frozenset(passage_keys(pair.positive))
    positives = known.get(canonical(pair.query), frozenset()) | own
    taken = {key for passage in pair.negatives for key in passage_keys(passage)}
    keys_of = [passage_keys(hit.passage) for hit in hits]
    positive_score = next(
        (hit.score for hit, keys in zip(hits, keys_of, strict=True) if not own.isdisjoint(keys)), None
    )
    report.ranked += 1
    report.beyond += positive_score is None
    highest = _highest(positive_score, settings.margin)
    found = list(pair.negatives)
    for hit, keys in zip(hits, keys_of, strict=True):
        if len(found) >= settings.negatives:
            break
        reason = ""
        if not positives.isdisjoint(keys):
            reason = "positive"
        elif not closed.isdisjoint(keys):
            reason = "reserved"
        elif hit.rank <= settings.skip:
            reason = "rank"
        elif hit.score > highest:
            reason = "unscored" if positive_score is None else "margin"
        elif settings.answer_filter and holds_answer(hit.passage, pair.answers):
            reason = "answer"
        elif not taken.isdisjoint(keys):
            reason = "repeated"
        if reason:
            report.dropped[reason] += 1
            continue
        taken.update(keys)
        # What a corpus says of a passage beside title and text is of no use to training.
        found.append(Passage(hit.passage.id, hit.passage.title, hit.passage.text))
    return replace(pair, negatives=tuple(found))


def _highest(positive_score: float | None, margin: float | None) -> float:
    """The highest score that a negative may have."""
    if margin is None:
        return float("inf")
    if positive_score is None:
        return float("-inf")
    return positive_score - (1 - margin) * abs(positive_score)


def _count(own: TrainingPair, before: TrainingPair, settings: MiningSettings, report: MiningReport) -> None:
    report.given += len(before.negatives)
    report.mined += len(own.negatives) - len(before.negatives)
    report.short += len(own.negatives) < settings.negatives
    report.bare += not own.negatives
    report.unanswered += len(own.negatives) > len(before.negatives) and not own.answers


def _tokens(text: str) -> str:
    """Tokens, each between NULs, which no token holds: a run of tokens is then found as a substring."""
    return "\0" + "".join(f"{token}\0" for token in _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold()))


@lru_cache(maxsize=4096)
def _answer_tokens(answer: str) -> str:
    """As `_tokens`; an empty text where there is nothing to look for."""
    tokens = _tokens(answer)
    return "" if tokens.strip("\0") in _VERDICTS | {""} else tokens


def answers_from(pairs: Sequence[TrainingPair], others: Iterable[TrainingPair]) -> list[TrainingPair]:
    """Pairs with the answers that other pairs give for the same query (`canonical`) beside their own."""
    answers: dict[str, tuple[str, ...]] = {}
    for other in others:
        if other.answers:
            query = canonical(other.query)
            answers[query] = (*answers.get(query, ()), *other.answers)
    return [
        replace(pair, answers=tuple(dict.fromkeys((*pair.answers, *answers.get(canonical(pair.query), ())))))
        for pair in pairs
    ]
