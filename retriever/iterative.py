"""Multi-hop retrieval: ask, then ask again with what was found, and let the rounds take turns in the ranking.

A question that needs two passages often names only what leads to the first; the second is near to the question and the
first passage taken together. So each further query is the question followed by title and text of a passage that the round
before found (as in multi-hop dense retrieval, Xiong et al., ICLR 2021, without its training). Question first: an encoder cuts
long queries at the end.

The rounds' rankings are interleaved: first of round 1, first of round 2, second of round 1, and so on, each passage once.
Scores of different queries are not comparable; of the rules tried (sums of scores along chains, maxima, reciprocal ranks,
keeping the head of the first round) this one found both passages of a HotpotQA question most often (docs/results.md).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from retriever.base import Hit, IndexedRetriever, Retrieved
from retriever.errors import RetrieverError
from retriever.fusion import add_seconds
from retriever.passages import Passage
from retriever.search.base import clip_k


class IterativeRetriever:
    """Asks another retriever in several rounds.

    A hit's cosine and norms are those of the first round that found it, so its cosine may be that of a longer query; with
    more than one round its score is 1 / rank, since scores of different queries can't be compared.

    Args:
        name: What people call this retriever.
        base: What is asked.
        rounds: How often; 1 gives the base's own hits.
        width: Passages of a round that the next round asks with, one query each.

    Raises:
        RetrieverError: A number out of range.
    """

    def __init__(self, name: str, base: IndexedRetriever, *, rounds: int = 2, width: int = 1) -> None:
        for setting, value in (("rounds", rounds), ("width", width)):
            if value < 1:
                raise RetrieverError(f"{setting} must be at least 1, got {value}")
        self.name = name
        self.parts = (base,)
        self.index = base.index
        self._rounds = rounds
        self._width = width

    @property
    def fingerprint(self) -> str:
        """Of the base and the settings."""
        content = ["iterative", self.parts[0].fingerprint, self._rounds, self._width]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    @property
    def notes(self) -> list[str]:
        """The base's notes."""
        return self.parts[0].notes

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        """See `Retriever.retrieve`; fewer than k hits where the base found fewer."""
        k = clip_k(k, len(self.index))
        # Deep enough for each round to find passages that no earlier one asked with, however few hits are wanted.
        depth = max(k, self._width * self._rounds)
        base = self.parts[0]
        found = base.retrieve(questions, depth)
        if self._rounds == 1:
            return Retrieved([hits[:k] for hits in found.hits], found.seconds)
        seconds = [found.seconds]
        rankings = [[hits] for hits in found.hits]
        asked: list[set[int]] = [set() for _ in questions]
        for _ in range(self._rounds - 1):
            queries: list[tuple[int, str]] = []
            for number, question in enumerate(questions):
                fresh = [hit for hit in rankings[number][-1] if hit.row not in asked[number]][: self._width]
                asked[number].update(hit.row for hit in fresh)
                queries += [(number, expand(question, hit.passage)) for hit in fresh]
            if not queries:
                break
            found = base.retrieve([query for _, query in queries], depth)
            seconds.append(found.seconds)
            answers: list[list[list[Hit]]] = [[] for _ in questions]
            for (number, _), hits in zip(queries, found.hits, strict=True):
                answers[number].append(hits)
            for own, ranking in zip(answers, rankings, strict=True):
                ranking.append(interleave(own))
        merged = [
            [replace(hit, rank=rank, score=1 / rank) for rank, hit in enumerate(interleave(ranking)[:k], 1)]
            for ranking in rankings
        ]
        return Retrieved(merged, add_seconds(seconds))


def expand(question: str, passage: Passage) -> str:
    """The query of a further round."""
    return " ".join(part for part in (question, passage.title, passage.text) if part)


def interleave(rankings: Iterable[Sequence[Hit]]) -> list[Hit]:
    """One ranking in which the given ones take turns, each passage at its first place."""
    turns = itertools.chain.from_iterable(itertools.zip_longest(*rankings))
    first: dict[int, Hit] = {}
    for hit in turns:
        if hit is not None:
            first.setdefault(hit.row, hit)
    return list(first.values())
