"""`magrag diagnose` on a small corpus with a small encoder: figures by brute force, and what is written."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from eval.data.sources import PairSet
from rag_app.bench import Bench
from rag_app.cli import app
from rag_app.config import Config, load_config
from rag_app.diagnosis.queries import NEGATIVES, diagnose_queries
from rag_app.errors import ConfigError
from rag_app.experiment import open_experiment
from rag_app.pairs import score_pairs
from rag_app.pipeline import Pipeline
from retriever.errors import RetrieverError
from retriever.fisher import Candidates, fisher_diagnostic
from tests.tiny_encoder import tiny_pairs, write_tiny_model

PAIRS = tiny_pairs(40)
SETTINGS = """
corpus = "{root}/beir"
data_dir = "{root}/data"
[encoders.tiny]
model = "{root}/model"
query_max_tokens = 32
passage_max_tokens = 64
[encoders.other]
model = "{root}/model"
query_max_tokens = 16
passage_max_tokens = 64
[retrievers.cosine]
encoder = "tiny"
[retrievers.qnorm]
encoder = "tiny"
[retrievers.dnorm]
kind = "dense"
encoder = "tiny"
similarity = "dnorm"
[retrievers.bm25]
encoder = "other"
[eval]
retrievers = ["cosine", "qnorm", "dnorm"]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its configuration, a BEIR folder (two relevant passages for the first query) and sentence pairs."""
    root = tmp_path_factory.mktemp("diagnose")
    write_tiny_model(root / "model")
    (root / "tiny.toml").write_text(SETTINGS.format(root=root))
    (root / "beir/qrels").mkdir(parents=True)
    passages = [passage for pair in PAIRS for passage in (pair.positive, *pair.negatives)]
    lines = [json.dumps({"_id": own.id, "title": "", "text": own.text}) + "\n" for own in passages]
    (root / "beir/corpus.jsonl").write_text("".join(lines))
    # The second query is called as a passage, which BEIR leaves out of its ranking.
    names = ["q0", "p3", *(f"q{row}" for row in range(2, len(PAIRS)))]
    (root / "beir/queries.jsonl").write_text(
        "".join(json.dumps({"_id": name, "text": pair.query}) + "\n" for name, pair in zip(names, PAIRS, strict=True))
    )
    judged = ["q0\tn5-0\t1", *(f"{name}\tp{row}\t2" for row, name in enumerate(names)), "q2\tn2-0\t0"]
    (root / "beir/qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    rng = np.random.default_rng(0)
    rows = [
        {"text1": pair.query, "text2": " ".join(pair.positive.text.split()[:9]), "score": float(rng.integers(0, 6))}
        for pair in PAIRS
    ]
    (root / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture(scope="module")
def config(root: Path) -> Config:
    return load_config(root / "tiny.toml", environ={})


def magrag(root: Path, *arguments: object) -> Any:
    return CliRunner().invoke(app, ["diagnose", *map(str, arguments), "--config", str(root / "tiny.toml")])


def test_figures_of_rankings_are_those_of_brute_force(root: Path, config: Config) -> None:
    pipeline = Pipeline(config)
    [dataset] = open_experiment(config, [str(root / "beir")], print).datasets
    asked = diagnose_queries(pipeline, "tiny", "beir", dataset.questions, k=5)
    encoder, index = pipeline.encoder("tiny"), pipeline.index("tiny")
    queries = encoder.encode_queries([pair.query for pair in PAIRS])
    (_, units, norms), *_ = index.chunks(10_000)
    ids = [passage.id for passage in index.passages()]
    cosines = queries.units @ units.T
    cosines[1, ids.index("p3")] = -np.inf
    tops = [np.argsort(-scores, axis=1)[:, :5] for scores in (cosines, cosines * norms)]
    shares = [len(set(a) & set(b)) / 5 for a, b in zip(*tops, strict=True)]
    assert asked.shares == pytest.approx(shares) and asked.overlap == pytest.approx(np.mean(shares))
    assert 0 < asked.overlap < 1
    for found, top in zip((asked.by_cosine, asked.by_magnitude), tops, strict=True):
        counts = np.bincount(top.ravel(), minlength=len(ids))
        assert found.skewness == pytest.approx(stats.skew(counts)) and found.most == counts.max()
    assert asked.anisotropy == pytest.approx(
        (np.linalg.norm(queries.units.mean(axis=0)), np.linalg.norm(units.mean(axis=0))), rel=1e-5
    )
    tokens = [len(encoder.tokenizer(pair.query)["input_ids"]) for pair in PAIRS]
    assert asked.queries.cv == pytest.approx(stats.variation(queries.norms), rel=1e-5)
    assert [length for _, length in asked.queries.points] == tokens

    # The best judged passage and the nearest by cosine of those that are not marked as relevant.
    chosen = []
    for row in range(len(PAIRS)):
        marked = {f"p{row}", *(["n5-0"] if row == 0 else [])}
        ranked = [at for at in np.argsort(-cosines[row]) if ids[at] not in marked and np.isfinite(cosines[row, at])]
        chosen.append([ids.index(f"p{row}"), *ranked[:NEGATIVES]])
    own = fisher_diagnostic(Candidates(queries, units[chosen], norms[chosen]))
    assert own.n == len(PAIRS) and own.candidates == NEGATIVES + 1
    assert asked.fisher.difference == pytest.approx(own.difference) and asked.fisher.verdict == ""
    assert "40 questions" in asked.fisher.reason


def test_the_command_writes_json_without_nan_and_a_page_that_asks_for_nothing(root: Path, tmp_path: Path) -> None:
    done = magrag(root, root / "beir", "--encoder", "tiny", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "Overlap@10" in done.stdout and "\nVerdict: " in done.stdout and "abstains: 40 questions" in done.stdout
    written = json.loads((tmp_path / "out/diagnosis.json").read_text(), parse_constant=pytest.fail)
    assert set(written) >= {"encoder", "corpus", "verdict", "reasons", "readings", "figures"}
    assert written["figures"]["passages"]["n"] == 120 and written["figures"]["passages"]["effect"]["relevant"] == 41
    assert written["figures"]["questions"]["fisher"]["interval"] is None
    # Nothing is relevant among questions: undefined, not 0.
    assert written["figures"]["questions"]["queries"]["effect"]["value"] is None
    page = (tmp_path / "out/diagnosis.html").read_text()
    assert not re.search(r"(src|href)=\"(?!#|data:)|url\(|@import|https?://", page)
    assert "default-src 'none'" in page and "prefers-color-scheme: dark" in page
    assert page.count('role="img"') == 5 and "Condition numbers" in page
    again = magrag(root, root / "beir", "--encoder", "tiny", "--json")
    assert json.loads(again.stdout.splitlines()[-1]) == written


def test_an_index_of_another_encoder_is_refused_and_questions_may_be_fewer(root: Path, config: Config) -> None:
    folder = Pipeline(config).index("tiny").folder
    other = magrag(root, root / "beir", "--index", folder, "--encoder", "other")
    assert isinstance(other.exception, RetrieverError) and "query_max_tokens" in str(other.exception)
    some = magrag(root, root / "beir", "--index", folder, "--encoder", "tiny", "--json", "--set", "eval.n=9")
    found = json.loads(some.stdout.splitlines()[-1])
    assert found["figures"]["questions"]["queries"]["n"] == 9
    assert found["figures"]["passages"]["effect"]["relevant"] == 41, "all questions mark"
    assert isinstance(magrag(root, root / "beir", "--encoder", "tinny").exception, ConfigError)


def test_without_questions_the_passages_alone_are_looked_at(root: Path) -> None:
    done = magrag(root, "--encoder", "tiny")
    assert done.exit_code == 0, done.output
    assert "120 passages · " in done.stdout and "Overlap" not in done.stdout and "Without questions" in done.stdout
    # Why there is no Cohen's d stands below the table.
    assert "– Relevant against other passages (Cohen's d): Cannot be told: no questions with marked" in done.stdout


def test_sentence_pairs_are_scored_by_all_four(root: Path, config: Config, tmp_path: Path) -> None:
    done = magrag(root, root / "pairs.jsonl", "--encoder", "tiny", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    encoder = Pipeline(config).encoder("tiny")
    rows = [json.loads(line) for line in (root / "pairs.jsonl").read_text().splitlines()]
    left, right = (encoder.encode_queries([row[side] for row in rows]) for side in ("text1", "text2"))
    cosines = (left.units * right.units).sum(axis=1)
    golds = [row["score"] for row in rows]
    wanted = {
        "cosine": cosines,
        "dot": cosines * left.norms * right.norms,
        "qnorm": cosines * right.norms,
        "dnorm": cosines * left.norms,
    }
    found = json.loads((tmp_path / "diagnosis.json").read_text())["figures"]["similarities"]
    assert list(found) == sorted(wanted)
    for name, scores in wanted.items():
        rho = stats.spearmanr(scores, golds).statistic
        assert found[name]["spearman"]["value"] == pytest.approx(rho, abs=1e-6)
        low, high = found[name]["spearman"]["interval"]
        assert low < rho < high
        if name != "cosine":
            expected = rho - stats.spearmanr(cosines, golds).statistic
            assert found[name]["change"]["value"] == pytest.approx(expected, abs=1e-6)
    some = magrag(root, root / "pairs.jsonl", "--encoder", "tiny", "--json", "--set", "eval.n=7")
    assert json.loads(some.stdout.splitlines()[-1])["figures"]["similarities"]["dot"]["change"]["n"] == 7
    assert "eval.allow_asymmetric" in done.stdout and 'role="img"' in (tmp_path / "diagnosis.html").read_text()


def test_one_sided_similarities_are_refused_on_pairs_unless_the_override_measures_them(
    root: Path, config: Config
) -> None:
    def scored(settings: Config) -> dict[str, Any]:
        pairs = open_experiment(settings, [str(root / "pairs.jsonl")], print).pairs
        assert isinstance(pairs[0], PairSet)
        bench = Bench(settings, {}, {}, print, None)
        try:
            return {own.system: own for own in score_pairs(settings, bench, pairs)}
        finally:
            bench.close()

    refused = scored(config)
    for name in ("qnorm", "dnorm"):
        assert refused[name].spearman is None and "eval.allow_asymmetric=true" in refused[name].refused
    allowed = scored(config.overridden(["eval.allow_asymmetric=true"]))
    for name in ("qnorm", "dnorm"):
        assert allowed[name].refused == "" and math.isfinite(allowed[name].spearman or math.nan)
        assert allowed[name].baseline == "cosine" and allowed[name].difference_interval is not None
    assert allowed["cosine"] == refused["cosine"]


def test_runs_begun_before_the_setting_are_gone_on_with(config: Config) -> None:
    assert "allow_asymmetric" not in config.fingerprintable()["eval"]
    assert config.overridden(["eval.allow_asymmetric=true"]).fingerprintable()["eval"]["allow_asymmetric"] is True
