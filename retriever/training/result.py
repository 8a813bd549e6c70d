"""How a training ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from retriever.similarity import Similarity


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a finished training tells.

    Attributes:
        folder: Of the best checkpoint.
        steps: Updates done.
        best_step: Updates that the best checkpoint had.
        best: Its development scores; {} without any.
        stopped_early: Whether patience ran out before the last step.
        similarity: With the γ of the best checkpoint.
        scale: Factor of the scores.
        untrained: Development scores before the first step; {} without any, or where an earlier version did not keep them.
    """

    folder: Path
    steps: int
    best_step: int
    best: Mapping[str, float]
    stopped_early: bool
    similarity: Similarity
    scale: float
    untrained: Mapping[str, float] = field(default_factory=dict)

    @property
    def setback(self) -> str:
        """One line where the best checkpoint scores less than the encoder did before the first step; "" otherwise."""
        name, best = next(iter(self.best.items()), ("", 0.0))
        before = self.untrained.get(name, best)
        if before <= best:
            return ""
        return (
            f"the untrained encoder is better: {name} {100 * before:.2f} before the first step, {100 * best:.2f} in the "
            "best checkpoint; a lower learning_rate or more pairs may help"
        )
