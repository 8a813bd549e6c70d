"""Sentence pairs: how well a similarity's scores follow people's."""

from __future__ import annotations

from collections.abc import Sequence

from eval.data.pairs import spearman, spearman_difference
from eval.data.sources import PairSet
from eval.errors import EvalError
from eval.view import PairScore
from rag_app.bench import Bench
from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.stores import configured_similarity
from retriever.errors import RetrieverError
from retriever.similarity import require_symmetric, score_parts


def score_pairs(config: Config, bench: Bench, sets: Sequence[PairSet]) -> list[PairScore]:
    """Spearman's correlation of every retriever of [eval] on sets of sentence pairs, compared with the first that has one.

    Sentences are encoded as queries on both sides, as E5 and its kin want it where the two are equals. What cannot score
    a pair, or treats its sides differently, is refused with the reason.
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


def _scores(config: Config, bench: Bench, name: str, pairs: PairSet) -> list[float]:
    """The similarity of each pair.

    Raises:
        RetrieverError: The retriever has none, or one that is not symmetric.
    """
    if name == CLOSED_BOOK or config.retriever(name).kind != "dense":
        raise RetrieverError("it ranks passages, and has no score for a pair of sentences")
    settings = config.retriever(name)
    encoder = bench.encoder(settings.encoder)
    similarity = configured_similarity(name, settings, encoder)
    require_symmetric(similarity, pairs.name)
    left = encoder.encode_queries([pair.text1 for pair in pairs.pairs])
    right = encoder.encode_queries([pair.text2 for pair in pairs.pairs])
    cosines = (left.units * right.units).sum(axis=1)
    scores: list[float] = score_parts(cosines, left.norms, right.norms, similarity.gamma_q, similarity.gamma_d).tolist()
    return scores
