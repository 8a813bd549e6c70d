"""A finished or unfinished run folder, read and never written: what reports, comparisons and listings look at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eval.data.datasets import Question
from eval.data.jsonl import parse_object, read_rows
from eval.errors import EvalError

FORMAT = 2

RUN, QUESTIONS, PREDICTIONS, CORPUS = "run.json", "questions.jsonl", "predictions.jsonl", "corpus.json"
METRICS, REPORT, HTML, TREC = "metrics.json", "report.md", "report.html", "trec"
RECHECK, PAIRS, NOTES = "recheck.json", "pairs.json", "notes.json"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CorpusSample:
    """Some passages of a corpus under one encoder.

    Attributes:
        retrievers: Names of those that rank this encoder's vectors; [] where that is not known.
        words: Lengths of the passages, in white-space separated words.
        norms: Lengths of the same passages' vectors.
    """

    retrievers: list[str]
    words: list[int]
    norms: list[float]

    def of(self, system: str) -> bool:
        """Whether a system is one of those: systems are called by their retriever, then by k and reader."""
        return any(system == name or system.startswith(f"{name} ") for name in self.retrievers)


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    """What a run keeps of the corpus that a data set was asked over.

    Attributes:
        answerable: Whether an answer string stands anywhere in the corpus, by question id; None where nobody looked.
        samples: One for each encoder.
    """

    answerable: dict[str, bool] | None = None
    samples: list[CorpusSample] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recheck:
    """Questions that a reader was asked twice.

    Attributes:
        system: Whose prompts they were.
        reader: Which reader; "" for the only one.
        asked: How many.
        differing: Ids of those that it answered otherwise the second time.
    """

    system: str
    reader: str
    asked: int
    differing: list[str]


@dataclass(frozen=True, slots=True)
class PairScore:
    """A system on a set of sentence pairs.

    Attributes:
        dataset: The set.
        system: The system.
        n: Pairs.
        spearman: Rank correlation of scores and golds, in [-1, 1]; None where the system was refused.
        interval: Its bootstrap interval; None when n < 3.
        refused: Why there is no figure, in one line; "" where there is one.
        baseline: The system it is compared with; "" for that one itself.
        difference: Its correlation minus the baseline's.
        difference_interval: Paired bootstrap over pairs.
    """

    dataset: str
    system: str
    n: int
    spearman: float | None
    interval: tuple[float, float] | None
    refused: str = ""
    baseline: str = ""
    difference: float | None = None
    difference_interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run folder's contents.

    Attributes:
        path: The folder.
        manifest: run.json.
        questions: Of all data sets, in the order they were asked.
        rows: Finished rows by (system, question id).
        corpora: By data set; {} where the run did not finish.
        rechecks: Whether readers repeat their answers; [] where none was asked twice.
        pairs: What was found on sets of sentence pairs.
        remarks: What a reader should know of how the run went, such as a change of versions in between.
    """

    path: Path
    manifest: dict[str, Any]
    questions: list[Question]
    rows: dict[tuple[str, str], Row]
    corpora: dict[str, CorpusFacts]
    rechecks: list[Recheck] = field(default_factory=list)
    pairs: list[PairScore] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, path: str | Path) -> RunView:
        """Read a folder that `magrag eval` wrote.

        Raises:
            EvalError: It is none, or one of another format version.
        """
        path = Path(path)
        if not (path / RUN).is_file():
            raise EvalError(f"{path} is no run folder: it has no {RUN}; give a folder that `magrag eval --out` wrote")
        manifest = parse_object((path / RUN).read_bytes(), str(path / RUN))
        if manifest.get("format") != FORMAT:
            raise EvalError(
                f"{path} has format {manifest.get('format')}, and this version reads {FORMAT}: run the evaluation again"
            )
        try:
            return cls._read(path, manifest)
        except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
            raise EvalError(
                f"{path} is damaged ({type(error).__name__}: {error}): run the same evaluation again, which makes anew what "
                f"it can, or delete the folder"
            ) from None

    @classmethod
    def _read(cls, path: Path, manifest: dict[str, Any]) -> RunView:
        rows: dict[tuple[str, str], Row] = {}
        predictions = path / PREDICTIONS
        if predictions.is_file() and predictions.stat().st_size:
            # A torn last line belongs to a run that is still going on, or was killed; it is not finished.
            for line in predictions.read_bytes().split(b"\n")[:-1]:
                row = parse_object(line, str(predictions))
                rows[row["system"], row["id"]] = row
        questions, corpora = read_stored(path / QUESTIONS), read_corpora(path / CORPUS, manifest)
        rechecks = [Recheck(**facts) for facts in _read_list(path / RECHECK)]
        pairs = [PairScore(**facts) for facts in _read_list(path / PAIRS)]
        return cls(path, manifest, questions, rows, corpora, rechecks, pairs, _read_list(path / NOTES))

    @property
    def finished(self) -> bool:
        """Whether every answer is there, and every set of pairs was scored."""
        return len(self.rows) >= int(self.manifest["answers"]) and not self.unscored

    @property
    def unscored(self) -> list[str]:
        """Sets of sentence pairs of which nothing is there."""
        scored = {score.dataset for score in self.pairs}
        return [name for name, own in self.manifest["datasets"].items() if own["task"] == "sts" and name not in scored]

    @property
    def systems(self) -> list[str]:
        """Names, the baseline first."""
        return list(self.manifest["systems"])

    @property
    def datasets(self) -> list[str]:
        """Names, in the order they were asked."""
        return list(self.manifest["datasets"])

    @property
    def rules(self) -> dict[str, str | None]:
        """EM rule by data set; None for a data set without answers."""
        return {name: facts["rule"] for name, facts in self.manifest["datasets"].items()}

    @property
    def answerable(self) -> dict[str, bool]:
        """Whether the corpus holds an answer, by question id, where somebody looked."""
        return {id: found for facts in self.corpora.values() for id, found in (facts.answerable or {}).items()}


