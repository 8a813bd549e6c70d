"""Re-ranking against sentence-transformers' own `CrossEncoder.predict`, with a small cross-encoder of random weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rag_app.config import load_config
from rag_app.stores import Stores
from rag_app.weight_hashes import weights_hash
from retriever.build import build_index
from retriever.dense import DenseRetriever
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.rerank import Reranker, RerankRetriever, load_reranker
from retriever.search.exact import ExactSearcher
from retriever.similarity import QNORM
from tests.vectors import ListCorpus, RandomEncoder, some_passages

QUESTIONS = ["which river is near the tower?", "comet"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_index(ListCorpus(some_passages(40)), RandomEncoder(), tmp_path_factory.mktemp("rerank") / "i")


@pytest.fixture
def base(index: Index) -> DenseRetriever:
    return DenseRetriever("qnorm", RandomEncoder(), QNORM, index, ExactSearcher(index))  # type: ignore[arg-type]


def small_model(folder: Path, tokenizer_folder: Path, labels: int = 1) -> Path:
    """A BERT of two layers with random weights and MiniLM's tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_folder))
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.4,
        num_labels=labels,
    )
    BertForSequenceClassification(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory, minilm_folder: Path) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small", minilm_folder)


def loaded(folder: Path, max_tokens: int = 64) -> Reranker:
    return load_reranker(folder, name="small", weights_hash=weights_hash(folder), max_tokens=max_tokens, device="cpu")


class Told(Reranker):
    """Gives the scores it is told, by text."""

    def __init__(self, scores: dict[str, float], fingerprint: str = "told") -> None:
        self.scores, self.fingerprint = scores, fingerprint

    def score(self, question: str, passages: Sequence[str], batch_size: int) -> np.ndarray:
        return np.array([self.scores.get(passage, 0.0) for passage in passages], dtype=np.float32)


@pytest.mark.model
def test_scores_are_those_of_cross_encoder_predict(base: DenseRetriever, model_folder: Path) -> None:
    from sentence_transformers import CrossEncoder

    retriever = RerankRetriever("ce", base, loaded(model_folder), depth=12, batch_size=5)
    found = retriever.retrieve(QUESTIONS, 12)
    theirs = CrossEncoder(str(model_folder), device="cpu", max_length=64)
    for question, hits, former in zip(QUESTIONS, found.hits, base.retrieve(QUESTIONS, 12).hits, strict=True):
        texts = [f"{hit.passage.title} {hit.passage.text}" for hit in former]
        scores = np.asarray(theirs.predict([(question, text) for text in texts]))
        assert np.ptp(scores) > 0.01  # or the order would say nothing
        order = np.argsort(-scores, kind="stable")
        assert [hit.row for hit in hits] == [former[place].row for place in order]
        assert [hit.score for hit in hits] == pytest.approx(scores[order].tolist(), abs=1e-5)
        assert [hit.row for hit in hits] != [hit.row for hit in former]
        kept = {hit.row: (hit.cosine, hit.norm, hit.query_norm) for hit in former}
        assert all((hit.cosine, hit.norm, hit.query_norm) == kept[hit.row] for hit in hits)
    assert set(found.seconds) == {"encode", "search", "rerank"}


@pytest.mark.model
def test_long_pairs_are_cut_at_max_tokens(model_folder: Path) -> None:
    long, longer = "river " * 50, "river " * 100
    assert loaded(model_folder, 32).score("where?", [long, longer], 2).tolist()[0] == pytest.approx(
        loaded(model_folder, 32).score("where?", [longer], 1)[0], abs=1e-6
    )
    cut, whole = (loaded(model_folder, tokens).score("where?", [longer], 1)[0] for tokens in (32, 128))
    assert abs(cut - whole) > 1e-4


@pytest.mark.model
def test_a_model_that_cannot_rank_is_refused(model_folder: Path, minilm_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match="is no cross-encoder but a BertModel"):
        loaded(minilm_folder)
    with pytest.raises(RetrieverError, match="gives 3 scores a pair"):
        loaded(small_model(tmp_path / "three", minilm_folder, labels=3))
    with pytest.raises(RetrieverError, match="takes at most 128 tokens, but max_tokens is 512"):
        loaded(model_folder, 512)
    shutil.copytree(model_folder, tmp_path / "bare")
    (tmp_path / "bare" / "model.safetensors").rename(tmp_path / "bare" / "pytorch_model.bin")
    with pytest.raises(RetrieverError, match="cannot load a cross-encoder from"):
        load_reranker(tmp_path / "bare", name="bare", weights_hash="w", max_tokens=64, device="cpu")
    (tmp_path / "bare" / "config.json").write_text("{")
    with pytest.raises(RetrieverError, match=r"cannot read .*config\.json"):
        load_reranker(tmp_path / "bare", name="bare", weights_hash="w")


