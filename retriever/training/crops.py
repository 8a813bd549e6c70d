"""Random windows of passages as positives and negatives, so that a norm cannot be read off a length.

This project's own, not the paper's. A mean-pooled encoder starts with norms that fall with length, and a training on
passages of one length leaves them so. Cropping positives and negatives alike gives every length its share of both sides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from retriever.errors import RetrieverError
from retriever.passages import Passage

_WORD = re.compile(r"\w+")
# What says too little about a passage to choose a window by.
_SHORTEST_TERM = 3


@dataclass(frozen=True, slots=True)
class CropSettings:
    """How many passages are cut, and to what.

    Attributes:
        share: Probability that a passage is cut; 0 cuts none.
        min_words: Shortest window.
        max_words: Longest window; passages that are no longer than the drawn number stay whole.
    """

    share: float = 0.0
    min_words: int = 4
    max_words: int = 60

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise RetrieverError(f"crop share must be between 0 and 1, got {self.share}")
        if not 1 <= self.min_words <= self.max_words:
            raise RetrieverError(
                f"crop min_words must be at least 1 and no more than max_words, got {self.min_words} and {self.max_words}"
            )


def crop(
    passage: Passage, query: str, answers: Sequence[str], settings: CropSettings, random: np.random.Generator
) -> Passage:
    """The passage, or with probability `share` a window of it.

    The window's length is log-uniform between min_words and max_words. It holds an answer where the passage does (and
    grows to the answer's length if need be); elsewhere it is the one with the most different words of the query, drawn
    where several have as many. Title and id stay, so a window still counts as the document it is from.

    Args:
        passage: Positive or negative.
        query: The query it stands beside.
        answers: Strings that answer the query; () where none are known.
        settings: Share and lengths.
        random: Drawn from three times for every passage, cut or not, so that one passage does not shift the next one's draws.
    """
    chance, length, place = random.random(3)
    if chance >= settings.share:
        return passage
    words = passage.text.split()
    low, high = math.log(settings.min_words), math.log(settings.max_words + 1)
    size = min(int(math.exp(low + length * (high - low))), settings.max_words)
    if len(words) <= size:
        return passage
    first, last = _starts(words, query, answers, size)
    if last < first:  # the answer is longer than the window
        size += first - last
        first = last
    start = first + min(int(place * (last - first + 1)), last - first)
    return replace(passage, text=" ".join(words[start : start + size]))


def _starts(words: Sequence[str], query: str, answers: Sequence[str], size: int) -> tuple[int, int]:
    """First and last position where a window may start; the last is the smaller one where an answer doesn't fit."""
    found = _find(words, answers)
    if found is not None:
        begin, end = found
        if end - begin > size:
            return begin + (end - begin - size), begin
        return max(0, end - size), min(begin, len(words) - size)
    best = _best_match(words, query, size)
    return (best, best) if best is not None else (0, len(words) - size)


def _find(words: Sequence[str], answers: Sequence[str]) -> tuple[int, int] | None:
    """Words [begin, end) of the first answer that is there, compared without case and signs; None without any."""
    plain = [" ".join(_WORD.findall(word.casefold())) for word in words]
    offsets: list[int] = []
    text = " "
    for word in plain:
        offsets.append(len(text))
        text += word + " " if word else ""
    for answer in answers:
        wanted = " ".join(_WORD.findall(answer.casefold()))
        at = text.find(f" {wanted} ") if wanted else -1
        if at >= 0:
            inside = [
                position
                for position, offset in enumerate(offsets)
                if plain[position] and at + 1 <= offset < at + 1 + len(wanted)
            ]
            if inside:
                return inside[0], inside[-1] + 1
    return None


def _best_match(words: Sequence[str], query: str, size: int) -> int | None:
    """Where the window with the most different words of the query starts, the earliest of several; None without any."""
    wanted = {term for term in _WORD.findall(query.casefold()) if len(term) >= _SHORTEST_TERM}
    terms = [wanted.intersection(_WORD.findall(word.casefold())) for word in words]
    counts: dict[str, int] = {}
    best, most = None, 0
    for position, own in enumerate(terms):
        for term in own:
            counts[term] = counts.get(term, 0) + 1
        if position >= size:
            for term in terms[position - size]:
                counts[term] -= 1
                if not counts[term]:
                    del counts[term]
        if position >= size - 1 and len(counts) > most:
            best, most = position - size + 1, len(counts)
    return best
