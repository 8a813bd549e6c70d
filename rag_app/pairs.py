"""Sentence pairs: how well a similarity's scores follow people's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.data.pairs import spearman, spearman_difference
from eval.data.sources import PairSet
from eval.errors import EvalError
from eval.view import PairScore
from rag_app.bench import Bench
from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.stores import configured_similarity
from retriever.encoder import Encoder, Vectors
from retriever.errors import RetrieverError
from retriever.similarity import Similarity, require_symmetric, score_parts


def score_pairs(config: Config, bench: Bench, sets: Sequence[PairSet]) -> list[PairScore]:
    """Spearman's correlation of every retriever of [eval] on sets of sentence pairs, compared with the first that has one.

    What cannot score a pair is refused with the reason, and so is what treats its sides differently, unless
    eval.allow_asymmetric says that its loss shall be measured.
    """
    found: list[PairScore] = []
    for pairs in sets:
        golds = [pair.score for pair in pairs.pairs]
        baseline: tuple[str, list[float]] | None = None
        for name in config.eval.retrievers:
            try:
                scores = _scores(config, bench, name, pairs)
                own = spearman(scores, golds, config.eval.seed)
            except (RetrieverError, EvalError) as error:
                found.append(PairScore(pairs.name, name, len(golds), None, None, str(error)))
                continue
            if baseline is None:
                baseline = name, scores
                found.append(PairScore(pairs.name, name, own.n, own.value, own.interval))
                continue
            change = spearman_difference(scores, baseline[1], golds, config.eval.seed)
            compared = (baseline[0], change.value, change.interval)
            found.append(PairScore(pairs.name, name, own.n, own.value, own.interval, "", *compared))
    return found


def require_scorer(config: Config, bench: Bench, sets: Sequence[PairSet]) -> None:
    """Refuse sentence pairs that no retriever of [eval] may score, before a run's folder is made for them.

    Raises:
        EvalError: The reasons, each once.
    """
    reasons: dict[str, None] = {}
    for pairs in sets:
        for name in config.eval.retrievers:
            try:
                _scorer(config, bench, name, pairs)
            except RetrieverError as error:
                reasons[f"{name}: {error}"] = None
            else:
                return
    raise EvalError(f"no retriever of eval.retrievers can score these pairs; {'; '.join(reasons)}")


def _scores(config: Config, bench: Bench, name: str, pairs: PairSet) -> list[float]:
    """The similarity of each pair.

    Raises:
        RetrieverError: See `_scorer`.
    """
    encoder, similarity = _scorer(config, bench, name, pairs)
    return EncodedPairs.of(pairs, encoder).scores(similarity)


def _scorer(config: Config, bench: Bench, name: str, pairs: PairSet) -> tuple[Encoder, Similarity]:
    """What a retriever scores pairs by.

    Raises:
        RetrieverError: The retriever has no similarity, or one that is not symmetric.
    """
    if name == CLOSED_BOOK or config.retriever(name).kind != "dense":
        raise RetrieverError("it ranks passages, and has no score for a pair of sentences")
    settings = config.retriever(name)
    encoder = bench.encoder(settings.encoder)
    similarity = configured_similarity(name, settings, encoder)
    require_symmetric(similarity, pairs.name, override=config.eval.allow_asymmetric, way="eval.allow_asymmetric=true")
    return encoder, similarity


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPairs:
    """Both sides [n] of sentence pairs, encoded as queries, as E5 and its kin want it where the two are equals."""

    left: Vectors
    right: Vectors

    @classmethod
    def of(cls, pairs: PairSet, encoder: Encoder) -> EncodedPairs:
        """Those of a set."""
        left, right = ([getattr(pair, side) for pair in pairs.pairs] for side in ("text1", "text2"))
        return cls(encoder.encode_queries(left), encoder.encode_queries(right))

    def scores(self, similarity: Similarity) -> list[float]:
        """Of each pair, the first sentence in the place of the query."""
        cosines = (self.left.units * self.right.units).sum(axis=1)
        found: list[float] = score_parts(
            cosines, self.left.norms, self.right.norms, similarity.gamma_q, similarity.gamma_d
        ).tolist()
        return found
