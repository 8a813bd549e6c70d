"""The arbiter of which side to normalise: short trainings by qnorm and by dnorm, judged on the questions at hand.

A sweep (`rag_app.sweep.run`) of a few dozen updates whose experiment is one data set over a part of its corpus: all passages that
its questions mark, and a sample of the others, so that every checkpoint's vectors are made in a minute.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from eval.data.datasets import Question, content_hash
from eval.data.sources import DataSet
from eval.paired import Comparison
from eval.sweep import RANKING, Norms, Row, Sweep, side
from rag_app.config import Config
from rag_app.diagnosis.pilot_config import PilotConfig
from rag_app.errors import ConfigError
from rag_app.experiment import Experiment
from rag_app.progress import Log, StepProgress
from rag_app.sweep.evaluation import Plan, corpus_mark
from rag_app.sweep.norms import marked_ids, marked_passages
from rag_app.sweep.run import sweep
from rag_app.training.config import TrainConfig
from retriever.corpora.writing import write_passages
from retriever.index import Index

TRAINED = ("cosine", "qnorm", "dnorm")
"""The two that are compared, and what both are held against."""

PASSAGES = "passages.jsonl"


@dataclass(frozen=True, slots=True)
class Pilot:
    """What a pilot found.

    Attributes:
        sweep: Every figure: trainings, rankings, norms.
        pairs: What was trained on.
        steps: Updates of each training.
        seeds: Of the trainings.
        passages: That were ranked.
        of: Passages of the corpus.
    """

    sweep: Sweep
    pairs: str
    steps: int
    seeds: tuple[int, ...]
    passages: int
    of: int

    @property
    def difference(self) -> Comparison:
        """In nDCG@10, qnorm − dnorm, paired by question, each question the mean over its seeds."""
        found = self.row("qnorm").against_dnorm
        assert found is not None
        return found

    def row(self, trained_for: str, searched_by: str = "") -> Row:
        """The ranking figures of one training, searched as it was trained for (the untrained encoder: by cosine or dot)."""
        key = RANKING, trained_for, searched_by or trained_for
        return next(row for row in self.sweep.rows if (row.measure, row.trained_for, row.searched_by) == key)

    def norms(self, trained_for: str) -> Norms:
        """What a training's passage norms say, as means over its seeds."""
        return next(own.norms for own in self.sweep.norms if own.trained_for == trained_for)

    @property
    def side(self) -> str:
        """The variant that ranks better by more than chance, qnorm or dnorm; "" where the interval holds 0 or there is none."""
        return {1: "qnorm", -1: "dnorm"}.get(side(self.difference) or 0, "")

    @property
    def sides(self) -> tuple[str, ...]:
        """The variants that are to be weighed against cosine: the better one, or both where they cannot be told apart."""
        return (self.side,) if self.side else ("qnorm", "dnorm")

    def all_are(self, where: int, baseline: str) -> bool:
        """Whether every one of `sides` lies there (1 above, -1 below) of "cosine" trained alike, or of the "untrained" encoder."""
        return all(side(getattr(self.row(name), f"against_{baseline}")) == where for name in self.sides)

    @property
    def advised(self) -> str:
        """What the paired intervals speak for.

        Returns:
            "qnorm" or "dnorm": it ranks better than the other one and than cosine trained alike. "cosine" or "untrained": the
            better variant, or both, rank worse than that. "" where nothing is shown.
        """
        if self.all_are(-1, "cosine"):
            return "untrained" if side(self.row("cosine").against_untrained) == -1 else "cosine"
        if self.all_are(-1, "untrained"):
            return "untrained"
        return self.side if self.all_are(1, "cosine") else ""


