"""The commands about evaluations: run one, score answers, publish, list and compare runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rag_app.commands.options import (
    ConfigOption,
    CorpusOption,
    IndexOption,
    JsonOption,
    SetOption,
    load_settings,
    split_names,
    typed_command,
)

DEFAULT_RUNS = Path("runs")

RunArgument = Annotated[Path, typer.Argument(help="A folder that `magrag eval` wrote.")]


def evaluate(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="An experiment (.toml), or data sets: names such as nq, files, folders, NAME=PATH.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder: a new one, or one to resume; runs/NAME otherwise.")
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    corpus: CorpusOption = None,
    index: IndexOption = None,
    retrievers: Annotated[
        str | None,
        typer.Option("--retrievers", metavar="A,B,...", help="Rows of the table; the first is the baseline."),
    ] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Questions a data set, drawn with the seed.")] = None,
    k: Annotated[str | None, typer.Option("-k", metavar="K,...", help="Passages that the reader gets.")] = None,
    depth: Annotated[int | None, typer.Option("--depth", min=1, help="Passages that are recorded.")] = None,
    measures: Annotated[str | None, typer.Option("--measures", help="Such as nDCG@10,RR@10 (ir-measures).")] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="EM rule in place of each data set's own.")] = None,
    read: Annotated[
        bool | None,
        typer.Option("--read/--no-read", help="Ask the reader, or measure retrieval alone.", show_default=False),
    ] = None,
    retry_errors: Annotated[bool, typer.Option("--retry-errors", help="Ask again what had ended in an error.")] = False,
    json: JsonOption = False,
) -> None:
    """Report Exact Match, F1, ranking measures and causes; the same command again resumes a run that was stopped."""
    from rag_app import console
    from rag_app.evaluate import run
    from rag_app.experiment import open_experiment
    from rag_app.out_folder import refuse_file

    config, named = _experiment_file(config, what or [])
    extra: dict[str, Any] = {
        "eval.rule": rule,
        "eval.n": n,
        "eval.depth": depth,
        "eval.read": read,
        "eval.retrievers": split_names(retrievers) if retrievers is not None else None,
        "eval.k": [_whole(number) for number in split_names(k)] if k is not None else None,
        "eval.measures": split_names(measures) if measures is not None else None,
    }
    settings = load_settings(config, set_, corpus, index, extra)
    if out is not None:
        refuse_file(out.parent)
    experiment = open_experiment(settings, named, console.log, own_corpus=bool(corpus or index))
    folder = out or DEFAULT_RUNS / _run_name(config, named, experiment.names)
    with console.progress_bar() as progress:
        result = run(
            settings,
            experiment,
            folder,
            log=console.log,
            progress=progress,
            retry_errors=retry_errors,
            command=typed_command(),
        )
    if json:
        console.print_json(result.metrics.to_json())
        return
    console.out.print(result.table, highlight=False, markup=False, soft_wrap=True)
    console.log(f"report: {result.path / 'report.html'}")


def score(
    questions: Annotated[Path, typer.Option("--questions", help="File of questions with answers.")],
    predictions: Annotated[Path, typer.Option("--predictions", help="Lines of {id, prediction}.")],
    rule: Annotated[str, typer.Option("--rule", help="squad, nq_open, ...; the data set's own where not given.")] = "",
    system: Annotated[str, typer.Option("--system", help="Which system's lines, in the predictions of a run.")] = "",
    json: JsonOption = False,
) -> None:
    """Score answers made anywhere."""
    from eval.score import score_file
    from rag_app import console

    result = score_file(questions, predictions, rule, system=system)
    if json:
        console.print_json(result)
    else:
        console.out.print(", ".join(f"{name} {value}" for name, value in result.items()), highlight=False)


def report(
    run: RunArgument,
    format: Annotated[
        Literal["text", "markdown", "latex"], typer.Option("--format", "-f", help="What to print.")
    ] = "text",
    json: JsonOption = False,
) -> None:
    """Print a run's tables, and write its reports and TREC files anew; no model is asked."""
    from eval.folder import RunFolder
    from eval.publish import publish
    from eval.report.latex import latex_tables
    from eval.view import REPORT
    from rag_app import console

    with RunFolder.existing(run) as folder:
        metrics, table = publish(folder)
        markdown = folder.read(REPORT)
    if json:
        console.print_json(metrics.to_json())
        return
    text = {"text": table, "markdown": markdown, "latex": latex_tables(metrics)}[format]
    console.out.print(text, highlight=False, markup=False, soft_wrap=True)


def runs(
    folder: Annotated[Path, typer.Argument(help="Where the run folders are.")] = DEFAULT_RUNS,
    json: JsonOption = False,
) -> None:
    """List evaluations, the newest first."""
    from eval.runs import list_runs, runs_json, runs_text
    from rag_app import console

    found = list_runs(folder)
    if json:
        console.print_json(runs_json(found))
    else:
        console.out.print(runs_text(found), highlight=False, markup=False, soft_wrap=True)


def compare(
    first: RunArgument,
    second: RunArgument,
    systems: Annotated[
        str | None,
        typer.Option("--systems", metavar="A:B,...", help="Pairs of systems; those of equal name otherwise."),
    ] = None,
    format: Annotated[
        Literal["text", "markdown", "json"], typer.Option("--format", "-f", help="What to print.")
    ] = "text",
    json: JsonOption = False,
) -> None:
    """Compare two runs on the questions that both asked: figures, tests, flips, and answers that are not the same."""
    from eval.compare import compare_runs, parse_pair
    from eval.report.compare_text import comparison_markdown, comparison_text
    from eval.view import RunView
    from rag_app import console

    pairs = [parse_pair(pair) for pair in split_names(systems)] if systems else None
    comparison = compare_runs(RunView.open(first), RunView.open(second), pairs)
    if json:
        console.print_json(comparison.to_json())
        return
    text = comparison_markdown(comparison) if format == "markdown" else comparison_text(comparison)
    console.out.print(text, highlight=False, markup=False, soft_wrap=True)


def _experiment_file(config: Path | None, named: list[str]) -> tuple[Path | None, list[str]]:
    """The configuration and the data sets; an experiment's file is a configuration, wherever it stands."""
    files = [name for name in named if name.endswith(".toml")]
    if len(files) + (config is not None) > 1:
        raise typer.BadParameter("give one experiment or configuration", param_hint="WHAT")
    return (Path(files[0]) if files else config), [name for name in named if name not in files]


def _run_name(config: Path | None, named: list[str], datasets: list[str]) -> str:
    return config.stem if config is not None and not named else "-".join(datasets)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be whole numbers separated by commas, got {text!r}", param_hint="-k") from None
