"""The command that says what the norms of an index, or of sentence pairs, are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rag_app.commands.options import (
    ConfigOption,
    CorpusOption,
    IndexOption,
    JsonOption,
    SetOption,
    load_settings,
    open_pipeline,
)


def diagnose(
    data: Annotated[
        str | None,
        typer.Argument(
            help="Questions with marked passages (a file, a BEIR folder, a known name, NAME=PATH), or sentence pairs; the "
            "configuration's own where not given.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    corpus: CorpusOption = None,
    index: IndexOption = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Name of an encoder; that of the page's first retriever otherwise.")
    ] = None,
    pilot: Annotated[
        Path | None,
        typer.Option(
            "--pilot",
            metavar="CONFIG",
            help="Also train the encoder by qnorm and by dnorm, shortly, and judge both on DATA: configs/pilot-cpu.toml.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for diagnosis.json, diagnosis.html and, in pilot/, the pilot's trainings."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say what magnitudes are worth: norms, length, relevance, rankings, hubness, and which side to normalise."""
    from contextlib import nullcontext

    from rag_app import console
    from rag_app.diagnosis.pilot_config import load_pilot_config
    from rag_app.diagnosis.run import diagnose_data
    from rag_app.out_folder import own_folder, refuse_foreign
    from retriever.shards import write_json

    if out is not None:
        refuse_foreign(out, ("diagnosis.json", "pilot"), "a diagnosis")
    settings = load_settings(config, set_, corpus, index)
    name = encoder or settings.page_encoders[0]
    settings.encoder(name)  # a misspelt name should not have to wait for the data
    with own_folder(out) if out is not None else nullcontext():
        report = diagnose_data(
            settings,
            data,
            name,
            open_pipeline,
            console.log,
            own_corpus=bool(corpus or index),
            pilot=load_pilot_config(pilot) if pilot else None,
            pilot_folder=out / "pilot" if out else None,
        )
        if out is not None:
            write_json(out / "diagnosis.json", report.to_json())
            (out / "diagnosis.html").write_text(report.to_html(), encoding="utf-8")
    if json:
        console.print_json(report.to_json())
        return
    console.out.print(report.to_text(), highlight=False, markup=False, soft_wrap=True)
    if out is not None:
        console.log(f"written: {out / 'diagnosis.json'}, {out / 'diagnosis.html'}")
