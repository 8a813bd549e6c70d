"""Question and passages to a prompt that fits, and a completion back to a short answer.

What is the same for every question stands first (the instruction, the examples), so that the reader's prefix cache serves
it. When a prompt is too long, passages are dropped from the tail or the last one is cut; the question and the answer cue
never are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from generator.base import Generator, Message, Prompt
from generator.errors import GeneratorError
from retriever.passages import Passage

INSTRUCTION = "Answer the question with a few words taken from the passages."
CLOSED_BOOK_INSTRUCTION = "Answer the question with a few words."

NO_ANSWER = "The passages do not tell."
"""What a trained reader says where no passage holds the answer (`magrag train-reader`)."""

MIN_CUT_TOKENS = 32
"""A passage of which less would remain is dropped rather than cut."""


@dataclass(frozen=True, slots=True)
class Example:
    """One worked example of a few-shot prompt."""

    title: str
    text: str
    question: str
    answer: str


# Written for this project; none is in the demo corpus, so no example gives an answer away.
EXAMPLES = (
    Example(
        "Marmalade",
        "Marmalade is a preserve made from the juice and peel of citrus fruit boiled with sugar. The bitter Seville orange, "
        "grown in the south of Spain, is the fruit most often used for it in Britain.",
        "which orange is used for making marmalade in britain",
        "Seville orange",
    ),
    Example(
        "Chess clock",
        "A chess clock has two dials, and pressing the button on one stops it and starts the other. It was first used at "
        "a tournament in London in 1883, where it replaced hourglasses.",
        "In what year was the chess clock first used at a tournament?",
        "1883",
    ),
    Example(
        "Zip fastener",
        "Gideon Sundback, an engineer born in Sweden, improved earlier sliding fasteners while he worked in New Jersey. "
        "The name zipper came later, from a company that sold rubber boots closed by his device.",
        "Who improved the sliding fastener that became known as the zipper?",
        "Gideon Sundback",
    ),
)


class PromptSettings(Protocol):
    """What this module reads of the configuration's [prompt] table."""

    style: Literal["completion", "chat"]
    max_tokens: int
    instruction: str
    few_shot: bool
    order: Literal["best_first", "best_last"]


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    """A prompt that fits, and what it cost.

    Attributes:
        prompt: For the generator.
        passages: Those in the prompt, in rank order, the last one perhaps shortened.
        dropped: Passages left out for length.
        cut: Whether the last passage was shortened.
        tokens: Length of the rendered prompt.
    """

    prompt: Prompt
    passages: tuple[Passage, ...]
    dropped: int
    cut: bool
    tokens: int


def build_prompt(
    id: str, question: str, passages: Sequence[Passage], generator: Generator, settings: PromptSettings, reserve: int
) -> BuiltPrompt:
    """Render question and passages under the token budget.

    Args:
        id: Matches the completion to the question.
        question: Never shortened.
        passages: Best first; none asks the reader closed-book.
        generator: Counts tokens as its model sees them.
        settings: Style and budget.
        reserve: Tokens of the context that the answer needs.

    Raises:
        GeneratorError: The prompt is too long even without passages, or a chat is asked of a model without a template.
    """
    if settings.style == "chat" and not generator.has_chat_template:
        raise GeneratorError(f"{generator.name} has no chat template; set prompt.style to completion")
    render = _chat if settings.style == "chat" else _completion
    budget = min(settings.max_tokens, generator.context_length - reserve)
    used = list(passages)
    dropped, cut = 0, False
    while True:
        prompt = render(id, question, used, settings)
        tokens = generator.count_tokens(prompt)
        if tokens <= budget:
            return BuiltPrompt(prompt, tuple(used), dropped, cut, tokens)
        if not used:
            raise GeneratorError(
                f"the question alone makes a prompt of {tokens} tokens and the budget is {budget}; shorten it, or raise "
                "prompt.max_tokens and generator.context_length"
            )
        last = used.pop()
        shorter = _shorten(last, tokens - budget, generator)
        if shorter is None:
            dropped, cut = dropped + 1, False
        else:
            used.append(shorter)
            cut = True


def prompt_sha256(settings: PromptSettings) -> str:
    """Names the wording: SHA-256 of the prompts that stand-ins give, with passages and without."""
    render = _chat if settings.style == "chat" else _completion
    passages = [Passage("1", "TITLE 1", "TEXT 1"), Passage("2", "TITLE 2", "TEXT 2")]
    prompts = [render("", "QUESTION", used, settings) for used in (passages, [])]
    wording = json.dumps([[prompt.text, prompt.messages, settings.max_tokens] for prompt in prompts])
    return hashlib.sha256(wording.encode()).hexdigest()


def extract_answer(text: str) -> str:
    """The first line of a completion that is not blank, stripped; "" when there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def stop_strings(style: Literal["completion", "chat"]) -> tuple[str, ...]:
    """Where a completion ends: at the end of its line; a chat turn ends by itself."""
    return () if style == "chat" else ("\n",)


def _shorten(passage: Passage, excess: int, generator: Generator) -> Passage | None:
    """The passage with at least `excess` tokens fewer, or None when too little of it would remain."""
    length = generator.count_tokens(Prompt(passage.id, text=passage.text))
    keep = length - excess
    if keep < MIN_CUT_TOKENS:
        return None
    text = generator.truncate(passage.text, keep)
    return Passage(passage.id, passage.title, text, passage.meta) if 0 < len(text) < len(passage.text) else None


def _instruction(passages: Sequence[Passage], settings: PromptSettings) -> str:
    return settings.instruction or (INSTRUCTION if passages else CLOSED_BOOK_INSTRUCTION)


def _context(passages: Sequence[Passage], settings: PromptSettings) -> str:
    """Passages with their ranks and titles, a line each."""
    lines = [
        f"[{rank}] {f'{p.title}: ' if p.title else ''}{' '.join(p.text.split())}\n"
        for rank, p in enumerate(passages, start=1)
    ]
    return "".join(lines if settings.order == "best_first" else reversed(lines))


def completion_head(passages: Sequence[Passage], settings: PromptSettings) -> str:
    """What a completion prompt says before the question: instruction, examples and passages (best first)."""
    parts = [_instruction(passages, settings) + "\n\n"]
    if settings.few_shot:
        for example in EXAMPLES:
            shown = [Passage("", example.title, example.text)] if passages else []
            parts.append(f"{_context(shown, settings)}{completion_tail(example.question)} {example.answer}\n\n")
    return "".join([*parts, _context(passages, settings)])


def completion_tail(question: str) -> str:
    """The end of a completion prompt: the question and the cue that its answer follows."""
    return f"Question: {question.strip()}\nAnswer:"


def _completion(id: str, question: str, passages: Sequence[Passage], settings: PromptSettings) -> Prompt:
    return Prompt(id, text=completion_head(passages, settings) + completion_tail(question))


def _chat(id: str, question: str, passages: Sequence[Passage], settings: PromptSettings) -> Prompt:
    system = _instruction(passages, settings) + " Give the short answer alone, without a sentence around it."
    user = f"{_context(passages, settings)}\nQuestion: {question.strip()}\nAnswer:".lstrip()
    messages: tuple[Message, ...] = ({"role": "system", "content": system}, {"role": "user", "content": user})
    return Prompt(id, messages=messages)
