"""The list of runs in a folder: what each is, how far it got and its Exact Match, without reading all its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eval.data.jsonl import parse_object, read_rows
from eval.errors import EvalError
from eval.report.render import aligned
from eval.report.tables import NONE, Table
from eval.view import METRICS, PREDICTIONS, QUESTIONS, RUN

# Characters of a commit that tell it from others.
_SHORT = 8


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run folder.

    Attributes:
        name: The folder's name.
        path: The folder.
        damage: Why it cannot be read; None where it can. The other fields are then what was read before.
        started: When its first start was, ISO 8601 in UTC; "" where that is not known.
        finished: Whether it has its figures.
        answers: Rows there are.
        expected: Rows there will be (at most, where run.json does not say how many).
        datasets: Questions, or sentence pairs, of each data set.
        systems: Names, the baseline first.
        em: Exact Match in percent by data set and system, None on a data set without answers; {} while unfinished.
        measures: Ranking measures, or the correlation on sentence pairs, by data set, system and name.
        revision: Commit of the code, shortened; None where it ran outside of a checkout.
        dirty: Whether files differed from that commit.
    """

    name: str
    path: Path
    damage: str | None = None
    started: str = ""
    finished: bool = False
    answers: int = 0
    expected: int = 0
    datasets: dict[str, int] = field(default_factory=dict)
    systems: list[str] = field(default_factory=list)
    em: dict[str, dict[str, float | None]] = field(default_factory=dict)
    measures: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    revision: str | None = None
    dirty: bool = False

    @property
    def state(self) -> str:
        """How far it got, in words."""
        if self.damage is not None:
            return "damaged"
        return "finished" if self.finished else f"{self.answers:,} of {self.expected:,} answers"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self) | {"path": str(self.path), "state": self.state}


def list_runs(folder: str | Path) -> list[RunSummary]:
    """The runs in a folder, itself and the folders right below it, newest first; damaged ones without a date last.

    A folder counts as a run when it has a run.json or a predictions.jsonl; whatever is wrong with it is said in its
    `damage` and keeps no other run from the list.

    Raises:
        EvalError: There is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise EvalError(f"{folder} is no folder: give the one that your runs lie in")
    places = [folder, *sorted(place for place in folder.iterdir() if place.is_dir())]
    runs = [_summary(place) for place in places if (place / RUN).is_file() or (place / PREDICTIONS).is_file()]
    return sorted(runs, key=lambda run: run.started, reverse=True)


_SYSTEMS_SHOWN = 5
"""Of a run, in the list for a terminal."""


def runs_text(runs: Sequence[RunSummary]) -> str:
    """The list for a terminal: a line for each data set of each run, and why what is damaged is."""
    if not runs:
        return "no runs here: `magrag eval --out FOLDER` makes one"
    rows: list[tuple[str, ...]] = []
    for run in runs:
        head = (run.name, run.started[:16].replace("T", " "), run.state)
        revision = f"{run.revision}{' + changes' if run.dirty else ''}" if run.revision else "-"
        for dataset, n in (run.datasets or {"-": 0}).items():
            rows.append((*head, dataset, _scores(run, dataset), revision, f"{n:,}"))
            head, revision = ("", "", ""), ""
    header = ("run", "started (UTC)", "state", "data set", "EM, else the first measure", "revision", "questions")
    table = aligned(Table("Runs", header, rows, names=6))
    return "\n".join([table, *(f"{run.name}: {run.damage}" for run in runs if run.damage is not None)])


def runs_json(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """The list as plain JSON values."""
    return [run.to_json() for run in runs]


def _scores(run: RunSummary, dataset: str) -> str:
    scores = [f"{system} {value:.1f}" for system, value in run.em.get(dataset, {}).items() if value is not None]
    first = next((next(iter(own)) for own in run.measures.get(dataset, {}).values() if own), None)
    if not scores and first is not None:
        scores = [f"{system} {own[first]:.4f}" for system, own in run.measures[dataset].items() if first in own]
        scores[0] = f"{first}: {scores[0]}"
    more = [f"and {len(scores) - _SYSTEMS_SHOWN} more"] if len(scores) > _SYSTEMS_SHOWN else []
    return ", ".join(scores[:_SYSTEMS_SHOWN] + more) or NONE


def _summary(place: Path) -> RunSummary:
    """What a folder says of its run, or what is wrong with it."""
    facts: dict[str, Any] = {"name": place.resolve().name, "path": place}
    try:
        if not (place / RUN).is_file():
            raise EvalError(f"it has {PREDICTIONS} but no {RUN}")
        manifest = parse_object((place / RUN).read_bytes(), RUN)
        facts["started"] = str(manifest["started"])
        facts["systems"] = list(manifest["systems"])
        git = (manifest.get("environment") or {}).get("git")
        if git:
            facts |= {"revision": git["commit"][:_SHORT], "dirty": bool(git["changed"])}
        if not (place / QUESTIONS).is_file():
            raise EvalError(f"written by an older version (no {QUESTIONS}): run the evaluation again")
        facts["datasets"] = dict(Counter(row["dataset"] for _, row in read_rows(place / QUESTIONS)))
        facts["expected"] = manifest["answers"]
        facts["answers"] = _count_lines(place / PREDICTIONS)
        if (place / METRICS).is_file():
            for own in parse_object((place / METRICS).read_bytes(), METRICS)["systems"]:
                facts["datasets"].setdefault(own["dataset"], own["n"])  # sentence pairs are no questions
                facts.setdefault("em", {}).setdefault(own["dataset"], {})[own["system"]] = own["em"]
                values = {name: measured["value"] for name, measured in own["measures"].items()}
                facts.setdefault("measures", {}).setdefault(own["dataset"], {})[own["system"]] = values
            facts["finished"] = True
    except EvalError as error:
        facts["damage"] = str(error)
    except OSError as error:
        facts["damage"] = f"cannot be read: {error.strerror or error}"
    except KeyError as error:
        facts["damage"] = f"it lacks {error}: it is no run of this version, or somebody changed it"
    except (AttributeError, TypeError) as error:
        facts["damage"] = f"a file has values of another kind than a run writes ({error})"
    return RunSummary(**facts)


def _count_lines(path: Path) -> int:
    """Whole lines; a torn last one is no answer yet."""
    if not path.is_file():
        return 0
    with path.open("rb") as handle:
        return sum(block.count(b"\n") for block in iter(lambda: handle.read(1 << 20), b""))
