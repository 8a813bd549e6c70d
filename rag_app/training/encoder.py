"""`magrag train`: pairs, guard, development set, hard negatives, encoder and trainer put together in one folder."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from rag_app.config import Config
from rag_app.config_tables import EvalConfig, PageConfig, RetrieverConfig
from rag_app.errors import ConfigError
from rag_app.out_folder import own_folder
from rag_app.progress import Log, StepProgress
from rag_app.stores import load_configured_encoder
from rag_app.training.config import TrainConfig
from rag_app.training.dev import CORRELATION, MEASURE, DevScorer, DevSet, hold_out, read_dev_set
from rag_app.training.effects import without_effect
from rag_app.training.folder import MINED, check_folder, claim
from retriever.training.batches import check_batches
from retriever.training.distributed import (
    check_shares,
    close,
    init_from_environment,
    started_first,
    wait_for_all,
    world,
)
from retriever.training.forward import check_lengths
from retriever.training.pairs import TrainingPair, data_hash, read_hub_pairs, read_pairs, write_pairs
from retriever.training.result import TrainingResult
from retriever.training.settings import TrainingSettings
from retriever.training.trainer import Report, Trainer
from retriever.wording import counted

if TYPE_CHECKING:
    from retriever.encoder import Encoder

_NAME = "encoder"
_LINES = 20
"""How often, in a whole training, a line tells of loss and norms."""


def train(
    config: TrainConfig,
    out: Path,
    *,
    log: Log,
    progress: StepProgress,
    mined: Path | None = None,
    evaluation_questions: Sequence[str] = (),
) -> TrainingResult:
    """Train as the configuration says, or go on with a training of the same settings that was stopped.

    Started by torchrun, each process takes its share of every batch.

    Args:
        config: What is trained, on what and how.
        out: Folder of the training.
        log: Told, in a line, of what is done.
        progress: Told of (what, done, total).
        mined: Folder of mined pairs that trainings of like pairs share; None keeps them in the training's own.
        evaluation_questions: What must not be trained on, beside the questions of [data] evaluation.

    Raises:
        ConfigError: The folder holds another training, another process is at work in it, or it cannot be written to; or the
            development set cannot be made.
        RetrieverError: Pairs or encoder cannot be used.
        WeightsError: The encoder's weights cannot be had.
        EvalError: A question file cannot be read.
    """
    settings = config.settings()
    if _mines(config, settings):
        config.mining_settings()
    check_folder(out, config, {})
    with own_folder(out) if started_first() else nullcontext():
        first = init_from_environment(config.encoder.device).is_first
        try:
            telling = (log, progress) if first else (_silent, _no_progress)
            return _train(config, settings, out, mined, evaluation_questions, *telling)
        finally:
            close()


def _train(
    config: TrainConfig,
    settings: TrainingSettings,
    out: Path,
    mined: Path | None,
    asked: Sequence[str],
    log: Log,
    progress: StepProgress,
) -> TrainingResult:
    from generator.quiet import quiet_transformers
    from retriever.training.lora import add_lora
    from retriever.training.projection import add_projection

    # What cannot be trained should be found out before what takes long: loading, then mining.
    pairs, sets, held = _prepare(config, asked, log)
    check_batches(pairs, settings.batch_size)
    check_shares(settings.batch_size)
    dense = _as_config(config)
    encoder = load_configured_encoder(_NAME, dense, log, table="encoder")
    check_lengths(encoder, settings)
    adapter = None
    if settings.lora is not None:
        with quiet_transformers():
            adapter = add_lora(encoder, settings.lora, settings.seed)
    if world().is_first:
        claim(out, config, {"pairs": data_hash(pairs), "weights": encoder.weights_hash}, log)
    if _mines(config, settings):
        # Held-out pairs do nothing but match the scale, on a batch like those of the training.
        matching = held if settings.scale == "matched" else []
        both, kept = [*pairs, *matching], len(pairs)
        path = _mined_file(config, both, encoder, out, mined)
        with nullcontext() if adapter is None else adapter.disable_adapter():
            both = _mined(config, dense, encoder, both, held, path, log, progress)
        pairs, held = both[:kept], both[kept:] or held
    if settings.projection:
        add_projection(encoder)
    trainer = Trainer(
        encoder,
        pairs,
        settings,
        out,
        dev=DevScorer(sets) if sets else None,
        held_out=held,
        adapter=adapter,
        adapter_dtype=config.lora.dtype,
        report=_reporter(settings, log, progress),
        log=log,
    )
    log(_plan(encoder, pairs, settings, trainer.steps))
    for line in without_effect(config, encoder, pairs):
        log(line)
    with quiet_transformers():  # it draws a bar for every checkpoint
        return trainer.run()


def _prepare(
    config: TrainConfig, asked: Sequence[str], log: Log
) -> tuple[list[TrainingPair], list[DevSet], list[TrainingPair]]:
    """Pairs to train on, development sets and held-out pairs; all of it drawn with the configuration's seeds."""
    from rag_app.training.pair_sources import evaluation_questions
    from retriever.training.guard import drop_leaks

    data, dev = config.data, config.dev
    if data.pairs:
        pairs = read_pairs(data.pairs, columns=data.columns, title_separator=data.title_separator, tell=log)
    else:
        pairs = read_hub_pairs(
            data.hub, data.subset, data.split, data.columns, title_separator=data.title_separator, tell=log
        )
    log(f"{counted(len(pairs), 'pair')} of {data.pairs or data.hub}")
    sets = [read_dev_set(name, table, dev.seed) for name, table in dev.datasets.items()]
    asked = [*asked, *evaluation_questions(data.evaluation), *(q.question for own in sets for q in own.questions)]
    pairs, leaked = drop_leaks(pairs, asked)
    if leaked:
        log(f"{counted(len(leaked), 'pair')} left out, whose query an evaluation asks")
    if 0 < data.n < len(pairs):
        drawn = np.sort(np.random.default_rng(config.seed).permutation(len(pairs))[: data.n])
        pairs = [pairs[position] for position in drawn]
    held: list[TrainingPair] = []
    if dev.queries:
        before = len(pairs)
        pairs, held, own_set = hold_out(pairs, dev.queries, dev.pool, dev.seed)
        sets.insert(0, own_set)
        if shared := before - len(pairs) - len(held):
            log(f"{counted(shared, 'pair')} left out, whose passage answers a held-out query")
    for own in sets:
        queries, passages = counted(len(own.questions), "query", "queries"), counted(len(own.passages), "passage")
        log(f"development set {own.name}: {queries}, {passages}")
    return pairs, sets, held


