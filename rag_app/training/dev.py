"""Development scores of an encoder in training: nDCG@10 on held-out queries, and what its norms do."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eval.data.datasets import Question
from eval.errors import EvalError
from eval.ranking import per_question
from rag_app.errors import ConfigError
from retriever.passages import Passage
from retriever.similarity import COSINE, Similarity, score_parts
from retriever.training.figures import norm_figures
from retriever.training.guard import canonical
from retriever.training.masking import passage_keys
from retriever.training.pairs import TrainingPair

if TYPE_CHECKING:
    from rag_app.training.config import DevSetConfig
    from retriever.encoder import Encoder

MEASURE = "nDCG@10"
_DEPTH = 10
CORRELATION = "dev norm_length_corr"
"""The pool's norms with log length; behind the set's name where there are several."""

# The log has columns of these names for the batch.
_DEV_NAMES = {"norm_mean": "dev norm_mean", "norm_cv": "dev norm_cv", "norm_length_corr": CORRELATION}


@dataclass(frozen=True, slots=True)
class DevSet:
    """Queries and the passages they are searched among.

    Attributes:
        name: Stands in the columns of the log.
        questions: With judgments of passages by id.
        passages: The pool, no text twice.
    """

    name: str
    questions: Sequence[Question]
    passages: Sequence[Passage]


def hold_out(
    pairs: Sequence[TrainingPair], queries: int, pool: int, seed: int
) -> tuple[list[TrainingPair], list[TrainingPair], DevSet]:
    """Take queries out of the training, and what answers them.

    No pair that is kept has a held-out query or a held-out positive, nor the latter as a negative. Only the pool's further
    passages may be positives of kept pairs: they are what the held-out positives stand out from, and a training raises
    them if anything.

    Args:
        pairs: All there are.
        queries: How many different ones (`canonical`) are held out, with all their pairs.
        pool: Positives of other queries, at most, that go into the pool beside the held-out pairs' own passages.
        seed: Of the draw.

    Returns:
        Pairs to train on, pairs held out, and the development set; pairs of other queries whose positive is a held-out one
        are in neither.

    Raises:
        ConfigError: So many queries are not there, or no pair is left.
    """
    random = np.random.default_rng(seed)
    asked = [canonical(pair.query) for pair in pairs]
    names = list(dict.fromkeys(asked))
    if queries >= len(names):
        raise ConfigError(
            f"dev.queries is {queries}, but the pairs have {len(names)} different queries: hold out fewer"
        )
    chosen = {names[position] for position in random.permutation(len(names))[:queries]}
    held = [pair for name, pair in zip(asked, pairs, strict=True) if name in chosen]
    closed = {key for pair in held for key in passage_keys(pair.positive)}
    kept = [
        _without(pair, closed)
        for name, pair in zip(asked, pairs, strict=True)
        if name not in chosen and closed.isdisjoint(passage_keys(pair.positive))
    ]
    if not kept:
        raise ConfigError(f"dev.queries is {queries}, and their passages answer all other queries too: hold out fewer")
    ids: dict[str, str] = {}  # by text: a text that stands under two ids is one passage of the pool
    passages: list[Passage] = []

    def add(passage: Passage) -> str:
        text = passage_keys(passage)[1]
        if text not in ids:
            ids[text] = f"p{len(ids)}"
            passages.append(replace(passage, id=ids[text]))
        return ids[text]

    judged: dict[str, dict[str, int]] = {}
    wording: dict[str, str] = {}
    for pair in held:
        name = canonical(pair.query)
        wording.setdefault(name, pair.query)
        judged.setdefault(name, {})[add(pair.positive)] = 1
        for negative in pair.negatives:
            add(negative)
    own = len(passages)
    for position in random.permutation(len(kept)):
        if len(passages) >= own + pool:
            break
        add(kept[position].positive)
    questions = [
        Question(f"q{row}", "held-out", wording[name], (), qrels=relevant)
        for row, (name, relevant) in enumerate(judged.items())
    ]
    return kept, held, DevSet("held-out", questions, passages)


def _without(pair: TrainingPair, closed: Container[str]) -> TrainingPair:
    """The pair without the negatives that are held out."""
    left = tuple(passage for passage in pair.negatives if not any(key in closed for key in passage_keys(passage)))
    return pair if len(left) == len(pair.negatives) else replace(pair, negatives=left)


def read_dev_set(name: str, config: DevSetConfig, seed: int, *, table: str = "dev.datasets") -> DevSet:
    """Questions with marked passages and a pool of their corpus.

    Args:
        name: Of the set.
        config: Its table.
        seed: Of both draws.
        table: Where people write such sets, for errors.

    Raises:
        ConfigError: It has no corpus, no marked passages, or passages are marked that the corpus lacks.
        EvalError: The questions cannot be read.
        RetrieverError: The corpus cannot be read.
    """
    from eval.data.sources import DataSet, load_dataset
    from eval.data.specs import DataSetSpec
    from retriever.corpora import read_corpus

    place, spec = f"{table}.{name}", DataSetSpec(name, path=config.path, split=config.split)
    try:
        data = load_dataset(spec, n=config.queries, seed=seed)
    except EvalError as error:
        raise type(error)(f"{place}: {error}") from error
    if not isinstance(data, DataSet):
        raise ConfigError(f"{place}: {config.path} holds sentence pairs, not questions")
    corpus = config.corpus or data.corpus
    questions = [question for question in data.questions if question.relevance]
    if not corpus or not questions:
        lacks = "corpus" if not corpus else "question with marked passages"
        raise ConfigError(f"{place} has no {lacks}: give one, or leave the set out")
    marked = {id for question in questions for id in question.relevance}
    passages = list(read_corpus(corpus, on_error="fail", collapse_duplicates=False))
    found = [passage for passage in passages if passage.id in marked]
    others = [passage for passage in passages if passage.id not in marked]
    if not found:
        raise ConfigError(f"{place}: no marked passage is in {corpus}: are the ids of the same corpus?")
    if config.pool and len(others) > config.pool:
        drawn = np.sort(np.random.default_rng(seed).permutation(len(others))[: config.pool])
        others = [others[position] for position in drawn]
    return DevSet(name, questions, [*found, *others])


class DevScorer:
    """Scores an encoder on development sets; give it to a trainer as `dev`.

    The first figure is the mean over the sets of nDCG@10 under the similarity in training. After it come, for each set (and
    with its name before them where there are several), the same under cosine and under γd = ½, and mean, variation and
    length correlation of the pool's norms.

    Args:
        sets: At least one.
    """

    def __init__(self, sets: Sequence[DevSet]) -> None:
        self._sets = sets
        self._token_counts: dict[str, np.ndarray] = {}

    def __call__(self, encoder: Encoder, similarity: Similarity) -> Mapping[str, float]:
        """All figures, by name."""
        found = [self._score(dev, encoder, similarity) for dev in self._sets]
        scores = {MEASURE: float(np.mean([figures[MEASURE] for figures in found]))}
        for dev, figures in zip(self._sets, found, strict=True):
            start = f"{dev.name} " if len(self._sets) > 1 else ""
            scores.update({f"{start}{_DEV_NAMES.get(name, name)}": value for name, value in figures.items()})
        return scores

    def _score(self, dev: DevSet, encoder: Encoder, similarity: Similarity) -> dict[str, float]:
        queries = encoder.encode_queries([question.question for question in dev.questions])
        passages = encoder.encode_passages(dev.passages)
        cosine = queries.units @ passages.units.T
        half = Similarity("learnable", 1.0, 0.5)
        figures = {}
        for name, own in ((MEASURE, similarity), (f"{MEASURE} cosine", COSINE), (f"{MEASURE} half", half)):
            scores = score_parts(cosine, queries.norms[:, None], passages.norms[None, :], own.gamma_q, own.gamma_d)
            figures[name] = self._measure(dev, scores)
        return figures | norm_figures(passages.norms, self._lengths(dev, encoder))

    def _measure(self, dev: DevSet, scores: np.ndarray) -> float:
        depth = min(_DEPTH, scores.shape[1])
        rows = {}
        for row, question in enumerate(dev.questions):
            best = np.argsort(-scores[row], kind="stable")[:depth]
            rows[question.id] = {"passages": [{"id": dev.passages[i].id, "score": float(scores[row, i])} for i in best]}
        return float(np.mean(list(per_question([MEASURE], dev.questions, rows)[MEASURE].values())))

    def _lengths(self, dev: DevSet, encoder: Encoder) -> np.ndarray:
        """Tokens of each passage as it is cut; counted once."""
        if dev.name not in self._token_counts:
            self._token_counts[dev.name] = encoder.passage_lengths(dev.passages)
        return self._token_counts[dev.name]
