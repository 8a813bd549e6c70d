"""Where learnable exponents go, with the paper's learning rate and with their own (the paper's figure 4).

Adam moves a parameter by about its learning rate a step at most (Kingma & Ba, arXiv 1412.6980, section 2.1), and the
sigmoid's slope is ¼ at most: so γ gets at most about ¼ of the sum of the rates away from where it started, whatever
the data say. A path that ends nearer than that tells nothing of what the data prefer.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from rag_app.errors import ConfigError
from rag_app.progress import Log, StepProgress
from rag_app.reproduction.measures import Measure, mean_of_trainings
from rag_app.reproduction.settings import ReproduceConfig
from retriever.training.figures import LOG

_POINTS = 60
"""Of a path that are kept, for a plot."""


def run(settings: ReproduceConfig, out: Path, *, log: Log, progress: StepProgress) -> dict[str, Any]:
    """Train with each rate and seed, and read the paths from the trainings' logs."""
    from rag_app.training.encoder import train

    own, measures, paths = settings.gamma, list[Measure](), dict[str, Any]()
    base = settings.train_config(own.set)
    for name, rate in own.rates.items():
        found = []
        for seed in own.seeds:
            recipe = base.training.model_copy(update={"gamma_lr": rate})
            config = base.model_copy(update={"similarity": "learnable", "seed": seed, "training": recipe})
            folder = out / f"{name}-{seed}"
            log(f"learnable exponents, rate {rate}, seed {seed}")
            train(config, folder, log=log, progress=progress)
            peak = recipe.learning_rate if rate == "encoder" else float(rate)
            found.append(read_path(folder / LOG, peak / recipe.learning_rate))
        for side in ("gamma_q", "gamma_d"):
            ends = [path[side][-1] for path in found]
            moved = max(max(abs(value - path[side][0]) for value in path[side]) for path in found)
            measures.append(mean_of_trainings(f"{name}/{side} at the end", ends))
            measures.append(Measure(f"{name}/{side} farthest from its start", moved, None, len(found)))
        measures.append(Measure(f"{name}/what the rate allows", max(path["allowed"] for path in found)))
        paths[name] = {
            str(seed): [list(point) for point in _thinned(path)] for seed, path in zip(own.seeds, found, strict=True)
        }
    return {"paths": paths, "measures": [measure.to_json() for measure in measures]}


def read_path(log: Path, ratio: float) -> dict[str, Any]:
    """γq and γd after each step, and how far a γ can get with such rates.

    Args:
        log: A training's log.csv.
        ratio: Of γ's learning rate to the encoder's, whose rates stand in the log.

    Raises:
        ConfigError: It does not begin with the training's first step.
    """
    with log.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or rows[0]["step"] != "0":
        raise ConfigError(f"{log} does not hold the whole training: delete {log.parent}, and it is trained again")
    rates = [float(row["learning_rate"]) for row in rows if row["learning_rate"]]
    path: dict[str, Any] = {side: [float(row[side]) for row in rows] for side in ("gamma_q", "gamma_d")}
    return path | {"step": [int(row["step"]) for row in rows], "allowed": ratio * sum(rates) / 4}


def _thinned(path: dict[str, Any]) -> list[tuple[int, float, float]]:
    points = list(zip(path["step"], path["gamma_q"], path["gamma_d"], strict=True))
    every = max(1, len(points) // _POINTS)
    kept = points[::every]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]
