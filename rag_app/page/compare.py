"""What a comparison of two retrievers says, as values: moves of ranks, factors of scores, a badge and a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rag_app.answers import Answer
from rag_app.config_tables import CLOSED_BOOK
from rag_app.pipeline import Pipeline
from retriever.base import Hit
from retriever.similarity import Similarity

SAME_RANKING = (
    "The two differ at most in the question's magnitude, which is the same for every passage: scores differ, the order "
    "cannot."
)

ALIKE = 3.0
"""Mean percentiles that are nearer than this are called alike."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the comparison, as the page describes it.

    Attributes:
        name: The retriever's name in the configuration.
        kind: What ranks the passages; "unknown" when the retriever could not be loaded.
        encoder: Name of the encoder; "" without one.
        encoder_fingerprint: Two sides with the same one have the same vectors.
        similarity: Which magnitudes count; None without vectors.
        notes: What a person should know before reading anything into the ranking.
    """

    name: str
    kind: Literal["dense", "bm25", "hybrid", "rerank", "iterative", "trec_run", "closed-book", "unknown"]
    encoder: str = ""
    encoder_fingerprint: str = ""
    similarity: Similarity | None = None
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> bool:
        """Whether it finds passages at all."""
        return self.kind not in ("closed-book", "unknown")


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a score.

    Attributes:
        label: "cosine", "|d|" or "|q|".
        value: The quantity itself, before any exponent.
        exponent: 1 when the score keeps it whole, 0 when the score drops it.
    """

    label: str
    value: float
    exponent: float = 1.0


@dataclass(frozen=True, slots=True)
class Move:
    """Where a passage stands against the other side.

    Attributes:
        kind: "up" and "down" by `places`, "same", or "only" when the other side's ranking does not reach it.
        places: Ranks between the two sides, never negative.
        there: Its rank on the other side; 0 where that is not known.
    """

    kind: Literal["up", "down", "same", "only"]
    places: int = 0
    there: int = 0


def describe_side(pipeline: Pipeline, name: str) -> Side:
    """Look at a retriever, loading it if need be.

    Raises:
        ConfigError: No retriever of that name.
        RetrieverError: Its corpus, index or encoder cannot be used.
    """
    if name == CLOSED_BOOK:
        return Side(name, "closed-book")
    from retriever.dense import DenseRetriever

    retriever = pipeline.retriever(name)
    notes = tuple(retriever.notes)
    if isinstance(retriever, DenseRetriever):
        encoder = retriever.encoder
        return Side(name, "dense", encoder.name, encoder.fingerprint, retriever.similarity, notes)
    return Side(name, pipeline.config.retriever(name).kind, notes=notes)


def move(rank: int, there: int | None) -> Move:
    """From a passage's rank here and on the other side, None where that ranking does not reach it."""
    if there is None:
        return Move("only")
    if there == rank:
        return Move("same", there=there)
    return Move("up" if rank < there else "down", abs(rank - there), there)


def moves(hits: Sequence[Hit], ranks: Mapping[str, int]) -> list[Move]:
    """The move of each of `hits` against the other side's ranks by passage id."""
    return [move(hit.rank, ranks.get(hit.passage.id)) for hit in hits]


def factors(hit: Hit, similarity: Similarity | None) -> list[Factor]:
    """The factors whose product, each to its exponent, is the hit's score: cos, |d| and |q|; none for BM25."""
    if similarity is None or hit.cosine is None or hit.norm is None or hit.query_norm is None:
        return []
    return [
        Factor("cosine", hit.cosine),
        Factor("|d|", hit.norm, 1.0 - similarity.gamma_d),
        Factor("|q|", hit.query_norm, 1.0 - similarity.gamma_q),
    ]


