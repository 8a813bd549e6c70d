"""The command that runs the paper's experiments in small and judges its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rag_app.commands.options import JsonOption, SetOption, split_names, typed_command


def reproduce(
    name: Annotated[str, typer.Argument(help="cpu, for configs/reproduce-cpu.toml, or a file like it.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder: a new one, or one to go on with; runs/reproduce-NAME otherwise."),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", metavar="A,B,...", help="Experiments by name; all of them otherwise.")
    ] = "",
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Run the paper's experiments in small and judge its claims; the same command again goes on."""
    from rag_app import console
    from rag_app.out_folder import own_folder, refuse_foreign
    from rag_app.reproduction.settings import find_configuration, load_reproduction

    path = find_configuration(name)
    settings = load_reproduction(path, set_ or [])

    from rag_app.reproduction.run import REPORT, RESULT  # heavy; a wrong name should not have to wait
    from rag_app.reproduction.run import reproduce as run

    folder = out or Path("runs") / path.stem
    refuse_foreign(folder, (RESULT,), "a reproduction")
    with own_folder(folder), console.progress_bar() as progress:
        result = run(
            settings,
            folder,
            only=split_names(only),
            log=console.log,
            progress=progress,
            command=typed_command(),
        )
    if json:
        console.print_json(result)
        return
    for claim in result["claims"]:
        console.out.print(f"{claim['verdict']}: {claim['claim']}", highlight=False, markup=False, soft_wrap=True)
    console.log(f"report: {folder / REPORT}")
