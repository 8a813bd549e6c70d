"""From a data set, or none, to its diagnosis under an encoder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from eval.data.datasets import Question, subset
from rag_app.config import Config
from rag_app.diagnosis.pairs import diagnose_pairs
from rag_app.diagnosis.passages import configured_questions, diagnose_encoder
from rag_app.diagnosis.pilot import judged_questions, run_pilot
from rag_app.diagnosis.pilot_config import PilotConfig
from rag_app.diagnosis.queries import diagnose_queries
from rag_app.diagnosis.report import DiagnosisReport, index_report, pairs_report
from rag_app.errors import ConfigError
from rag_app.experiment import Experiment, open_experiment
from rag_app.pipeline import Pipeline
from rag_app.progress import Log


def diagnose_data(
    config: Config,
    data: str | None,
    encoder: str,
    opened: Callable[[Config], AbstractContextManager[Pipeline]],
    log: Log,
    *,
    own_corpus: bool,
    pilot: PilotConfig | None = None,
    pilot_folder: Path | None = None,
) -> DiagnosisReport:
    """Diagnose the index over a data set's corpus, or a set of sentence pairs.

    Args:
        config: Of the command. eval.n questions are asked, or pairs scored (0: all); passages are marked by all questions.
        data: As `open_experiment` takes it; None takes the configuration's own questions over its own corpus.
        encoder: Its name in the configuration.
        opened: Makes a pipeline for a configuration.
        log: Told, in a line, what should be known of the data.
        own_corpus: The configuration's corpus or index wins over the data set's own.
        pilot: Trainings that say which side to normalise; None trains nothing.
        pilot_folder: Where they are kept; None keeps them in the data folder.

    Raises:
        ConfigError: No such encoder, an empty corpus, or a pilot of data without marked passages.
        EvalError: The data cannot be read.
        RetrieverError: Corpus, index or encoder cannot be used.
    """
    settings, given = config.eval, config
    config = config.model_copy(update={"eval": settings.model_copy(update={"n": 0})})
    if data is None:
        found = configured_questions(config)
        whole = Experiment() if isinstance(found, str) else found
        place = config.corpus, config.index.path
    else:
        whole = open_experiment(config, [data], log, own_corpus=own_corpus)
        if whole.pairs and pilot is not None:
            raise ConfigError(
                f"{data} holds sentence pairs, whose sides are alike: they take cosine, and a pilot has nothing to tell"
            )
        if whole.pairs:
            [pairs] = open_experiment(given, [data], log).pairs
            with opened(config) as pipeline:
                return pairs_report(diagnose_pairs(pipeline, encoder, pairs, seed=settings.seed))
        place = whole.corpora[whole.datasets[0].name]
    over = [own for own in whole.datasets if whole.corpora[own.name] == place]
    questions: list[Question] = [question for own in over for question in own.questions]
    known = questions
    if settings.n and len(questions) > settings.n:
        log(f"{settings.n:,} of {len(questions):,} questions are asked, drawn with seed {settings.seed}")
        questions = subset(questions, settings.n, settings.seed)
    if pilot is not None:
        judged_questions(questions)  # before anything takes time
    with opened(config.over(*place)) as pipeline:
        diagnosed = diagnose_encoder(pipeline, encoder, asked=whole if data is not None else None)
        asked = None
        if questions:
            names = ", ".join(own.name for own in over)
            asked = diagnose_queries(pipeline, encoder, names, questions, seed=settings.seed)
        tried = None
        if pilot is not None:
            tried = run_pilot(
                pilot,
                config,
                encoder,
                questions,
                known,
                pipeline.index(encoder),
                pilot_folder,
                log=log,
                progress=pipeline.progress,
            )
    return index_report(diagnosed, asked, tried)