def badge(left: Side, right: Side) -> tuple[str, str]:
    """What the comparison isolates: a label of a few words, and a sentence that explains it."""
    if left.kind == right.kind == "unknown":
        return "nothing to compare", "Neither of the two retrievers could be loaded."
    if "unknown" in (left.kind, right.kind):
        return "one side only", "One of the two retrievers could not be loaded."
    if left.name == right.name:
        return "same retriever twice", "Both sides are the same: choose another retriever on one of them."
    if not (left.ranks and right.ranks):
        return "with and without passages", f"{CLOSED_BOOK} shows what the reader answers from its training alone."
    if {left.kind, right.kind} == {"bm25", "dense"}:
        return (
            "words against vectors",
            "BM25 counts words that question and passage share; the other side compares vectors.",
        )
    if not {left.kind, right.kind} <= {"bm25", "dense"}:
        return (
            "different strategies",
            "One side or both put several steps together, so the scoring alone does not explain what you see.",
        )
    if left.similarity is None or right.similarity is None:
        return "words on both sides", "Two settings of BM25, which counts words that question and passage share."
    if left.encoder_fingerprint != right.encoder_fingerprint:
        return (
            "different checkpoints",
            "Vectors and training differ, so the scoring alone does not explain what you see.",
        )
    if left.similarity.gamma_d == right.similarity.gamma_d:
        return "same encoder, same ranking", SAME_RANKING
    return (
        "same encoder, different scoring",
        f"One set of vectors, ranked twice: {_treatment(left)}, {_treatment(right)}.",
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What one side found, beside the hits that are shown.

    Attributes:
        ranks: Rank by passage id, as deep as its ranking was looked at.
        percentiles: Of each hit's magnitude among its index's, in percent; None where there is none.
    """

    ranks: Mapping[str, int] = field(default_factory=dict)
    percentiles: tuple[float | None, ...] = ()

    @property
    def mean_percentile(self) -> float | None:
        """Over the hits; None where none has a magnitude."""
        known = [percentile for percentile in self.percentiles if percentile is not None]
        return sum(known) / len(known) if known else None


def sentence(sides: tuple[Side, Side], answers: tuple[Answer, Answer], found: tuple[Found, Found]) -> str:
    """In words: the passages both sides share, how many moved, and how large the magnitudes are on each side."""
    left, right = answers
    if not (sides[0].ranks and sides[1].ranks):
        return ""
    if not (left.hits or right.hits):
        return "Neither side found a passage."
    for side, answer in zip(sides, answers, strict=True):
        if not answer.hits:
            return "" if answer.error else f"{side.name} found no passage."
    parts = [_overlap(left.hits, right.hits)]
    if [hit.passage.id for hit in left.hits] != [hit.passage.id for hit in right.hits]:
        parts.append(_promotions(sides, answers, found))
    means = found[0].mean_percentile, found[1].mean_percentile
    if means[0] is not None and means[1] is not None:
        parts.append(_magnitudes((sides[0].name, sides[1].name), (means[0], means[1])))
    return " ".join(parts)


def promotions(answers: tuple[Answer, Answer], found: tuple[Found, Found]) -> tuple[int, int]:
    """How many passages the right side shows above their rank on the left, and how many of the left's it ranks lower."""
    up = sum(found_.kind in ("up", "only") for found_ in moves(answers[1].hits, found[0].ranks))
    down = sum(found_.kind in ("up", "only") for found_ in moves(answers[0].hits, found[1].ranks))
    return up, down


def _treatment(side: Side) -> str:
    gamma = side.similarity.gamma_d if side.similarity else 1.0
    how = {0.0: "keeps", 1.0: "drops"}.get(gamma, "partly keeps")
    return f"{side.name} {how} the passage's magnitude |d|"


def _overlap(left: Sequence[Hit], right: Sequence[Hit]) -> str:
    ids = [[hit.passage.id for hit in hits] for hits in (left, right)]
    shared = len(set(ids[0]) & set(ids[1]))
    most = max(len(ids[0]), len(ids[1]))
    passages = _passages(most)
    if ids[0] == ids[1]:
        return f"Both sides rank the same {passages} in the same order."
    if shared == most:
        return f"Both sides found the same {passages}, in a different order."
    if not shared:
        return "The two sides have no passage in common."
    return f"The two sides share {shared} of {passages}."


def _promotions(sides: tuple[Side, Side], answers: tuple[Answer, Answer], found: tuple[Found, Found]) -> str:
    up, down = promotions(answers, found)
    return f"From {sides[0].name} to {sides[1].name}, {_passages(up)} moved up and {down} down."


def _magnitudes(names: tuple[str, str], means: tuple[float, float]) -> str:
    low, high = sorted((0, 1), key=lambda side: means[side])
    if means[high] - means[low] < ALIKE:
        return (
            f"Magnitudes are alike: mean percentile {means[0]:.0f} under {names[0]}, {means[1]:.0f} under {names[1]}."
        )
    return (
        f"{names[high]} found the longer vectors: mean magnitude percentile {means[high]:.0f}, against {means[low]:.0f} "
        f"under {names[low]}."
    )


def _passages(count: int) -> str:
    return "1 passage" if count == 1 else f"{count} passages"
