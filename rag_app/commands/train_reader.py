"""The command that trains a reader."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rag_app.commands.options import SetOption


def train_reader(
    config: Annotated[Path, typer.Argument(help="A training's configuration, such as configs/train-reader.toml.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the training: a new one, or one to go on with.")
    ] = None,
    set_: SetOption = None,
) -> None:
    """Train a LoRA adapter with which a causal model reads passages; the same command again goes on after a stop."""
    import json

    from rag_app import console
    from rag_app.out_folder import own_folder
    from rag_app.training.reader import load_reader_training
    from rag_app.training.reader import train_reader as run

    chosen = [f"out={json.dumps(str(out))}"] if out is not None else []
    settings = load_reader_training(config, [*(set_ or []), *chosen])
    with own_folder(Path(settings.out).expanduser()), console.progress_bar() as progress:
        adapter = run(settings, console.log, progress)
    console.out.print(
        f"adapter: {adapter}\nread with it: --set generator.adapter={adapter} --set prompt.few_shot="
        f"{str(settings.few_shot).lower()}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
