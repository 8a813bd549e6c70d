"""Configurations load checkpoints and adapters, know what these were trained for, and say so when searched otherwise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rag_app.config import Config, load_config
from rag_app.errors import ConfigError
from rag_app.stores import Stores, load_configured_encoder
from rag_app.training.encoder import train
from rag_app.weight_hashes import model_hash
from retriever.encoder import EncoderSpec
from retriever.errors import RetrieverError
from retriever.loading import load_encoder
from retriever.passages import Passage
from retriever.similarity import QNORM
from retriever.training.checkpoint import CheckpointManifest, read_manifest
from tests.random_bert import random_bert, some_texts
from tests.sweep_example import training, write_example

TEXTS = [Passage(f"p{i}", "", text) for i, text in enumerate(some_texts(12, seed=21))]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loading")
    write_example(folder)
    return folder


def best(root: Path, similarity: str, rank: int) -> Path:
    """A checkpoint of that similarity, trained once."""
    config = training(root, f"similarity={similarity}", f"lora.rank={rank}", "encoder.query_prefix='who built '")
    out = root / f"{similarity}-{rank}"
    return train(config, out, log=lambda line: None, progress=lambda what, done, total: None).folder


@pytest.fixture
def configured(root: Path, tmp_path: Path) -> Callable[..., Config]:
    def configure(model: Path, adapter: str = "", **retrievers: str) -> Config:
        tables = "".join(
            f"[retrievers.{name}]\nkind = 'dense'\nencoder = 'e'\n{own}\n" for name, own in retrievers.items()
        )
        path = tmp_path / "config.toml"
        path.write_text(
            f"data_dir = '{root / 'data'}'\ncorpus = '{root / 'corpus.jsonl'}'\n"
            f"[encoders.e]\nmodel = '{model}'\nadapter = '{adapter}'\n{tables}"
        )
        return load_config(path, environ={})

    return configure


def raw(encoder: object) -> np.ndarray:
    vectors = encoder.encode_passages(TEXTS)  # type: ignore[attr-defined]
    return np.asarray(vectors.units * vectors.norms[:, None])


@pytest.mark.parametrize("rank", [0, 4])
def test_a_checkpoint_brings_its_encoding_and_what_it_was_trained_for(
    root: Path, configured: Callable[..., Config], rank: int
) -> None:
    folder = best(root, "qnorm", rank)
    manifest = read_manifest(folder)
    assert manifest is not None
    config = configured(root / "bert", str(folder)) if rank else configured(folder)
    encoder = load_configured_encoder("e", config, lambda line: None)
    assert encoder.trained == QNORM
    assert encoder.spec == EncoderSpec(
        query_prefix="who built ", query_max_tokens=16, passage_max_tokens=32, trained_for="qnorm"
    )
    start = load_encoder(root / "bert", encoder.spec, name="b", weights_hash="", device="cpu")
    assert np.abs(raw(encoder) - raw(start)).max() > 0.01
    if rank:
        merged = load_configured_encoder("e", configured(folder / "merged"), lambda line: None)
        np.testing.assert_allclose(raw(merged), raw(encoder), atol=1e-5)
        assert (merged.spec, merged.trained) == (encoder.spec, encoder.trained)


def test_what_the_table_says_wins(root: Path, configured: Callable[..., Config]) -> None:
    config = configured(root / "bert", str(best(root, "qnorm", 4)))
    named = config.overridden(["encoders.e.preset=minilm", "encoders.e.passage_max_tokens=20"])
    encoder = load_configured_encoder("e", named, lambda line: None)
    assert (encoder.spec.query_prefix, encoder.spec.query_max_tokens, encoder.spec.passage_max_tokens) == ("", 256, 20)
    assert encoder.spec.trained_for == "qnorm"
    other = load_configured_encoder("e", config.overridden(["encoders.e.trained_for=dot"]), lambda line: None)
    assert (other.spec.trained_for, other.trained) == ("dot", None)


def test_learnable_takes_the_gammas_it_was_trained_to(root: Path, configured: Callable[..., Config]) -> None:
    folder = best(root, "learnable", 4)
    config = configured(root / "bert", str(folder), own="similarity = 'learnable'", other="similarity = 'learnable'\ngamma_q = 0.5\ngamma_d = 0.9")  # fmt: skip
    manifest = json.loads((folder / "magrag.json").read_text())
    stores = Stores(config, lambda line: None)
    own, other = stores.retriever("own"), stores.retriever("other")
    assert own.similarity.gamma_d == manifest["gamma_d"] != 0.5  # type: ignore[attr-defined]
    assert own.notes == []
    gammas = f"learnable ({manifest['gamma_q']:.2f}, {manifest['gamma_d']:.2f})"
    assert other.notes == [
        f"{stores.encoder('e').name} was trained for {gammas} and is searched by learnable (0.50, 0.90), which weighs passage "
        "norms otherwise than its training did"
    ]


def test_learnable_without_any_gammas_is_refused(root: Path, configured: Callable[..., Config]) -> None:
    for model, adapter in ((root / "bert", ""), (root / "bert", str(best(root, "qnorm", 4)))):
        config = configured(model, adapter, own="similarity = 'learnable'")
        with pytest.raises(
            ConfigError, match=r"retrievers\.own\.gamma_q is missing: .* does not say that it was trained"
        ):
            Stores(config, lambda line: None).retriever("own")


@pytest.mark.parametrize(
    ("trained", "searched", "note"),
    [
        ("qnorm", "qnorm", ""),
        ("qnorm", "cosine", "trained for qnorm, which ranks by passage norms too: cosine throws them away"),
        ("qnorm", "dot", "trained for qnorm and is searched by dot: passages are ranked alike"),
        ("cosine", "qnorm", "trained for cosine, which never trained its magnitudes: what qnorm measures"),
        ("cosine", "dnorm", "trained for cosine and is searched by dnorm: passages are ranked alike"),
    ],
)
def test_searching_otherwise_than_trained_is_said_once_with_both_names(
    root: Path, configured: Callable[..., Config], trained: str, searched: str, note: str
) -> None:
    config = configured(root / "bert", str(best(root, trained, 4)), own=f"similarity = '{searched}'")
    notes = Stores(config, lambda line: None).retriever("own").notes
    assert len(notes) == bool(note)
    assert not note or note in notes[0]


def test_an_adapter_on_other_weights_is_refused(root: Path, configured: Callable[..., Config], tmp_path: Path) -> None:
    random_bert(tmp_path / "other", seed=1)
    with pytest.raises(ConfigError, match=r"encoders\.e\.adapter: .* was trained on .*bert and does not fit .*other"):
        load_configured_encoder("e", configured(tmp_path / "other", str(best(root, "qnorm", 4))), lambda line: None)


def test_an_adapter_is_no_model_and_a_name_may_be_wrong(root: Path, configured: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError, match=r"is an adapter: name the model .* as encoders\.e\.adapter"):
        load_configured_encoder("e", configured(best(root, "qnorm", 4)), lambda line: None)
    with pytest.raises(ConfigError, match=r"encoders\.e\.adapter = 'qnrom' is neither a folder nor the name"):
        load_configured_encoder("e", configured(root / "bert", "qnrom"), lambda line: None)


def test_a_damaged_manifest_is_told(root: Path, configured: Callable[..., Config], tmp_path: Path) -> None:
    import shutil

    folder = shutil.copytree(best(root, "qnorm", 0), tmp_path / "copy")
    (folder / "magrag.json").write_text("{")
    with pytest.raises(RetrieverError, match="is damaged"):
        load_configured_encoder("e", configured(folder), lambda line: None)


@pytest.mark.model
def test_an_adapter_over_minilm_is_added_to_its_weights(
    minilm_folder: Path, data_dir: Path, configured: Callable[..., Config], tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel
    from sentence_transformers import SentenceTransformer

    from retriever.training.checkpoint import save_checkpoint
    from retriever.training.lora import add_lora
    from retriever.training.settings import LoraSettings

    spec = EncoderSpec(query_max_tokens=64, passage_max_tokens=64, trained_for="qnorm")
    digest = model_hash(minilm_folder, data_dir=data_dir)
    encoder = load_encoder(minilm_folder, spec, name="minilm", weights_hash=digest, device="cpu")
    adapter = add_lora(encoder, LoraSettings(rank=2, targets=("query",)), 0)
    with torch.no_grad():
        for name, parameter in adapter.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.1)
    base = {"name": "minilm", "weights": digest}
    encoding = {key: getattr(spec, key) for key in EncoderSpec.__dataclass_fields__}
    manifest = CheckpointManifest("qnorm", 1.0, 0.0, 20.0, base, "", {}, {}, encoding)
    save_checkpoint(tmp_path / "adapter", encoder, manifest, adapter=adapter)

    loaded = load_configured_encoder("e", configured(minilm_folder, str(tmp_path / "adapter")), lambda line: None)
    assert (loaded.trained, loaded.spec) == (QNORM, spec)
    plain = SentenceTransformer(str(minilm_folder), device="cpu")
    untrained = plain.encode([p.text for p in TEXTS], normalize_embeddings=True)
    plain[0].auto_model = PeftModel.from_pretrained(plain[0].auto_model, str(tmp_path / "adapter")).eval()
    expected = plain.encode([p.text for p in TEXTS], normalize_embeddings=True)
    units = loaded.encode_passages(TEXTS).units
    np.testing.assert_allclose(units, expected, atol=1e-5)
    assert np.abs(units - untrained).max() > 0.01


def test_an_adapters_alpha_is_in_the_encoders_fingerprint(
    root: Path, configured: Callable[..., Config], tmp_path: Path
) -> None:
    """The same weights scaled otherwise are another encoder: an index of the one must not serve the other."""
    import shutil

    folder = shutil.copytree(best(root, "qnorm", 4), tmp_path / "copy")
    before = load_configured_encoder("e", configured(root / "bert", str(folder)), lambda line: None)
    described = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**described, "lora_alpha": 4 * described["lora_alpha"]}))
    after = load_configured_encoder("e", configured(root / "bert", str(folder)), lambda line: None)
    assert np.abs(raw(before) - raw(after)).max() > 0.01
    assert before.fingerprint != after.fingerprint


def test_models_without_an_adapter_keep_their_hash(root: Path) -> None:
    folder = root / "bert"
    names = ["config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]

    def of(names: list[str]) -> str:
        lines = (f"{name}\0{hashlib.sha256((folder / name).read_bytes()).hexdigest()}\n" for name in names)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    expected = f"{of(['model.safetensors'])} {of([name for name in names if (folder / name).is_file()])}"
    assert model_hash(folder) == hashlib.sha256(expected.encode()).hexdigest()
