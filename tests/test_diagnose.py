"""The demo's norms under its real encoder, recomputed by scipy from index, tokenizer and question file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rag_app.config import load_config
from rag_app.demo import PASSAGES, QUESTIONS
from rag_app.diagnosis.passages import configured_questions, diagnose_encoder
from rag_app.errors import ConfigError
from rag_app.experiment import Experiment
from rag_app.pipeline import Pipeline
from tests.one_encoder import untrained

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def pipeline(minilm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    own = tmp_path_factory.mktemp("data")
    return Pipeline(load_config(None, [*untrained(minilm_folder), f'data_dir="{own}"'], {}))


def test_the_demo_s_figures_are_scipy_s(pipeline: Pipeline) -> None:
    found = diagnose_encoder(pipeline, "minilm")
    passages = [json.loads(line) for line in PASSAGES.read_text("utf-8").splitlines()]
    marked = {
        id for line in QUESTIONS.read_text("utf-8").splitlines()
        for id in json.loads(line).get("supporting_ids") or json.loads(line).get("gold_ids") or ()
    }  # fmt: skip
    encoder, norms = pipeline.encoder("minilm"), pipeline.index("minilm").norms().astype(np.float64)
    texts = encoder.passage_texts(list(pipeline.index("minilm").passages()))
    most = encoder.spec.passage_max_tokens
    tokens = np.array([min(len(encoder.tokenizer(text)["input_ids"]), most) for text in texts])
    relevant = np.array([passage["id"] in marked for passage in passages])
    figures = found.figures
    assert found.datasets == ("demo",) and found.trained_for == "cosine" and found.corpus == "demo"
    assert figures.n == figures.sampled == len(passages)
    assert figures.length == pytest.approx(stats.pearsonr(norms, np.log(tokens)).statistic, abs=1e-9)
    assert figures.cv == pytest.approx(stats.variation(norms))
    t = stats.ttest_ind(norms[relevant], norms[~relevant]).statistic
    n1, n2 = int(relevant.sum()), int((~relevant).sum())
    assert (figures.effect.relevant, figures.effect.others) == (n1, n2)
    assert figures.effect.value == pytest.approx(t * np.sqrt(1 / n1 + 1 / n2))
    fit = stats.linregress(np.log(tokens), norms)
    left = norms - fit.intercept - fit.slope * np.log(tokens)
    t = stats.ttest_ind(left[relevant], left[~relevant]).statistic
    assert figures.apart.value == pytest.approx(t * np.sqrt(1 / n1 + 1 / n2))


def test_of_a_large_corpus_a_sample_has_its_tokens_counted_and_all_norms_are_read(pipeline: Pipeline) -> None:
    whole, some = diagnose_encoder(pipeline, "minilm"), diagnose_encoder(pipeline, "minilm", sample=100)
    assert some.figures.sampled == 100 and some.figures.n == whole.figures.n
    assert some.figures.effect == whole.figures.effect and some.figures.cv == whole.figures.cv
    interval = some.figures.length_interval
    assert interval is not None and interval[0] < whole.figures.length < interval[1]
    assert some.figures.apart.relevant == whole.figures.apart.relevant


def test_a_set_that_cannot_be_read_is_left_out_and_named_without_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "own.toml").write_text(f'[eval.datasets.gone]\npath = "{tmp_path}/gone.jsonl"\n')
    found = configured_questions(load_config(tmp_path / "own.toml", environ={}))
    assert isinstance(found, Experiment) and found.names == ["demo"]
    assert "the questions of gone are left out" in caplog.text and str(tmp_path) in caplog.text
    alone = configured_questions(load_config(tmp_path / "own.toml", ["corpus=other.jsonl"], {}))
    assert alone == "the questions of gone cannot be read; the terminal says why"


def test_another_corpus_has_no_marks_and_says_so(pipeline: Pipeline, tmp_path: Path, minilm_folder: Path) -> None:
    (tmp_path / "own.jsonl").write_text('{"id": "a", "text": "one"}\n{"id": "b", "text": "two words"}\n', "utf-8")
    settings = [*untrained(minilm_folder), f'data_dir="{tmp_path}"']
    own = Pipeline(load_config(None, [*settings, f'corpus="{tmp_path / "own.jsonl"}"'], {}))
    found = diagnose_encoder(own, "minilm")
    assert found.datasets == () and "[eval.datasets]" in found.unmarked
    with pytest.raises(ConfigError, match="no encoder"):
        diagnose_encoder(pipeline, "minilmm")
