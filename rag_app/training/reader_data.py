"""What a reader is trained on: questions gathered over shared contexts of passages, with distractors mined by a retriever.

A context is made around a question: its passages, and those that a retriever finds for it beside them. Every passage
brings the questions that were asked about it, so that a distractor of one question is the source of another one, and no
place in the prompt gives an answer away. Some contexts get a question whose passages are not there: its answer is that
the passages do not tell.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generator.tuning import Branch, SharedContext
from rag_app.errors import ConfigError
from rag_app.prompt import NO_ANSWER, PromptSettings, completion_head, completion_tail
from retriever.passages import Passage

WORD = re.compile(r"\w+")

Rank = Callable[[Sequence[str]], list[list[str]]]
"""Questions to the ids of the passages that a retriever ranks first for each."""


@dataclass(frozen=True, slots=True)
class ReaderExample:
    """A question, its accepted answers, and the passages that hold the first of them (all of them needed together)."""

    question: str
    answers: tuple[str, ...]
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """How contexts are made.

    Attributes:
        sizes: Numbers of passages, one of which is drawn for each context; repeat one to make it likelier.
        passage_words: Longer passages are cut to a window of so many words around the answers.
        answer_words: Questions whose answer has more words are left out.
        unanswerable: Share of contexts with a question that they do not answer.
        closed_book: Share of the questions that are asked once more without passages.
        questions: Most questions over one context.
        seed: Of all draws.
    """

    sizes: tuple[int, ...] = (1, 2, 3, 3, 4, 5, 5)
    passage_words: int = 100
    answer_words: int = 8
    unanswerable: float = 0.3
    closed_book: float = 0.05
    questions: int = 8
    seed: int = 0


def read_examples(path: Path) -> list[ReaderExample]:
    """Read JSONL rows of {question, answers, passages: [{title, text}]}.

    Raises:
        ConfigError: The file is not there, or a line is no such row.
    """
    examples: list[ReaderExample] = []
    number = 0
    try:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                number += 1
                row = json.loads(line)
                passages = tuple(_passage(passage) for passage in row["passages"])
                if not isinstance(row["answers"], list):
                    raise TypeError("answers must be a list")
                examples.append(ReaderExample(row["question"].strip(), tuple(row["answers"]), passages))
                if not passages or not examples[-1].answers:
                    raise ValueError("passages and answers must not be empty")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f'"{error.args[0]}" is missing' if isinstance(error, KeyError) else error
        raise ConfigError(
            f"{path}, line {number}: {what}; a line is {{question, answers, passages: [{{title, text}}]}}"
        ) from error
    return examples


def corpus_of(examples: Sequence[ReaderExample]) -> list[Passage]:
    """All passages, each once."""
    return list({passage.id: passage for example in examples for passage in example.passages}.values())


def make_contexts(
    examples: Sequence[ReaderExample], rank: Rank, settings: ContextSettings, prompt: PromptSettings
) -> list[SharedContext]:
    """Gather the questions over contexts, so that every passage of a question that is not left out is shown once at least.

    Args:
        examples: The training questions.
        rank: The retriever that mines distractors among `corpus_of(examples)`.
        settings: Sizes and shares.
        prompt: The wording, which the trained reader must later be asked with.
    """
    usable = [own for own in examples if len(own.answers[0].split()) <= settings.answer_words]
    asked: dict[str, list[ReaderExample]] = {}
    for example in usable:
        for passage in example.passages:
            asked.setdefault(passage.id, []).append(example)
    passages = {passage.id: passage for passage in corpus_of(usable)}
    found = dict(zip((own.question for own in usable), rank([own.question for own in usable]), strict=True))
    draw = random.Random(settings.seed)
    order = list(usable)
    draw.shuffle(order)
    used: set[str] = set()
    contexts: list[SharedContext] = []
    for seed in order:
        needed = [passage.id for passage in seed.passages]
        if used.issuperset(needed):
            continue
        size = max(draw.choice(settings.sizes), len(needed))
        near = [id for id in found[seed.question] if id in passages and id not in needed]
        # Fresh ones first, so that the questions are spread over contexts; the nearest of all where they run out.
        fresh, seen = [id for id in near if id not in used], [id for id in near if id in used]
        chosen = needed + (fresh + seen)[: size - len(needed)]
        used.update(chosen)
        held = set(chosen)
        candidates = [one for id in chosen for one in asked[id] if held.issuperset(p.id for p in one.passages)]
        others = {one.question: one for one in draw.sample(candidates, len(candidates))}
        here = list({seed.question: seed, **others}.values())[: settings.questions]
        shown = [
            _window(passages[id], [one for one in here if id in {p.id for p in one.passages}], settings, draw)
            for id in chosen
        ]
        draw.shuffle(shown)
        text = " ".join(f"{passage.title} {passage.text}" for passage in shown)
        branches = [_branch(own.question, own.answers[0]) for own in here if _holds(text, own.answers[0])]
        if draw.random() < settings.unanswerable:
            away = [
                own
                for id in near
                if id not in held
                for own in asked[id]
                if not any(_holds(text, a) for a in own.answers)
            ]
            if away:
                branches.append(_branch(draw.choice(away[:5]).question, NO_ANSWER))
        if branches:
            draw.shuffle(branches)
            contexts.append(SharedContext(completion_head(shown, prompt), tuple(branches)))
    closed = draw.sample(usable, round(len(usable) * settings.closed_book))
    for start in range(0, len(closed), settings.questions):
        group = closed[start : start + settings.questions]
        contexts.append(
            SharedContext(completion_head([], prompt), tuple(_branch(own.question, own.answers[0]) for own in group))
        )
    draw.shuffle(contexts)
    return contexts


def _passage(row: dict[str, Any]) -> Passage:
    title, text = row.get("title", ""), row["text"]
    return Passage(f"{title}\0{text}", title, text)


def _branch(question: str, answer: str) -> Branch:
    return Branch(completion_tail(question), f" {' '.join(answer.split())}\n")


def _holds(text: str, answer: str) -> bool:
    return _plain(answer) in _plain(text)


def _plain(text: str) -> str:
    return f" {' '.join(WORD.findall(text.casefold()))} "


def _window(
    passage: Passage, examples: Sequence[ReaderExample], settings: ContextSettings, draw: random.Random
) -> Passage:
    """The passage, cut to a window that holds the first question's answer somewhere."""
    words = passage.text.split()
    spare = len(words) - settings.passage_words
    if spare <= 0:
        return passage
    low, high = 0, spare
    for example in examples[:1]:
        place = _find(words, example.answers[0].split())
        if place is not None:
            low, high = max(0, place + len(example.answers[0].split()) - settings.passage_words), min(spare, place)
    start = draw.randint(min(low, high), high)
    return Passage(passage.id, passage.title, " ".join(words[start : start + settings.passage_words]))


def _find(words: Sequence[str], answer: Sequence[str]) -> int | None:
    plain, wanted = [_plain(word) for word in words], [_plain(word) for word in answer]
    return next((i for i in range(len(plain)) if plain[i : i + len(wanted)] == wanted), None)