def _mines(config: TrainConfig, settings: TrainingSettings) -> bool:
    """Whether hard negatives are looked for."""
    return config.mining.kind != "none" and settings.hard_negatives > 0


def _mined_file(
    config: TrainConfig, pairs: Sequence[TrainingPair], encoder: Encoder, out: Path, shared: Path | None
) -> Path:
    """Where the mined pairs are kept; in a shared folder their name says what they were mined from."""
    if shared is None:
        return out / MINED
    content = json.dumps([data_hash(pairs), config.mining.model_dump(), encoder.fingerprint], sort_keys=True)
    return shared / f"mined-{hashlib.sha256(content.encode()).hexdigest()[:12]}.jsonl"


def _mined(
    config: TrainConfig,
    dense: Config,
    encoder: Encoder,
    pairs: Sequence[TrainingPair],
    held: Sequence[TrainingPair],
    path: Path,
    log: Log,
    progress: StepProgress,
) -> list[TrainingPair]:
    """The pairs with hard negatives, none of them a held-out positive; found where the file is not there yet."""
    from rag_app.training.mine import mine_pairs

    if not path.is_file() and world().is_first:
        found, report = mine_pairs(
            pairs,
            dense,
            _miner(config),
            config.mining_settings(),
            log=log,
            progress=progress,
            reserved=[pair.positive for pair in held],
            encoders={_NAME: encoder},
        )
        write_pairs(path, found)
        log(report.summary())
    wait_for_all()
    mined = read_pairs(path)
    if [(own.query, own.positive.text) for own in mined] != [(own.query, own.positive.text) for own in pairs]:
        raise ConfigError(
            f"{path} does not hold this training's {len(pairs):,} pairs ({len(mined):,} are there): delete it, and they are "
            "mined again"
        )
    return mined


