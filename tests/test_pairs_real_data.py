"""Sentence pairs of STS-B under the demo's real encoder, against sentence-transformers' own evaluator."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.data.pairs import spearman
from eval.data.sources import PairSet, load_dataset
from eval.data.specs import DataSetSpec
from rag_app.config import load_config
from rag_app.pairs import EncodedPairs
from rag_app.pipeline import Pipeline
from retriever.similarity import COSINE, DNORM, DOT, QNORM
from tests.one_encoder import untrained
from tests.shared_data import DATA, needs_data

pytestmark = [pytest.mark.model, needs_data]


def test_cosine_and_dot_are_sentence_transformers_own_figures_and_one_sided_scores_lose(minilm_folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    pairs = load_dataset(DataSetSpec("stsb", path=f"{DATA}/stsb/sts.test.jsonl"), n=200)
    assert isinstance(pairs, PairSet)
    golds = [pair.score for pair in pairs.pairs]
    encoder = Pipeline(load_config(None, untrained(minilm_folder), {})).encoder("minilm")
    encoded = EncodedPairs.of(pairs, encoder)
    found = {own.name: spearman(encoded.scores(own), golds, resamples=0).value for own in (COSINE, DOT, QNORM, DNORM)}
    evaluator = EmbeddingSimilarityEvaluator(
        [pair.text1 for pair in pairs.pairs],
        [pair.text2 for pair in pairs.pairs],
        golds,
        similarity_fn_names=["cosine", "dot"],
        write_csv=False,
    )
    model = SentenceTransformer(str(minilm_folder), device="cpu")
    assert evaluator(model)["spearman_cosine"] == pytest.approx(found["cosine"], abs=5e-5)
    # Without the model's last module, which normalises.
    assert evaluator(encoder.model)["spearman_dot"] == pytest.approx(found["dot"], abs=5e-5)
    for name in ("qnorm", "dnorm"):
        assert found[name] < found["cosine"] - 0.1
