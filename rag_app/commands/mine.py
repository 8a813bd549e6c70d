"""The command about training data: hard negatives for pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rag_app.commands.options import ConfigOption, IndexOption, JsonOption, SetOption, load_settings


def mine(
    pairs: Annotated[
        str,
        typer.Argument(help="Training pairs: a file (JSONL), hub:NAME[:SUBSET][:SPLIT], or a set, with --supporting."),
    ],
    out: Annotated[Path, typer.Argument(help="File for the pairs with their negatives (JSONL).")],
    config: ConfigOption = None,
    set_: SetOption = None,
    retriever: Annotated[
        str, typer.Option("--retriever", "-r", help="Name of the retriever whose ranking is taken.")
    ] = "bm25",
    corpus: Annotated[
        str | None, typer.Option("--corpus", help="Take negatives from here, not from the pairs' own passages.")
    ] = None,
    index: IndexOption = None,
    supporting: Annotated[
        bool,
        typer.Option(
            "--supporting", help="PAIRS is an evaluation set, whose marked passages of --corpus are positives."
        ),
    ] = False,
    negatives: Annotated[int, typer.Option("--negatives", "-n", min=1, help="Wanted a pair, given ones counted.")] = 4,
    depth: Annotated[int, typer.Option("--depth", min=1, help="Ranks that are looked at.")] = 50,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Ranks left out at the top.")] = 0,
    margin: Annotated[
        float | None, typer.Option("--margin", help="Highest share of the positive's score, such as 0.95.")
    ] = None,
    answer_filter: Annotated[
        bool, typer.Option("--answer-filter/--no-answer-filter", help="Leave out passages that hold an answer.")
    ] = True,
    title_separator: Annotated[
        str, typer.Option("--title-separator", help='What ends the title of passages that are one text, such as ". ".')
    ] = "",
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="ROLE=NAME", help="Where query, positive, title, ... are; may be repeated."),
    ] = None,
    known: Annotated[
        list[str] | None,
        typer.Option("--known", metavar="PAIRS", help="More pairs, whose positives and answers count as well."),
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        typer.Option("--evaluation", metavar="SET", help="Leave out queries that this set asks; may be repeated."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Find hard negatives for training pairs by what a retriever ranks high, and say what was left out and why."""
    from rag_app import console
    from rag_app.errors import ConfigError
    from rag_app.training.mine import check_out, mine_pairs
    from rag_app.training.pair_sources import evaluation_questions, open_known, open_pairs, pairs_from_dataset
    from retriever.training.guard import drop_leaks
    from retriever.training.mining import MiningSettings
    from retriever.training.pairs import write_pairs
    from retriever.wording import counted

    settings = load_settings(config, set_, corpus, index)
    settings.retriever(retriever)  # a misspelt name should not have to wait for the data
    columns = _columns(column)
    options = MiningSettings(negatives, depth, skip, margin, answer_filter)
    check_out(out, pairs)
    if supporting:
        found = pairs_from_dataset(pairs, settings, console.log, own_corpus=not corpus)
    else:
        found = open_pairs(pairs, columns, title_separator, console.log)
    more = [pair for name in known or () for pair in open_known(name, columns, title_separator)]
    found, leaked = drop_leaks(found, evaluation_questions(evaluation or (), "--evaluation"))
    if leaked:
        console.log(f"{counted(len(leaked), 'pair')} left out, whose query an evaluation asks")
    if not found:
        raise ConfigError(f"no pair of {pairs} is left: --evaluation asks all their queries")
    with console.progress_bar() as progress:
        mined, report = mine_pairs(
            found,
            settings,
            retriever,
            options,
            log=console.log,
            progress=progress,
            known=more,
            own_passages=not (corpus or index),
        )
    write_pairs(out, mined)
    if json:
        console.print_json({"out": str(out), "leaked": len(leaked), "report": report.to_json()})
        return
    console.out.print(report.summary(), highlight=False, markup=False, soft_wrap=True)
    console.out.print(f"{counted(len(mined), 'pair')} in {out}", highlight=False, markup=False, soft_wrap=True)


def _columns(given: list[str] | None) -> dict[str, str]:
    columns: dict[str, str] = {}
    for text in given or ():
        role, equals, name = text.partition("=")
        if not (equals and role.strip() and name.strip()):
            raise typer.BadParameter(f"must be ROLE=NAME, got {text!r}", param_hint="--column")
        columns[role.strip()] = name.strip()
    return columns
