"""Where training pairs come from, as a person names it: a file, a hub data set, or an evaluation set with its corpus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eval.data.datasets import Question
from eval.data.sources import PairSet, load_dataset
from eval.data.specs import resolve_spec
from eval.errors import EvalError
from rag_app.config import Config
from rag_app.errors import ConfigError
from rag_app.progress import Log
from rag_app.stores import open_corpus
from retriever.corpora.hub import PREFIX
from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.training.pairs import TrainingPair, read_hub_pairs, read_pairs


def open_pairs(
    source: str, columns: Mapping[str, str], title_separator: str = "", log: Log | None = None
) -> list[TrainingPair]:
    """Pairs from a file of JSON lines, or from hub:NAME, hub:NAME:SPLIT or hub:NAME:SUBSET:SPLIT (split train by default).

    Raises:
        ConfigError: An address of another form.
        RetrieverError: As `retriever.training.pairs.read_pairs` and `read_hub_pairs`.
    """
    if not source.startswith(PREFIX):
        return read_pairs(source, columns=columns, title_separator=title_separator, tell=log)
    name, *rest = source.removeprefix(PREFIX).split(":")
    if not name or len(rest) > 2:
        raise ConfigError(f"{source} is not of the form hub:NAME[:SUBSET][:SPLIT]")
    subset, split = rest if len(rest) == 2 else ("", rest[0] if rest else "")
    return read_hub_pairs(name, subset, split or "train", columns, title_separator=title_separator, tell=log)


def open_known(source: str, columns: Mapping[str, str], title_separator: str = "") -> list[TrainingPair]:
    """Pairs as `open_pairs`, from a file that may have its columns named as `columns` says or as is usual.

    Raises:
        ConfigError: It can be read neither way; or as `open_pairs`.
        RetrieverError: As `open_pairs`.
    """
    try:
        return open_pairs(source, columns, title_separator)
    except RetrieverError as renamed:
        if not columns:
            raise
        try:
            return open_pairs(source, {}, title_separator)
        except RetrieverError as usual:
            raise ConfigError(f"{renamed}; and without --column: {usual}") from usual


def pairs_from_dataset(name: str, config: Config, log: Log, *, own_corpus: bool = False) -> list[TrainingPair]:
    """A pair for each passage that an evaluation set marks: what people marked, else supporting passages, else judgments.

    Args:
        name: As for `magrag eval`: a known name, a file, a folder or NAME=PATH.
        config: Its `corpus` holds the passages.
        log: Told what was left out.
        own_corpus: Take the corpus that the set comes with (a BEIR folder) in place of the configuration's.

    Raises:
        EvalError: The set cannot be read, is one of sentence pairs, comes without the corpus that was to be taken, or no
            marked passage is in the corpus.
        RetrieverError: The corpus cannot be read.
    """
    dataset = load_dataset(resolve_spec(name), say=log)
    if isinstance(dataset, PairSet):
        raise EvalError(f"{name} holds sentence pairs, which mark no passages: name a set of questions")
    if own_corpus and not dataset.corpus:
        raise EvalError(f"{name} comes without a corpus: name the one its marked passages are in with --corpus")
    marked = {question.id: _marked(question) for question in dataset.questions}
    wanted = {id for ids in marked.values() for id in ids}
    if not wanted:
        raise EvalError(f"{name}: no question has marked passages, so there is nothing to make pairs of")
    corpus = config.over(dataset.corpus, "") if own_corpus else config
    found: dict[str, Passage] = {}
    for passage in open_corpus(corpus, None):
        if passage.id in wanted:
            found[passage.id] = Passage(passage.id, passage.title, passage.text)
    pairs = [
        TrainingPair(question.question, found[id], answers=question.answers, source=dataset.name)
        for question in dataset.questions
        for id in marked[question.id]
        if id in found
    ]
    if not pairs:
        raise EvalError(
            f"{name}: none of its {len(wanted):,} marked passages is in {corpus.corpus}: name its own corpus"
        )
    if missing := len(wanted) - len(found):
        log(f"{name}: {missing:,} of {len(wanted):,} marked passages are not in {corpus.corpus}")
    if unmarked := sum(not ids for ids in marked.values()):
        log(f"{name}: {unmarked:,} of {len(marked):,} questions have no marked passage")
    return pairs


def evaluation_questions(names: Iterable[str], setting: str = "data.evaluation") -> list[str]:
    """The questions (of sentence pairs, both sides) of evaluation sets, for `retriever.training.guard.drop_leaks`.

    Args:
        names: As for `magrag eval`.
        setting: Where they were named, for errors.

    Raises:
        EvalError: A set cannot be read.
    """
    found: list[str] = []
    for name in names:
        try:
            dataset = load_dataset(resolve_spec(name))
        except EvalError as error:
            raise type(error)(f"{setting}: {error}") from error
        if isinstance(dataset, PairSet):
            found += [text for pair in dataset.pairs for text in (pair.text1, pair.text2)]
        else:
            found += [question.question for question in dataset.questions]
    return found


def _marked(question: Question) -> list[str]:
    """The ids of a question's passages, each once."""
    judged = [id for id, grade in question.qrels.items() if grade > 0]
    return list(dict.fromkeys(question.gold_ids or question.supporting_ids or judged))
