"""What a pipeline gives back, and its JSON form, which the command line, the page and the evaluation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from retriever.base import Hit


@dataclass(frozen=True, slots=True)
class Answer:
    """One retriever's answer to one question.

    Attributes:
        retriever: Its name in the configuration; "closed-book" where no passages were read.
        answer: The short answer; "" when there is none.
        hits: Passages as ranked, whether or not they fitted the prompt.
        dropped: Passages left out of the prompt for length.
        cut: Whether the last passage in the prompt was shortened.
        prompt_tokens: Length of the prompt.
        prompt: The prompt as text, for people to look at.
        timings: Seconds by stage; in a batch, this question's share.
        error: Why there is no answer, in one line.
    """

    retriever: str
    answer: str = ""
    hits: Sequence[Hit] = ()
    dropped: int = 0
    cut: bool = False
    prompt_tokens: int = 0
    prompt: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The object `magrag ask --json` prints for one retriever."""
        return {
            "retriever": self.retriever,
            "answer": self.answer,
            "passages": [hit_to_json(hit) for hit in self.hits],
            "dropped": self.dropped,
            "cut": self.cut,
            "prompt_tokens": self.prompt_tokens,
            "timings": {stage: round(seconds, 4) for stage, seconds in self.timings.items()},
            "error": self.error,
        }


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """{rank, id, title, text, score, cosine, norm}; cosine and norm are null for BM25."""
    return {
        "rank": hit.rank,
        "id": hit.passage.id,
        "title": hit.passage.title,
        "text": hit.passage.text,
        "score": hit.score,
        "cosine": hit.cosine,
        "norm": hit.norm,
    }
