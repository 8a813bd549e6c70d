"""Text to vectors, with the length of every vector kept.

An encoder is a sentence-transformers model whose pooling, prefixes and lengths are stated here and not guessed, with any
final normalisation dropped. What can change a vector goes into `Encoder.fingerprint`, which an index is bound to.
"""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.similarity import NORM_FLOOR, Similarity
from retriever.turns import Turns

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

CPU_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory")
"""What torch says on Linux and on Windows when a CPU allocation fails; it has no error type for that."""

Progress = Callable[[int, int | None], None]
"""Called with (done, total); total is None while it is not known."""


NO_VECTOR_CHANGES = frozenset({"model", "trained_for"})
"""What an encoder's description says beside what changes a vector: the weights are known by their hash, not by name."""


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """How a model is to be used; everything here changes vectors, so everything here is in the fingerprint.

    Attributes:
        pooling: sentence-transformers' name: "mean", "cls" or "lasttoken".
        query_prefix: Put before each query.
        passage_prefix: Put before each passage (title and text).
        query_max_tokens: Longer queries are cut, special tokens included.
        passage_max_tokens: Longer passages are cut.
        precision: "float32" or "bfloat16" (the transformer's; pooling is always float32).
        trained_for: Similarity the weights were trained with, None where nobody says; another one is allowed and noted.
    """

    pooling: str = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    query_max_tokens: int = 512
    passage_max_tokens: int = 512
    precision: str = "float32"
    trained_for: str | None = None

    def __post_init__(self) -> None:
        if self.pooling not in ("mean", "cls", "lasttoken"):
            raise RetrieverError(f"pooling must be mean, cls or lasttoken, got {self.pooling!r}")
        if self.precision not in ("float32", "bfloat16"):
            raise RetrieverError(f"precision must be float32 or bfloat16, got {self.precision!r}")
        for name in ("query_max_tokens", "passage_max_tokens"):
            if getattr(self, name) < 4:
                raise RetrieverError(f"{name} must be at least 4, got {getattr(self, name)}")


# Pooling, prefixes and lengths as each model's authors publish them (model cards and papers; docs/encoders.md).
PRESETS: dict[str, EncoderSpec] = {
    "mean": EncoderSpec(),
    "minilm": EncoderSpec(query_max_tokens=256, passage_max_tokens=256, trained_for="cosine"),
    "contriever": EncoderSpec(trained_for="dot"),
    "retromae": EncoderSpec(pooling="cls", query_max_tokens=32, passage_max_tokens=144, trained_for="dot"),
    "e5": EncoderSpec(query_prefix="query: ", passage_prefix="passage: ", trained_for="cosine"),
    "qwen3-embedding": EncoderSpec(
        pooling="lasttoken",
        query_prefix=("Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"),
        query_max_tokens=8192,
        passage_max_tokens=8192,
        trained_for="cosine",
    ),
}


