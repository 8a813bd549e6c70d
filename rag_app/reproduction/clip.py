"""Two towers, with CLIP's symmetric loss and with one direction of it (the paper's table 6), on generated shapes.

A training keeps every length where its similarity is dot: what lengths then follow is the loss's doing. Which figures say
that is decided here, and by what rule in `claims`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rag_app.clip.measures import I2T, T2I, own_ranking
from rag_app.progress import Log, StepProgress
from rag_app.reproduction.measures import Measure, share_of
from rag_app.reproduction.settings import ReproduceConfig

SEARCHED = {T2I: "image", I2T: "text"}
"""The side that a one-directional loss ranks."""


def run(settings: ReproduceConfig, out: Path, *, log: Log, progress: StepProgress) -> dict[str, Any]:
    """Train the grid of the configuration, or go on with it; `rag_app.clip.trainings` keeps each training."""
    from rag_app.clip.trainings import run_clip

    found = run_clip(settings.clip_config(), out, log=log, progress=progress, command="magrag reproduce --only clip")
    measures = [*_lengths(found), *_recalls(found), *_shares(found, out)]
    return {"measures": [measure.to_json() for measure in measures]}


def _lengths(found: Mapping[str, Any]) -> Iterator[Measure]:
    """Cohen's d of each side's norms, of each training that keeps that side's lengths."""
    for row in found["rows"]:
        for side, kept in row["keeps"].items():
            if not kept:
                continue
            items = row["recall"][T2I if side == "text" else I2T]["n"]
            which = "searched " if SEARCHED.get(row["direction"]) == side else ""
            for own in row["by_seed"]:
                norms = own["norms"][side]
                yield Measure(
                    f"{row['direction']}/{row['similarity']}/seed {own['seed']}/Cohen's d, {which}{side}",
                    math.nan if norms["d"] is None else norms["d"],
                    _between(norms["d_interval"]),
                    items,
                )


def _recalls(found: Mapping[str, Any]) -> Iterator[Measure]:
    """Recall@1 less that of the symmetric loss by cosine, each ranked as it was trained."""
    for one in found["differences"]:
        direction, similarity = one["system"].split()
        way = "trained" if one["measure"] == direction else "other" if direction in SEARCHED else one["measure"]
        yield Measure(
            f"{direction}/{similarity}/recall@1 of the {way} way - both, cosine",
            one["difference"],
            _between(one["interval"]),
            one["n"],
        )


def _shares(found: Mapping[str, Any], out: Path) -> Iterator[Measure]:
    """Recall@1 of the way that a one-directional loss does not train, over that of the symmetric loss by cosine.

    A difference in points could not be large where little is found in the first place.
    """
    from rag_app.clip.trainings import BASELINE, hits_of

    seeds = {(row["direction"], row["similarity"]): [own["seed"] for own in row["by_seed"]] for row in found["rows"]}

    def hits(cell: tuple[str, str], asked: str) -> list[float]:
        direction, similarity = cell
        return hits_of(out, direction, similarity, seeds[cell], asked, own_ranking(direction, similarity, asked))

    for cell in seeds if BASELINE in seeds else ():
        if cell[0] in SEARCHED:
            asked = T2I if cell[0] == I2T else I2T
            name = f"{cell[0]}/{cell[1]}/recall@1 of the other way over both, cosine"
            yield share_of(name, hits(cell, asked), hits(BASELINE, asked))


def _between(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (interval[0], interval[1])
