"""The command that compares trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rag_app.commands.options import JsonOption, SetOption, split_names, typed_command


def sweep(
    config: Annotated[Path, typer.Argument(help="A training's configuration, such as configs/train-cpu.toml.")],
    similarities: Annotated[
        str, typer.Option("--similarities", metavar="A,B,...", help="What is trained for.")
    ] = "cosine,qnorm,dnorm,dot,learnable",
    seeds: Annotated[str, typer.Option("--seeds", metavar="N,...", help="Of every training.")] = "0",
    evaluation: Annotated[
        Path | None,
        typer.Option(
            "--eval",
            metavar="EXPERIMENT",
            help="Data sets to compare on, such as configs/experiments/magnitude.toml; development scores alone otherwise.",
        ),
    ] = None,
    in_domain: Annotated[
        str | None,
        typer.Option(
            "--in-domain", metavar="A,B,...", help="Data sets like the training's, in place of sweep.in_domain."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder: a new one, or one to go on with; runs/sweep-NAME otherwise."),
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Train alike but for the similarity, and compare what was trained; the same command again goes on."""
    from eval.report.sweep_tables import sweep_text
    from rag_app import console
    from rag_app.config import load_config
    from rag_app.out_folder import own_folder, refuse_foreign
    from rag_app.sweep.run import REPORT, TRAININGS
    from rag_app.sweep.run import sweep as run
    from rag_app.training.config import load_train_config

    folder = out or Path("runs") / f"sweep-{config.stem}"
    refuse_foreign(folder, (TRAININGS,), "a sweep")
    settings = load_train_config(config, set_ or [])
    experiment = None if evaluation is None else load_config(evaluation)
    with own_folder(folder), console.progress_bar() as progress:
        result = run(
            settings,
            folder,
            similarities=split_names(similarities),
            seeds=[_seed(text) for text in split_names(seeds)],
            experiment=experiment,
            in_domain=split_names(in_domain or ""),
            log=console.log,
            progress=progress,
            command=typed_command(),
        )
    if json:
        console.print_json(result.to_json())
        return
    console.out.print(sweep_text(result), highlight=False, markup=False, soft_wrap=True)
    console.log(f"report: {folder / REPORT}")


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise typer.BadParameter(
            f"must be whole numbers below 2^32 with commas between them, got {text!r}", param_hint="--seeds"
        )
    return int(text)
