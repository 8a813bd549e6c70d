"""Checkpoints: plain sentence-transformers and PEFT read them and give the same vectors; the manifest says what they are for."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from retriever.encoder import EncoderSpec
from retriever.errors import RetrieverError
from retriever.loading import load_encoder
from retriever.passages import Passage
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity
from retriever.training.checkpoint import manifest_of, read_manifest, restore_checkpoint, save_checkpoint, save_merged
from retriever.training.settings import LoraSettings
from tests.tiny_encoder import load_tiny, tiny_pairs, write_tiny_model
from tests.train_tiny import trainer

PASSAGES = [pair.positive for pair in tiny_pairs(12, seed=9)]
LEARNABLE = Similarity("learnable", 0.5, 0.5)
COMMON: dict[str, Any] = {"steps": 2, "scale": "fixed", "learning_rate": 5e-2, "warmup": 0.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def raw(folder: Path, passages: list[Passage] = PASSAGES) -> np.ndarray:
    vectors = load_tiny(folder).encode_passages(passages)
    return vectors.units * vectors.norms[:, None]


@pytest.mark.parametrize(
    ("similarity", "function"),
    [(COSINE, "cosine"), (DOT, "dot"), (QNORM, "dot"), (DNORM, "cosine"), (LEARNABLE, "cosine")],
)
def test_sentence_transformers_ranks_as_the_checkpoint_was_trained(
    tmp_path: Path, model: Path, similarity: Similarity, function: str
) -> None:
    made = trainer(tmp_path / "t", model, {**COMMON, "similarity": similarity, "lora": None}, dev=None)
    best = made.run().folder
    plain = SentenceTransformer(str(best), device="cpu")
    vectors = plain.encode([passage.text for passage in PASSAGES])
    np.testing.assert_allclose(vectors, raw(best), rtol=1e-4, atol=1e-5)
    # What was in memory is what was written, and it is not what it started from.
    made.encoder.model.eval()
    trained = made.encoder.encode_passages(PASSAGES)
    np.testing.assert_allclose(vectors, trained.units * trained.norms[:, None], rtol=1e-4, atol=1e-5)
    assert np.abs(vectors - raw(model)).max() > 0.01
    assert plain.similarity_fn_name == function
    assert plain.max_seq_length == 64
    manifest = read_manifest(best)
    assert manifest is not None
    assert (manifest.similarity, manifest.step, manifest.dev) == (similarity.name, 2, {})
    assert manifest.encoder["trained_for"] == similarity.name
    assert manifest.recipe["learning_rate"] == 5e-2
    assert bool(manifest.note) == (similarity.name == "learnable")
    assert (manifest.gamma_d == similarity.gamma_d) == (similarity.name != "learnable")
    assert EncoderSpec(**manifest.encoder).passage_max_tokens == 64


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 5e-3)])
def test_an_adapter_is_what_peft_reads_and_its_merged_folder_gives_the_same_vectors(
    tmp_path: Path, model: Path, dtype: str, tolerance: float
) -> None:
    changed = {**COMMON, "similarity": QNORM, "lora": LoraSettings(4, 8.0, targets=("query", "value"))}
    made = trainer(tmp_path / "t", model, changed, dev=None, adapter_dtype=dtype)
    best = made.run().folder
    merged = SentenceTransformer(str(best / "merged"), device="cpu").encode([passage.text for passage in PASSAGES])
    np.testing.assert_allclose(merged, raw(best / "merged"), rtol=1e-4, atol=1e-5)
    assert np.abs(merged - raw(model)).max() > 0.01
    made.encoder.model.eval()
    trained = made.encoder.encode_passages(PASSAGES)
    np.testing.assert_allclose(merged, trained.units * trained.norms[:, None], rtol=1e-4, atol=1e-5)

    peft = PeftModel.from_pretrained(AutoModel.from_pretrained(model), str(best)).eval()
    batch = load_tiny(model).tokenizer([passage.text for passage in PASSAGES], padding=True, return_tensors="pt")
    with torch.no_grad():
        tokens = peft(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    np.testing.assert_allclose((tokens * mask).sum(1) / mask.sum(1), merged, rtol=tolerance, atol=tolerance)

    spec = EncoderSpec(query_max_tokens=32, passage_max_tokens=64)
    ours = load_encoder(model, spec, name="t", weights_hash="0", adapter=best, device="cpu").encode_passages(PASSAGES)
    np.testing.assert_allclose(ours.units * ours.norms[:, None], merged, rtol=tolerance, atol=tolerance)
    stored = {value.dtype for value in load_file(best / "adapter_model.safetensors").values()}
    assert stored == {getattr(torch, dtype)}
    # Nothing in it names a folder of the machine it was made on.
    assert json.loads((best / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny"
    assert all(str(tmp_path) not in path.read_text() for path in best.rglob("*.json"))


def test_prefixes_go_along_as_prompts(tmp_path: Path, model: Path) -> None:
    made = trainer(tmp_path / "t", model, {**COMMON, "similarity": COSINE, "lora": None}, dev=None)
    made.encoder.spec = EncoderSpec(
        query_prefix="w1 ", passage_prefix="w2 ", query_max_tokens=32, passage_max_tokens=64
    )
    plain = SentenceTransformer(str(made.run().folder), device="cpu")
    assert plain.prompts == {"query": "w1 ", "document": "w2 "}
    made.encoder.model.eval()
    ours = made.encoder.encode_queries(["w5 w6"])
    np.testing.assert_allclose(plain.encode_query(["w5 w6"]), ours.units * ours.norms[:, None], rtol=1e-4, atol=1e-5)


def test_a_manifest_of_another_format_or_damaged_is_refused(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    (tmp_path / "magrag.json").write_text('{"format": 2}')
    with pytest.raises(RetrieverError, match="has format 2, this version reads 1"):
        read_manifest(tmp_path)
    for damaged in ("{", "[]", '{"format": 1}', "[" * 100_000, "\x00"):
        (tmp_path / "magrag.json").write_text(damaged)
        with pytest.raises(RetrieverError, match="damaged"):
            read_manifest(tmp_path)


def test_a_manifest_with_fields_that_no_training_writes_is_refused_by_name(tmp_path: Path, model: Path) -> None:
    best = trainer(tmp_path / "t", model, COMMON).run().folder
    whole = json.loads((best / "magrag.json").read_text())
    for name, value, message in (
        ("similarity", "cosin", "similarity is 'cosin'"),
        ("gamma_d", None, "damaged"),
        ("gamma_q", 1.5, "gamma_q must be between 0 and 1, got 1.5"),
        ("scale", "20", "scale is '20'"),
        ("base", {"name": "tiny"}, "lacks 'weights'"),
        ("base", {"name": "tiny", "weights": 3}, "base.weights is 3"),
        ("base", [], "damaged"),
        ("dev", {"score": None}, "score is None"),
        ("dev", 3, "damaged"),
        ("encoder", {"pooling": "max"}, "pooling must be mean, cls or lasttoken"),
        ("encoder", {"polling": "mean"}, "polling"),
        ("encoder", None, "damaged"),
        ("step", "two", "step is 'two'"),
    ):
        (best / "magrag.json").write_text(json.dumps({**whole, name: value}))
        with pytest.raises(RetrieverError, match=rf"magrag.json is damaged \(.*{message}|magrag.json is {message}"):
            read_manifest(best)


def test_a_kill_while_it_is_replaced_loses_no_checkpoint(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tmp_path / "t", model, {**COMMON, "lora": None}, dev=None)
    folder = made.run().folder
    manifest = manifest_of(folder)
    left = [0]

    def until_killed(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return function(*arguments, **named)

        return call

    ends = []
    for calls in range(20):
        step, left[0] = 100 + calls, calls
        with monkeypatch.context() as patched:
            patched.setattr("os.replace", until_killed(os.replace))
            patched.setattr("shutil.rmtree", until_killed(shutil.rmtree))
            try:
                save_checkpoint(folder, made.encoder, replace(manifest, step=step))
                done = True
            except KeyboardInterrupt:
                done = False
        restore_checkpoint(folder)
        found = manifest_of(folder).step
        assert found in (step, ends[-1] if ends else manifest.step)
        assert raw(folder).shape == (len(PASSAGES), 16)
        ends.append(found)
        if done:
            break
    assert done and ends[-1] == step and len(ends) > 3
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".best")] == []


def test_merging_leaves_the_adapter_as_it_is(tmp_path: Path, model: Path) -> None:
    made = trainer(tmp_path / "t", model, COMMON, dev=None, adapter_dtype="float16")
    folder = made.run().folder
    shutil.rmtree(folder / "merged")
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}
    save_merged(folder, made.encoder, made._adapter)
    after = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert after.pop(folder / "merged") and after == before
    assert raw(folder / "merged").shape == (len(PASSAGES), 16)
