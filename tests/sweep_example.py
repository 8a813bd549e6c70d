"""Generated data and configurations for sweeps of the tiny random BERT, which take seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag_app.config import Config, load_config
from rag_app.sweep.run import sweep
from rag_app.training.config import TrainConfig, load_train_config
from tests.random_bert import random_bert, some_texts
from tests.random_llama import random_llama

TRAINING = """
data_dir = "{root}/data"
[encoder]
model = "{root}/bert"
query_max_tokens = 16
passage_max_tokens = 32
[data]
pairs = "{root}/pairs.jsonl"
[mining]
kind = "bm25"
negatives = 1
[training]
steps = 4
batch_size = 8
learning_rate = 5e-2
hard_negatives = 1
query_max_tokens = 16
passage_max_tokens = 32
eval_every = 2
[lora]
rank = 4
[dev]
queries = 8
pool = 20
"""
EXPERIMENT = """
[generator]
backend = "transformers"
model = "{root}/llama"
context_length = 512
[prompt]
few_shot = false
max_tokens = 480
[decoding]
max_tokens = 2
[eval]
data = "{root}"
measures = ["R@5"]
k = [1]
recheck = 2
[eval.datasets.asked]
path = "asked.jsonl"
corpus = "corpus.jsonl"
[eval.datasets.again]
path = "again.jsonl"
corpus = "corpus.jsonl"
[eval.datasets.claims]
path = "claims"
[eval.datasets.pairs]
path = "sts.jsonl"
[sweep]
in_domain = ["asked"]
read = ["asked"]
n = 6
"""


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_example(root: Path) -> None:
    """Weights, training pairs, two question sets over one corpus, a BEIR folder and sentence pairs."""
    random_bert(root / "bert")
    random_llama(root / "llama")
    queries, positives = some_texts(60, seed=1), some_texts(60, seed=2, longest=14)
    write_lines(root / "pairs.jsonl", [{"query": q, "positive": p} for q, p in zip(queries, positives, strict=True)])
    passages = list(dict.fromkeys(some_texts(44, seed=3, longest=16)))
    write_lines(root / "corpus.jsonl", [{"id": f"p{i}", "title": "", "text": text} for i, text in enumerate(passages)])
    for name, seed, n, first in (("asked", 4, 12, 0), ("again", 5, 9, 24)):
        texts = some_texts(n, seed=seed)
        rows = [
            {
                "id": f"{name}{i}",
                "question": text,
                "answers": ["tower"],
                "supporting_ids": [f"p{first + i}", f"p{2 * i + 1}"],
            }
            for i, text in enumerate(texts)
        ]
        write_lines(root / f"{name}.jsonl", rows)
    claims = root / "claims"
    own = list(dict.fromkeys(some_texts(30, seed=6, longest=12)))
    write_lines(claims / "corpus.jsonl", [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(own)])
    write_lines(
        claims / "queries.jsonl", [{"_id": f"c{i}", "text": text} for i, text in enumerate(some_texts(7, seed=7))]
    )
    (claims / "qrels").mkdir()
    judged = [f"c{i}\td{i}\t1\nc{i}\td{i + 9}\t0" for i in range(7)]
    (claims / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    left, right = some_texts(15, seed=8), some_texts(15, seed=9)
    rows = [{"text1": a, "text2": b, "score": i % 6} for i, (a, b) in enumerate(zip(left, right, strict=True))]
    write_lines(root / "sts.jsonl", rows)
    (root / "train.toml").write_text(TRAINING.format(root=root))
    (root / "experiment.toml").write_text(EXPERIMENT.format(root=root))


def training(root: Path, *overrides: str) -> TrainConfig:
    return load_train_config(root / "train.toml", overrides)


def experiment(root: Path, data_dir: Path | None = None, asking: Sequence[str] = ()) -> Config:
    return load_config(root / "experiment.toml", [f'data_dir="{data_dir or root / "data"}"', *asking], environ={})


def run_sweep(
    root: Path,
    out: Path,
    similarities: Sequence[str],
    seeds: Sequence[int],
    *overrides: str,
    data_dir: Path | None = None,
    asking: Sequence[str] = (),
    told: list[str] | None = None,
) -> dict[str, Any]:
    """A sweep's result; `asking` changes the experiment, and what it says goes into `told`."""
    result = sweep(
        training(root, *overrides),
        out,
        similarities=similarities,
        seeds=seeds,
        experiment=experiment(root, data_dir, asking),
        log=[].append if told is None else told.append,
        command="magrag sweep train.toml",
        progress=lambda what, done, total: None,
    )
    return result.to_json()
