"""Which side to normalise before an encoder is fine-tuned, by how well the first steps are conditioned [ours].

Feng & Watanabe (arXiv 2602.09229) say that the condition number of the Fisher information matrix predicts it; their
definition is not public. This one is this project's own, and its verdict is no more than that.

Encoder and vectors stand still; queries and passages go through one shared linear head W, which is the identity. For query
i with scores z_j = α s(W q, W d_j) over its candidates, p = softmax(z), y its positive and e = p − y, the gradient of the
InfoNCE loss in W is the matrix

    G_i = Σ_j e_j A_j qᵀ + Σ_j e_j C_j d_jᵀ,
    A_j = α (I − γq q̂q̂ᵀ) d_j / (‖q‖^γq ‖d_j‖^γd),    C_j = α (I − γd d̂_jd̂_jᵀ) q / (‖q‖^γq ‖d_j‖^γd)

and the empirical Fisher matrix is the mean of vec(G_i) vec(G_i)ᵀ. Its eigenvalues other than 0 are those of the queries' Gram
matrix ⟨G_i, G_k⟩ / n, which is made of inner products alone, so nothing of size dim² is ever formed. α is matched to the
entropy of cosine at 20, so that no variant is judged by the size of its scores: κ does not change when all vectors are
multiplied by a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from retriever.diagnostics import LEVEL
from retriever.encoder import Vectors
from retriever.errors import RetrieverError
from retriever.similarity import DNORM, QNORM, Similarity, score_parts

TRACE_SHARE = 0.95
"""κ compares the largest eigenvalue with the last one that is needed for this share of the trace."""

DAMPING = 1e-3
"""Times the mean eigenvalue; added to both, so that a tail of rounding noise does not decide."""

RESAMPLES = 200
"""Of the bootstrap over queries."""

LEAST = 100
"""With fewer queries the diagnostic abstains: a resample then holds some sixty different ones, and sees few directions."""

ENOUGH = 2048
"""Queries from which on κ is taken to be that of the data; more are not used."""

_ROWS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Queries, each with a positive and m − 1 negatives.

    Attributes:
        queries: Units [n, dim] and norms [n].
        units: [n, m, dim] of their candidates, the positive first.
        norms: [n, m] of the same.
    """

    queries: Vectors
    units: np.ndarray
    norms: np.ndarray

    def cosines(self) -> np.ndarray:
        """[n, m] float64."""
        return np.einsum("nd,nmd->nm", self.queries.units, self.units, dtype=np.float64)

    def scores(self, similarity: Similarity) -> np.ndarray:
        """[n, m] float64."""
        norms = self.queries.norms.astype(np.float64)[:, None], self.norms.astype(np.float64)
        return score_parts(self.cosines(), *norms, similarity.gamma_q, similarity.gamma_d)

    def matched_scale(self, similarity: Similarity) -> float:
        """α at which the softmax over candidates has the entropy of cosine at 20.

        Raises:
            RetrieverError: There is none, as where all scores of a query are equal.
        """
        import torch

        from retriever.training.loss import scale_of_entropy

        cosines, scores = (torch.from_numpy(values) for values in (self.cosines(), self.scores(similarity)))
        return scale_of_entropy(cosines, scores, similarity.name)


@dataclass(frozen=True, slots=True, eq=False)
class Grams:
    """Inner products [n, n] of the queries' gradients: of the shared head, and of a head on one side alone."""

    both: np.ndarray
    queries: np.ndarray
    passages: np.ndarray


