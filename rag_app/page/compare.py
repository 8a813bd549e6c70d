"""What a comparison of two retrievers says, as values: moves of ranks, factors of scores, a badge and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        kind: "up" and "down" by `places`, "same", or "only" when the other side does not show it.
        places: Ranks between the two sides, never negative.
    """

    kind: Literal["up", "down", "same", "only"]
    places: int = 0


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


def moves(hits: Sequence[Hit], others: Sequence[Hit]) -> list[Move]:
    """The move of each of `hits` against the ranks that `others` gives the same passages."""
    ranks = {hit.passage.id: hit.rank for hit in others}
    found = []
    for hit in hits:
        other = ranks.get(hit.passage.id)
        if other is None:
            found.append(Move("only"))
        elif other == hit.rank:
            found.append(Move("same"))
        else:
            found.append(Move("up" if hit.rank < other else "down", abs(hit.rank - other)))
    return found


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


def sentence(sides: tuple[Side, Side], answers: tuple[Answer, Answer]) -> str:
    """In words: how many passages the two sides share, and how long their vectors are on each side."""
    left, right = answers
    if not (sides[0].ranks and sides[1].ranks) or not (left.hits or right.hits):
        return ""
    parts = [_overlap(left.hits, right.hits)]
    means = [mean_norm(answer.hits) for answer in answers]
    if means[0] is not None and means[1] is not None:
        scale = (
            "" if sides[0].encoder_fingerprint == sides[1].encoder_fingerprint else ", each encoder on its own scale"
        )
        parts.append(
            f"Mean magnitude |d|: {means[0]:.2f} under {sides[0].name}, {means[1]:.2f} under {sides[1].name}{scale}."
        )
    return " ".join(parts)


def mean_norm(hits: Sequence[Hit]) -> float | None:
    """Mean length of the passages' vectors; None where there are none."""
    norms = [hit.norm for hit in hits if hit.norm is not None]
    return sum(norms) / len(norms) if norms else None


def _treatment(side: Side) -> str:
    gamma = side.similarity.gamma_d if side.similarity else 1.0
    how = {0.0: "keeps", 1.0: "drops"}.get(gamma, "partly keeps")
    return f"{side.name} {how} the passage's magnitude |d|"


def _overlap(left: Sequence[Hit], right: Sequence[Hit]) -> str:
    ids = [[hit.passage.id for hit in hits] for hits in (left, right)]
    shared = len(set(ids[0]) & set(ids[1]))
    most = max(len(ids[0]), len(ids[1]))
    passages = "1 passage" if most == 1 else f"{most} passages"
    if ids[0] == ids[1]:
        return f"Both sides rank the same {passages} in the same order."
    if shared == most:
        return f"Both sides found the same {passages}, in a different order."
    if not shared:
        return "The two sides have no passage in common."
    return f"The two sides share {shared} of {passages}."
