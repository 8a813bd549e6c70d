"""Contexts that a reader is trained on."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from generator.base import Prompt
from generator.tuning import SharedContext
from rag_app.config import Config
from rag_app.errors import ConfigError
from rag_app.prompt import NO_ANSWER, build_prompt
from rag_app.training.reader_data import ContextSettings, Rank, ReaderExample, corpus_of, make_contexts, read_examples
from retriever.passages import Passage

PROMPT = Config().prompt.model_copy(update={"few_shot": False})
TOWNS = ["Arles", "Brest", "Calais", "Dijon", "Evreux", "Fréjus", "Grasse", "Hyères"]


class Words:
    """What `build_prompt` asks of a generator; tokens are words."""

    context_length = 2048
    has_chat_template = False
    name = "words"

    def count_tokens(self, prompt: Prompt) -> int:
        return len((prompt.text or "").split())


def written(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def examples(tmp_path: Path) -> list[ReaderExample]:
    rows = [
        {
            "question": f"{what} of {town}",
            "answers": [f"{what} {town} one"],
            "passages": [{"title": town, "text": f"In {town} there is {what} {town} one."}],
        }
        for town in TOWNS
        for what in ("mayor", "river")
    ]
    # The same passage for both questions about a town.
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        both = [
            {
                "title": first["passages"][0]["title"],
                "text": first["passages"][0]["text"] + second["passages"][0]["text"],
            }
        ]
        first["passages"] = second["passages"] = both
    return read_examples(written(tmp_path / "rows.jsonl", rows))


def rank_in_order(examples: Sequence[ReaderExample]) -> Rank:
    ids = [passage.id for passage in corpus_of(examples)]
    return lambda questions: [ids for _ in questions]


def questions_of(context: SharedContext) -> dict[str, str]:
    return {re.findall(r"Question: (.*)\nAnswer:", own.prompt)[0]: own.completion.strip() for own in context.branches}


def test_every_question_is_asked_over_its_own_passage(examples: list[ReaderExample]) -> None:
    settings = ContextSettings(sizes=(3,), unanswerable=0.0, closed_book=0.0)
    contexts = make_contexts(examples, rank_in_order(examples), settings, PROMPT)
    asked = Counter(question for context in contexts for question in questions_of(context))
    assert set(asked) == {example.question for example in examples}
    for context in contexts:
        assert [len(re.findall(rf"^\[{n}\] ", context.text, re.M)) for n in (1, 2, 3, 4)] == [1, 1, 1, 0]
        for question, answer in questions_of(context).items():
            assert answer in context.text
            assert answer == next(own.answers[0] for own in examples if own.question == question)
    # Eight passages in threes: the third context takes up the last two and one that was there before.
    assert len(contexts) == 3
    assert sorted(asked.values()) == [1] * 14 + [2] * 2


def test_places_of_answers_vary(examples: list[ReaderExample]) -> None:
    settings = ContextSettings(sizes=(4,), unanswerable=0.0, closed_book=0.0)
    places = Counter(
        next(place for place, line in enumerate(context.text.splitlines()[2:]) if answer in line)
        for seed in range(20)
        for context in make_contexts(examples, rank_in_order(examples), replace(settings, seed=seed), PROMPT)
        for answer in questions_of(context).values()
    )
    assert min(places[place] for place in range(4)) > 40


def test_what_no_passage_tells_is_said(examples: list[ReaderExample]) -> None:
    settings = ContextSettings(sizes=(2,), unanswerable=1.0, closed_book=0.0)
    contexts = make_contexts(examples, rank_in_order(examples), settings, PROMPT)
    for context in contexts:
        untold = [question for question, answer in questions_of(context).items() if answer == NO_ANSWER]
        assert len(untold) == 1
        wanted = next(own.answers[0] for own in examples if own.question == untold[0])
        assert wanted not in context.text


def test_some_questions_are_asked_without_passages(examples: list[ReaderExample]) -> None:
    settings = ContextSettings(sizes=(2,), unanswerable=0.0, closed_book=0.5)
    contexts = make_contexts(examples, rank_in_order(examples), settings, PROMPT)
    closed = [context for context in contexts if "[1]" not in context.text]
    assert sum(len(context.branches) for context in closed) == 8
    assert all("few words" in context.text and "passages" not in context.text for context in closed)


def test_the_wording_is_the_pipelines_own(examples: list[ReaderExample]) -> None:
    context = make_contexts(
        examples[:2], rank_in_order(examples[:2]), ContextSettings(sizes=(1,), unanswerable=0), PROMPT
    )
    context = next(own for own in context if "[1]" in own.text)
    asked = next(iter(questions_of(context)))
    passage = examples[0].passages[0]
    built = build_prompt("", asked, [Passage("1", passage.title, passage.text)], Words(), PROMPT, 32)  # type: ignore[arg-type]
    branch = next(own for own in context.branches if asked in own.prompt)
    assert built.prompt.text == context.text + branch.prompt


def test_long_passages_are_cut_around_the_answer() -> None:
    words = [f"w{i}" for i in range(300)]
    words[200:202] = ["Victor", "Hugo"]
    passage = Passage("p", "T", " ".join(words))
    examples = [ReaderExample("who", ("Victor Hugo",), (passage,))]
    for seed in range(30):
        settings = ContextSettings(sizes=(1,), passage_words=10, closed_book=0, unanswerable=0, seed=seed)
        (context,) = make_contexts(examples, lambda questions: [["p"]], settings, PROMPT)
        assert "Victor Hugo" in context.text
        assert len(context.text.splitlines()[2].split()) == 12  # with "[1]" and the title


def test_long_answers_are_left_out() -> None:
    passage = Passage("p", "T", "one two three four")
    examples = [ReaderExample("a", ("one two three",), (passage,)), ReaderExample("b", ("four",), (passage,))]
    contexts = make_contexts(
        examples, lambda questions: [["p"]] * len(questions), ContextSettings(answer_words=2), PROMPT
    )
    assert {question for context in contexts for question in questions_of(context)} == {"b"}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"question": "a", "answers": ["b"]}, '"passages" is missing'),
        ({"question": "a", "answers": [], "passages": [{"text": "b"}]}, "must not be empty"),
        ({"question": "a", "answers": "b", "passages": [{"text": "b"}]}, "answers must be a list"),
        ({"question": 3, "answers": ["b"], "passages": [{"text": "b"}]}, "'int' object"),
        (3, "a line is"),
    ],
)
def test_a_faulty_line_is_named(row: object, what: str, tmp_path: Path) -> None:
    good = {"question": "a", "answers": ["b"], "passages": [{"text": "b"}]}
    with pytest.raises(ConfigError, match=f"line 2: .*{what}"):
        read_examples(written(tmp_path / "rows.jsonl", [good, row]))
    with pytest.raises(ConfigError, match="cannot read"):
        read_examples(tmp_path / "none.jsonl")
