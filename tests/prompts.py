"""Short prompts that the demo's reader completes with something definite."""

from __future__ import annotations

from generator.base import Prompt

FACTS = [
    ("Paris is the capital of France.", "What is the capital of France?"),
    ("The Nile flows through Egypt.", "Which river flows through Egypt?"),
    ("Ada Lovelace wrote about the Analytical Engine.", "Who wrote about the Analytical Engine?"),
    ("Water boils at 100 degrees Celsius.", "At what temperature does water boil?"),
    ("The Great Wall is in China.", "Where is the Great Wall?"),
    ("Mozart was born in Salzburg in 1756.", "When was Mozart born?"),
    ("The heart pumps blood.", "What does the heart pump?"),
    ("Mount Everest is 8849 metres high.", "How high is Mount Everest?"),
    ("Shakespeare wrote Hamlet.", "Who wrote Hamlet?"),
    ("Bees make honey.", "What do bees make?"),
    ("The Moon orbits the Earth.", "What does the Moon orbit?"),
    ("Tokyo is the largest city of Japan.", "What is the largest city of Japan?"),
]


def facts() -> list[Prompt]:
    """Twelve few-word questions with the passage that answers each, of different lengths."""
    return [
        Prompt(f"q{place}", text=f"Passage: {passage}\nQuestion: {question}\nAnswer:")
        for place, (passage, question) in enumerate(FACTS)
    ]


def too_long() -> Prompt:
    """More tokens than any context in these tests."""
    return Prompt("long", text="word " * 3000)


def chat() -> Prompt:
    """A chat of one turn."""
    return Prompt("chat", messages=({"role": "user", "content": "What do bees make? One word."},))
