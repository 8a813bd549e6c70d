"""The command `magrag`. Heavy imports happen inside the commands, so that --help answers at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rag_app.commands import clip, diagnose, evaluations, mine, reproduce, sweep, train, train_reader
from rag_app.commands.options import (
    CompareOption,
    ConfigOption,
    CorpusOption,
    IndexOption,
    JsonOption,
    KOption,
    RetrieverOption,
    SetOption,
    chosen_names,
    load_settings,
    open_pipeline,
)

if TYPE_CHECKING:
    from rag_app.pipeline import Pipeline

app = typer.Typer(
    help="Question answering whose retriever knows that the length of an embedding matters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# What typer makes of Ctrl-C.
INTERRUPTED = 130

# What typer raises for arguments that it cannot use: click's, or that of its own copy of click, by its version.
WrongArguments: type[Exception] = typer.BadParameter.__mro__[1]


@app.callback()
def common(debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False) -> None:
    """Options of every command."""


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    config: ConfigOption = None,
    set_: SetOption = None,
    corpus: CorpusOption = None,
    index: IndexOption = None,
    retriever: RetrieverOption = None,
    compare: CompareOption = None,
    k: KOption = None,
    json: JsonOption = False,
) -> None:
    """Answer a question and show the passages and their scores."""
    from rag_app import console

    if not question.strip():
        raise typer.BadParameter("the question is empty", param_hint="QUESTION")
    names = chosen_names(retriever, compare)
    with open_pipeline(load_settings(config, set_, corpus, index)) as pipeline:
        names = names or list(pipeline.config.page.retrievers[:1])
        answers = pipeline.compare(question, names, k)
        _say_notes(pipeline, names)
    if json:
        console.print_json({"question": question, "answers": [answer.to_json() for answer in answers]})
    else:
        for answer in answers:
            console.print_answer(answer)
    if all(answer.error for answer in answers):
        raise typer.Exit(1)


@app.command()
def search(
    questions: Annotated[list[str], typer.Argument(help="One question or more.")],
    config: ConfigOption = None,
    set_: SetOption = None,
    corpus: CorpusOption = None,
    index: IndexOption = None,
    retriever: RetrieverOption = None,
    compare: CompareOption = None,
    k: KOption = None,
    json: JsonOption = False,
) -> None:
    """Rank passages without asking the reader; with --json one object a question."""
    from rag_app import console

    if not all(question.strip() for question in questions):
        raise typer.BadParameter("a question is empty", param_hint="QUESTIONS")
    names = chosen_names(retriever, compare)
    with open_pipeline(load_settings(config, set_, corpus, index)) as pipeline:
        names = names or list(pipeline.config.page.retrievers[:1])
        found = [pipeline.search(questions, name, k) for name in names]
        _say_notes(pipeline, names)
    for question, answers in zip(questions, zip(*found, strict=True), strict=True):
        if json:
            console.print_json({"question": question, "answers": [answer.to_json() for answer in answers]})
            continue
        if len(questions) > 1:
            console.out.print(question, style="bold underline", markup=False)
        for answer in answers:
            console.print_answer(answer)


def _say_notes(pipeline: Pipeline, names: Sequence[str]) -> None:
    """What a person should know before reading anything into these retrievers' rankings, each note once."""
    from rag_app import console

    for note in dict.fromkeys(note for name in names for note in pipeline.notes(name)):
        console.note(note)


