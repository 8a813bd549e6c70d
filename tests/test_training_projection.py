"""The linear layer behind the normalised vectors: no magnitude before training, and one checkpoint everywhere after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from retriever.encoder import Encoder, EncoderSpec
from retriever.errors import RetrieverError
from retriever.loading import load_encoder
from retriever.similarity import QNORM
from retriever.training.projection import add_projection, without_projection
from retriever.training.settings import LoraSettings
from tests.tiny_encoder import load_tiny, tiny_pairs, write_tiny_model
from tests.train_tiny import trainer

PASSAGES = [pair.positive for pair in tiny_pairs(12, seed=9)]
TEXTS = [passage.text for passage in PASSAGES]
SPEC = EncoderSpec(query_max_tokens=32, passage_max_tokens=64)
CHANGED: dict[str, Any] = {
    "steps": 3,
    "scale": "matched",
    "learning_rate": 5e-2,
    "warmup": 0.0,
    "similarity": QNORM,
    "projection": True,
    "lora": LoraSettings(4, 8.0, targets=("query", "value")),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def raw(encoder: Encoder) -> np.ndarray:
    encoder.model.eval()
    vectors = encoder.encode_passages(PASSAGES)
    return vectors.units * vectors.norms[:, None]


def test_before_training_all_lengths_are_one_and_directions_are_the_encoder_s(model: Path) -> None:
    encoder = load_tiny(model)
    before = encoder.encode_passages(PASSAGES)
    assert before.norms.std() > 0.01
    add_projection(encoder)
    after = encoder.encode_passages(PASSAGES)
    np.testing.assert_allclose(after.norms, 1, rtol=1e-6)
    np.testing.assert_allclose(after.units, before.units, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(without_projection(encoder).encode_passages(PASSAGES).norms, before.norms)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 5e-3)])
def test_a_checkpoint_is_the_transformer_s_mean_normalised_times_a_matrix(
    tmp_path: Path, model: Path, dtype: str, tolerance: float
) -> None:
    made = trainer(tmp_path / "t", model, {**CHANGED, "anchor": 1.0}, dev=None, adapter_dtype=dtype)
    result = made.run()
    # Unit vectors have cosine's scores, so their softmax is as sharp as cosine's at alpha as it is.
    assert result.scale == pytest.approx(20, rel=1e-3)
    best = result.folder
    trained = raw(made.encoder)
    assert np.linalg.norm(trained, axis=1).std() > 0.01
    plain = SentenceTransformer(str(best / "merged"), device="cpu")
    np.testing.assert_allclose(plain.encode(TEXTS), trained, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(raw(load_tiny(best / "merged")), trained, rtol=1e-4, atol=1e-5)

    peft = PeftModel.from_pretrained(AutoModel.from_pretrained(model), str(best)).eval()
    batch = load_tiny(model).tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        tokens = peft(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    means = torch.nn.functional.normalize((tokens * mask).sum(1) / mask.sum(1))
    (matrix,) = load_file(best / "projection/model.safetensors").values()
    assert matrix.dtype == getattr(torch, dtype)
    assert (matrix.float() - torch.eye(len(matrix))).abs().max() > 0.01
    np.testing.assert_allclose(means @ matrix.float().T, trained, rtol=tolerance, atol=tolerance)

    ours = load_encoder(model, SPEC, name="t", weights_hash="0", adapter=best, device="cpu")
    np.testing.assert_allclose(raw(ours), trained, rtol=tolerance, atol=tolerance)


def test_all_weights_can_be_trained_with_it(tmp_path: Path, model: Path) -> None:
    made = trainer(tmp_path / "t", model, {**CHANGED, "lora": None, "anchor": 1.0}, dev=None)
    best = made.run().folder
    plain = SentenceTransformer(str(best), device="cpu")
    np.testing.assert_allclose(plain.encode(TEXTS), raw(made.encoder), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(raw(load_tiny(best)), raw(made.encoder), rtol=1e-4, atol=1e-5)


def test_the_teacher_knows_neither_adapter_nor_projection(tmp_path: Path, model: Path) -> None:
    untrained = raw(load_tiny(model))
    made = trainer(tmp_path / "t", model, {**CHANGED, "anchor": 1.0}, dev=None)
    made.run()
    made.encoder.model.train()
    texts = made._forward.passages(PASSAGES, 64)
    assert made._teacher is not None
    np.testing.assert_allclose(made._teacher(texts, texts)[1], untrained, rtol=1e-4, atol=1e-5)
    assert all(module.training for module in made.encoder.model.modules())


def test_a_projection_of_another_model_or_damaged_is_refused(tmp_path: Path, model: Path) -> None:
    best = trainer(tmp_path / "t", model, CHANGED, dev=None).run().folder
    config = best / "projection/config.json"
    config.write_text(config.read_text().replace('"in_features": 16', '"in_features": 15'))
    with pytest.raises(RetrieverError, match="the projection of adapter .*best cannot be read"):
        load_encoder(model, SPEC, name="t", weights_hash="0", adapter=best, device="cpu")
    (best / "projection/model.safetensors").write_bytes(b"no weights")
    with pytest.raises(RetrieverError, match="the projection of adapter .*best cannot be read"):
        load_encoder(model, SPEC, name="t", weights_hash="0", adapter=best, device="cpu")
