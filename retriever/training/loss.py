"""The contrastive loss, over whichever similarity a search will use.

InfoNCE (van den Oord et al., arXiv 1807.03748) with logits scale · s(q, d), s being `retriever.similarity.score`, so that
what is trained is what is searched. The paper (Feng & Watanabe, arXiv 2602.09229) calls the scale alpha and takes 20 whatever
the similarity; `matched_scale` and `anchor_loss` are this project's own and not the paper's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from retriever.errors import RetrieverError
from retriever.similarity import COSINE, Similarity, score

PAPER_SCALE = 20.0
"""The paper's, for all similarities."""

SCALE_RANGE = (1e-9, 1e9)
"""Where `matched_scale` looks. Under dot, vectors of length 1e4 need about 1e-7, vectors of length 1e-3 about 1e7."""

HALVINGS = 60
"""Halvings of the logarithm of that range: more than a float64 can tell apart."""


class ContrastiveLoss(nn.Module):
    """InfoNCE over the similarity family, with in-batch and given negatives.

    The fixed similarities hold no parameters. "learnable" holds two, γ̂q and γ̂d (`gamma_hat_q`, `gamma_hat_d`, scalars),
    and scores with γ = sigmoid(γ̂); they start where the similarity's γ are (γ̂ = 0 for ½). They are all that `parameters()`
    gives, so that an optimiser can keep them in a group of its own. A γ that starts at exactly 0 or 1 is an infinite γ̂,
    whose gradient is 0: it stays.

    Args:
        similarity: What is trained, and what a search should use afterwards.
        scale: What scores are multiplied by, 1 / temperature.

    Raises:
        RetrieverError: The scale is not a positive number.

    Example:
        >>> from retriever.similarity import QNORM
        >>> queries, passages = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 2.0], [-6.0, 8.0], [0.0, 0.5]])
        >>> round(ContrastiveLoss(QNORM, scale=1.0)(queries, passages, torch.tensor([0])).item(), 4)
        1.0944
    """

    gamma_hat_q: nn.Parameter | None
    gamma_hat_d: nn.Parameter | None

    def __init__(self, similarity: Similarity, scale: float = PAPER_SCALE) -> None:
        super().__init__()
        self._start = similarity
        self.scale = scale
        for side in ("q", "d"):
            gamma = getattr(similarity, f"gamma_{side}")
            learns = similarity.name == "learnable"
            self.register_parameter(f"gamma_hat_{side}", nn.Parameter(torch.tensor(gamma).logit()) if learns else None)

    @property
    def scale(self) -> float:
        """What scores are multiplied by; may be set, for example to what `matched_scale` finds."""
        return self._scale

    @scale.setter
    def scale(self, scale: float) -> None:
        if not (scale > 0 and math.isfinite(scale)):
            raise RetrieverError(f"scale must be a positive number, got {scale}")
        self._scale = float(scale)

    @property
    def current(self) -> Similarity:
        """The similarity with the γ of now, to search with."""
        gammas = self._gammas()
        if gammas is None:
            return self._start
        return Similarity(self._start.name, gammas[0].item(), gammas[1].item())

    def forward(self, queries: Tensor, passages: Tensor, targets: Tensor, excluded: Tensor | None = None) -> Tensor:
        """Mean over queries of −log softmax(scale · s)[positive].

        Args:
            queries: Raw query vectors [n, dim], any float type, not normalised.
            passages: Raw vectors [m, dim] of all positives and negatives, in any order.
            targets: [n] long, the row of `passages` that is each query's positive.
            excluded: [n, m] bool; True leaves the passage out of that query's softmax.

        Returns:
            Scalar, float32.

        Raises:
            RetrieverError: A query's own positive is excluded, which would make the loss infinite.
        """
        if excluded is not None:
            lost = excluded.gather(1, targets.unsqueeze(1)).squeeze(1)
            if lost.any():
                raise RetrieverError(
                    f"the positive of query {int(lost.nonzero()[0])} of the batch is excluded from its own softmax; "
                    "leave the target's column False"
                )
        return functional.cross_entropy(self.logits(queries, passages, excluded), targets)

    def logits(self, queries: Tensor, passages: Tensor, excluded: Tensor | None = None) -> Tensor:
        """Scale times score, [n, m] float32, −inf where excluded; arguments as of `forward`."""
        # Under autocast the product would be rounded to bfloat16: three digits, and the scale multiplies the error.
        with torch.autocast(queries.device.type, enabled=False):
            logits = self._scale * score(queries, passages, self._start, gammas=self._gammas())
        return logits if excluded is None else logits.masked_fill(excluded, -math.inf)

    @torch.no_grad()
    def entropy(self, queries: Tensor, passages: Tensor, excluded: Tensor | None = None) -> float:
        """Mean over queries of the softmax's entropy in nats: ln m when it tells nothing apart, 0 when saturated."""
        return _mean_entropy(self.logits(queries, passages, excluded))

    def _gammas(self) -> tuple[Tensor, Tensor] | None:
        if self.gamma_hat_q is None or self.gamma_hat_d is None:
            return None
        return self.gamma_hat_q.sigmoid(), self.gamma_hat_d.sigmoid()


