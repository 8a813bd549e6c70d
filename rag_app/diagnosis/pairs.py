"""What an encoder's norms say on sentence pairs, where both sides are equals: how well each similarity follows people."""

from __future__ import annotations

from dataclasses import dataclass

from eval.data.pairs import Correlation, spearman, spearman_difference
from eval.data.sources import PairSet
from rag_app.diagnosis.queries import unmarked_diagnosis
from rag_app.pairs import EncodedPairs
from rag_app.pipeline import Pipeline
from retriever.diagnostics import Diagnosis
from retriever.neighbours import anisotropy
from retriever.similarity import COSINE, DNORM, DOT, QNORM, require_symmetric


@dataclass(frozen=True, slots=True)
class Followed:
    """How well a similarity follows people's scores.

    Attributes:
        similarity: Its name.
        symmetric: Whether it treats both sentences alike.
        spearman: Rank correlation with its bootstrap interval over pairs.
        change: From cosine's, with its paired interval; None for cosine.
    """

    similarity: str
    symmetric: bool
    spearman: Correlation
    change: Correlation | None


@dataclass(frozen=True, slots=True)
class PairsDiagnosed:
    """An encoder on a set of sentence pairs.

    Attributes:
        encoder: Its name in the configuration.
        model: What it is.
        trained_for: The similarity that it was trained for; None where nobody says.
        dataset: Name of the set.
        sides: Norms and lengths of the first sentences and of the second ones.
        anisotropy: Of each side's directions.
        rows: Cosine, dot, qnorm and dnorm.
    """

    encoder: str
    model: str
    trained_for: str | None
    dataset: str
    sides: tuple[Diagnosis, Diagnosis]
    anisotropy: tuple[float, float]
    rows: tuple[Followed, ...]


def diagnose_pairs(pipeline: Pipeline, name: str, pairs: PairSet, *, seed: int = 0) -> PairsDiagnosed:
    """Score all pairs by four similarities; the one-sided ones too, since what they lose is what is measured.

    Args:
        pipeline: Its encoders are used, and no index.
        name: Of the encoder in its configuration.
        pairs: With people's scores.
        seed: Of the bootstraps.

    Raises:
        EvalError: Fewer than two pairs, or all scores equal.
    """
    encoder = pipeline.encoder(name)
    encoded = EncodedPairs.of(pairs, encoder)
    golds = [pair.score for pair in pairs.pairs]
    cosine = encoded.scores(COSINE)
    rows = []
    for similarity in (COSINE, DOT, QNORM, DNORM):
        require_symmetric(similarity, pairs.name, override=True)
        scores = encoded.scores(similarity)
        change = None if similarity is COSINE else spearman_difference(scores, cosine, golds, seed)
        rows.append(Followed(similarity.name, similarity.is_symmetric, spearman(scores, golds, seed), change))
    lengths = [encoder.query_lengths([getattr(pair, side) for pair in pairs.pairs]) for side in ("text1", "text2")]
    return PairsDiagnosed(
        encoder=name,
        model=encoder.name,
        trained_for=encoder.spec.trained_for,
        dataset=pairs.name,
        sides=(
            unmarked_diagnosis(encoded.left.norms, lengths[0], encoder.spec.query_max_tokens),
            unmarked_diagnosis(encoded.right.norms, lengths[1], encoder.spec.query_max_tokens),
        ),
        anisotropy=(anisotropy([encoded.left.units]), anisotropy([encoded.right.units])),
        rows=tuple(rows),
    )
