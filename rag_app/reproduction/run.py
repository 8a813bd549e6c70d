"""All experiments in order, each kept when it is finished, and the claims' table after each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from eval.environment import describe_environment
from rag_app.config_layers import nearest
from rag_app.errors import ConfigError
from rag_app.progress import Log, StepProgress, stages
from rag_app.reproduction import clip, gamma, gradients, initialisation, pairs, symmetry
from rag_app.reproduction.claims import judge
from rag_app.reproduction.measures import Measure
from rag_app.reproduction.report import markdown
from rag_app.reproduction.settings import ReproduceConfig
from retriever.shards import write_json, write_text

FIGURES, RESULT, REPORT = "figures.json", "reproduction.json", "reproduction.md"


class Experiment(Protocol):
    """From settings to figures as JSON values: {"measures": [...], ...}.

    Args:
        settings: Of all experiments.
        out: This one's folder, made or gone on with.
        log: Told, in a line, of what is done.
        progress: Told of (what, done, total).
    """

    def __call__(  # noqa: D102
        self, settings: ReproduceConfig, out: Path, *, log: Log, progress: StepProgress
    ) -> dict[str, Any]: ...


# Those that take seconds first. A further one is a function here, a table of its name in the settings, and its claims.
EXPERIMENTS: dict[str, Experiment] = {
    "gradients": gradients.run,
    "symmetry": symmetry.run,
    "clip": clip.run,
    "gamma": gamma.run,
    "initialisation": initialisation.run,
    "pairs": pairs.run,
}


VERSIONS = {"gradients": 2, "clip": 2}
"""Of what an experiment measures, where it is not the first: kept figures of another version are made anew, from kept trainings."""


def reproduce(
    settings: ReproduceConfig,
    out: Path,
    *,
    only: Sequence[str] = (),
    log: Log,
    progress: StepProgress,
    command: str = "",
) -> dict[str, Any]:
    """Run the experiments that are not there yet, and judge the claims by all that are.

    Args:
        settings: What each experiment uses.
        out: Folder of all, new or to go on with.
        only: Names of experiments; () runs all.
        log: Told, in a line, of what is done.
        progress: Told of (what, done, total).
        command: What a person typed, for the report.

    Returns:
        What reproduction.json holds.

    Raises:
        ConfigError: No such experiment, or figures of other settings are in the folder.
    """
    for name in only:
        if name not in EXPERIMENTS:
            known = ", ".join(EXPERIMENTS)
            raise ConfigError(f'--only: there is no experiment "{name}"{nearest(name, EXPERIMENTS)} (there is {known})')
    wanted = [name for name in EXPERIMENTS if name in only or not only]
    kept = {name: _kept(out / name, settings.identity(name), VERSIONS.get(name, 1)) for name in EXPERIMENTS}
    if missing := [name for name in wanted if kept[name] is None]:
        told = ", ".join(name for name in wanted if name not in missing)
        log(f"to do: {', '.join(missing)}" + (f"; there already: {told}" if told else ""))
    result = _report(settings, out, kept, command)
    for name in stages("experiment", missing, str, log):
        (out / name).mkdir(parents=True, exist_ok=True)
        figures = EXPERIMENTS[name](settings, out / name, log=log, progress=progress)
        noted = {"version": VERSIONS.get(name, 1), "of": settings.identity(name), "figures": figures}
        write_json(out / name / FIGURES, noted)
        kept[name] = figures
        result = _report(settings, out, kept, command)
    return result


def _kept(folder: Path, identity: dict[str, Any], version: int) -> dict[str, Any] | None:
    """Figures of a finished experiment; None where it is not finished, or was by another version.

    Raises:
        ConfigError: They are of other settings, or damaged.
    """
    path = folder / FIGURES
    if not path.is_file():
        return None
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        before, figures = dict(noted["of"]), dict(noted["figures"])
        list(map(Measure.from_json, figures["measures"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged: delete it, and the experiment is finished again") from error
    now = json.loads(json.dumps(identity))
    if changed := [key for key in now if before.get(key) != now[key]]:
        raise ConfigError(
            f"{folder} holds figures of other settings ({', '.join(changed)}): choose another --out, or delete that folder"
        )
    return figures if noted.get("version", 1) == version else None


def _report(
    settings: ReproduceConfig, out: Path, kept: dict[str, dict[str, Any] | None], command: str
) -> dict[str, Any]:
    """Write reproduction.json and reproduction.md."""
    done = {name: figures for name, figures in kept.items() if figures is not None}
    measures = {name: [Measure.from_json(own) for own in figures["measures"]] for name, figures in done.items()}
    judged = judge(measures, {name: settings.seeds(name) for name in EXPERIMENTS})
    environment = describe_environment()
    result = {
        "format": 1,
        "command": command,
        "environment": environment,
        "claims": [own.to_json() for own in judged],
        "experiments": done,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / RESULT, result)
    write_text(out / REPORT, markdown(judged, measures, command, environment))
    return result
