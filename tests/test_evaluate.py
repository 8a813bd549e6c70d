"""An evaluation from its configuration: data sets × retrievers × readers × k, with the demo's real models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.errors import EvalError
from eval.run import RunResult
from eval.view import RunView
from rag_app.config import Config, load_config
from rag_app.evaluate import run
from rag_app.experiment import open_experiment
from tests.one_encoder import untrained

PASSAGES = [
    ("e1", "Eiffel Tower", "The Eiffel Tower in Paris was finished in 1889 by the company of Gustave Eiffel."),
    ("e2", "Tokyo Tower", "Tokyo Tower is a red and white lattice tower in Japan. It was finished in 1958."),
    ("e3", "Rye bread", "Rye bread keeps for a long time and is common around the Baltic Sea."),
    ("e4", "Blackpool Tower", "Blackpool Tower was inspired by the tower in Paris and opened in 1894."),
    ("e5", "Baltic Sea", "The Baltic Sea is an arm of the Atlantic Ocean between Sweden and Estonia."),
    ("e6", "Sourdough", "Sourdough rises by wild yeast, and needs neither sugar nor haste."),
]
QUESTIONS = [
    {"id": "a1", "question": "When was the Eiffel Tower finished?", "answers": ["1889"], "supporting_ids": ["e1"]},
    {"id": "a2", "question": "When was Tokyo Tower finished?", "answers": ["1958"], "supporting_ids": ["e2"]},
    {"id": "a3", "question": "Who painted the ceiling?", "answers": ["Michelangelo"]},
]
# BEIR leaves a document out whose id is the query's.
CLAIMS = [
    {"_id": "e1", "text": "The tower in Paris was finished in 1889."},
    {"_id": "c2", "text": "Bread of rye keeps long."},
]
JUDGED = [("e1", "e4", 1), ("c2", "e3", 2), ("c2", "e6", 1)]
PAIRS = [
    ("A tower of iron", "An iron tower", 5.0),
    ("Rye bread keeps", "Bread of rye lasts", 4.0),
    ("A tower of iron", "Yeast in a jar", 0.0),
    ("The sea is cold", "A cold sea", 4.6),
]

pytestmark = pytest.mark.model


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_lines(root / "corpus.jsonl", [{"id": i, "title": title, "text": text} for i, title, text in PASSAGES])
    write_lines(root / "questions.jsonl", QUESTIONS)
    write_lines(root / "claims/corpus.jsonl", [{"_id": i, "title": t, "text": x} for i, t, x in PASSAGES])
    write_lines(root / "claims/queries.jsonl", CLAIMS)
    (root / "claims/qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{document}\t{grade}" for query, document, grade in JUDGED)]
    (root / "claims/qrels/test.tsv").write_text("\n".join(lines) + "\n")
    write_lines(root / "pairs.jsonl", [{"text1": a, "text2": b, "score": score} for a, b, score in PAIRS])
    return root


EXPERIMENT = """
[generator]
backend = "transformers"
[decoding]
max_tokens = 4
[prompt]
few_shot = false
[eval]
data = "{root}"
retrievers = ["cosine", "qnorm", "hybrid", "closed-book"]
k = [1, 2]
depth = 4
measures = ["nDCG@4", "R@2"]
recheck = 2
batch_size = 2
[eval.readers]
short = []
long = ["decoding.max_tokens=6"]
[eval.datasets.towers]
path = "questions.jsonl"
corpus = "corpus.jsonl"
[eval.datasets.claims]
path = "claims"
[eval.datasets.pairs]
path = "pairs.jsonl"
"""

Evaluate = Callable[..., RunResult]


@pytest.fixture(scope="module")
def configured(
    data: Path, tmp_path_factory: pytest.TempPathFactory, minilm_folder: Path, smol_folder: Path
) -> Callable[..., Config]:
    # Weights as they lie, and a data folder of its own: nothing of an earlier test may be found there.
    own = tmp_path_factory.mktemp("own")
    (own / "experiment.toml").write_text(EXPERIMENT.format(root=data))
    models = [
        *untrained(minilm_folder),
        f'generator.model="{smol_folder}"',
        f'data_dir="{own / "data"}"',
    ]

    def configure(*overrides: str) -> Config:
        return load_config(own / "experiment.toml", [*models, *overrides], {})

    return configure


@pytest.fixture(scope="module")
def evaluate(configured: Callable[..., Config]) -> Evaluate:
    def evaluate(out: Path, *overrides: str, said: list[str] | None = None) -> RunResult:
        config = configured(*overrides)
        lines: list[str] = [] if said is None else said
        return run(config, open_experiment(config, [], lines.append), out, log=lines.append)

    return evaluate


@pytest.fixture(scope="module")
def whole(evaluate: Evaluate, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return evaluate(tmp_path_factory.mktemp("whole") / "run")


def test_every_retriever_reader_and_k_is_a_row_under_a_name_of_its_own(whole: RunResult) -> None:
    towers = [own.system for own in whole.metrics.systems if own.dataset == "towers"]
    searching = [f"{name} k={k}" for name in ("cosine", "qnorm", "hybrid") for k in (1, 2)]
    names = [f"{name} {reader}" for reader in ("short", "long") for name in [*searching, "closed-book"]]
    assert towers == names
    # On a retrieval set reader and k change nothing, and closed book ranks nothing.
    assert [own.system for own in whole.metrics.systems if own.dataset == "claims"] == [
        "cosine k=1 short", "qnorm k=1 short", "hybrid k=1 short"]  # fmt: skip
    own = {row.system: row for row in whole.metrics.systems if row.dataset == "towers"}
    assert [own[f"{name} short"].k for name in ("cosine k=1", "cosine k=2", "closed-book")] == [1, 2, 0]
    assert [own[f"{name} short"].depth for name in ("cosine k=1", "cosine k=2", "closed-book")] == [4, 4, 0]


def test_rows_hold_what_figures_and_causes_need(whole: RunResult) -> None:
    view = RunView.open(whole.path)
    row = view.rows["cosine k=2 short", "a1"]
    assert row["passages"][0]["id"] == "e1" and row["passages"][0]["has_answer"] is True
    assert (row["k"], len(row["passages"]), row["dropped"], row["error"]) == (2, 4, 0, None)
    assert row["passages"][0]["words"] == 15 and row["passages"][0]["title"] == "Eiffel Tower"
    norms = {passage["id"]: passage["norm"] for passage in row["passages"]}
    percentiles = {passage["id"]: passage["percentile"] for passage in row["passages"]}
    assert sorted(norms, key=norms.__getitem__) == sorted(percentiles, key=percentiles.__getitem__)
    assert all(percentile in [100 * n / 6 for n in range(1, 7)] for percentile in percentiles.values())
    hybrid = view.rows["hybrid k=1 short", "a1"]["passages"]
    assert {p["id"]: p["norm"] for p in hybrid if p["id"] in norms}.items() <= norms.items()
    facts = view.corpora["towers"]
    assert facts.answerable == {"a1": True, "a2": True, "a3": False}
    [sample] = facts.samples
    assert sample.retrievers == ["cosine", "qnorm", "hybrid"] and sample.of("qnorm k=2 long")
    assert sorted(sample.words) == sorted(len(text.split()) for _, _, text in PASSAGES) and len(sample.norms) == 6
    causes = next(own.causes for own in whole.metrics.systems if own.system == "cosine k=1 short")
    assert causes is not None and causes["no answer in corpus"] == 1 and sum(causes.values()) == 3
    assert {recheck.reader for recheck in view.rechecks} == {"short", "long"}


def test_the_querys_own_document_is_not_ranked_for_it(whole: RunResult) -> None:
    view = RunView.open(whole.path)
    ids = [passage["id"] for passage in view.rows["cosine k=1 short", "e1"]["passages"]]
    assert len(ids) == 4 and "e1" not in ids
    assert [passage["rank"] for passage in view.rows["cosine k=1 short", "e1"]["passages"]] == [1, 2, 3, 4]
    assert view.rows["cosine k=1 short", "e1"]["prediction"] == "" and view.rows["cosine k=1 short", "e1"]["k"] == 0


def test_one_sided_similarities_are_refused_on_pairs_with_the_reason(whole: RunResult) -> None:
    pairs = {own.system: own.measures["Spearman"] for own in whole.metrics.systems if own.dataset == "pairs"}
    assert list(pairs) == ["cosine"] and pairs["cosine"].value == 1.0 and pairs["cosine"].n == 4
    assert "pairs: qnorm was refused" in whole.table and "normalises one side only" in whole.table


def test_the_same_again_asks_nothing_and_another_folder_computes_no_stage_anew(
    whole: RunResult, evaluate: Evaluate, tmp_path: Path
) -> None:
    said: list[str] = []
    assert evaluate(whole.path, said=said).computed == 0
    again = evaluate(tmp_path / "again")
    assert again.metrics == whole.metrics
    rows = RunView.open(again.path).rows
    stages = {stage for row in rows.values() for stage, seconds in row["seconds"].items() if seconds > 0}
    assert stages == {"prompt"}, "rankings and answers come from the first run"
    fresh = evaluate(tmp_path / "fresh", "eval.cache=false")
    old = RunView.open(whole.path).rows
    assert {key: row["prediction"] for key, row in RunView.open(fresh.path).rows.items()} == {
        key: row["prediction"] for key, row in old.items()
    }


def test_another_configuration_in_the_folder_is_refused_by_what_differs(whole: RunResult, evaluate: Evaluate) -> None:
    with pytest.raises(
        EvalError, match=r"holds another run: config\.prompt\.order was \"best_last\", now \"best_first\""
    ):
        evaluate(whole.path, "prompt.order=best_first")
    with pytest.raises(EvalError, match=r"config\.retrievers\.hybrid\.rrf_k was null, now 5"):
        evaluate(whole.path, "retrievers.hybrid.rrf_k=5")


def test_a_retriever_that_is_not_asked_may_change(whole: RunResult, evaluate: Evaluate) -> None:
    assert evaluate(whole.path, "retrievers.dnorm.k=9").computed == 0


def test_nothing_to_evaluate_is_refused_with_what_to_name(configured: Callable[..., Config]) -> None:
    with pytest.raises(EvalError, match="nothing to evaluate: name a data set"):
        open_experiment(Config(), [], print)


def test_data_sets_named_twice_are_refused(configured: Callable[..., Config], data: Path) -> None:
    file = str(data / "questions.jsonl")
    with pytest.raises(EvalError, match="is named twice; give one of them another name"):
        open_experiment(configured(), [f"x={file}", f"x={file}"], print)


def retrieval_only(
    configured: Callable[..., Config], named: list[str], out: Path, *overrides: str, own: bool = False
) -> RunResult:
    config = configured("eval.read=false", *overrides)
    return run(config, open_experiment(config, named, print, own_corpus=own), out, log=print)


def test_pairs_alone_are_compared_with_the_first_that_can_score_them(
    configured: Callable[..., Config], data: Path, tmp_path: Path
) -> None:
    retrievers = 'eval.retrievers=["bm25", "qnorm", "cosine", "dot"]'
    result = retrieval_only(configured, [f"sts={data / 'pairs.jsonl'}"], tmp_path / "run", retrievers)
    assert [own.system for own in result.metrics.systems] == ["cosine", "dot"]
    [pair] = result.metrics.comparisons
    assert (pair.baseline, pair.system, pair.measure, pair.n) == ("cosine", "dot", "Spearman", 4)
    assert "sts: bm25 was refused: it ranks passages" in result.table and "sts: qnorm was refused" in result.table
    short = tmp_path / "short.jsonl"
    write_lines(short, [{"text1": "a", "text2": "b", "score": 1.0}])
    named = [f"short={short}", f"towers={data / 'questions.jsonl'}"]
    corpus = f"corpus={data / 'corpus.jsonl'}"
    table = retrieval_only(configured, named, tmp_path / "both", 'eval.retrievers=["cosine"]', corpus, own=True).table
    assert "short: cosine was refused: a rank correlation needs 2 or more pairs" in table and "towers" in table


def test_pairs_of_which_nothing_can_be_scored_are_refused_before_there_is_a_run(
    configured: Callable[..., Config], data: Path, tmp_path: Path
) -> None:
    named = [f"sts={data / 'pairs.jsonl'}"]
    refused = (
        r"no retriever of eval\.retrievers can score these pairs; qnorm: .*one side only.*; bm25: it ranks passages"
    )
    with pytest.raises(EvalError, match=refused) as error:
        retrieval_only(configured, named, tmp_path / "run", 'eval.retrievers=["qnorm", "bm25"]')
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()
    write_lines(tmp_path / "flat.jsonl", [{"text1": a, "text2": b, "score": 1.0} for a, b, _ in PAIRS])
    with pytest.raises(EvalError, match="nothing was measured; flat: cosine was refused: all 4 golds are 1"):
        retrieval_only(configured, [f"flat={tmp_path / 'flat.jsonl'}"], tmp_path / "flat", 'eval.retrievers=["cosine"]')


def test_an_exported_ranking_comes_back_as_a_retriever_with_the_same_figures(
    configured: Callable[..., Config], data: Path, tmp_path: Path
) -> None:
    named = ["towers", "claims"]
    first = retrieval_only(configured, named, tmp_path / "first", 'eval.retrievers=["hybrid"]', "eval.k=[]")
    table = tmp_path / "elsewhere.toml"
    table.write_text(f'[retrievers.elsewhere]\nkind = "trec_run"\npath = "{first.path}/trec/{{dataset}}.hybrid.run"\n')
    config = configured("eval.read=false")
    elsewhere = load_config(table, [], {}).retrievers["elsewhere"]
    evaluation = config.eval.model_copy(update={"retrievers": ("elsewhere",), "k": ()})
    config = config.model_copy(update={"retrievers": {**config.retrievers, "elsewhere": elsewhere}, "eval": evaluation})
    second = run(config, open_experiment(config, named, print), tmp_path / "second", log=print)
    assert [(own.dataset, own.measures) for own in second.metrics.systems] == [
        (own.dataset, own.measures) for own in first.metrics.systems
    ]
    twice = tmp_path / "twice.jsonl"
    write_lines(twice, [QUESTIONS[0], QUESTIONS[1] | {"question": QUESTIONS[0]["question"]}])
    with pytest.raises(EvalError, match="'a1' and 'a2' have the same text, and elsewhere is a TREC run"):
        run(config, open_experiment(config, [f"towers={twice}"], print), tmp_path / "third", log=print)


def test_figures_are_those_of_the_command_of_ir_measures_on_the_exported_files(whole: RunResult) -> None:
    command = [Path(sys.executable).parent / "ir_measures", "claims.qrels", "claims.qnorm_k=1_short.run", "nDCG@4 R@2"]
    printed = subprocess.run(command, cwd=whole.path / "trec", capture_output=True, text=True, check=True).stdout
    own = next(own for own in whole.metrics.systems if (own.system, own.dataset) == ("qnorm k=1 short", "claims"))
    assert dict(line.split("\t") for line in printed.splitlines()) == {
        name: f"{measured.value:.4f}" for name, measured in own.measures.items()
    }


def test_a_corpus_without_the_judged_passages_is_refused_and_mere_marks_are_left_out(
    configured: Callable[..., Config], data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.jsonl"
    write_lines(other, [{"id": "x1", "title": "", "text": "The Eiffel Tower was finished in 1889."}])
    settings = [f"corpus={other}", 'eval.retrievers=["cosine"]']
    with pytest.raises(
        EvalError, match=r"claims: none of its 3 judged passages is in the corpus .*other.jsonl: name its own"
    ):
        retrieval_only(configured, ["claims"], tmp_path / "run", *settings, own=True)
    result = retrieval_only(configured, ["towers"], tmp_path / "towers", *settings, own=True)
    [own] = result.metrics.systems
    assert "towers: none of its 2 marked passages is in the corpus; they were left out." in result.table
    assert (
        own.measures == {}
        and own.recall_supporting is None
        and own.hit is not None
        and own.hit[0] == pytest.approx(100 / 3)
    )


def test_names_and_folders_that_cannot_be_used_are_refused_before_anything_is_loaded(
    configured: Callable[..., Config], data: Path, tmp_path: Path
) -> None:
    config = configured()
    with pytest.raises(EvalError, match="a data set's name may hold letters"):
        open_experiment(config, [f"../evil={data / 'questions.jsonl'}"], print)
    (tmp_path / "file").write_text("x")
    with pytest.raises(EvalError, match="is a file: give a folder"):
        run(config, open_experiment(config, [], print), tmp_path / "file", log=print)
    with pytest.raises(EvalError, match="no question has answers or marked passages"):
        write_lines(tmp_path / "bare.jsonl", [{"id": "1", "question": "?", "answers": []}])
        open_experiment(config, [str(tmp_path / "bare.jsonl")], print)


def test_ids_that_data_sets_share_are_told_apart(configured: Callable[..., Config], data: Path, tmp_path: Path) -> None:
    file = data / "questions.jsonl"
    said: list[str] = []
    config = configured("eval.read=false", 'eval.retrievers=["bm25"]', f"corpus={data / 'corpus.jsonl'}")
    experiment = open_experiment(config, [f"one={file}", f"two={file}"], said.append, own_corpus=True)
    assert [q.id for own in experiment.datasets for q in own.questions] == [
        f"{n}:a{i}" for n in ("one", "two") for i in (1, 2, 3)
    ]
    assert said[-1] == "data sets share question ids; in this run NAME: stands before each"
    result = run(config, experiment, tmp_path / "run", log=said.append)
    assert {line.split()[0] for line in (result.path / "trec" / "one.bm25.run").read_text().splitlines()} <= {
        "a1",
        "a2",
        "a3",
    }
