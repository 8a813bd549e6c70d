"""What one process encodes of a batch, and which passages of all processes its queries are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from retriever.training.batches import Batch
from retriever.training.forward import Forward, Texts
from retriever.training.masking import false_negatives
from retriever.training.settings import TrainingSettings

if TYPE_CHECKING:
    from torch import Tensor

    from retriever.training.distributed import World


@dataclass(frozen=True, slots=True)
class Share:
    """A process's share of one batch: its queries and its passages, each a stretch of the whole.

    Attributes:
        queries: n of them.
        passages: Its stretch of the m passages.
        targets: [n] long; positives stand first, in the order of all queries.
        excluded: [n, m] bool.
    """

    queries: Texts
    passages: Texts
    targets: Tensor
    excluded: Tensor


def share_of(
    batch: Batch, forward: Forward, settings: TrainingSettings, known: Mapping[str, frozenset[str]], world: World
) -> Share:
    """The share of the process that `world` names.

    Args:
        batch: The same in all processes.
        forward: Tokenises.
        settings: Where texts are cut.
        known: Positives of queries, see `retriever.training.masking.known_positives`.
        world: Which of how many processes.
    """
    import torch

    rows = np.array_split(np.arange(len(batch.pairs)), world.size)[world.rank]
    columns = np.array_split(np.arange(len(batch.passages)), world.size)[world.rank]
    # A cropped passage has another text, and is the same passage still.
    excluded = false_negatives(batch.pairs, batch.uncropped, known)[rows]
    return Share(
        forward.queries([batch.queries[row] for row in rows], settings.query_max_tokens),
        forward.passages([batch.passages[column] for column in columns], settings.passage_max_tokens),
        torch.from_numpy(rows),
        torch.from_numpy(excluded),
    )