@torch.no_grad()
def matched_scale(
    queries: Tensor,
    passages: Tensor,
    similarity: Similarity,
    excluded: Tensor | None = None,
    *,
    reference: float = PAPER_SCALE,
) -> float:
    """The scale at which this similarity's softmax is as sharp as cosine's [ours, not the paper's].

    Where vectors are long, 20 times a dot product saturates the softmax: nothing is learned but the hardest negative. The
    mean entropy H falls as the scale a grows (dH/da = −a · Var(s)), so bisection finds where it equals that of cosine at
    `reference`.

    Args:
        queries: Raw vectors [n, dim] of one held-out batch.
        passages: Raw vectors [m, dim].
        similarity: What is to be trained.
        excluded: [n, m] bool, as in `ContrastiveLoss.forward`.
        reference: The scale of the cosine.

    Raises:
        RetrieverError: No scale reaches that entropy, as with a single passage or when all scores of a query are equal.
    """
    # float64 on the CPU: near saturation entropies differ in digits that float32 drops, and not every device has float64.
    cosines, scores = (
        ContrastiveLoss(one, 1.0).logits(queries, passages, excluded).cpu().double() for one in (COSINE, similarity)
    )
    return scale_of_entropy(cosines, scores, similarity.name, reference=reference)


@torch.no_grad()
def scale_of_entropy(cosines: Tensor, scores: Tensor, name: str, *, reference: float = PAPER_SCALE) -> float:
    """`matched_scale` of scores that are there already.

    Args:
        cosines: [n, m] float64, one row a query; −inf leaves a passage out.
        scores: [n, m] float64 of the same.
        name: What made the scores, for the message.
        reference: The scale of the cosine.

    Raises:
        RetrieverError: As `matched_scale`.
    """
    wanted = _mean_entropy(cosines * reference)
    low, high = (math.log(end) for end in SCALE_RANGE)
    flattest, sharpest = (_mean_entropy(scores * end) for end in SCALE_RANGE)
    if not sharpest < wanted < flattest:
        raise RetrieverError(
            f"no scale gives {name} the entropy of cosine at {reference:g}: wanted {wanted:.6g} nats, can be "
            f"{sharpest:.6g} to {flattest:.6g}; use a batch whose queries have several different passages, or scale fixed"
        )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _mean_entropy(scores * math.exp(middle)) > wanted:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def anchor_loss(
    queries: Tensor,
    passages: Tensor,
    teacher_queries: Tensor,
    teacher_passages: Tensor,
    loss: ContrastiveLoss,
    excluded: Tensor | None = None,
) -> Tensor:
    """How far the encoder has left what it ranked before training [ours, not the paper's].

    Mean over queries of KL(softmax(20 · cos of the teacher) ‖ softmax(scale · s of the student)). Added to the contrastive loss it
    keeps directions that a small training set knows nothing of. 0 when both softmaxes agree.

    Args:
        queries: Raw vectors [n, dim] of the encoder in training.
        passages: Raw vectors [m, dim] of the same.
        teacher_queries: Raw vectors [n, any dim] of the untrained encoder; no gradient flows into them.
        teacher_passages: Raw vectors [m, any dim] of the same.
        loss: Gives the student's similarity and scale.
        excluded: [n, m] bool; True leaves the passage out of both softmaxes.

    Returns:
        Scalar, float32, in nats.
    """
    with torch.no_grad():
        teacher = ContrastiveLoss(COSINE).logits(teacher_queries, teacher_passages, excluded).log_softmax(dim=1)
    student = loss.logits(queries, passages, excluded).log_softmax(dim=1)
    gap = teacher - student
    if excluded is not None:
        gap = gap.masked_fill(excluded, 0.0)  # −inf less −inf there
    return (teacher.exp() * gap).sum(dim=1).mean()


def _mean_entropy(logits: Tensor) -> float:
    return torch.special.entr(logits.softmax(dim=1)).sum(dim=1).mean().item()
