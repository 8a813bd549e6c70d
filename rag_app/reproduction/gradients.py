"""What a query's norm does to InfoNCE: analytic gradients, and the norm as a temperature (the paper's proposition 4.2, T.2).

For one query q with candidates d_j, of which y is the positive: z_j = α s(q, d_j), p = softmax(z), L = −ln p_y, and with
ŷ the indicator of y, n_q = ‖q‖^γq and n_j = ‖d_j‖^γd

    ∂L/∂q   = α Σ_j (p_j − ŷ_j) (I − γq q̂q̂ᵀ) d_j / (n_q n_j)
    ∂L/∂d_j = α (p_j − ŷ_j) (I − γd d̂_jd̂_jᵀ) q / (n_q n_j)

The paper's equation 15 is the first for the dot product less the factor α; its equation 10 is the gradient in the unit
vector of the positive, under dnorm. Since s(cq, d) = c^(1−γq) s(q, d), a query that is c times as long is the same softmax
at 1 / c^(1−γq) of the temperature: 1/c under dot and dnorm, unchanged under cosine and qnorm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rag_app.progress import Log, StepProgress
from rag_app.reproduction.judged import load_encoder
from rag_app.reproduction.measures import Measure, draws, quantiles
from rag_app.reproduction.settings import ReproduceConfig
from retriever.diagnostics import variation
from retriever.encoder import Vectors
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity, score_parts
from retriever.training.pairs import read_pairs

Matrix = npt.NDArray[np.float64]

FAMILY = (COSINE, DOT, QNORM, DNORM, Similarity("learnable", 0.5, 0.5))
ALPHA = 20.0
"""The paper's, for cosine; the others get the factor at which their softmax is as sharp."""


def run(settings: ReproduceConfig, out: Path, *, log: Log, progress: StepProgress) -> dict[str, Any]:
    """Everything on real vectors in float64; seconds, and nothing is trained."""
    import torch

    from retriever.training.loss import scale_of_entropy

    own, config = settings.gradients, settings.train_config()
    columns, separator = config.data.columns, config.data.title_separator
    pairs = read_pairs(config.data.pairs, columns=columns, title_separator=separator)[: own.queries]
    encoder = load_encoder(config.encoder, config.data_dir, log)
    query_vectors = encoder.encode_queries([pair.query for pair in pairs])
    queries, passages = raw(query_vectors), raw(encoder.encode_passages([pair.positive for pair in pairs]))
    alphas = {
        one.name: ALPHA
        if one == COSINE
        else scale_of_entropy(
            torch.from_numpy(scores(queries, passages, COSINE)),
            torch.from_numpy(scores(queries, passages, one)),
            one.name,
            reference=ALPHA,
        )
        for one in FAMILY
    }
    measures = []
    for one in FAMILY:
        alpha = alphas[one.name]
        log(f"gradients under {one.name}, alpha {alpha:.4g}")
        measures += _checked(queries, passages, one, alpha)
        measures += [_temperature(queries, passages, one, alpha, factor) for factor in own.factors]
    for factor in own.factors:
        measures += growth(queries, passages, alphas["dnorm"], factor)
    norms = query_vectors.norms.astype(np.float64)
    low, high = np.quantile(norms, [0.05, 0.95])
    measures.append(_spread("untrained/variation of query norms", norms))
    # The temperature of a query is 1 / (alpha ‖q‖): alpha cancels in a ratio.
    measures.append(Measure("untrained/temperatures, 95th over 5th percentile", float(high / low), None, len(norms)))
    if own.dot and own.dnorm:
        measures += _trained_spread(settings, [pair.query for pair in pairs], log)
    return {"alphas": alphas, "measures": [measure.to_json() for measure in measures]}


# --- the mathematics -------------------------------------------------------------------------------------------------


def raw(vectors: Vectors) -> Matrix:
    """[n, dim] float64 with lengths."""
    return vectors.units.astype(np.float64) * vectors.norms.astype(np.float64)[:, None]


