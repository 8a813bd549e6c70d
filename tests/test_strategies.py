"""The retrievers that stand on others, put together by configuration over the demo corpus with its real encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_app.config import load_config
from rag_app.demo import QUESTIONS
from rag_app.pipeline import Pipeline
from rag_app.stores import Stores
from retriever.errors import RetrieverError
from retriever.fusion import reciprocal_rank_fusion
from retriever.runfile import bind_questions

pytestmark = pytest.mark.model

TABLES = """
[retrievers.twice]
kind = "iterative"
of = ["cosine"]
[retrievers.once]
kind = "iterative"
of = ["qnorm"]
rounds = 1
[retrievers.fused]
kind = "hybrid"
of = ["qnorm", "bm25"]
depth = 30
"""


@pytest.fixture(scope="module")
def questions() -> list[dict[str, object]]:
    return [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]


def stores(data_dir: Path, folder: Path, more: str = "") -> Stores:
    path = folder / "my.toml"
    path.write_text(f"data_dir = {json.dumps(str(data_dir))}\n{TABLES}{more}", encoding="utf-8")
    return Stores(load_config(path, environ={}), print)


def test_hybrid_of_the_demo_is_the_fusion_of_its_parts(data_dir: Path, tmp_path: Path, questions: list) -> None:
    made = stores(data_dir, tmp_path)
    texts = [question["question"] for question in questions[:20]]
    parts = [made.retriever(name).retrieve(texts, 100).hits for name in ("cosine", "bm25")]
    for hits, vectors, words in zip(made.retriever("hybrid").retrieve(texts, 10).hits, *parts, strict=True):
        assert [hit.row for hit in hits] == [
            row for row, _ in reciprocal_rank_fusion([[hit.row for hit in vectors], [hit.row for hit in words]])[:10]
        ]
        assert all(hit.norm is not None for hit in hits if hit.row in {hit.row for hit in vectors})
    index = made.retriever("hybrid").index
    assert index is made.retriever("cosine").index
    percentiles = index.norm_percentiles([hit.norm for hit in hits if hit.norm is not None])
    assert ((percentiles > 0) & (percentiles <= 100)).all()


def test_a_second_round_finds_pairs_of_passages_that_one_round_misses(
    data_dir: Path, tmp_path: Path, questions: list
) -> None:
    made = stores(data_dir, tmp_path)
    hops = [question for question in questions if question["kind"] == "multihop"]
    assert len(hops) >= 10

    def both(name: str) -> set[str]:
        found = made.retriever(name).retrieve([question["question"] for question in hops], 10).hits
        return {
            question["id"]
            for question, hits in zip(hops, found, strict=True)
            if set(question["gold_ids"]) <= {hit.passage.id for hit in hits}
        }

    # The whole demo corpus is near; docs/results.md has the figures of corpora where most of it is not.
    assert both("twice") - both("cosine")
    assert len(both("twice")) >= len(both("cosine"))


def test_one_round_ranks_as_its_base_and_long_passages_leave_the_question_whole(
    data_dir: Path, tmp_path: Path, questions: list
) -> None:
    made = stores(data_dir, tmp_path)
    texts = [question["question"] for question in questions[:10]]
    assert made.retriever("once").retrieve(texts, 5).hits == made.retriever("qnorm").retrieve(texts, 5).hits
    encoder = made.encoder("minilm-qnorm")
    limit = encoder.spec.query_max_tokens
    whole = encoder.tokenizer(texts[0] + " word" * 1000, truncation=True, max_length=limit)["input_ids"]
    question = encoder.tokenizer(texts[0], add_special_tokens=False)["input_ids"]
    assert len(whole) == limit
    assert whole[1 : 1 + len(question)] == question


def test_a_run_file_of_the_demo_gives_back_what_was_written(data_dir: Path, tmp_path: Path, questions: list) -> None:
    path = tmp_path / "bm25.run"
    made = stores(data_dir, tmp_path, f'[retrievers.theirs]\nkind = "trec_run"\npath = {json.dumps(str(path))}\n')
    some = questions[:5]
    texts = [question["question"] for question in some]
    hits = made.retriever("bm25").retrieve(texts, 7).hits
    path.write_text(
        "".join(
            f"{question['id']} Q0 {hit.passage.id} {hit.rank} {hit.score} bm25\n"
            for question, own in zip(some, hits, strict=True)
            for hit in own
        )
    )
    theirs = made.retriever("theirs")
    with pytest.raises(RetrieverError, match="knows no id of"):
        theirs.retrieve(texts, 7)
    bind_questions(theirs, {question["question"]: question["id"] for question in some})
    assert theirs.retrieve(texts, 7).hits == hits


def test_notes_of_the_parts_reach_the_pipeline(data_dir: Path, tmp_path: Path) -> None:
    stores(data_dir, tmp_path, '[retrievers.length]\nkind = "hybrid"\nof = ["bm25", "qnorm-untrained"]\n')
    pipeline = Pipeline.from_config(tmp_path / "my.toml")
    assert pipeline.notes("qnorm-untrained")
    assert pipeline.notes("length") == pipeline.notes("qnorm-untrained")
    # Searched by what they were trained for.
    assert all(pipeline.notes(name) == [] for name in ("hybrid", "twice", "once", "fused", "dot", "dnorm", "learnable"))
