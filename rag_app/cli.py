"""The command `magrag`. Heavy imports happen inside the commands, so that --help answers at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rag_app.config import Config
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
    names = _names(retriever, compare)
    with _pipeline(_load(config, set_, corpus, index)) as pipeline:
        answers = pipeline.compare(question, names or pipeline.config.page.retrievers[:1], k)
        notes = [pipeline.notes(answer.retriever) for answer in answers]
    if json:
        console.print_json({"question": question, "answers": [answer.to_json() for answer in answers]})
    else:
        for answer, own_notes in zip(answers, notes, strict=True):
            console.print_answer(answer, notes=own_notes)
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
    names = _names(retriever, compare)
    with _pipeline(_load(config, set_, corpus, index)) as pipeline:
        found = [pipeline.search(questions, name, k) for name in names or pipeline.config.page.retrievers[:1]]
        notes = [pipeline.notes(answers[0].retriever) for answers in found]
    for question, answers in zip(questions, zip(*found, strict=True), strict=True):
        if json:
            console.print_json({"question": question, "answers": [answer.to_json() for answer in answers]})
            continue
        if len(questions) > 1:
            console.out.print(question, style="bold underline", markup=False)
        for answer, own_notes in zip(answers, notes, strict=True):
            console.print_answer(answer, notes=own_notes)


@app.command()
def index(
    corpus: Annotated[str, typer.Argument(help="File, folder or hub:NAME of the corpus.")],
    out: Annotated[Path, typer.Argument(help="New folder for the index, or one to continue.")],
    config: ConfigOption = None,
    set_: SetOption = None,
    encoder: Annotated[str | None, typer.Option("--encoder", help="Name of an encoder.")] = None,
    on_error: Annotated[str | None, typer.Option("--on-error", help="fail or skip: what a bad record does.")] = None,
    collapse_duplicates: Annotated[
        bool | None, typer.Option("--collapse-duplicates/--keep-duplicates", help="Index equal passages once.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Encode a corpus into an index; the same command again continues a build that was stopped."""
    from rag_app import console
    from rag_app.stores import build_configured_index, load_configured_encoder, open_corpus

    extra: dict[str, Any] = {"index.on_error": on_error, "index.collapse_duplicates": collapse_duplicates}
    settings = _load(config, set_, corpus, None, extra)
    open_corpus(settings, None)  # a wrong path should not have to wait for a model
    loaded = load_configured_encoder(encoder or settings.default_encoder, settings, console.log)
    source = open_corpus(settings, loaded)
    with console.progress_bar() as progress:
        built = build_configured_index(source, loaded, out, settings, progress)
    if json:
        console.print_json({"index": str(out), "passages": len(built), "report": source.report.to_json()})
        return
    console.out.print(f"{len(built):,} passages in {out}", highlight=False)
    if not source.report.read:  # a finished index of the same settings is kept, and its corpus not read again
        built.verify()
        console.out.print("it was there already, and its checksums are right", highlight=False)
        return
    console.out.print(source.report.summary(), highlight=False)
    for examples in source.report.examples.values():
        for example in examples:
            console.out.print(f"skipped: {example}", highlight=False, markup=False, soft_wrap=True)


@app.command(name="eval")
def evaluate(
    questions: Annotated[list[Path], typer.Argument(help="Files of questions with answers.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder: a new one, or one to resume.")],
    config: ConfigOption = None,
    set_: SetOption = None,
    corpus: CorpusOption = None,
    index: IndexOption = None,
    retrievers: Annotated[
        str, typer.Option("--retrievers", help="Rows of the table, separated by commas.")
    ] = "cosine,qnorm,bm25,closed-book",
    n: Annotated[int | None, typer.Option("-n", min=1, help="Questions a file, drawn with the seed.")] = None,
    k: KOption = None,
    rule: Annotated[str | None, typer.Option("--rule", help="EM rule in place of each data set's own.")] = None,
    retry_errors: Annotated[bool, typer.Option("--retry-errors", help="Ask again what had ended in an error.")] = False,
    json: JsonOption = False,
) -> None:
    """Report Exact Match and F1 of each retriever; the same command again resumes a run that was stopped."""
    from rag_app import console
    from rag_app.evaluate import run

    extra = {"eval.rule": rule}
    with _pipeline(_load(config, set_, corpus, index, extra)) as pipeline:
        report = run(
            pipeline,
            questions,
            out,
            _split(retrievers),
            n=n,
            k=k,
            retry_errors=retry_errors,
        )
    if json:
        console.print_json(report.metrics.to_json())
    else:
        console.out.print(report.table, highlight=False, markup=False, soft_wrap=True)


