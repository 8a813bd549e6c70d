"""A configuration of `magrag reproduce` in its smallest form: the tiny random BERT, and data that takes no time."""

from __future__ import annotations

import json
from pathlib import Path

from tests.config_files import CONFIGS
from tests.random_bert import random_bert, some_texts
from tests.sweep_example import write_example, write_lines

CLIP = CONFIGS / "clip-shapes.toml"
CONFIGURATION = """
data = "{root}"
training = "train.toml"
train_pairs = "pairs.jsonl"
set = ["mining.kind=none", "training.hard_negatives=0", "training.eval_every=0", "training.save_every=1", "dev.queries=0"]
[sets.asked]
path = "asked.jsonl"
corpus = "corpus.jsonl"
queries = 0
pool = 12
[symmetry]
pairs = "liked.jsonl"
n = 12
similarities = ["cosine", "qnorm", "dnorm"]
set = ["lora.rank=0"]
[symmetry.sets]
sts = "sts.jsonl"
[initialisation]
set = ["lora.rank=0"]
[pairs]
sizes = [20, 50]
[gradients]
queries = 20
dot = ""
dnorm = ""
[clip]
config = "{clip}"
set = [
    "data.train=60",
    "data.test=20",
    "training.steps=2",
    "training.batch_size=16",
    'grid.similarities=["cosine", "dot"]',
    "grid.seeds=[0]",
]
[gamma]
seeds = [0, 1]
[gamma.rates]
paper = "encoder"
own = 1e-2
"""


def write_reproduction(root: Path) -> Path:
    """Weights, data and the configuration in a folder; returns the last."""
    write_example(root)
    random_bert(root / "bert", seed=3)  # not the seed of the random weights that it is compared with
    left, right = some_texts(40, seed=11), some_texts(40, seed=12)
    rows = [{"text1": a, "text2": b, "score": 3 + i % 3} for i, (a, b) in enumerate(zip(left, right, strict=True))]
    write_lines(root / "liked.jsonl", rows)
    path = root / "reproduce-tiny.toml"
    path.write_text(CONFIGURATION.format(root=root, clip=CLIP), "utf-8")
    return path


def figures_of(out: Path, experiment: str) -> dict[str, dict[str, object]]:
    """Measures of a finished experiment by name."""
    kept = json.loads((out / experiment / "figures.json").read_text("utf-8"))["figures"]
    return {own["name"]: own for own in kept["measures"]}
