"""`magrag train-clip`: two towers trained alike but for the loss's direction and the similarity, and compared.

Everything lies in one folder. A training that is finished there is kept, whatever else the grid asks for later; one that
was stopped starts again, for it is short. A model is saved before it is evaluated, so that a fault in what is evaluated on
(a damaged picture) costs no training.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.environment import describe_environment, revision_of, versions_of
from eval.paired import Comparison, compare_values, with_holm
from eval.significance import bootstrap_interval
from generator.quiet import quiet_transformers
from rag_app.clip.config import ClipConfig, Direction
from rag_app.clip.data import load_towers, make_towers, open_pictures
from rag_app.clip.measures import I2T, RANKINGS, T2I, captions_of, kept_sides, measure, own_ranking, truth
from rag_app.clip.report import clip_markdown
from rag_app.errors import ConfigError
from rag_app.progress import Log, StepProgress, stages
from retriever.shards import write_json, write_text

if TYPE_CHECKING:
    from retriever.training.two_towers import TwoTowers

TRAININGS, TRAINING, MODEL = "train", "training.json", "model"
TRAINED = "trained.json"
"""Beside a model that is trained and not evaluated yet."""
RESULT, REPORT = "clip.json", "clip.md"
BASELINE: tuple[Direction, str] = ("both", "cosine")
"""What the others are compared with: CLIP's own loss."""


def run_clip(config: ClipConfig, out: Path, *, log: Log, progress: StepProgress, command: str = "") -> dict[str, Any]:
    """Train the grid, measure it, write clip.json and clip.md.

    Args:
        config: See `rag_app.clip.config`.
        out: Folder, new or to go on with.
        log: Told, in a line, of what is done.
        progress: Told of (what, done, total).
        command: What a person typed, for the report.

    Returns:
        What clip.json holds: "made", "rows" (one for each direction and similarity) and "differences".

    Raises:
        ConfigError: Data or columns that are not there, or a training's folder that holds another.
        WeightsError: The model or the data set cannot be had.
        RetrieverError: See `retriever.training.two_towers.train_towers`.
    """
    grid, work = config.grid, _Work(config, log)
    cells = list(product(grid.seeds, grid.directions, grid.similarities))
    found: dict[tuple[Direction, str], list[dict[str, Any]]] = {}
    for seed, direction, similarity in stages("training", cells, lambda own: f"{own[1]}, {own[2]}, seed {own[0]}", log):
        folder = out / TRAININGS / f"{direction}-{similarity}-{seed}"
        mark = _fingerprint(config, direction, similarity, seed)
        result = _kept(folder, TRAINING, mark)
        if result is None:
            result = work.finish(folder, mark, direction, similarity, seed, progress)
        found.setdefault((direction, similarity), []).append(result)
    rows = [_row(*cell, results) for cell, results in found.items()]
    result = {"made": _made(config, command), "rows": rows, "differences": _differences(found)}
    write_json(out / RESULT, result)
    write_text(out / REPORT, clip_markdown(result))
    return result


class _Work:
    """The data, read when the first training needs it."""

    def __init__(self, config: ClipConfig, log: Log) -> None:
        self.config, self.log = config, log

    @cached_property
    def _parts(self) -> Any:
        train, test = open_pictures(self.config, self.log)
        captions, paired = captions_of(test)
        return train, test, captions, paired, truth(test, captions)

    def finish(
        self, folder: Path, mark: str, direction: Direction, similarity: str, seed: int, progress: StepProgress
    ) -> dict[str, Any]:
        """One training and its measures, which are written last; a model that is trained already is measured alone."""
        _, test, captions, paired, true = self._parts
        facts = _kept(folder, TRAINED, mark)
        if facts is None:
            towers, facts = self._train(folder, mark, direction, similarity, seed, progress)
        else:
            self.log(f"{folder / MODEL} is trained already, and is evaluated")
            towers = load_towers(self.config, folder / MODEL)
        began, size = time.monotonic(), self.config.training.eval_batch_size
        texts, images = towers.encode_texts(captions, size), towers.encode_images(test.n, test.pixels, size)
        result = facts | measure(texts, images, captions, paired, true, test.scenes)
        result["seconds"] = round(facts["seconds"] + time.monotonic() - began, 1)
        write_json(folder / TRAINING, result)
        (folder / TRAINED).unlink()
        return result

    def _train(
        self, folder: Path, mark: str, direction: Direction, similarity: str, seed: int, progress: StepProgress
    ) -> tuple[TwoTowers, dict[str, Any]]:
        """The model, saved, and what is known of its training, written when it is."""
        from retriever.similarity import similarity_from_name
        from retriever.training.settings import TrainingSettings
        from retriever.training.two_towers import train_towers

        train = self._parts[0]
        settings = self.config.training.model_dump(exclude={"device", "eval_batch_size"})
        towers = make_towers(self.config, seed)
        began = time.monotonic()
        found = train_towers(
            towers,
            train.pairs,
            train.pixels,
            direction,
            TrainingSettings(similarity=similarity_from_name(similarity), seed=seed, **settings),
            report=lambda done, total, figures: progress(f"{direction}, {similarity}, seed {seed}", done, total),
        )
        folder.mkdir(parents=True, exist_ok=True)
        with quiet_transformers():
            towers.model.save_pretrained(folder / MODEL)
            towers.tokenizer.save_pretrained(folder / MODEL)
        facts = {"fingerprint": mark, "seed": seed, "seconds": time.monotonic() - began, **found}
        write_json(folder / TRAINED, facts)
        return towers, facts