@pytest.mark.model
def test_weights_that_give_no_numbers_are_refused(model_folder: Path) -> None:
    reranker = loaded(model_folder)
    import torch

    with torch.no_grad():
        for parameter in reranker.model.parameters():
            parameter.fill_(float("nan"))
    with pytest.raises(RetrieverError, match="small gave NaN or infinity for question 'where"):
        reranker.score("where?", ["here"], 1)


def test_equal_scores_keep_their_former_order(base: DenseRetriever) -> None:
    former = base.retrieve(["comet"], 6).hits[0]
    lifted = former[4]
    told = Told({f"{lifted.passage.title} {lifted.passage.text}": 1.0})
    hits = RerankRetriever("ce", base, told, depth=6).retrieve(["comet"], 3).hits[0]
    assert [hit.row for hit in hits] == [lifted.row, former[0].row, former[1].row]
    assert [(hit.rank, hit.score) for hit in hits] == [(1, 1.0), (2, 0.0), (3, 0.0)]


def test_depth_bounds_what_is_read_unless_more_is_wanted(base: DenseRetriever, index: Index) -> None:
    everything = base.retrieve(["comet"], 40).hits[0]
    last = everything[-1]
    told = Told({f"{last.passage.title} {last.passage.text}": 1.0})
    shallow = RerankRetriever("ce", base, told, depth=10)
    assert [hit.row for hit in shallow.retrieve(["comet"], 3).hits[0]] == [hit.row for hit in everything[:3]]
    assert len(shallow.retrieve(["comet"], 1_000).hits[0]) == 40
    assert RerankRetriever("ce", base, told).retrieve(["comet"], 1).hits[0][0].row == last.row
    assert shallow.index is index
    assert shallow.retrieve([], 3).hits == []
    for settings, words in (({"depth": 0}, "depth must be"), ({"batch_size": 0}, "batch_size must be")):
        with pytest.raises(RetrieverError, match=words):
            RerankRetriever("ce", base, told, **settings)


def test_the_fingerprint_follows_base_weights_and_depth(base: DenseRetriever) -> None:
    prints = [
        RerankRetriever("ce", base, Told({})).fingerprint,
        RerankRetriever("ce", base, Told({}, "other weights")).fingerprint,
        RerankRetriever("ce", base, Told({}), depth=7).fingerprint,
        RerankRetriever("ce", RerankRetriever("inner", base, Told({})), Told({})).fingerprint,
    ]
    assert len(set(prints)) == 4
    assert RerankRetriever("renamed", base, Told({}), batch_size=1).fingerprint == prints[0]


@pytest.mark.model
def test_the_demo_corpus_is_reranked_by_configuration(model_folder: Path, data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(
        f"data_dir = {json.dumps(str(data_dir))}\n"
        f"[retrievers.ce]\nkind = 'rerank'\nof = ['cosine']\nmodel = {json.dumps(str(model_folder))}\n"
        "max_tokens = 128\ndepth = 20\ndevice = 'cpu'\n"
        f"[retrievers.ce10]\nkind = 'rerank'\nof = ['hybrid']\nmodel = {json.dumps(str(model_folder))}\n"
        "max_tokens = 128\ndepth = 10\ndevice = 'cpu'\n"
    )
    stores = Stores(load_config(path, environ={}), print)
    questions = ["Who built the first lighthouse?"]
    candidates = stores.retriever("cosine").retrieve(questions, 20).hits[0]
    hits = stores.retriever("ce").retrieve(questions, 20).hits[0]
    assert sorted(hit.row for hit in hits) == sorted(hit.row for hit in candidates)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.norm is not None for hit in hits)
    assert len(stores.retriever("ce10").retrieve(questions, 3).hits[0]) == 3
    assert len(stores._rerankers) == 1