def _miner(config: TrainConfig) -> str:
    """What the retriever that mines is called."""
    return config.mining.similarity if config.mining.kind == "dense" else "bm25"


def _as_config(config: TrainConfig) -> Config:
    """The training's encoder, and the retriever that mines, as the rest of the program names them."""
    mining, name = config.mining, _miner(config)
    kind: Literal["dense", "bm25"] = "dense" if mining.kind == "dense" else "bm25"
    miner = RetrieverConfig(kind=kind, encoder=_NAME, similarity=mining.similarity)
    return Config(
        data_dir=config.data_dir,
        # Weights that learn are float32, whatever the encoder computes in when it serves.
        encoders={_NAME: config.encoder.model_copy(update={"precision": "float32"})},
        retrievers={name: miner},
        page=PageConfig(retrievers=(name,)),
        eval=EvalConfig(retrievers=(name,)),
    )


# --- telling ---------------------------------------------------------------------------------------------------------


def _plan(encoder: Encoder, pairs: Sequence[TrainingPair], settings: TrainingSettings, steps: int) -> str:
    trained = sum(p.numel() for p in encoder.model.parameters() if p.requires_grad)
    what = f"LoRA of rank {settings.lora.rank}" if settings.lora else "all weights"
    negatives = sum(min(len(pair.negatives), settings.hard_negatives) for pair in pairs) / len(pairs)
    return (
        f"training {encoder.name} for {settings.similarity.name}: {what} ({counted(trained, 'parameter')}), "
        f"{counted(len(pairs), 'pair')} with {negatives:.1f} hard negatives each, {counted(steps, 'step')} of "
        f"{settings.batch_size} queries"
    )


def _reporter(settings: TrainingSettings, log: Log, progress: StepProgress) -> Report:
    def report(done: int, steps: int, figures: Mapping[str, float]) -> None:
        progress("training", done, steps)
        if done == 0 or MEASURE in figures or done % max(1, steps // _LINES) == 0:
            log(f"step {done:,}: {figures_line(settings, figures)}")

    return report


def figures_line(settings: TrainingSettings, figures: Mapping[str, float]) -> str:
    """A step's figures in words: of its batch, then of each development set."""
    shown = []
    if "loss" in figures:
        shown.append(f"loss {figures['loss']:.3f}, entropy {figures['entropy']:.2f}")
        shown.append(f"norms {figures['norm_mean']:.2f} ± {100 * figures['norm_cv']:.0f} %")
        if not math.isnan(figures["norm_length_corr"]):
            shown.append(f"with length {figures['norm_length_corr']:+.2f}")
        if settings.similarity.name == "learnable":
            shown.append(f"gammas {figures['gamma_q']:.3f} and {figures['gamma_d']:.3f}")
    for name, value in figures.items():
        if MEASURE in name:
            shown.append(f"{name} {100 * value:.2f}")
        elif name.endswith(CORRELATION) and not math.isnan(value):
            shown.append(f"{name.removesuffix(CORRELATION).strip() or 'development'} norms with length {value:+.2f}")
    return ", ".join(shown)


def _silent(line: str) -> None:
    """Processes other than the first say nothing."""


def _no_progress(what: str, done: int, total: int | None) -> None:
    """And draw no bars."""
