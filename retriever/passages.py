"""The unit that is indexed, ranked and read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of a corpus.

    Attributes:
        id: Unique in its corpus.
        title: May be empty.
        text: Never empty or blank.
        meta: Whatever else the source said of it (JSON values).
    """

    id: str
    title: str
    text: str
    meta: dict[str, Any] = field(default_factory=dict)
