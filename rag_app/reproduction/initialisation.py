"""Random weights against pre-trained ones: the paper's tables 2 and 3, the same training from two starts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.sweep import RANKING
from generator.quiet import quiet_transformers
from rag_app.progress import Log, StepProgress
from rag_app.reproduction.judged import change_of, compare, gains, load_encoder, sweep_measures
from rag_app.reproduction.settings import ReproduceConfig

if TYPE_CHECKING:
    from retriever.encoder import Encoder

PRETRAINED, RANDOM = "pre-trained", "random"


def run(settings: ReproduceConfig, out: Path, *, log: Log, progress: StepProgress) -> dict[str, Any]:
    """Two sweeps, and by question what the start changes in a similarity's lead over cosine."""
    own = settings.initialisation
    config = settings.train_config(own.set)
    folder = out / "random-weights"
    if not folder.is_dir():
        write_random(load_encoder(config.encoder, config.data_dir, log), folder)
    starts = {
        PRETRAINED: config,
        RANDOM: config.model_copy(
            update={"encoder": config.encoder.model_copy(update={"model": str(folder), "adapter": ""})}
        ),
    }
    measures = []
    for start, training in starts.items():
        found = compare(
            settings, training, out / start, own.similarities, own.seeds, out.parent / "sets", log, progress
        )
        measures += sweep_measures(found, start)
    for dataset in settings.sets:
        for name in own.similarities:
            if name != "cosine":
                after, before = (gains(out / start, name, own.seeds, dataset) for start in (PRETRAINED, RANDOM))
                label = f"{dataset}/{PRETRAINED} - {RANDOM}/{name} - cosine/{RANKING}"
                measures.append(change_of(label, after, before))
    return {"measures": [measure.to_json() for measure in measures]}


def write_random(encoder: Encoder, folder: Path, seed: int = 0) -> None:
    """The encoder's architecture and tokenizer with fresh weights, as a folder that loads like any model.

    Args:
        encoder: Whose architecture it is.
        folder: New; it appears whole.
        seed: Of the weights.
    """
    import torch
    from transformers import AutoModel

    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    torch.manual_seed(seed)
    with quiet_transformers():
        AutoModel.from_config(encoder.model[0].auto_model.config).save_pretrained(partial)
    encoder.tokenizer.save_pretrained(partial)
    partial.rename(folder)
