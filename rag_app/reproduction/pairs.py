"""How much data: the same training on more and more pairs, each seen as often (the paper's figure 8, in small)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval.sweep import RANKING
from rag_app.errors import ConfigError
from rag_app.progress import Log, StepProgress
from rag_app.reproduction.judged import change_of, compare, gains, sweep_measures
from rag_app.reproduction.settings import ReproduceConfig
from retriever.training.pairs import read_pairs


def run(settings: ReproduceConfig, out: Path, *, log: Log, progress: StepProgress) -> dict[str, Any]:
    """A sweep for each size, and by question what the largest adds to the lead over cosine that the smallest has.

    Raises:
        ConfigError: There are fewer pairs than a size asks for.
    """
    own = settings.pairs
    base = settings.train_config(own.set)
    there = len(read_pairs(base.data.pairs, columns=base.data.columns))
    if max(own.sizes) > there:
        raise ConfigError(f"pairs.sizes asks for {max(own.sizes):,} pairs, and {base.data.pairs} has {there:,}")
    measures = []
    for size in own.sizes:
        config = base.model_copy(update={"data": base.data.model_copy(update={"n": size})})
        folder = out / str(size)
        found = compare(settings, config, folder, own.similarities, own.seeds, out.parent / "sets", log, progress)
        measures += sweep_measures(found, f"{size} pairs")
    first, last = min(own.sizes), max(own.sizes)
    for dataset in settings.sets:
        for name in own.similarities:
            if name != "cosine":
                after, before = (gains(out / str(size), name, own.seeds, dataset) for size in (last, first))
                measures.append(change_of(f"{dataset}/{last} - {first} pairs/{name} - cosine/{RANKING}", after, before))
    return {"pairs": there, "measures": [measure.to_json() for measure in measures]}