def hits_of(out: Path, direction: str, similarity: str, seeds: Sequence[int], asked: str, ranking: str) -> list[float]:
    """By query, whether the first item found is right: the mean over the seeds of trainings that are finished there."""
    paths = [out / TRAININGS / f"{direction}-{similarity}-{seed}" / TRAINING for seed in seeds]
    return _over_seeds([json.loads(path.read_text("utf-8")) for path in paths], asked, ranking)


def _kept(folder: Path, name: str, mark: str) -> dict[str, Any] | None:
    """What a file of a training's folder notes; None where it is not there.

    Raises:
        ConfigError: It is damaged, or of other settings.
    """
    path = folder / name
    if not path.is_file():
        return None
    try:
        result: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error}); delete it and start again") from error
    if result.get("fingerprint") != mark:
        raise ConfigError(f"{folder} holds a training by other settings; choose another --out, or delete it")
    return result


def _fingerprint(config: ClipConfig, *cell: object) -> str:
    """Of all settings that a training depends on; the rest of the grid may change."""
    settings = {name: value for name, value in config.recipe().items() if name != "grid"}
    return hashlib.sha256(json.dumps([settings, *cell], sort_keys=True).encode()).hexdigest()[:16]


def _row(direction: Direction, similarity: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The seeds of one cell: a query counts with its mean over seeds, and intervals are over queries."""
    recall: dict[str, Any] = {}
    for asked in (T2I, I2T):
        columns = np.array([_over_seeds(results, asked, ranking) for ranking in RANKINGS]).T
        intervals = bootstrap_interval(columns, 0)
        recall[asked] = {
            "n": len(columns),
            "own": own_ranking(direction, similarity, asked),
            **{
                ranking: {
                    "value": float(columns[:, place].mean()),
                    "interval": intervals[place] if intervals else None,
                    "by_seed": [fmean(result["hits"][asked][ranking]) for result in results],
                }
                for place, ranking in enumerate(RANKINGS)
            },
        }
    facts = ("seed", "scale", "loss", "seconds", "norms")
    return {
        "direction": direction,
        "similarity": similarity,
        "keeps": kept_sides(direction, similarity),
        "recall": recall,
        "by_seed": [{name: result[name] for name in facts} for result in results],
    }


def _differences(found: Mapping[tuple[Direction, str], Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Each cell against CLIP's own loss, both ranked as they were trained; [] where the grid lacks that."""
    if BASELINE not in found:
        return []

    def values(cell: tuple[Direction, str]) -> dict[str, dict[str, float]]:
        return {
            # Queries have no names but their places.
            asked: {
                str(place): value
                for place, value in enumerate(_over_seeds(found[cell], asked, own_ranking(*cell, asked)))
            }
            for asked in (T2I, I2T)
        }

    before = values(BASELINE)
    compared: list[Comparison] = []
    for cell in found:
        if cell != BASELINE:
            compared += compare_values(" ".join(BASELINE), " ".join(cell), "", before, values(cell), 0)
    return [asdict(one) for one in with_holm(compared)]


def _over_seeds(results: Sequence[Mapping[str, Any]], asked: str, ranking: str) -> list[float]:
    return np.mean([result["hits"][asked][ranking] for result in results], axis=0).tolist()


def _made(config: ClipConfig, command: str) -> dict[str, Any]:
    environment = describe_environment()
    data = config.data
    generated = f"generated shapes, {data.train:,} pictures to train on, {data.test:,} of part {data.evaluate}"
    return {
        "command": command,
        "data": f"{generated}, seed {data.seed}" if data.kind == "shapes" else f"{data.hub}, {data.test_split}",
        "model": config.model.name or "CLIP of the configuration's sizes, from random weights",
        "settings": config.model_dump(mode="json"),
        "hardware": environment["hardware"],
        "versions": versions_of(environment, "magrag", "torch", "transformers"),
        "revision": revision_of(environment),
    }
