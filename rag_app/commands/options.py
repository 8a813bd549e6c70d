"""Options that several commands share, and what they come to."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rag_app.config import Config
    from rag_app.pipeline import Pipeline

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="TOML file (see configs/); the demo where none is named.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override one setting; may be repeated.")
]
CorpusOption = Annotated[str | None, typer.Option("--corpus", help="Corpus in place of the configuration's.")]
IndexOption = Annotated[Path | None, typer.Option("--index", help="A folder that `magrag index` made.")]
RetrieverOption = Annotated[str | None, typer.Option("--retriever", "-r", help="Name of a retriever.")]
CompareOption = Annotated[str | None, typer.Option("--compare", metavar="A,B", help="Several retrievers.")]
KOption = Annotated[int | None, typer.Option("-k", min=1, help="Passages a question.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load_settings(
    config: Path | None,
    set_: list[str] | None,
    corpus: str | None,
    index: Path | None,
    extra: dict[str, Any] | None = None,
) -> Config:
    """The configuration with the command's own options over it, which win over everything else."""
    import json

    from rag_app.config import load_config

    if corpus and index:
        raise typer.BadParameter(
            "an index has its own passages; give one of --index and --corpus", param_hint="--corpus"
        )
    options = {"corpus": corpus, "index.path": str(index) if index else None, **(extra or {})}
    # JSON strings, numbers and booleans are TOML values too, so what was given arrives as it was given.
    chosen = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in options.items() if value is not None]
    return load_config(config, [*(set_ or []), *chosen])


def typed_command() -> str:
    """What a person typed, for reports."""
    return f"magrag {shlex.join(sys.argv[1:])}"


@contextmanager
def open_pipeline(config: Config) -> Iterator[Pipeline]:
    """A pipeline that tells on standard error what it does; print results when it is closed and the bars are gone."""
    from rag_app import console
    from rag_app.pipeline import Pipeline

    with console.progress_bar() as progress, closing(Pipeline(config, log=console.log, progress=progress)) as pipeline:
        yield pipeline


def chosen_names(retriever: str | None, compare: str | None) -> list[str]:
    """The retrievers of --retriever or --compare; [] where neither is given."""
    if retriever and compare:
        raise typer.BadParameter("use one of --retriever and --compare", param_hint="--compare")
    return [retriever] if retriever else split_names(compare or "")


def split_names(names: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in names.split(",") if name.strip()]
