"""What two towers retrieve, both ways, and what the lengths of their embeddings follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eval.data import shapes
from rag_app.clip.data import Pictures
from retriever.diagnostics import Effect, cohens_d, correlation_interval, effect_interval, length_correlation, variation
from retriever.similarity import NORM_FLOOR, score_parts, similarity_from_name

T2I, I2T = "text_to_image", "image_to_text"
RANKINGS = ("cosine", "dot")
"""For one query a ranking depends on the candidates' exponent alone: these two are all that the four similarities make."""


def kept_sides(direction: str, similarity: str) -> dict[str, bool]:
    """Whether a training's scores keep the magnitude of "text" and of "image"; with both directions the text is the query."""
    own = similarity_from_name(similarity)
    query, candidate = own.gamma_q < 1, own.gamma_d < 1
    return {"text": candidate, "image": query} if direction == I2T else {"text": query, "image": candidate}


def own_ranking(direction: str, similarity: str, asked: str) -> str:
    """How a training's own scores rank when `asked` is the direction of retrieval: dot where they keep the candidates' length."""
    return "dot" if kept_sides(direction, similarity)["image" if asked == T2I else "text"] else "cosine"


def captions_of(part: Pictures) -> tuple[list[str], np.ndarray]:
    """The part's captions, each once, and [captions, pictures] bool: which picture has which."""
    captions = list(dict.fromkeys(pair.caption for pair in part.pairs))
    place = {caption: at for at, caption in enumerate(captions)}
    paired = np.zeros((len(captions), part.n), dtype=bool)
    for pair in part.pairs:
        paired[place[pair.caption], pair.picture] = True
    return captions, paired


def truth(part: Pictures, captions: Sequence[str]) -> np.ndarray | None:
    """[captions, pictures] bool: of which pictures a caption is true. A data set of pairs does not tell: None."""
    if not part.scenes:
        return None
    return np.array([[shapes.true_of(caption, scene) for scene in part.scenes] for caption in captions])


def measure(
    texts: np.ndarray,
    images: np.ndarray,
    captions: Sequence[str],
    paired: np.ndarray,
    true: np.ndarray | None,
    scenes: Sequence[shapes.Scene] = (),
) -> dict[str, Any]:
    """Hits at rank 1 both ways, and figures of the norms.

    A picture counts as found where it has the caption, a caption where the picture has it; equal captions are one.

    Cohen's d asks whether norms follow relevance. The paper's text corpora have passages that no query is after; here each
    picture has captions, so what can differ is of how many queries an item is the truth: those above the median against
    the others [ours; the paper does not say how it parts COCO].

    Args:
        texts: [captions, dim] as they come.
        images: [pictures, dim] as they come.
        captions: Each once.
        paired: [captions, pictures] bool.
        true: See `truth`; without it there is no d.
        scenes: What is on each picture, where known.
    """
    text_norms, image_norms = (np.linalg.norm(side, axis=1).clip(NORM_FLOOR) for side in (texts, images))
    cosines = (texts / text_norms[:, None]) @ (images / image_norms[:, None]).T
    hits: dict[str, dict[str, list[int]]] = {T2I: {}, I2T: {}}
    for name in RANKINGS:
        own = similarity_from_name(name)
        scores = score_parts(cosines, text_norms[:, None], image_norms[None, :], own.gamma_q, own.gamma_d)
        best_image, best_text = scores.argmax(axis=1), scores.argmax(axis=0)
        hits[T2I][name] = paired[np.arange(len(texts)), best_image].astype(int).tolist()
        hits[I2T][name] = paired[best_text, np.arange(len(images))].astype(int).tolist()
    words = [len(caption.split()) for caption in captions]
    return {
        "hits": hits,
        "norms": {
            "text": _norms(text_norms, None if true is None else true.sum(axis=1), words),
            "image": _norms(image_norms, None if true is None else true.sum(axis=0), [len(scene) for scene in scenes]),
        },
    }


def _norms(norms: np.ndarray, relevant_to: np.ndarray | None, sizes: Sequence[int]) -> dict[str, Any]:
    """Figures of one side; sizes are a caption's words or a picture's shapes, [] where nobody knows."""
    if relevant_to is None:
        effect = Effect(math.nan, 0, 0, "pairs alone do not say what else a caption is true of")
    else:
        often = relevant_to > np.median(relevant_to)
        effect = cohens_d(norms[often], norms[~often])
    r = length_correlation(norms, sizes) if len(sizes) else math.nan
    return {
        "n": len(norms),
        "mean": float(norms.mean()),
        "cv": variation(norms),
        "d": _number(effect.value),
        "d_interval": effect_interval(effect),
        "d_undefined": effect.reason,
        "size": _number(r),
        "size_interval": correlation_interval(r, len(norms)),
    }


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None