def run_pilot(
    pilot: PilotConfig,
    config: Config,
    encoder: str,
    questions: Sequence[Question],
    known: Sequence[Question],
    index: Index,
    out: Path | None,
    *,
    log: Log,
    progress: StepProgress | None,
) -> Pilot:
    """Train the encoder by cosine, qnorm and dnorm with every seed, and rank the questions with each.

    Args:
        pilot: How it is trained, and among how many passages the questions are ranked.
        config: Whose encoder it is.
        encoder: Its name there.
        questions: Those that are ranked; those that mark no passage are left out.
        known: All there are of the data set: none of them is trained on, and passages that they mark are no others.
        index: Whose passages they are.
        out: Folder of the pilot, new or to go on with; None keeps one in the data folder, by what the pilot is.
        log: Told, in a line, of what is done.
        progress: Told of (what, done, total).

    Raises:
        ConfigError: No question marks a passage of the index, or the folder holds another pilot.
        RetrieverError: Pairs or encoder cannot be used.
        EvalError: See `rag_app.sweep.run.sweep`.
    """
    judged = judged_questions(questions)
    rows = _rows(index, judged, known, pilot)
    training = pilot.trained(config, encoder)
    folder = out or config.resolved_data_dir() / "pilots" / _name(pilot, training, encoder, known, judged, index)
    write_passages(folder / PASSAGES, (index.passage(row) for row in rows.tolist()))
    plan = _plan(config, (folder / PASSAGES).resolve(), judged, known)
    log(f"pilot in {folder}: the same command goes on where it was stopped")
    found = sweep(
        training,
        folder,
        similarities=TRAINED,
        seeds=pilot.pilot.seeds,
        experiment=plan,
        log=log,
        progress=progress or (lambda what, done, total: None),
        command="magrag diagnose --pilot",
    )
    steps = int(found.trainings[0]["steps"])
    return Pilot(found, training.data.pairs or training.data.hub, steps, pilot.pilot.seeds, len(rows), len(index))


def judged_questions(questions: Sequence[Question]) -> list[Question]:
    """Those that mark a passage as relevant.

    Raises:
        ConfigError: None does.
    """
    judged = [question for question in questions if any(grade > 0 for grade in question.relevance.values())]
    if not judged:
        raise ConfigError(
            "a pilot is judged by questions that mark passages, and these mark none: name data that has marks"
        )
    return judged


def _rows(index: Index, judged: Sequence[Question], known: Sequence[Question], pilot: PilotConfig) -> np.ndarray:
    """Rows of the passages that are ranked, ascending."""
    marked = set(index.find(set().union(*map(marked_ids, judged))).values())
    if not marked:
        raise ConfigError(
            "none of the passages that the questions mark is in the corpus, so a pilot could not be judged"
        )
    anyone = set(index.find(set().union(*map(marked_ids, known))).values())
    others = np.setdiff1d(np.arange(len(index)), sorted(marked | anyone))
    wanted = pilot.pilot.others
    if 0 < wanted < len(others):
        others = np.random.default_rng(pilot.pilot.seed).choice(others, wanted, replace=False)
    return np.sort(np.concatenate([sorted(marked), others])).astype(np.int64)


def _plan(config: Config, passages: Path, judged: Sequence[Question], known: Sequence[Question]) -> Plan:
    """One data set over the passages of the pilot."""
    names = dict.fromkeys(question.dataset for question in judged)
    name, corpus = "+".join(names), (str(passages), "")

    def asked(own: Sequence[Question]) -> Experiment:
        renamed = [replace(question, dataset=name) for question in own]
        return Experiment([DataSet(name, "retrieval", renamed, None, "", {}, corpus[0])], corpora={name: corpus})

    settings = config.eval.model_copy(update={"measures": (RANKING,), "n": 0, "read": False})
    plain = config.over_own_file(passages).model_copy(update={"eval": settings})
    marks = {name: corpus_mark(plain, corpus)}
    whole = asked(known)
    return Plan(plain, asked(judged), None, (), marks, whole, marked_passages(whole, marks))


def _name(
    pilot: PilotConfig,
    training: TrainConfig,
    encoder: str,
    known: Sequence[Question],
    judged: Sequence[Question],
    index: Index,
) -> str:
    """Of a folder in the data folder: another pilot gets another."""
    content = [
        training.identity(),
        pilot.pilot.model_dump(mode="json"),
        content_hash(known),
        content_hash(judged),
        index.fingerprint,
    ]
    return f"{encoder}-{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]}"