def scores(queries: Matrix, passages: Matrix, similarity: Similarity) -> Matrix:
    """[n, m] float64 under a similarity."""
    query_norms, passage_norms = (np.linalg.norm(side, axis=1) for side in (queries, passages))
    cosines = (queries / query_norms[:, None]) @ (passages / passage_norms[:, None]).T
    return score_parts(cosines, query_norms[:, None], passage_norms[None], similarity.gamma_q, similarity.gamma_d)


def softmax(logits: Matrix) -> Matrix:
    """Of each row."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Matrix = shifted / shifted.sum(axis=1, keepdims=True)
    return found


def gradients(queries: Matrix, passages: Matrix, similarity: Similarity, alpha: float) -> tuple[Matrix, Matrix]:
    """∂L/∂q [n, dim] of each query's own loss, and the sum's ∂L/∂d [n, dim], where passage i is the positive of query i."""
    query_norms, passage_norms = (np.linalg.norm(side, axis=1) for side in (queries, passages))
    errors = alpha * (softmax(alpha * scores(queries, passages, similarity)) - np.eye(len(queries)))
    weights = errors / (query_norms[:, None] ** similarity.gamma_q * passage_norms[None] ** similarity.gamma_d)
    query_side, passage_side = weights @ passages, weights.T @ queries
    return (
        _less_radial(query_side, queries, query_norms, similarity.gamma_q),
        _less_radial(passage_side, passages, passage_norms, similarity.gamma_d),
    )


def _less_radial(gradient: Matrix, vectors: Matrix, norms: Matrix, gamma: float) -> Matrix:
    units = vectors / norms[:, None]
    return gradient - gamma * (gradient * units).sum(axis=1, keepdims=True) * units


def autograd(queries: Matrix, passages: Matrix, similarity: Similarity, alpha: float) -> tuple[Matrix, Matrix]:
    """The same by torch, through the function that search and training score with."""
    import torch

    left, right = (torch.from_numpy(side.copy()).requires_grad_() for side in (queries, passages))
    left_norms, right_norms = left.norm(dim=1, keepdim=True), right.norm(dim=1, keepdim=True)
    # Not `score`, which computes in float32; the formula is this one's.
    found = score_parts(
        (left / left_norms) @ (right / right_norms).T, left_norms, right_norms.T, similarity.gamma_q, similarity.gamma_d
    )
    targets = torch.arange(len(queries))
    torch.nn.functional.cross_entropy(alpha * found, targets, reduction="sum").backward()  # type: ignore[no-untyped-call]
    assert left.grad is not None and right.grad is not None
    return left.grad.numpy(), right.grad.numpy()


# --- figures ---------------------------------------------------------------------------------------------------------


def _checked(queries: Matrix, passages: Matrix, similarity: Similarity, alpha: float) -> list[Measure]:
    """How far the formula is from autograd, and how much of the gradient is along the vector itself."""
    ours, torchs = gradients(queries, passages, similarity, alpha), autograd(queries, passages, similarity, alpha)
    off = max(float(np.abs(own - other).max() / np.abs(other).max()) for own, other in zip(ours, torchs, strict=True))
    measures = [Measure(f"{similarity.name}/analytic against autograd, relative", off)]
    for side, vectors, gradient in (("query", queries, torchs[0]), ("passage", passages, torchs[1])):
        along = np.abs((vectors * gradient).sum(axis=1)) / np.linalg.norm(vectors, axis=1)
        whole = np.linalg.norm(gradient, axis=1)
        share = float(along.sum() / whole.sum())
        measures.append(Measure(f"{similarity.name}/{side} gradient along the vector", share, None, len(vectors)))
    return measures


def _temperature(queries: Matrix, passages: Matrix, similarity: Similarity, alpha: float, factor: float) -> Measure:
    """Largest difference of a probability between queries that are longer and a temperature that is lower."""
    longer = softmax(alpha * scores(factor * queries, passages, similarity))
    sharper = softmax(alpha * factor ** (1 - similarity.gamma_q) * scores(queries, passages, similarity))
    off = float(np.abs(longer - sharper).max())
    return Measure(f"{similarity.name}/queries x {factor:g} against the temperature", off, None, len(queries))


def growth(queries: Matrix, passages: Matrix, alpha: float, factor: float) -> list[Measure]:
    """Under dnorm, the power of ‖q‖ that the gradient in the positives' unit vectors grows by.

    By equation 10 a query's is α ‖q‖ (1 − p) long. With p held fixed, at the softmax of the queries as they are, the power is 1;
    let free, p nears 1 as a query grows whose positive is ahead, and the power is less. The mean over queries before and after
    gives it; its interval is a bootstrap over queries.
    """
    table = scores(queries, passages, DNORM)
    before_p, after_p = (np.diag(softmax(alpha * size * table)) for size in (1.0, factor))
    before = _positive_gradients(queries, passages, alpha, before_p)
    everything, drawn = np.arange(len(queries)), draws(len(queries))
    measures = []
    for held, p in (("p fixed", before_p), ("p free", after_p)):
        after = _positive_gradients(factor * queries, passages, alpha, p)

        def power(rows: npt.NDArray[np.int64], after: Matrix = after) -> Matrix:
            found: Matrix = np.log(after[rows].mean(axis=-1) / before[rows].mean(axis=-1)) / math.log(factor)
            return found

        name = f"dnorm/power of the query's norm in the gradient, {held}, x {factor:g}"
        measures.append(Measure(name, float(power(everything)), quantiles(power(drawn)), len(queries)))
    return measures


def _positive_gradients(queries: Matrix, passages: Matrix, alpha: float, p: Matrix) -> Matrix:
    """[n] length of each query's gradient in its positive's unit vector, by torch through the function that scores.

    A logit's gradient is p − 1, which is put in, so that p can be another softmax's.
    """
    import torch

    norms = np.linalg.norm(queries, axis=1)
    units = torch.from_numpy(passages / np.linalg.norm(passages, axis=1)[:, None]).requires_grad_()
    cosines = (torch.from_numpy(queries / norms[:, None]) * units).sum(dim=1)
    found = score_parts(cosines, torch.from_numpy(norms), torch.ones(len(norms)), DNORM.gamma_q, DNORM.gamma_d)
    (gradient,) = torch.autograd.grad(alpha * found, units, torch.from_numpy(p - 1))
    lengths: Matrix = gradient.norm(dim=1).numpy()
    return lengths


def _spread(name: str, norms: Matrix) -> Measure:
    low, high = _resampled(norms)
    return Measure(name, variation(norms), (low, high), len(norms))


def _resampled(norms: Matrix, others: Matrix | None = None) -> tuple[float, float]:
    """Bootstrap interval of a variation, or of its ratio to the one of other norms of the same queries."""
    drawn = draws(len(norms))
    found = norms[drawn].std(axis=1) / norms[drawn].mean(axis=1)
    if others is not None:
        found = found * others[drawn].mean(axis=1) / others[drawn].std(axis=1)
    return quantiles(found)


def _trained_spread(settings: ReproduceConfig, queries: Sequence[str], log: Log) -> list[Measure]:
    """Query norms of two trainings alike but for the similarity, which is what the paper calls ∆CV."""
    config, norms = settings.train_config(), {}
    for name in ("dot", "dnorm"):
        table = config.encoder.model_copy(update={"adapter": getattr(settings.gradients, name)})
        encoder = load_encoder(table, config.data_dir, log)
        norms[name] = encoder.encode_queries(queries).norms.astype(np.float64)
    measures = [_spread(f"trained by {name}/variation of query norms", own) for name, own in norms.items()]
    ratio = variation(norms["dnorm"]) / variation(norms["dot"])
    interval = _resampled(norms["dnorm"], norms["dot"])
    return [*measures, Measure("trained/variation of query norms, dnorm over dot", ratio, interval, len(queries))]
