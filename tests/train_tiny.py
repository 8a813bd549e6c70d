"""Trains the tiny encoder in a process of its own: FOLDER MODEL [KILL_AFTER]. Run by tests of kills and of several processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retriever.encoder import Encoder
from retriever.similarity import Similarity, similarity_from_name
from retriever.training.crops import CropSettings
from retriever.training.lora import add_lora
from retriever.training.projection import add_projection
from retriever.training.result import TrainingResult
from retriever.training.settings import LoraSettings, TrainingSettings
from retriever.training.trainer import Trainer
from tests.tiny_encoder import load_tiny, tiny_pairs

SETTINGS: dict[str, Any] = {
    "similarity": similarity_from_name("learnable"),
    "scale": "matched",
    "steps": 9,
    "batch_size": 8,
    "learning_rate": 3e-3,
    "warmup": 0.2,
    "hard_negatives": 1,
    "crops": CropSettings(0.5, 3, 12),
    "lora": LoraSettings(4, 8.0, 0.1),
    "eval_every": 4,
    "save_every": 2,
    "query_max_tokens": 32,
    "passage_max_tokens": 64,
    "seed": 5,
}


def trainer(folder: Path, model: Path, changed: Mapping[str, Any] | None = None, **options: Any) -> Trainer:
    settings = TrainingSettings(**{**SETTINGS, **(changed or {})})
    encoder = load_tiny(model)
    adapter = add_lora(encoder, settings.lora, settings.seed) if settings.lora else None
    if settings.projection:
        add_projection(encoder)
    options = {"pairs": tiny_pairs(40), "dev": dev, "held_out": tiny_pairs(10, seed=1), **options}
    return Trainer(encoder, settings=settings, folder=folder, adapter=adapter, **options)


def dev(encoder: Encoder, similarity: Similarity) -> dict[str, float]:
    """Any number that follows from the weights will do."""
    norms = encoder.encode_queries(["w1 w2 w3", "w7 w9"]).norms
    return {"score": float(norms[0]), "gamma": similarity.gamma_d}


def run(folder: Path, model: Path, kill_after: int = 0, **changed: Any) -> TrainingResult:
    def report(done: int, steps: int, figures: Mapping[str, float]) -> None:
        if kill_after and done == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    return trainer(folder, model, changed, report=report).run()


if __name__ == "__main__":
    from retriever.training.distributed import close, init_from_environment

    init_from_environment()
    without_chance = {"lora": LoraSettings(4), "dropout": False} if "WORLD_SIZE" in os.environ else {}
    kill_after = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    # Every kind of weight that a training can have is to outlive a kill: the layer's, the adapter's, the exponents.
    run(Path(sys.argv[1]), Path(sys.argv[2]), kill_after, projection=kill_after > 0, **without_chance)
    close()
