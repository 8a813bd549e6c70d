"""The encoder against sentence-transformers' own vectors, on real MiniLM."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer

from rag_app.demo import PASSAGES
from retriever.encoder import Encoder, EncoderSpec, spec_from_preset
from retriever.errors import RetrieverError
from retriever.loading import load_encoder
from retriever.passages import Passage

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def passages() -> list[Passage]:
    rows = [json.loads(line) for line in PASSAGES.read_text("utf-8").splitlines()[:60]]
    long = Passage("long", "A very long one", "and so on " * 400)
    return [*(Passage(row["id"], row["title"], row["text"]) for row in rows), long]


@pytest.fixture(scope="module")
def reference(minilm_folder: Path, passages: list[Passage]) -> np.ndarray:
    model = SentenceTransformer(str(minilm_folder), device="cpu")
    without_normalize = SentenceTransformer(modules=[model[0], model[1]], device="cpu")
    return np.asarray(without_normalize.encode([f"{p.title} {p.text}" for p in passages]), dtype=np.float64)


def load(folder: Path, **overrides: object) -> Encoder:
    return load_encoder(
        folder,
        spec_from_preset("minilm", **overrides),
        name="minilm",
        weights_hash="w",
        device="cpu",
        tokens_per_batch=1024,
    )


def test_vectors_equal_sentence_transformers(
    minilm_folder: Path, passages: list[Passage], reference: np.ndarray
) -> None:
    encoder = load(minilm_folder)
    vectors = encoder.encode_passages(passages)
    norms = np.linalg.norm(reference, axis=1)
    assert ((reference / norms[:, None]) * vectors.units).sum(axis=1).min() > 0.9999
    assert np.abs(vectors.norms / norms - 1).max() < 1e-3
    assert encoder.dropped == ("Normalize",)
    # The magnitude is real: it varies by a quarter, where the published model says 1 for every text.
    assert vectors.norms.std() / vectors.norms.mean() > 0.1


def test_bfloat16_stays_close(minilm_folder: Path, passages: list[Passage], reference: np.ndarray) -> None:
    vectors = load(minilm_folder, precision="bfloat16").encode_passages(passages)
    norms = np.linalg.norm(reference, axis=1)
    assert ((reference / norms[:, None]) * vectors.units).sum(axis=1).min() > 0.999
    assert np.abs(vectors.norms / norms - 1).max() < 0.02


def test_a_folder_without_pooling_configuration_is_pooled_as_the_spec_says(
    minilm_folder: Path, tmp_path: Path, passages: list[Passage]
) -> None:
    bare = Transformer(str(minilm_folder))
    bare.auto_model.save_pretrained(tmp_path)
    bare.tokenizer.save_pretrained(tmp_path)
    texts = [f"{p.title} {p.text}" for p in passages[:3]]
    features = bare.tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        tokens = bare.auto_model(**features).last_hidden_state
    mask = features["attention_mask"].unsqueeze(-1)
    expected = {"cls": tokens[:, 0], "mean": (tokens * mask).sum(1) / mask.sum(1)}
    for pooling, raw in expected.items():
        spec = EncoderSpec(pooling=pooling, passage_max_tokens=64)
        encoder = load_encoder(tmp_path, spec, name="bare", weights_hash="w", device="cpu")
        got = encoder.encode_passages(passages[:3])
        assert got.units * got.norms[:, None] == pytest.approx(raw.numpy(), abs=1e-4)


def test_prefixes_and_lengths_are_applied_and_change_the_fingerprint(minilm_folder: Path) -> None:
    plain, prefixed = load(minilm_folder), load(minilm_folder, query_prefix="query: ", query_max_tokens=8)
    direct = plain.encode_queries(["query: who built the tower"])
    assert prefixed.encode_queries(["who built the tower"]).units == pytest.approx(direct.units, abs=1e-6)
    # 8 tokens hold 6 words between the special tokens.
    cut = prefixed.encode_queries(["one two three four five six", "one two three four FIVE six"])
    assert cut.units[0] == pytest.approx(cut.units[1], abs=1e-6)
    assert plain.fingerprint != prefixed.fingerprint
    assert plain.fingerprint == load(minilm_folder).fingerprint


def test_order_and_batching_do_not_change_vectors(minilm_folder: Path, passages: list[Passage]) -> None:
    encoder = load(minilm_folder)
    one_by_one = np.concatenate([encoder.encode_passages([p]).norms for p in passages[:8]])
    assert encoder.encode_passages(passages[:8]).norms == pytest.approx(one_by_one, rel=1e-5)
    assert encoder.encode_passages([]).units.shape == (0, 384)


def test_out_of_memory_halves_the_batch_and_loses_nothing(
    minilm_folder: Path, passages: list[Passage], reference: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load(minilm_folder)
    encoder.tokens_per_batch = 100_000
    forward, sizes = encoder.model[0].forward, []

    def limited(features: dict[str, torch.Tensor], **kwargs: object) -> dict[str, torch.Tensor]:
        sizes.append(features["input_ids"].numel())
        if sizes[-1] > 4000:
            raise torch.OutOfMemoryError("CUDA out of memory")
        if sizes[-1] > 2000:
            torch.empty(2**50)  # the CPU's own refusal
        return forward(features, **kwargs)

    monkeypatch.setattr(encoder.model[0], "forward", limited)
    seen: list[int] = []
    vectors = encoder.encode_passages(passages, lambda done, total: seen.append(done))
    assert vectors.norms == pytest.approx(np.linalg.norm(reference, axis=1), rel=1e-3)
    assert max(sizes) > 2000
    assert seen == sorted(seen)
    assert seen[-1] == len(passages)
    encoder.tokens_per_batch = 100_000
    monkeypatch.setattr(encoder, "_forward", lambda encoded, rows: None)
    with pytest.raises(RetrieverError, match="not enough memory to encode one text"):
        encoder.encode_passages(passages)


def test_nan_is_named_with_its_passage(
    minilm_folder: Path, passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load(minilm_folder)
    with torch.no_grad():
        encoder.model[0].auto_model.embeddings.word_embeddings.weight.fill_(float("nan"))
    with pytest.raises(RetrieverError, match=f"NaN or infinity for passage '{passages[0].id}'"):
        encoder.encode_passages(passages[:1])
    with pytest.raises(RetrieverError, match="for query 'who'"):
        encoder.encode_queries(["who"])


def test_contradictions_are_refused(minilm_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="pools by 'mean' but the encoder's settings say 'cls'"):
        load(minilm_folder, pooling="cls")
    with pytest.raises(RetrieverError, match="cannot load an encoder from"):
        load_encoder(tmp_path, EncoderSpec(), name="none", weights_hash="w")
    with pytest.raises(RetrieverError, match="unknown encoder preset 'minlm'"):
        spec_from_preset("minlm")
    with pytest.raises(RetrieverError, match="passage_max_tokens must be at least 4, got 1"):
        spec_from_preset("minilm", passage_max_tokens=1)