def stored_questions(questions: list[Question]) -> str:
    """The text of questions.jsonl."""
    return "".join(json.dumps(asdict(question), ensure_ascii=False) + "\n" for question in questions)


def read_stored(path: Path) -> list[Question]:
    """The questions as `stored_questions` wrote them."""
    questions = []
    for _, row in read_rows(path):
        lists = {name: tuple(row[name]) for name in ("answers", "gold_ids", "supporting_ids", "excluded_ids")}
        questions.append(Question(**{**row, **lists}))
    return questions


def stored_corpora(corpora: Mapping[str, CorpusFacts]) -> str:
    """The text of corpus.json."""
    return json.dumps({name: asdict(facts) for name, facts in corpora.items()}) + "\n"


def read_corpora(path: Path, manifest: Mapping[str, Any]) -> dict[str, CorpusFacts]:
    """The facts as `stored_corpora` wrote them, or an earlier version did; {} where they are not there yet."""
    if not path.is_file():
        return {}
    return {name: _facts(own, manifest) for name, own in json.loads(path.read_text(encoding="utf-8")).items()}


def _facts(stored: Mapping[str, Any], manifest: Mapping[str, Any]) -> CorpusFacts:
    if "samples" in stored:
        return CorpusFacts(stored["answerable"], [CorpusSample(**sample) for sample in stored["samples"]])
    # Runs used to keep one sample, under the encoder of their first retriever.
    words, norms = stored.get("words", []), stored.get("norms", [])
    samples = [CorpusSample(_sharing_the_first(manifest), words, norms)] if norms else []
    return CorpusFacts(stored.get("answerable"), samples)


def _sharing_the_first(manifest: Mapping[str, Any]) -> list[str]:
    """The retrievers with the encoder of a run's first one, where its configuration tells; else []."""
    try:
        tables = manifest["config"]["retrievers"]
        names = [name for name in manifest["config"]["eval"]["retrievers"] if name in tables]
        encoders = {name: _encoder(name, tables) for name in names}
    except (KeyError, TypeError, AttributeError):  # a run that was not configured by `magrag`
        return []
    return [name for name in names if encoders[name] == encoders[names[0]]]


def _encoder(retriever: str, tables: Mapping[str, Any]) -> str:
    """Of one that stands on others, the first one's."""
    while of := tables[retriever].get("of"):
        retriever = of[0]
    return str(tables[retriever]["encoder"])


def stored_list(entries: Sequence[Recheck] | Sequence[PairScore]) -> str:
    """The text of recheck.json or pairs.json."""
    return json.dumps([asdict(entry) for entry in entries]) + "\n"


def _read_list(path: Path) -> list[Any]:
    """As `stored_list` wrote it; [] where it is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
