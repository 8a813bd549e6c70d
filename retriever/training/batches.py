"""Which pairs, crops and hard negatives a step trains on: a function of the seed and the step alone.

So a training that was killed goes on exactly where it was, and two trainings under different similarities see the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.training.crops import CropSettings, crop
from retriever.training.guard import canonical
from retriever.training.pairs import TrainingPair

_CROPS = 1
_ORDER = 2


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's texts.

    Attributes:
        pairs: n of them, no query twice.
        passages: m passages as they are encoded: the n positives in order, then hard negatives.
        uncropped: The same m as the pairs have them, which says what is the same passage.
    """

    pairs: tuple[TrainingPair, ...]
    passages: tuple[Passage, ...]
    uncropped: tuple[Passage, ...]

    @property
    def queries(self) -> list[str]:
        """The n queries."""
        return [pair.query for pair in self.pairs]


def one_a_query(pairs: Iterable[TrainingPair]) -> list[TrainingPair]:
    """The first pair of each query; queries that differ in case or punctuation are one."""
    first: dict[str, TrainingPair] = {}
    for pair in pairs:
        first.setdefault(canonical(pair.query), pair)
    return list(first.values())


def check_batches(pairs: Sequence[TrainingPair], size: int) -> None:
    """Refuse pairs of which no batches can be made.

    Raises:
        RetrieverError: Fewer different queries than a batch needs, or one query so often that it cannot be spread.
    """
    queries = Counter(pair.query for pair in pairs)
    if size < 2 or len(queries) < size:
        raise RetrieverError(
            f"a batch needs at least 2 pairs, and as many different queries as batch_size: got batch_size {size} "
            f"and {len(queries)} queries"
        )
    query, often = queries.most_common(1)[0]
    if often * size > len(pairs):
        raise RetrieverError(
            f"query {query[:60]!r} stands in {often} of {len(pairs)} pairs, too many for batches of {size} without it "
            "twice; lower batch_size or drop some of its pairs"
        )


class Batches:
    """Endless batches over pairs, in a new order each time through.

    Pairs that would bring a query twice into a batch wait for the next; what an epoch leaves over begins the following
    one. No pair is dropped.

    Args:
        pairs: What is trained on.
        size: Pairs a batch, over all processes.
        seed: Of order, crops and choice of negatives.
        hard_negatives: Drawn for each pair from those that it has; fewer where it has fewer.
        crops: How passages are cut.

    Raises:
        RetrieverError: See `check_batches`.
    """

    def __init__(
        self,
        pairs: Sequence[TrainingPair],
        size: int,
        seed: int,
        *,
        hard_negatives: int = 0,
        crops: CropSettings | None = None,
    ) -> None:
        self.pairs = pairs
        self.size = size
        self._seed = seed
        self._hard_negatives = hard_negatives
        self._crops = crops or CropSettings()
        check_batches(pairs, size)
        self._planned: list[list[int]] = []
        self._waiting: deque[int] = deque()
        self._epoch = 0

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0."""
        while len(self._planned) <= step:
            self._plan_epoch()
        chosen = [self.pairs[position] for position in self._planned[step]]
        random = np.random.default_rng([self._seed, _CROPS, step])
        columns = [(pair, pair.positive) for pair in chosen]
        cropped = [crop(passage, pair.query, pair.answers, self._crops, random) for pair, passage in columns]
        for pair in chosen:
            for negative in self._negatives(pair, random):
                columns.append((pair, negative))
                cropped.append(crop(negative, pair.query, pair.answers, self._crops, random))
        return Batch(tuple(chosen), tuple(cropped), tuple(passage for _, passage in columns))

    def _negatives(self, pair: TrainingPair, random: np.random.Generator) -> list[Passage]:
        if len(pair.negatives) <= self._hard_negatives:
            return list(pair.negatives)
        drawn = random.choice(len(pair.negatives), size=self._hard_negatives, replace=False)
        return [pair.negatives[position] for position in sorted(drawn)]

    def _plan_epoch(self) -> None:
        order = np.random.default_rng([self._seed, _ORDER, self._epoch]).permutation(len(self.pairs))
        self._epoch += 1
        fresh = deque(int(position) for position in order)
        while True:
            batch: list[int] = []
            seen: set[str] = set()
            held: deque[int] = deque()
            for source in (self._waiting, fresh):
                while source and len(batch) < self.size:
                    position = source.popleft()
                    if self.pairs[position].query in seen:
                        held.append(position)
                    else:
                        seen.add(self.pairs[position].query)
                        batch.append(position)
            self._waiting.extendleft(reversed(held))
            if len(batch) < self.size:
                self._waiting.extendleft(reversed(batch))
                return
            self._planned.append(batch)
