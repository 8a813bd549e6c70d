"""The similarity family: which magnitudes a score keeps.

For a query vector q and a passage vector d, with γq and γd in [0, 1] (Feng & Watanabe, arXiv 2602.09229, equation 7):

    s(q, d) = q·d / (‖q‖^γq · ‖d‖^γd) = ‖q‖^(1−γq) · ‖d‖^(1−γd) · cos(q, d)

Whatever scores does so through `score_parts`: there is no second formula. The factored form
is this project's own choice, since it serves every γd from one index of unit vectors and norms (docs/similarity.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from retriever.errors import RetrieverError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

NORM_FLOOR = 1e-12
"""Norms are never taken smaller than this, so that a zero vector scores 0 and never NaN."""


@dataclass(frozen=True, slots=True)
class Similarity:
    """One point (γq, γd) of the family; γ = 1 drops a magnitude, γ = 0 keeps it whole.

    Args:
        name: One of `NAMES`.
        gamma_q: Exponent of the query norm that is divided away, in [0, 1].
        gamma_d: The same for the passage norm.

    Raises:
        RetrieverError: γ outside [0, 1].
    """

    name: str
    gamma_q: float
    gamma_d: float

    def __post_init__(self) -> None:
        for side, gamma in (("gamma_q", self.gamma_q), ("gamma_d", self.gamma_d)):
            if not 0.0 <= gamma <= 1.0:
                raise RetrieverError(f"{side} must be between 0 and 1, got {gamma}")

    def __str__(self) -> str:
        """As people name it: learnable with its γ."""
        return f"learnable ({self.gamma_q:.2f}, {self.gamma_d:.2f})" if self.name == "learnable" else self.name

    @property
    def keeps_magnitude(self) -> bool:
        """Whether any norm changes the score."""
        return self.gamma_q < 1.0 or self.gamma_d < 1.0

    @property
    def is_symmetric(self) -> bool:
        """Whether s(a, b) = s(b, a) for all vectors: both sides are treated alike."""
        return self.gamma_q == self.gamma_d

    def describe(self) -> dict[str, Any]:
        """What a manifest stores of it."""
        return {"name": self.name, "gamma_q": self.gamma_q, "gamma_d": self.gamma_d}


COSINE = Similarity("cosine", 1.0, 1.0)
DOT = Similarity("dot", 0.0, 0.0)
QNORM = Similarity("qnorm", 1.0, 0.0)
DNORM = Similarity("dnorm", 0.0, 1.0)
_FIXED = {similarity.name: similarity for similarity in (COSINE, DOT, QNORM, DNORM)}
NAMES = (*_FIXED, "learnable")


def similarity_from_name(name: str, gamma_q: float | None = None, gamma_d: float | None = None) -> Similarity:
    """The similarity a configuration or a checkpoint names.

    Args:
        name: "cosine", "dot", "qnorm", "dnorm" (constants of their own) or "learnable".
        gamma_q: Only with "learnable": its value in [0, 1]; ½, where training starts, when not given.
        gamma_d: The same for the passage side.

    Raises:
        RetrieverError: Unknown name, γ given to a fixed similarity, or γ outside [0, 1].
    """
    if name in _FIXED:
        if gamma_q is not None or gamma_d is not None:
            raise RetrieverError(
                f"similarity {name} has fixed gammas; gamma_q and gamma_d go with similarity learnable"
            )
        return _FIXED[name]
    if name != "learnable":
        raise RetrieverError(f"unknown similarity {name!r}; use one of {', '.join(NAMES)}")
    return Similarity(name, 0.5 if gamma_q is None else gamma_q, 0.5 if gamma_d is None else gamma_d)


@overload
def score_parts(cosine: Tensor, query_norm: Tensor, passage_norm: Tensor, gamma_q: Any, gamma_d: Any) -> Tensor: ...
@overload
def score_parts(
    cosine: np.ndarray, query_norm: np.ndarray, passage_norm: np.ndarray, gamma_q: Any, gamma_d: Any
) -> np.ndarray: ...
def score_parts(cosine: Any, query_norm: Any, passage_norm: Any, gamma_q: Any, gamma_d: Any) -> Any:
    """‖q‖^(1−γq) · ‖d‖^(1−γd) · cos, the one scoring function.

    Args:
        cosine: Cosines, torch or numpy, any shape, float32.
        query_norm: Norms of the queries, broadcastable against `cosine`.
        passage_norm: Norms of the passages, broadcastable against `cosine`.
        gamma_q: Float, or a scalar tensor that learns.
        gamma_d: The same.

    Returns:
        Scores of the broadcast shape. With γ exactly 1 the factor is 1, even for a norm of 0.
    """
    # A power of exactly 0 costs a pass over the matrix and changes nothing, so plain floats skip it.
    scores = cosine
    if not (isinstance(gamma_q, float | int) and gamma_q == 1):
        scores = scores * query_norm ** (1.0 - gamma_q)
    if not (isinstance(gamma_d, float | int) and gamma_d == 1):
        scores = scores * passage_norm ** (1.0 - gamma_d)
    return scores


def split(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Directions and lengths of raw vectors.

    Args:
        vectors: [n, dim], any float type.

    Returns:
        Unit vectors [n, dim] float32 (a zero vector stays zero) and norms [n] float32, floored at `NORM_FLOOR`.
    """
    vectors = vectors.float()
    norms = vectors.norm(dim=-1).clamp_min(NORM_FLOOR)
    return vectors / norms.unsqueeze(-1), norms


def score(
    queries: Tensor, passages: Tensor, similarity: Similarity, *, gammas: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Score every query against every passage.

    Args:
        queries: Raw query vectors [n, dim].
        passages: Raw passage vectors [m, dim].
        similarity: Which magnitudes count.
        gammas: (γq, γd) as tensors, in place of the similarity's own, where they learn.

    Returns:
        Scores [n, m] float32.
    """
    query_units, query_norms = split(queries)
    passage_units, passage_norms = split(passages)
    gamma_q, gamma_d = gammas if gammas is not None else (similarity.gamma_q, similarity.gamma_d)
    return score_parts(
        query_units @ passage_units.T, query_norms.unsqueeze(1), passage_norms.unsqueeze(0), gamma_q, gamma_d
    )


def pairwise_score(left: Tensor, right: Tensor, similarity: Similarity) -> Tensor:
    """Score row i of `left` [n, dim] against row i of `right` [n, dim]; returns [n] float32."""
    left_units, left_norms = split(left)
    right_units, right_norms = split(right)
    cosine = (left_units * right_units).sum(dim=-1)
    return score_parts(cosine, left_norms, right_norms, similarity.gamma_q, similarity.gamma_d)


def require_symmetric(similarity: Similarity, task: str, *, override: bool = False, way: str = "") -> None:
    """Refuse a one-sided similarity where s(a, b) must equal s(b, a).

    Args:
        similarity: What was asked for.
        task: Named in the message, for example "STS-B".
        override: Go on all the same, so that the loss can be measured.
        way: How whoever asked can set `override`, for the message.

    Raises:
        RetrieverError: The similarity keeps one magnitude and drops the other (the paper's task symmetry principle).
    """
    if not (override or similarity.is_symmetric):
        raise RetrieverError(
            f"{task} compares equals, so s(a, b) must equal s(b, a), but {similarity.name} normalises one side only; "
            "use cosine or dot" + (f" ({way} measures what is lost)" if way else "")
        )