@app.command()
def score(
    questions: Annotated[Path, typer.Option("--questions", help="File of questions with answers.")],
    predictions: Annotated[Path, typer.Option("--predictions", help="Lines of {id, prediction}.")],
    rule: Annotated[str, typer.Option("--rule", help="squad, nq_open, ...; the data set's own where not given.")] = "",
    json: JsonOption = False,
) -> None:
    """Score answers made anywhere."""
    from eval.score import score_file
    from rag_app import console

    result = score_file(questions, predictions, rule)
    if json:
        console.print_json(result)
    else:
        console.out.print(", ".join(f"{name} {value}" for name, value in result.items()), highlight=False)


@app.command()
def serve(
    config: ConfigOption = None,
    set_: SetOption = None,
    corpus: CorpusOption = None,
    index: IndexOption = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen on.")] = None,
) -> None:
    """Open the page."""
    from rag_app.ui import launch

    launch(_load(config, set_, corpus, index, {"page.host": host, "page.port": port}))


@app.command()
def fetch(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Get the weights of a configuration, so that nothing needs the network later."""
    from rag_app import console
    from rag_app.reader import reader_folder
    from rag_app.weights import resolve

    settings = _load(config, set_, None, None)
    for name, encoder in settings.encoders.items():
        setting = f"encoders.{name}.model"
        folder = resolve(encoder.model, data_dir=settings.resolved_data_dir(), log=console.log, setting=setting)
        console.out.print(f"{setting} {encoder.model}: {folder}", highlight=False, soft_wrap=True)
    reader = reader_folder(settings, console.log) or "the server's"
    console.out.print(f"generator.model {settings.generator.model}: {reader}", highlight=False, soft_wrap=True)


@app.command()
def doctor(config: ConfigOption = None, set_: SetOption = None, json: JsonOption = False) -> None:
    """Say what is installed, what will run and what to install for more."""
    from rag_app import console
    from rag_app.doctor import diagnose, to_json, to_text

    findings = diagnose(_load(config, set_, None, None))
    if json:
        console.print_json(to_json(findings))
    else:
        console.out.print(to_text(findings), highlight=False, markup=False, soft_wrap=True)


def _load(
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


@contextmanager
def _pipeline(config: Config) -> Iterator[Pipeline]:
    """A pipeline that tells on standard error what it does; print results when it is closed and the bars are gone."""
    from rag_app import console
    from rag_app.pipeline import Pipeline

    with console.progress_bar() as progress, closing(Pipeline(config, log=console.log, progress=progress)) as pipeline:
        yield pipeline


def _names(retriever: str | None, compare: str | None) -> list[str]:
    if retriever and compare:
        raise typer.BadParameter("use one of --retriever and --compare", param_hint="--compare")
    return [retriever] if retriever else _split(compare or "")


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def main() -> None:
    """Run the command line: 0 done, 1 failed, 2 wrong usage; tracebacks only with --debug."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    # --debug may stand anywhere on the line, since people add it to a command that failed.
    sys.argv[1:] = ["--debug"] * debug + [argument for argument in arguments if argument != "--debug"]
    try:
        app()
    except SystemExit as exit:
        if exit.code != INTERRUPTED:
            raise
        _stop("stopped; the same command again continues where it can", 1)
    except Exception as error:
        if debug:
            raise
        from rag_app.errors import USER_ERRORS, ConfigError

        if isinstance(error, ConfigError):
            _stop(str(error), 2)
        if isinstance(error, USER_ERRORS):
            _stop(str(error), 1)
        if isinstance(error, OSError):
            _stop(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)
        _stop(f"unexpected {type(error).__name__}: {error}; run again with --debug to see where", 1)


def _stop(message: str, code: int) -> None:
    from rag_app import console

    console.fail(message)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
