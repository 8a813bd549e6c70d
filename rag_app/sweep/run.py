"""`magrag sweep`: the same training under several similarities and seeds, each evaluated as it was trained, and compared.

Everything lies in one folder and is taken up where it was left: trainings in train/, evaluations in eval/ (one folder for
each encoder, so that seeds and similarities can be added later), the comparison in sweep.json and sweep.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.environment import describe_environment, revision_of, versions_of
from eval.report.sweep_tables import sweep_markdown
from eval.sweep import UNTRAINED, Sweep, compare_trainings
from rag_app.config_layers import nearest
from rag_app.errors import ConfigError
from rag_app.progress import Log, StepProgress, stages
from rag_app.sweep.evaluation import Candidate, Plan, evaluate_all
from rag_app.training.config import TrainConfig
from rag_app.training.folder import TRAIN
from retriever.shards import write_text
from retriever.similarity import NAMES
from retriever.training.result import TrainingResult
from retriever.wording import counted

if TYPE_CHECKING:
    from rag_app.config import Config

TRAININGS, EVALUATIONS = "train", "eval"
RESULT, REPORT = "sweep.json", "sweep.md"


def sweep(
    config: TrainConfig,
    out: Path,
    *,
    similarities: Sequence[str],
    seeds: Sequence[int],
    experiment: Config | Plan | None,
    in_domain: Sequence[str] = (),
    log: Log,
    progress: StepProgress,
    command: str = "",
) -> Sweep:
    """Train, evaluate and compare.

    Args:
        config: The training; its similarity and seed are set by the two lists.
        out: Folder of the sweep, new or to go on with.
        similarities: Names, each once; "learnable" starts from the configuration's gammas.
        seeds: Of every training.
        experiment: With [eval] and [sweep], or what is asked as it was read; None compares development scores alone.
        in_domain: In place of the experiment's.
        log: Told, in a line, of what is done.
        progress: Told of (what, done, total).
        command: What a person typed, for the reports.

    Pairs whose query any data set of the experiment asks, drawn or not, are left out of every training.

    Raises:
        ConfigError: A similarity that there is not, data sets that the experiment lacks, or a training's folder that holds
            another.
        RetrieverError: See `rag_app.training.encoder.train`.
        EvalError: See `rag_app.evaluate.run`.
    """
    from rag_app.training.encoder import train

    _check(similarities, seeds)
    # What an experiment lacks should not be found after hours of training.
    plan = experiment if experiment is None or isinstance(experiment, Plan) else Plan.of(experiment, in_domain, log)
    asked = [] if plan is None else plan.questions
    wanted = [one_training(config, similarity, seed) for seed in seeds for similarity in similarities]
    if plan is not None:
        read = "" if plan.reading is None else f", then answers on {', '.join(plan.reading.names)}"
        first, then = counted(len(wanted), "training"), counted(len(wanted) + 1, "ranking")
        log(f"{first}, then {then} on {', '.join(plan.ranking.names)}{read}")
    found: list[tuple[TrainConfig, TrainingResult]] = []
    for own in stages("training", wanted, lambda own: f"{own.similarity}, seed {own.seed}", log):
        folder, mined = out / TRAININGS / f"{own.similarity}-{own.seed}", out / TRAININGS
        result = train(own, folder, log=log, progress=progress, mined=mined, evaluation_questions=asked)
        found.append((own, result))
    facts = [_facts(own, result, out) for own, result in found]
    made = _made(config, facts, out, plan, command)
    if plan is None:
        compared = Sweep(list(in_domain), facts, made=made)
    else:
        start = Candidate(UNTRAINED, 0, config.encoder)
        trainings = [
            Candidate(own.similarity, own.seed, own.trained_encoder(result.folder), own.seed == seeds[0])
            for own, result in found
        ]
        candidates = [start, *trainings]
        untrained, *trained = evaluate_all(plan, candidates, out / EVALUATIONS, log, progress, command)
        order = {name: place for place, name in enumerate(similarities)}
        trained.sort(key=lambda one: order[one.trained_for])  # stable: seeds keep theirs
        compared = compare_trainings(trained, untrained, in_domain=plan.in_domain, facts=facts, made=made)
    write_text(out / RESULT, json.dumps(compared.to_json(), indent=1, ensure_ascii=False) + "\n")
    write_text(out / REPORT, sweep_markdown(compared))
    return compared


def one_training(config: TrainConfig, similarity: str, seed: int) -> TrainConfig:
    """The training of one similarity and seed; all else is the configuration's."""
    gammas = {} if similarity == "learnable" else {"gamma_q": None, "gamma_d": None}
    return config.model_copy(update={"similarity": similarity, "seed": seed, **gammas})


def _check(similarities: Sequence[str], seeds: Sequence[int]) -> None:
    for name in similarities:
        if name not in NAMES:
            raise ConfigError(f'--similarities: there is no similarity "{name}"{nearest(name, NAMES)}')
    for what, values in (("--similarities", similarities), ("--seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ConfigError(f"{what} must name one or more, each once")


def _facts(config: TrainConfig, result: TrainingResult, out: Path) -> dict[str, Any]:
    return {
        "similarity": config.similarity,
        "seed": config.seed,
        "gamma_q": result.similarity.gamma_q,
        "gamma_d": result.similarity.gamma_d,
        "checkpoint": result.folder.relative_to(out).as_posix(),
        "steps": result.steps,
        "best_step": result.best_step,
        "stopped_early": result.stopped_early,
        "scale": result.scale,
        "dev": dict(result.best),
        "untrained": dict(result.untrained),
    }


def _made(
    config: TrainConfig, facts: Sequence[dict[str, Any]], out: Path, plan: Plan | None, command: str
) -> dict[str, Any]:
    """How the sweep was made: what is shown above its tables, and the environment's details."""
    data, environment = config.data, describe_environment()
    known = {
        own["seed"]: json.loads((out / own["checkpoint"]).parent.joinpath(TRAIN).read_text(encoding="utf-8"))["facts"]
        for own in facts
    }
    hashes = {seed: of["pairs"][:12] for seed, of in known.items()}
    weights = next(iter(known.values()))["weights"][:12]
    versions, revision = versions_of(environment, "magrag", "torch", "transformers"), revision_of(environment)
    return {
        "command": command,
        "data": f"{data.pairs or data.hub}, SHA-256 of the pairs {_by_seed(hashes)}",
        "evaluated on": "" if plan is None else ", ".join(plan.ranking.names),
        "model": f"{config.encoder.model}, SHA-256 of the weights {weights}",
        "hardware": environment["hardware"],
        "versions": f"{versions}, revision {revision}" if revision else versions,
    }


def _by_seed(hashes: Mapping[int, str]) -> str:
    """One hash, or those of all seeds where each draws pairs of its own."""
    if len(set(hashes.values())) == 1:
        return next(iter(hashes.values()))
    each = ", ".join(f"{own} (seed {seed})" for seed, own in hashes.items())
    return f"{each}: each seed draws its own data.n pairs and development queries"
