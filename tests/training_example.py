"""A training of the tiny random BERT, which takes seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rag_app.training.config import load_train_config
from rag_app.training.encoder import train
from tests.tiny_encoder import tiny_pairs, write_rows


def write_training(tmp_path: Path, model: Path) -> Path:
    """A configuration of four steps over 60 pairs, one of which an evaluation asks."""
    pairs = write_rows(tmp_path / "pairs.jsonl", tiny_pairs(60))
    asked = tmp_path / "asked.jsonl"
    question = {"id": "1", "question": tiny_pairs(60)[7].query.upper() + "?", "answers": ["w1"]}
    asked.write_text(json.dumps(question) + "\n")
    path = tmp_path / "t.toml"
    path.write_text(
        f"""
        data_dir = "{tmp_path / "data"}"
        [encoder]
        model = "{model}"
        preset = "mean"
        query_max_tokens = 32
        passage_max_tokens = 64
        [data]
        pairs = "{pairs}"
        evaluation = ["{asked}"]
        [training]
        steps = 4
        batch_size = 8
        eval_every = 2
        hard_negatives = 2
        learning_rate = 1e-3
        passage_max_tokens = 64
        [dev]
        queries = 10
        pool = 20
        """
    )
    return path


def run(config: Path, out: Path, *overrides: str, told: list[str] | None = None) -> tuple[Any, list[str]]:
    """The result of a training, and what it said."""
    told = [] if told is None else told
    result = train(load_train_config(config, overrides), out, log=told.append, progress=lambda *_: None)
    return result, told
