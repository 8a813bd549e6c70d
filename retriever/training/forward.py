"""Texts to vectors with gradients, through the encoder's own modules and padded as little as possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.training.settings import TrainingSettings

if TYPE_CHECKING:
    from torch import Tensor

    from retriever.encoder import Encoder


_LIKE = 0.8
"""Texts are padded to no more than 1 / 0.8 of their length, unless a forward pass would then have little to do."""
_LEAST = 1 / 8
"""What little is: this share of the padded tokens that a forward pass may have."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Tokenised texts of one side of a batch.

    Attributes:
        fields: The tokenizer's lists, by name, in the order given.
        lengths: [n] tokens of each, special tokens included.
        order: [n] rows from the longest to the shortest, as they are encoded.
        inverse: [n] puts encoded rows back into the order given.
    """

    fields: dict[str, list[list[int]]]
    lengths: np.ndarray
    order: np.ndarray
    inverse: np.ndarray


def check_lengths(encoder: Encoder, settings: TrainingSettings) -> None:
    """Refuse lengths that the model has no positions for, before anything is computed.

    Raises:
        RetrieverError: Names the length, in the training or for development scores.
    """
    limit = encoder.positions
    for where, lengths in (("training", settings), ("encoder", encoder.spec)):
        for side in ("query_max_tokens", "passage_max_tokens"):
            tokens = getattr(lengths, side)
            if limit is not None and tokens > limit:
                raise RetrieverError(
                    f"{where}.{side} is {tokens}, but {encoder.name} has positions for {limit} tokens; lower it"
                )


class Forward:
    """An encoder's training side: what `Encoder` computes, with gradients.

    Args:
        encoder: Its modules are used as they stand; adapters may have been put into them.
        tokens_per_batch: Padded tokens in one forward pass.
        precision: "bfloat16" runs the transformer under autocast; pooling is float32 in any case.
    """

    def __init__(self, encoder: Encoder, *, tokens_per_batch: int, precision: str) -> None:
        self.encoder = encoder
        self._tokens_per_batch = tokens_per_batch
        self._precision = precision

    def queries(self, queries: Sequence[str], max_tokens: int) -> Texts:
        """Tokenise queries, with the encoder's prefix."""
        return self._tokenise(self.encoder.query_texts(queries), max_tokens)

    def passages(self, passages: Sequence[Passage], max_tokens: int) -> Texts:
        """Tokenise passages, with prefix and title."""
        return self._tokenise(self.encoder.passage_texts(passages), max_tokens)

    def chunks(self, texts: Texts, size: int) -> list[Callable[[], Tensor]]:
        """Functions that each encode up to `size` texts (0: all of them), longest first; together in `texts.order`."""
        count = len(texts.order)
        size = size or count
        return [
            lambda rows=texts.order[start : start + size]: self._encode(texts, rows)  # type: ignore[misc]
            for start in range(0, count, size)
        ]

    def vectors(self, texts: Texts) -> Tensor:
        """All vectors [n, dim] float32 in the order given, without gradients."""
        import torch

        with torch.no_grad():
            return self._encode(texts, texts.order)[torch.from_numpy(texts.inverse)]

    def _tokenise(self, texts: list[str], max_tokens: int) -> Texts:
        tokenizer = self.encoder.tokenizer
        encoded = tokenizer(texts, truncation=True, max_length=max_tokens, padding=False)
        fields = {key: encoded[key] for key in tokenizer.model_input_names if key in encoded}
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        order = np.argsort(-lengths, kind="stable")
        return Texts(fields, lengths, order, np.argsort(order, kind="stable"))

    def _encode(self, texts: Texts, rows: np.ndarray) -> Tensor:
        import torch

        return torch.cat([self._forward(texts, part) for part in self._parts(texts, rows)])

    def _parts(self, texts: Texts, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Rows of like length that fit the budget together; the first of a part is its longest."""
        start = 0
        while start < len(rows):
            lengths = texts.lengths[rows[start:]]
            fitting = max(1, self._tokens_per_batch // int(lengths[0]))
            # Crops are of all lengths: padded to the longest alone, a third of what is computed would be padding.
            like = int(np.count_nonzero(lengths >= _LIKE * lengths[0]))
            worthwhile = math.ceil(_LEAST * self._tokens_per_batch / int(lengths[0]))
            size = min(fitting, max(like, worthwhile))
            yield rows[start : start + size]
            start += size

    def _forward(self, texts: Texts, rows: np.ndarray) -> Tensor:
        import torch

        fields = {key: [lists[row] for row in rows] for key, lists in texts.fields.items()}
        features: dict[str, Any] = dict(self.encoder.tokenizer.pad(fields, return_tensors="pt").to(self.encoder.device))
        cast = (
            torch.autocast(self.encoder.device.type, dtype=torch.bfloat16)
            if self._precision == "bfloat16"
            else nullcontext()
        )
        for position, module in enumerate(self.encoder.model):
            if position == 0:
                with cast:
                    features = module(features)
                # A mean over hundreds of bfloat16 values would lose most of their digits.
                features["token_embeddings"] = features["token_embeddings"].float()
            else:
                features = module(features)
        vectors: Tensor = features["sentence_embedding"].float()
        return vectors