def gradient_grams(candidates: Candidates, similarity: Similarity, scale: float) -> Grams:
    """⟨G_i, G_k⟩ of all queries, in blocks of rows.

    With r_j = α e_j / (‖q‖^γq ‖d_j‖^γd), u = Σ_j r_j d_j, a = u − γq (q̂·u) q̂ and w_j = −γd r_j ‖d_j‖ (q·d̂_j) the two sums
    of G are a qᵀ and q uᵀ + Σ_j w_j d̂_jd̂_jᵀ.

    Args:
        candidates: n queries with m candidates each.
        similarity: Its γ are taken as they stand.
        scale: α.
    """
    units = candidates.units.astype(np.float64)
    n, m, dim = units.shape
    directions = candidates.queries.units.astype(np.float64)
    query_norms, norms = candidates.queries.norms.astype(np.float64), candidates.norms.astype(np.float64)
    cosines = candidates.cosines()
    logits = scale * candidates.scores(similarity)
    logits -= logits.max(axis=1, keepdims=True)
    errors = np.exp(logits)
    errors /= errors.sum(axis=1, keepdims=True)
    errors[:, 0] -= 1.0
    weights = scale * errors * query_norms[:, None] ** -similarity.gamma_q * norms**-similarity.gamma_d
    sums = np.einsum("nm,nmd->nd", weights * norms, units)
    along = (directions * sums).sum(axis=1, keepdims=True)
    heads = sums - similarity.gamma_q * along * directions
    queries = directions * query_norms[:, None]
    bent = -similarity.gamma_d * weights * norms * cosines * query_norms[:, None]  # w, 0 where γd is
    flat = units.reshape(n * m, dim)
    made = [np.empty((n, n)) for _ in range(3)]
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        a, q, u = heads[rows], queries[rows], sums[rows]
        alike = q @ queries.T
        own = (a @ heads.T) * alike
        other = alike * (u @ sums.T)
        # ⟨a qᵀ, q' u'ᵀ⟩ and, with the two exchanged, ⟨q uᵀ, a' q'ᵀ⟩.
        mixed = (a @ queries.T) * (q @ sums.T) + (q @ heads.T) * (u @ queries.T)
        if similarity.gamma_d:
            aq, uq = ((vectors @ flat.T) * (q @ flat.T) * bent.reshape(1, -1) for vectors in (a, u))
            mixed += aq.reshape(-1, n, m).sum(axis=2)
            other += uq.reshape(-1, n, m).sum(axis=2)
            block = flat[start * m : (start + len(q)) * m]
            towards = block @ queries.T  # [rows · m, n]
            bends = bent[rows].reshape(-1, 1)
            mixed += (bends * towards * (block @ heads.T)).reshape(-1, m, n).sum(axis=1)
            other += (bends * towards * (block @ sums.T)).reshape(-1, m, n).sum(axis=1)
            squares = bends * (block @ flat.T) ** 2 * bent.reshape(1, -1)
            other += squares.reshape(len(q), m, n, m).sum(axis=(1, 3))
        for place, part in zip(made, (own + mixed + other, own, other), strict=True):
            place[rows] = part
    return Grams(*made)


def condition_number(gram: np.ndarray, *, queries: int | None = None) -> float:
    """κ = (λ1 + δ) / (λk + δ), k the first eigenvalues that make `TRACE_SHARE` of the trace, δ = `DAMPING` · trace / n.

    Args:
        gram: [n, n], symmetric.
        queries: n, where it is more than the matrix has rows (as in a resample, whose copies are one row).

    Returns:
        NaN where the trace is 0.
    """
    values = np.linalg.eigvalsh(gram)[::-1].clip(0.0)
    trace = float(values.sum())
    if not trace > 0:
        return math.nan
    last = min(int(np.searchsorted(np.cumsum(values), TRACE_SHARE * trace)), len(values) - 1)
    damping = DAMPING * trace / (queries or len(gram))
    return float((values[0] + damping) / (values[last] + damping))


@dataclass(frozen=True, slots=True)
class Conditioning:
    """Of one variant.

    Attributes:
        scale: α, matched.
        kappa: Of the shared head.
        queries: Of a head on the queries' side alone.
        passages: Of one on the passages' side.
    """

    scale: float
    kappa: float
    queries: float
    passages: float