def spec_from_preset(preset: str, **overrides: Any) -> EncoderSpec:
    """A preset with those fields replaced that are not None.

    Raises:
        RetrieverError: Unknown preset, or a value a field does not take.
    """
    if preset not in PRESETS:
        raise RetrieverError(f"unknown encoder preset {preset!r}; use one of {', '.join(PRESETS)}")
    return replace(PRESETS[preset], **{key: value for key, value in overrides.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Vectors:
    """Directions and lengths, kept apart.

    Attributes:
        units: [n, dim] float32, each of length 1 (a zero vector stays zero).
        norms: [n] float32, lengths before normalisation, floored at 1e-12.
    """

    units: np.ndarray
    norms: np.ndarray

    @classmethod
    def from_raw(cls, raw: np.ndarray) -> Vectors:
        """Split raw vectors [n, dim] in float32."""
        raw = np.asarray(raw, dtype=np.float32)
        norms = np.maximum(np.linalg.norm(raw, axis=1), np.float32(NORM_FLOOR)).astype(np.float32)
        return cls(raw / norms[:, None], norms)


@dataclass
class Encoder:
    """A loaded model; made by `retriever.loading.load_encoder`.

    Attributes:
        name: What people call the model (a folder, hub id or package).
        spec: How it is used.
        weights_hash: Binds an index to these very weights.
        model: The sentence-transformers model, less the Normalize modules at its end.
        dropped: Class names of the modules that were removed.
        tokens_per_batch: Padded tokens in one forward pass; halved for good when memory runs out.
        trained: What the weights were trained for, with γ, where their own manifest says it; None for weights of others,
            of which `spec.trained_for` says what is known.
    """

    name: str
    spec: EncoderSpec
    weights_hash: str
    model: SentenceTransformer
    device: torch.device
    dropped: tuple[str, ...] = ()
    tokens_per_batch: int = 4096
    trained: Similarity | None = None
    dim: int = field(init=False)
    # A fast tokenizer cannot be used by two threads at once.
    _tokenizing: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    # Two forward passes would share the cores anyway. Taken for a batch at a time, so that a question is not kept waiting by
    # a corpus that is being encoded.
    _turns: Turns = field(default_factory=Turns, init=False, repr=False)

    def __post_init__(self) -> None:
        dim = self.model.get_embedding_dimension()
        if dim is None:
            raise RetrieverError(f"{self.name} does not say how many dimensions its vectors have; use another model")
        self.dim = dim

    @property
    def description(self) -> dict[str, Any]:
        """What an index manifest stores of the encoder."""
        return {"model": self.name, "weights": self.weights_hash, "dim": self.dim, **asdict(self.spec)}

    @property
    def fingerprint(self) -> str:
        """Hash of what in `description` changes a vector."""
        content = {key: value for key, value in self.description.items() if key not in NO_VECTOR_CHANGES}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def tokenizer(self) -> Any:
        """The model's own tokenizer, for chunking where nothing else is encoded meanwhile."""
        return self.model.tokenizer

    def copied_tokenizer(self) -> Any:
        """A copy of the tokenizer, for chunking in one thread while others encode."""
        with self._tokenizing:
            return copy.deepcopy(self.tokenizer)

    def query_texts(self, queries: Sequence[str]) -> list[str]:
        """What the model reads of queries, before it is cut: prefix and query."""
        return [self.spec.query_prefix + query for query in queries]

    def passage_texts(self, passages: Sequence[Passage]) -> list[str]:
        """What the model reads of passages, before it is cut: prefix, title and text."""
        return [self.spec.passage_prefix + f"{p.title} {p.text}".strip() for p in passages]

    @property
    def positions(self) -> int | None:
        """Tokens of the longest text that the model has positions for; None where it does not say."""
        transformer = self.model[0].auto_model
        for name, module in transformer.named_modules():
            if name.endswith("position_embeddings") and hasattr(module, "num_embeddings"):
                # RoBERTa and its kin count positions from behind the one that stands for padding.
                unused = 0 if module.padding_idx is None else module.padding_idx + 1
                return int(module.num_embeddings) - unused
        positions: int | None = getattr(transformer.config, "max_position_embeddings", None)
        return positions

    def encode_queries(self, queries: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Vectors of queries, in the order given.

        Raises:
            RetrieverError: The model gives a NaN or infinite vector, or memory runs out with a single text.
        """
        return self._encode(self.query_texts(queries), self.spec.query_max_tokens, progress)

    def encode_passages(self, passages: Sequence[Passage], progress: Progress | None = None) -> Vectors:
        """Vectors of passages, in the order given.

        Raises:
            RetrieverError: As `encode_queries`; the passage is named by its id.
        """
        ids = [passage.id for passage in passages]
        return self._encode(self.passage_texts(passages), self.spec.passage_max_tokens, progress, ids)

    def passage_lengths(self, passages: Sequence[Passage]) -> np.ndarray:
        """Tokens [n] int64 of passages as they are encoded: cut, with special tokens."""
        return self._lengths(self.passage_texts(passages), self.spec.passage_max_tokens)

    def query_lengths(self, queries: Sequence[str]) -> np.ndarray:
        """Tokens [n] int64 of queries as they are encoded: cut, with special tokens."""
        return self._lengths(self.query_texts(queries), self.spec.query_max_tokens)

    def _lengths(self, texts: list[str], max_tokens: int) -> np.ndarray:
        if not texts:
            return np.zeros(0, dtype=np.int64)
        with self._tokenizing:
            encoded = self.tokenizer(texts, truncation=True, max_length=max_tokens)
        return np.array([len(ids) for ids in encoded["input_ids"]], dtype=np.int64)

    def _encode(
        self, texts: list[str], max_tokens: int, progress: Progress | None, ids: list[str] | None = None
    ) -> Vectors:
        raw = np.zeros((len(texts), self.dim), dtype=np.float32)
        if not texts:
            return Vectors.from_raw(raw)
        # Long texts are cut by the tokenizer itself, which keeps the special tokens in their places.
        with self._tokenizing:
            encoded = self.tokenizer(texts, truncation=True, max_length=max_tokens, padding=False)
        lengths = [len(ids_) for ids_ in encoded["input_ids"]]
        # Longest first: memory runs out at once or not at all, and a batch holds texts of like length, so little padding.
        order = sorted(range(len(texts)), key=lambda i: (-lengths[i], i))
        done = start = 0
        while start < len(order):
            size = max(1, self.tokens_per_batch // lengths[order[start]])
            rows = order[start : start + size]
            with self._turns:
                vectors = self._forward(encoded, rows)
            if vectors is None:
                if len(rows) == 1:
                    raise RetrieverError(
                        f"not enough memory to encode one text of {lengths[rows[0]]} tokens; lower the encoder's "
                        f"passage_max_tokens (now {max_tokens}) or use a smaller model"
                    )
                # Halve what was really tried: the budget may be far above what this batch held.
                self.tokens_per_batch = len(rows) * lengths[rows[0]] // 2
                continue
            bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
            if bad.size:
                where = f"passage {ids[rows[bad[0]]]!r}" if ids else f"query {texts[rows[bad[0]]][:60]!r}"
                raise RetrieverError(
                    f"{self.name} gave a vector with NaN or infinity for {where}; use precision float32, or check the weights"
                )
            raw[rows] = vectors
            start += len(rows)
            done += len(rows)
            if progress is not None:
                progress(done, len(texts))
        return Vectors.from_raw(raw)

    def _forward(self, encoded: Any, rows: list[int]) -> np.ndarray | None:
        """Raw vectors [len(rows), dim] float32, or None when memory ran out."""
        import torch

        fields = {
            key: [encoded[key][row] for row in rows] for key in self.tokenizer.model_input_names if key in encoded
        }
        try:
            batch = self.tokenizer.pad(fields, return_tensors="pt").to(self.device)
            with torch.inference_mode():
                features: dict[str, Any] = dict(batch)
                for position, module in enumerate(self.model):
                    features = module(features)
                    if position == 0:
                        # A mean over hundreds of bfloat16 values would lose most of their digits.
                        features["token_embeddings"] = features["token_embeddings"].float()
                return features["sentence_embedding"].float().cpu().numpy()
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or any(said in str(error) for said in CPU_OUT_OF_MEMORY):
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                return None
            raise
