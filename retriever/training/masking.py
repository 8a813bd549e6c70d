"""Which passages of a batch must not count as negatives of a query: its own positive again, or another answer to it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from retriever.passages import Passage
from retriever.training.guard import canonical
from retriever.training.pairs import TrainingPair

# What may stand between a title and its text where a passage is one string: "Title. text", "Title - text", "Title | text".
_BETWEEN = str.maketrans(dict.fromkeys(".,:;|\"'()[]–—", " "))


def passage_keys(passage: Passage) -> tuple[str, str, str]:
    """What makes two passages one, each enough by itself.

    Returns:
        Its id; its text up to white space (titles differ between sources); and title and text together up to white space
        and punctuation, so that "Title. text" is the passage that has the two apart.
    """
    text = " ".join(passage.text.split())
    whole = f"{passage.title} {text}".translate(_BETWEEN).replace(" - ", " ")
    whole = " ".join(whole.split()) or text
    return f"id {passage.id}", f"text {_short_hash(text)}", f"whole {_short_hash(whole)}"


def known_positives(pairs: Iterable[TrainingPair]) -> dict[str, frozenset[str]]:
    """The keys of all positives of each query, over all pairs; queries that differ in case or punctuation are one.

    Returns:
        `canonical` query to `passage_keys`.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        found[canonical(pair.query)].update(passage_keys(pair.positive))
    return {query: frozenset(keys) for query, keys in found.items()}


def false_negatives(
    batch: Sequence[TrainingPair], columns: Sequence[Passage], known: Mapping[str, frozenset[str]]
) -> np.ndarray:
    """Where a passage of the batch must be left out of a query's softmax.

    Args:
        batch: The n pairs whose queries are the rows.
        columns: The m passages that all queries are scored against. Where column i is the positive of pair i it is that
            query's target; otherwise the first column that is the positive, by id before text.
        known: See `known_positives`; {} knows nothing beyond the batch's own positives.

    Returns:
        [n, m] bool, True where passage m is the query's positive once more (see `passage_keys`) or a known positive of
        the query. The target itself is False.
    """
    columns_of: defaultdict[str, list[int]] = defaultdict(list)
    for column, passage in enumerate(columns):
        for key in passage_keys(passage):
            columns_of[key].append(column)
    excluded = np.zeros((len(batch), len(columns)), dtype=bool)
    for row, pair in enumerate(batch):
        own = passage_keys(pair.positive)
        for key in known.get(canonical(pair.query), frozenset()).union(own):
            excluded[row, columns_of.get(key, [])] = True
        for key in own:
            if same := columns_of.get(key):
                excluded[row, row if row in same else same[0]] = False
                break
    return excluded


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
