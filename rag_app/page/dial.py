"""The magnitude dial: the candidates of one question, ranked under any γd without index or encoder.

A visitor's page keeps its candidates, some kilobytes. They are every passage that can be among the k best under some γd
(`retriever.search.contenders`), so that the dial's ranking is that of the whole index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rag_app.answers import Answer
from rag_app.page.compare import Found, Move, Side, move
from rag_app.pipeline import Pipeline
from retriever.dense import DenseRetriever
from retriever.search.contenders import Contenders, find_contenders

NEAREST = 60
"""So many of the largest cosines are drawn, contenders or not: a picture of the few alone would show no crowd."""

EXCERPT_WORDS = 40

MOST_ROWS = 1_000_000
"""Contenders are found by a pass over all rows, whatever the searcher: beyond this, answers would wait for the dial."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage that the dial may show.

    Attributes:
        id: The passage's.
        title: Its title, or its id where it has none.
        excerpt: The first words of its text.
        cosine: With the question.
        norm: |d|.
        ranks: On each side of the comparison; None where that side's ranking does not reach it.
    """

    id: str
    title: str
    excerpt: str
    cosine: float
    norm: float
    ranks: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Candidates:
    """One question's candidates in one index.

    Attributes:
        encoder: Whose vectors they are.
        k: Passages a side.
        names: The two retrievers; "" for one whose ranking has nothing to do with this index.
        gammas: γd of the two sides; None where a side does not rank these vectors.
        home: The side whose ranking the dial starts from and is compared with.
        contenders: What is ranked.
        passages: The same, in the same order, in words.
    """

    encoder: str
    k: int
    names: tuple[str, str]
    gammas: tuple[float | None, float | None]
    home: int
    contenders: Contenders
    passages: tuple[Candidate, ...]

    @property
    def start(self) -> float:
        """γd of the side that the dial starts from."""
        gamma = self.gammas[self.home]
        assert gamma is not None
        return gamma


@dataclass(frozen=True, slots=True)
class Dialled:
    """One place of the dial's ranking.

    Attributes:
        rank: From 1.
        place: Of the passage among the candidates.
        candidate: The passage.
        score: cosine × |d|^(1 − γd).
        move: Against the side that the dial starts from.
    """

    rank: int
    place: int
    candidate: Candidate
    score: float
    move: Move


def turn(candidates: Candidates, gamma_d: float) -> list[Dialled]:
    """The k best passages under γd, exactly as a search of the whole index ranks them."""
    places, scores = candidates.contenders.rank(gamma_d, candidates.k)
    found = []
    for rank, (place, score) in enumerate(zip(places.tolist(), scores.tolist(), strict=True), 1):
        candidate = candidates.passages[place]
        found.append(Dialled(rank, place, candidate, score, move(rank, candidate.ranks[candidates.home])))
    return found


def find_candidates(
    pipeline: Pipeline,
    question: str,
    sides: tuple[Side, Side],
    answers: tuple[Answer, Answer],
    found: tuple[Found, Found],
    k: int,
) -> tuple[Candidates, ...]:
    """Candidates in each index that a side ranks by vectors: one where both share it, none for BM25 against BM25.

    Indexes of more than `MOST_ROWS` have none.
    """
    made: list[Candidates] = []
    seen: set[str] = set()
    for home, side in enumerate(sides):
        if side.similarity is None:
            continue
        retriever = pipeline.retriever(side.name)
        assert isinstance(retriever, DenseRetriever)
        if retriever.index.fingerprint not in seen and len(retriever.index) <= MOST_ROWS:
            seen.add(retriever.index.fingerprint)
            made.append(_candidates(pipeline, retriever, question, home, sides, answers, found, k))
    return tuple(made)


def _candidates(
    pipeline: Pipeline,
    retriever: DenseRetriever,
    question: str,
    home: int,
    sides: tuple[Side, Side],
    answers: tuple[Answer, Answer],
    found: tuple[Found, Found],
    k: int,
) -> Candidates:
    index = retriever.index
    here = [side.ranks and pipeline.retriever(side.name).index.fingerprint == index.fingerprint for side in sides]
    rows = [hit.row for answer, own in zip(answers, here, strict=True) if own for hit in answer.hits if hit.row >= 0]
    query = retriever.encoder.encode_queries([question])
    contenders = find_contenders(index, query, k, nearest=NEAREST, rows=rows)
    passages = []
    for row, cosine, norm in zip(
        contenders.rows.tolist(), contenders.cosines.tolist(), contenders.norms.tolist(), strict=True
    ):
        passage = index.passage(row)
        ranks = [one.ranks.get(passage.id) if own else None for one, own in zip(found, here, strict=True)]
        passages.append(
            Candidate(
                passage.id,
                passage.title or passage.id,
                _excerpt(passage.text.split()),
                cosine,
                norm,
                (ranks[0], ranks[1]),
            )
        )
    gammas = [
        side.similarity.gamma_d if own and side.similarity else None for side, own in zip(sides, here, strict=True)
    ]
    names = [side.name if own else "" for side, own in zip(sides, here, strict=True)]
    return Candidates(
        retriever.encoder.name,
        k,
        (names[0], names[1]),
        (gammas[0], gammas[1]),
        home,
        contenders,
        tuple(passages),
    )


def _excerpt(words: Sequence[str]) -> str:
    return " ".join(words[:EXCERPT_WORDS]) + (" …" if len(words) > EXCERPT_WORDS else "")
