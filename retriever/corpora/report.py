"""What reading a corpus found: what was kept, what was left out, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from retriever.passages import Passage

# Enough to see what is wrong with a file, few enough to read and to store in a manifest.
EXAMPLES_KEPT = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a record cannot be used.

    Attributes:
        kind: The class it is counted under, such as "invalid JSON".
        detail: What exactly was wrong, for people, in one line.
    """

    kind: str
    detail: str


class Source(Protocol):
    """Something that passages are read from.

    Attributes:
        name: As people named it.
        ignored_files: Files of a folder whose names end in something no parser reads.
        parts: What can be faulty in it, for people: "records", or "files or pages".
        empty: What it is when nothing at all is in it, for people.
    """

    name: str
    ignored_files: int
    parts: str
    empty: str

    def items(self) -> Iterator[tuple[str, Passage | Fault]]:
        """Each record's place ("file:line") and what it holds; starts again from the beginning at every call."""
        ...

    def identity(self) -> dict[str, object]:
        """JSON values that change whenever the records may change."""
        ...

    def fraction_read(self) -> float | None:
        """How much of the source the latest `items()` has gone through, 0 to 1; None where that cannot be known."""
        ...


@dataclass
class CorpusReport:
    """Counts of one pass over a corpus; `read == kept + skipped_total + dropped`.

    Attributes:
        read: Records met: lines, rows or chunks, and files or pages that could not be read.
        kept: Passages handed out.
        duplicates: Passages whose title and text equal an earlier one's after white space is folded.
        dropped: Those of them that were left out (all with collapse_duplicates, else none).
        skipped: Faulty records by kind.
        examples: The first few of each kind, as "file:line: what was wrong".
        ignored_files: Files of a folder whose names end in something no parser reads.
    """

    read: int = 0
    kept: int = 0
    duplicates: int = 0
    dropped: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    ignored_files: int = 0

    @property
    def skipped_total(self) -> int:
        """Faulty records of all kinds."""
        return sum(self.skipped.values())

    def skip(self, where: str, fault: Fault) -> None:
        """Count a faulty record."""
        self.skipped[fault.kind] = self.skipped.get(fault.kind, 0) + 1
        examples = self.examples.setdefault(fault.kind, [])
        if len(examples) < EXAMPLES_KEPT:
            examples.append(f"{where}: {fault.detail}")

    def to_json(self) -> dict[str, Any]:
        """All counts, as JSON values."""
        return asdict(self)

    def summary(self) -> str:
        """One line for people."""
        parts = [f"{self.kept:,} of {self.read:,} passages kept"]
        if self.skipped:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.skipped.items()))
            parts.append(f"{self.skipped_total:,} skipped ({kinds})")
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicates by content" + (", left out" if self.dropped else ", kept"))
        if self.ignored_files:
            parts.append(f"{self.ignored_files:,} files of other kinds ignored")
        return "; ".join(parts)
