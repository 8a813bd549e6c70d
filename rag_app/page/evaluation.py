"""The one evaluation that a page runs at a time: what it asks, how far it is, how it is paused and gone on with.

It shares encoders, indexes and reader with the page's questions. Batches are small, so that a visitor's question waits
for a few answers at most where the reader takes one batch after the other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from eval.errors import Stopped
from rag_app.config import Config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.errors import ConfigError, in_words
from rag_app.evaluate import STEPS, run
from rag_app.experiment import open_experiment, question_sets
from rag_app.pipeline import Pipeline

BATCH_SIZE = 8
"""Questions that are answered at once: a pause takes effect, and a visitor's question waits, for no more than these."""

PACE_S = 60.0
"""The rate is that of the last so many seconds: answers known from before come at once and would spoil a longer mean."""

State = Literal["idle", "running", "pausing", "paused", "finished", "failed"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What an evaluation of the page asks.

    Attributes:
        dataset: A name of `question_sets`.
        retrievers: Names, the one that the others are compared with first.
        n: Questions, drawn with the seed; 0 asks all.
        seed: Of the draw and of the bootstrap.
        read: Whether the reader is asked.
        batch_size: Questions at once; a run keeps the one that it began with.
    """

    dataset: str
    retrievers: tuple[str, ...]
    n: int = 0
    seed: int = 0
    read: bool = True
    batch_size: int = BATCH_SIZE

    @classmethod
    def of_run(cls, manifest: Mapping[str, Any]) -> Plan:
        """That of a run which was begun, by its run.json.

        Raises:
            ConfigError: It is none that a page can go on with.
        """
        names = list(manifest["datasets"])
        settings = (manifest.get("config") or {}).get("eval")
        if len(names) != 1 or not isinstance(settings, Mapping):
            raise ConfigError("this run was begun elsewhere: go on with it by the `magrag eval` command that began it")
        return cls(
            names[0],
            tuple(settings["retrievers"]),
            settings["n"],
            manifest["seed"],
            settings["read"],
            manifest["batch_size"],
        )

    def configured(self, config: Config) -> Config:
        """The page's configuration with this plan as its [eval].

        Raises:
            ConfigError: A name that there is not, or nothing to ask.
        """
        sets = question_sets(config)
        if self.dataset not in sets:
            raise ConfigError(f'there is no data set "{self.dataset}" here: name it in [eval.datasets]')
        if not self.retrievers:
            raise ConfigError("no retriever is chosen: choose at least one, and two to compare them")
        if self.n < 0 or self.seed < 0:
            raise ConfigError("questions and seed are whole numbers from 0 on")
        for name in self.retrievers:
            if name != CLOSED_BOOK:
                config.retriever(name)
        if not self.read and self.retrievers == (CLOSED_BOOK,):
            raise ConfigError(f"{CLOSED_BOOK} finds no passages, so without the reader there is nothing to measure")
        settings = config.eval.model_copy(
            update={
                "datasets": {self.dataset: sets[self.dataset]},
                "retrievers": self.retrievers,
                "n": self.n,
                "seed": self.seed,
                "read": self.read,
                "batch_size": self.batch_size,
                # One row a retriever, and the reader that is loaded.
                "readers": {},
                "k": (),
            }
        )
        return config.model_copy(update={"eval": settings})


@dataclass(frozen=True, slots=True)
class Status:
    """How the page's evaluation stands.

    Attributes:
        state: "idle" where there was none since the page was opened.
        owner: Who may pause it.
        plan: What it asks.
        run: Its folder's name.
        step: What is counted now: "answers" or "rankings", or what comes before them ("passages" of an index); "" before and after.
        done: Of the step.
        total: Of the step; None where nobody knows.
        rate: A second, over the last `PACE_S`; None where too little was done to tell.
        line: The last thing that the run said.
        error: Why it failed.
    """

    state: State = "idle"
    owner: str = ""
    plan: Plan | None = None
    run: str = ""
    step: str = ""
    done: int = 0
    total: int | None = None
    rate: float | None = None
    line: str = ""
    error: str = ""

    @property
    def busy(self) -> bool:
        """Whether it runs."""
        return self.state in ("running", "pausing")

    @property
    def seconds_left(self) -> float | None:
        """Of the step, at the rate of now."""
        if not self.rate or self.total is None:
            return None
        return (self.total - self.done) / self.rate


class Pace:
    """How fast a count grows, over the last while.

    Args:
        window: Seconds.
    """

    def __init__(self, window: float = PACE_S) -> None:
        self._window = window
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, done: int, now: float) -> None:
        """Note that `done` was reached at `now`, in seconds."""
        self._seen.append((now, done))
        # The last one before the window stays: counting starts from there.
        while len(self._seen) > 1 and self._seen[1][0] <= now - self._window:
            self._seen.popleft()

    def rate(self, now: float) -> float | None:
        """A second; None until something was done and time has passed."""
        if not self._seen or self._seen[-1][1] <= self._seen[0][1] or now <= self._seen[0][0]:
            return None
        return (self._seen[-1][1] - self._seen[0][1]) / (now - self._seen[0][0])


class Desk:
    """Where evaluations are begun, one at a time. Thread-safe.

    Args:
        pipeline: Whose encoders, indexes and reader they share.
        clock: Seconds, ever growing.
    """

    def __init__(self, pipeline: Pipeline, clock: Callable[[], float] = time.monotonic) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._status = Status()
        self._pace = Pace()
        self._thread: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        """The folder that runs lie in."""
        return Path(self._pipeline.config.page.runs).expanduser()

    @property
    def status(self) -> Status:
        """How it stands at this moment."""
        with self._lock:
            if not self._status.busy:
                return self._status
            return replace(self._status, rate=self._pace.rate(self._clock()))

    def start(self, plan: Plan, owner: str, run: str = "") -> Status:
        """Begin an evaluation, or go on with the run of that name.

        Raises:
            ConfigError: Another one is running, or the plan cannot be carried out.
        """
        config = plan.configured(self._pipeline.config)
        with self._lock:
            if self._status.busy:
                raise ConfigError("an evaluation is running: wait for it, since one runs at a time")
            self._stop.clear()
            self._pace = Pace()
            name = run or self._new_name(plan.dataset)
            self._status = Status("running", owner, plan, name)
            # A daemon: a page that closes does not wait for it, and what is on disk then is resumed.
            self._thread = threading.Thread(target=self._work, args=(config, name), name="evaluation", daemon=True)
            self._thread.start()
            return self._status

    def pause(self, owner: str) -> None:
        """Have it stop after the batch that is being answered.

        Raises:
            ConfigError: None is running, or somebody else began it.
        """
        with self._lock:
            if not self._status.busy:
                raise ConfigError("no evaluation is running")
            if owner != self._status.owner:
                raise ConfigError("somebody else began this evaluation, and only they can pause it")
            self._stop.set()
            self._status = replace(self._status, state="pausing")

    def wait(self, seconds: float) -> Status:
        """The status once nothing runs any more, or after so long."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return self.status

    def _new_name(self, dataset: str) -> str:
        stem = f"{dataset}-{datetime.now(UTC):%Y-%m-%d-%H%M%S}"
        names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, 1000))
        return next(name for name in names if not (self.folder / name).exists())

    def _work(self, config: Config, name: str) -> None:
        try:
            experiment = open_experiment(config, [], self._say)
            run(
                config,
                experiment,
                self.folder / name,
                log=self._say,
                progress=self._progress,
                command="the page's Evaluate tab",
                beside=self._pipeline,
                stop=self._stop.is_set,
            )
        except Stopped:
            self._end("paused")
        except Exception as error:  # noqa: BLE001 - whatever it is, people read a line, and the terminal has the rest
            self._end("failed", in_words(error, "an evaluation"))
        else:
            self._end("finished")

    def _say(self, line: str) -> None:
        with self._lock:
            self._status = replace(self._status, line=line)

    def _progress(self, what: str, done: int, total: int | None) -> None:
        if what not in STEPS and self._stop.is_set():
            # An index that is being built goes on from its last shard.
            raise Stopped("the evaluation was asked to stop")
        with self._lock:
            if what != self._status.step:
                self._pace = Pace()
            self._pace.add(done, self._clock())
            self._status = replace(self._status, step=what, done=done, total=total)

    def _end(self, state: State, error: str = "") -> None:
        with self._lock:
            self._status = replace(self._status, state=state, error=error, rate=None)


def in_order(chosen: Sequence[str], config: Config) -> tuple[str, ...]:
    """Retrievers as the page lists them: those it opens with first, closed book last; the first one is the baseline."""
    names = dict.fromkeys([*config.page.retrievers, *config.retrievers, CLOSED_BOOK])
    unknown = [name for name in chosen if name not in names]
    return (*(name for name in names if name in chosen), *unknown)
