"""The command that trains an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rag_app.commands.options import JsonOption, SetOption


def train(
    config: Annotated[Path, typer.Argument(help="A training's configuration, such as configs/train-cpu.toml.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the training: a new one, or one to go on with.")
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Train an encoder under a similarity; the same command again goes on with a training that was stopped."""
    from rag_app import console
    from rag_app.errors import ConfigError
    from rag_app.training.config import load_train_config
    from rag_app.training.encoder import train as run
    from retriever.training.distributed import started_first
    from retriever.wording import counted

    settings = load_train_config(config, set_ or [])
    if out is None and not settings.out:
        raise ConfigError("where the training goes is not said: give --out FOLDER, or set out in the configuration")
    folder = out or Path(settings.out)
    with console.progress_bar() as progress:
        result = run(settings, folder, log=console.log, progress=progress)
    if not started_first():
        return
    if json:
        console.print_json(
            {
                "checkpoint": str(result.folder),
                "steps": result.steps,
                "best_step": result.best_step,
                "dev": dict(result.best),
                "untrained": dict(result.untrained),
                "stopped_early": result.stopped_early,
                "similarity": result.similarity.describe(),
                "scale": result.scale,
            }
        )
        return
    first = next(iter(result.best.items()), None)
    score = f", {first[0]} {100 * first[1]:.2f}" if first else ""
    if first and first[0] in result.untrained:
        score += f" (untrained {100 * result.untrained[first[0]]:.2f})"
    early = "; stopped early" if result.stopped_early else ""
    encoder = settings.trained_encoder(result.folder)
    adapter = f", encoders.NAME.adapter = {encoder.adapter!r}" if encoder.adapter else ""
    console.out.print(
        f"best after {result.best_step:,} of {counted(result.steps, 'step')}{score}{early}: {result.folder}\n"
        f"to use it: encoders.NAME.model = {encoder.model!r}{adapter}, retrievers.NAME.similarity = {result.similarity.name!r}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