@app.command()
def index(
    corpus: Annotated[str, typer.Argument(help="File, folder or hub:NAME of the corpus.")],
    out: Annotated[Path, typer.Argument(help="New folder for the index, or one to continue or add an encoder to.")],
    config: ConfigOption = None,
    set_: SetOption = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Name of an encoder; those of the page's retrievers otherwise.")
    ] = None,
    on_error: Annotated[str | None, typer.Option("--on-error", help="fail or skip: what a bad record does.")] = None,
    collapse_duplicates: Annotated[
        bool | None, typer.Option("--collapse-duplicates/--keep-duplicates", help="Index equal passages once.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Encode a corpus into an index; the same command again continues a build that was stopped."""
    from rag_app import console
    from rag_app.out_folder import refuse_file
    from rag_app.stores import build_configured_index, indexes_in, load_configured_encoder, open_corpus

    extra: dict[str, Any] = {"index.on_error": on_error, "index.collapse_duplicates": collapse_duplicates}
    settings = load_settings(config, set_, corpus, None, extra)
    open_corpus(settings, None)  # a wrong path should not have to wait for a model
    refuse_file(out)
    names = [encoder] if encoder else settings.page_encoders
    alone = len(names) == 1 and not indexes_in(out)
    for name in names:
        loaded = load_configured_encoder(name, settings, console.log)
        source = open_corpus(settings, loaded)
        folder = out if alone else out / name
        with console.progress_bar() as progress:
            built = build_configured_index(source, loaded, folder, settings, progress)
        if json:
            told = {"index": str(folder), "encoder": name, "passages": len(built), "report": source.report.to_json()}
            console.print_json(told)
            continue
        console.out.print(f"{len(built):,} passages in {folder}", highlight=False)
        if not source.report.read:  # a finished index of the same settings is kept, and its corpus not read again
            built.verify()
            console.out.print("it was there already, and its checksums are right", highlight=False)
            continue
        if name != names[0]:
            continue  # the same corpus was read, so there is nothing new to report
        console.out.print(source.report.summary(), highlight=False)
        for examples in source.report.examples.values():
            for example in examples:
                console.out.print(f"skipped: {example}", highlight=False, markup=False, soft_wrap=True)


app.command(name="eval")(evaluations.evaluate)
app.command()(evaluations.score)
app.command()(evaluations.report)
app.command()(evaluations.runs)
app.command()(evaluations.compare)
app.command()(diagnose.diagnose)
app.command()(train.train)
app.command()(sweep.sweep)
app.command()(reproduce.reproduce)
app.command()(mine.mine)
app.command()(train_reader.train_reader)
app.command()(clip.train_clip)


@app.command()
def serve(
    config: ConfigOption = None,
    set_: SetOption = None,
    corpus: CorpusOption = None,
    index: IndexOption = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on.")] = None,
    root_path: Annotated[
        str | None, typer.Option("--root-path", help="The path under which a proxy shows the page, such as /magrag.")
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(
            "--auth",
            metavar="FILE or USER:PASSWORD",
            help="Who may come in: a file with a line USER:PASSWORD for each person, or one such pair. Prefer the file, or "
            "the variable MAGRAG_PAGE__AUTH: everybody on this machine can read a command line.",
        ),
    ] = None,
) -> None:
    """Open the page, on this machine alone unless --host says otherwise."""
    from rag_app.ui import launch

    options = {"page.host": host, "page.port": port, "page.root_path": root_path, "page.auth": auth}
    launch(load_settings(config, set_, corpus, index, options))


@app.command()
def fetch(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Get the weights of a configuration, so that nothing needs the network later."""
    from rag_app import console
    from rag_app.reader import reader_folder
    from rag_app.weights import resolve

    settings = load_settings(config, set_, None, None)
    models: dict[str, str] = {}  # several encoders may have adapters over one model
    for name, encoder in settings.encoders.items():
        models.setdefault(encoder.model, f"encoders.{name}.model")
    for model, setting in models.items():
        folder = resolve(model, data_dir=settings.resolved_data_dir(), log=console.log, setting=setting)
        console.out.print(f"{setting} {model}: {folder}", highlight=False, soft_wrap=True)
    reader = reader_folder(settings, console.log) or "the server's"
    console.out.print(f"generator.model {settings.generator.model}: {reader}", highlight=False, soft_wrap=True)


@app.command()
def doctor(config: ConfigOption = None, set_: SetOption = None, json: JsonOption = False) -> None:
    """Say what is installed, what will run and what to install for more."""
    from rag_app import console
    from rag_app.doctor import diagnose, to_json, to_text

    findings = diagnose(load_settings(config, set_, None, None))
    if json:
        console.print_json(to_json(findings))
    else:
        console.out.print(to_text(findings), highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """Run the command line: 0 done, 1 failed, 2 wrong usage; tracebacks only with --debug."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    # --debug may stand anywhere on the line, since people add it to a command that failed.
    sys.argv[1:] = ["--debug"] * debug + [argument for argument in arguments if argument != "--debug"]
    if not sys.argv[1:]:
        sys.argv.append("--help")
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:
            _stop("stopped; the same command again continues where it can", 1)
        raise SystemExit(code)
    except WrongArguments as error:
        _stop(_usage(error), 2)
    except Exception as error:
        if debug:
            raise
        from eval.errors import UsageError
        from rag_app.errors import USER_ERRORS, ConfigError

        if isinstance(error, ConfigError | UsageError):
            _stop(str(error), 2)
        if isinstance(error, USER_ERRORS):
            _stop(str(error), 1)
        if isinstance(error, OSError):
            _stop(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)
        _stop(f"unexpected {type(error).__name__}: {error}; run again with --debug to see where", 1)


def _usage(error: Any) -> str:
    """What click says of arguments, in one line that names the help."""
    path = error.ctx.command_path if error.ctx else "magrag"
    return f"{error.format_message().rstrip('.')}; `{path} --help` says what there is"


def _stop(message: str, code: int) -> None:
    from rag_app import console

    console.fail(message)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