@dataclass(frozen=True, slots=True)
class FisherDiagnostic:
    """Which side to normalise, by this project's own definition.

    Attributes:
        n: Queries.
        candidates: Passages of each, its positive among them.
        qnorm: None where it could not be computed.
        dnorm: The same.
        difference: log κ(qnorm) − log κ(dnorm), natural; NaN without the two.
        interval: Percentile bootstrap over queries; None with fewer than `LEAST` of them.
        verdict: "qnorm" or "dnorm", the one with the smaller κ; "" where it abstains.
        reason: Why, in a sentence without its full stop.
    """

    n: int
    candidates: int
    qnorm: Conditioning | None
    dnorm: Conditioning | None
    difference: float
    interval: tuple[float, float] | None
    verdict: str
    reason: str


def unknown_fisher(n: int, reason: str) -> FisherDiagnostic:
    """Where nothing can be computed."""
    return FisherDiagnostic(n, 0, None, None, math.nan, None, "", reason)


def fisher_diagnostic(
    candidates: Candidates,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    progress: Callable[[int, int], None] | None = None,
) -> FisherDiagnostic:
    """Compare qnorm and dnorm, and abstain where the difference could be chance.

    Args:
        candidates: Two queries or more, with two candidates or more.
        seed: Of the bootstrap.
        resamples: How many times the queries are drawn with replacement; both variants see the same draws.
        progress: Told of (resamples done, of how many).
    """
    n, m = candidates.norms.shape
    if n < 2 or m < 2:
        return unknown_fisher(n, "it needs two questions with a relevant passage and another one in the index")
    try:
        scales = [candidates.matched_scale(similarity) for similarity in (QNORM, DNORM)]
    except RetrieverError as error:
        return unknown_fisher(n, str(error))
    grams = [
        gradient_grams(candidates, similarity, scale) for similarity, scale in zip((QNORM, DNORM), scales, strict=True)
    ]
    qnorm, dnorm = (
        Conditioning(scale, *(condition_number(gram) for gram in (own.both, own.queries, own.passages)))
        for scale, own in zip(scales, grams, strict=True)
    )
    difference = math.log(qnorm.kappa) - math.log(dnorm.kappa)
    interval = None
    if n >= LEAST and math.isfinite(difference):
        first, second = (gram.both for gram in grams)
        interval = _bootstrap(first, second, np.random.default_rng(seed), resamples, progress)
    verdict, reason = _weighed(n, difference, interval)
    return FisherDiagnostic(n, m, qnorm, dnorm, difference, interval, verdict, reason)


def _bootstrap(
    first: np.ndarray,
    second: np.ndarray,
    rng: np.random.Generator,
    resamples: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[float, float]:
    n = len(first)
    differences = []
    for done in range(resamples):
        rows, times = np.unique(rng.integers(0, n, n), return_counts=True)
        # c copies of a query have the eigenvalues of one whose gradient is sqrt(c) times as long.
        roots = np.sqrt(times.astype(np.float64))
        logs = [
            math.log(condition_number(gram[np.ix_(rows, rows)] * np.outer(roots, roots), queries=n))
            for gram in (first, second)
        ]
        differences.append(logs[0] - logs[1])
        if progress is not None:
            progress(done + 1, resamples)
    low, high = np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _weighed(n: int, difference: float, interval: tuple[float, float] | None) -> tuple[str, str]:
    """Verdict and reason."""
    if not math.isfinite(difference):
        return "", "no gradient is left: every question scores its positive with certainty"
    if interval is None:
        return "", f"{n} questions with a relevant passage are too few (it takes {LEAST})"
    if interval[0] <= 0 <= interval[1]:
        return "", "the interval of the difference holds 0"
    verdict = "qnorm" if interval[1] < 0 else "dnorm"
    few = "" if n >= ENOUGH else f"; {n:,} questions show a part of the matrix only ({ENOUGH:,} would be enough)"
    return verdict, f"its first steps are the better conditioned ones{few}"
