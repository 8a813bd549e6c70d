"""Training questions that an evaluation asks too are left out, or its figures would measure memory."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from retriever.training.pairs import TrainingPair


def canonical(question: str) -> str:
    """A question reduced to what tells it from others: NFKC, case folded, its letters, marks, digits and symbols alone.

    Punctuation, white space and control characters are dropped, so "Who wrote “Dune”?" and "who wrote dune" are one. A
    question of nothing else stays as it is.
    """
    # Unicode's compatibility caseless match: folding can undo a normal form, and normalising can bring capitals back.
    folded = question
    for form in ("NFD", "NFKD", "NFKD"):
        folded = unicodedata.normalize(form, folded).casefold()
    kept = "".join(character for character in folded if unicodedata.category(character)[0] not in "PZC")
    return unicodedata.normalize("NFKC", kept or folded)


def drop_leaks(
    pairs: Iterable[TrainingPair], evaluation_questions: Iterable[str]
) -> tuple[list[TrainingPair], list[TrainingPair]]:
    """Take out the pairs whose query equals a question of an evaluation, see `canonical`.

    Paraphrases are not found: this is equality, nothing more.

    Args:
        pairs: What one would train on.
        evaluation_questions: Of every set that will be reported.

    Returns:
        Pairs kept and pairs dropped, each in the order given.
    """
    asked = {canonical(question) for question in evaluation_questions}
    kept: list[TrainingPair] = []
    dropped: list[TrainingPair] = []
    for pair in pairs:
        (dropped if canonical(pair.query) in asked else kept).append(pair)
    return kept, dropped
