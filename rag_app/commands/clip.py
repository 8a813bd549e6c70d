"""The command that trains two towers on pictures and captions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rag_app.commands.options import JsonOption, SetOption, typed_command


def train_clip(
    config: Annotated[Path, typer.Argument(help="A configuration, such as configs/clip-shapes.toml.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder: a new one, or one to go on with; runs/NAME otherwise."),
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Train CLIP's two towers by loss direction and similarity, and compare; the same command again goes on."""
    from rag_app import console
    from rag_app.clip.config import load_clip_config
    from rag_app.clip.report import clip_text
    from rag_app.clip.trainings import REPORT, TRAININGS, run_clip
    from rag_app.out_folder import own_folder, refuse_foreign

    folder = out or Path("runs") / config.stem
    refuse_foreign(folder, (TRAININGS,), "trainings of two towers")
    settings = load_clip_config(config, set_ or [])
    with own_folder(folder), console.progress_bar() as progress:
        result = run_clip(settings, folder, log=console.log, progress=progress, command=typed_command())
    if json:
        console.print_json(result)
        return
    console.out.print(clip_text(result), highlight=False, markup=False, soft_wrap=True)
    console.log(f"report: {folder / REPORT}")
