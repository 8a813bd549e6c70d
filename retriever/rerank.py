"""Re-ranking: a cross-encoder reads question and passage together and orders the candidates of another retriever."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.base import Hit, IndexedRetriever, Retrieved
from retriever.errors import RetrieverError
from retriever.fusion import add_seconds
from retriever.loading import torch_device
from retriever.search.base import clip_k

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

READS_PAIRS = ("ForSequenceClassification", "ForCausalLM")
"""Endings of the architectures that score a pair; on top of any other a head of random weights would be put."""


class Reranker:
    """A loaded cross-encoder; make one with `load_reranker`. Safe to share between threads.

    Args:
        name: What people call the model.
        model: sentence-transformers' cross-encoder.
        weights_hash: Binds results to these very weights.
        max_tokens: Question and passage together are cut there.
    """

    def __init__(self, name: str, model: CrossEncoder, weights_hash: str, max_tokens: int) -> None:
        self.name = name
        self.model = model
        self.fingerprint = f"{weights_hash}@{max_tokens}"
        self._lock = threading.Lock()

    def score(self, question: str, passages: Sequence[str], batch_size: int) -> np.ndarray:
        """Scores [len(passages)] float32, as `CrossEncoder.predict` gives them.

        Raises:
            RetrieverError: A score is not a number, or memory ran out.
        """
        import torch

        if not passages:
            return np.zeros(0, dtype=np.float32)
        pairs = [(question, passage) for passage in passages]
        try:
            with self._lock:
                scores = np.asarray(self.model.predict(pairs, batch_size=batch_size, show_progress_bar=False))
        except torch.OutOfMemoryError as error:
            raise RetrieverError(
                f"not enough memory to read {batch_size} pairs at once with {self.name}; lower the retriever's batch_size"
            ) from error
        if not np.isfinite(scores).all():
            raise RetrieverError(
                f"{self.name} gave NaN or infinity for question {question[:60]!r}; check the model's weights"
            )
        return scores


class RerankRetriever:
    """Orders the first candidates of another retriever by a cross-encoder's scores; equal scores keep their former order.

    Hits keep the cosines and norms of that retriever; its index is this one's. Each question is read by itself, so that a
    score does not depend on what else is asked.

    Args:
        name: What people call this retriever.
        base: Whose candidates are ordered.
        reranker: Reads them.
        depth: Candidates a question; more where more hits are wanted.
        batch_size: Pairs in one forward pass.

    Raises:
        RetrieverError: A number out of range.
    """

    def __init__(
        self, name: str, base: IndexedRetriever, reranker: Reranker, *, depth: int = 100, batch_size: int = 32
    ) -> None:
        for setting, value in (("depth", depth), ("batch_size", batch_size)):
            if value < 1:
                raise RetrieverError(f"{setting} must be at least 1, got {value}")
        self.name = name
        self.parts = (base,)
        self.index = base.index
        self._reranker = reranker
        self._depth = depth
        self._batch_size = batch_size

    @property
    def fingerprint(self) -> str:
        """Of the base, the cross-encoder and the depth; batch sizes change nothing but the last digits."""
        content = ["rerank", self.parts[0].fingerprint, self._reranker.fingerprint, self._depth]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    @property
    def notes(self) -> list[str]:
        """The base's notes."""
        return self.parts[0].notes

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        """See `Retriever.retrieve`; fewer than k hits where the base found fewer."""
        k = clip_k(k, len(self.index))
        found = self.parts[0].retrieve(questions, max(k, self._depth))
        started = time.perf_counter()
        hits = [self._order(question, hits)[:k] for question, hits in zip(questions, found.hits, strict=True)]
        return Retrieved(hits, add_seconds([found.seconds], rerank=time.perf_counter() - started))

    def _order(self, question: str, hits: Sequence[Hit]) -> list[Hit]:
        texts = [f"{hit.passage.title} {hit.passage.text}".strip() for hit in hits]
        scores = self._reranker.score(question, texts, self._batch_size)
        order = np.argsort(-scores, kind="stable")
        return [
            replace(hits[place], rank=rank, score=float(scores[place])) for rank, place in enumerate(order.tolist(), 1)
        ]


def load_reranker(
    folder: Path, *, name: str, weights_hash: str, max_tokens: int = 512, device: str = "auto"
) -> Reranker:
    """Load a model folder as a cross-encoder, in float32, from safetensors and without code of its own.

    Args:
        folder: Local folder with weights in safetensors and a tokenizer.
        name: What people call the model.
        weights_hash: Hash of the weight files.
        max_tokens: Question and passage together are cut there, special tokens included.
        device: "auto" (a GPU where there is one), "cpu", "cuda", "cuda:1", "mps".

    Raises:
        RetrieverError: The folder is no cross-encoder, gives more than one score a pair, or takes fewer tokens.
    """
    from sentence_transformers import CrossEncoder

    config = _read_config(folder, name)
    architectures = config.get("architectures") or [config.get("model_type", "unknown")]
    if not architectures[0].endswith(READS_PAIRS):
        raise RetrieverError(
            f"{name} is no cross-encoder but a {architectures[0]}: it has no weights that score a pair; "
            "take a re-ranking model, such as cross-encoder/ms-marco-MiniLM-L6-v2"
        )
    positions = config.get("max_position_embeddings")
    if positions is not None and max_tokens > positions:
        raise RetrieverError(f"{name} takes at most {positions} tokens, but max_tokens is {max_tokens}; lower it")
    try:
        model = CrossEncoder(
            str(folder),
            device=str(torch_device(device)),
            max_length=max_tokens,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"use_safetensors": True, "dtype": "float32"},
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RetrieverError(f"cannot load a cross-encoder from {folder}: {reason}") from error
    if model.num_labels != 1:
        raise RetrieverError(
            f"{name} gives {model.num_labels} scores a pair, and a ranking takes one; take a re-ranking model, "
            "such as cross-encoder/ms-marco-MiniLM-L6-v2"
        )
    model.eval()
    return Reranker(name, model, weights_hash, max_tokens)


def _read_config(folder: Path, name: str) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RetrieverError(f"{name} is no cross-encoder: cannot read {folder / 'config.json'}: {error}") from error
    if not isinstance(config, dict):
        raise RetrieverError(f"{name} is no cross-encoder: {folder / 'config.json'} holds no table")
    return config
