"""The folder of one evaluation: what it is a run of, the rows that are finished, and the right to write to it.

`run.json` is written whole before anything else and never changed; `predictions.jsonl` only grows, a line at a time,
each on disk before the next is written; a batch is computed whole. So after a kill at any moment the folder is a valid beginning of the run: at
most its last line is torn, and that one is cut off and computed again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from eval.data.jsonl import parse_object, shown
from eval.errors import EvalError
from eval.view import PREDICTIONS, RUN, Row, RunView

_LOCK = ".lock"
# What a kill in the first moment may leave behind: a folder with nothing but these is still empty.
_LEFTOVERS = frozenset({_LOCK, f"{RUN}.tmp"})
# The rest of run.json (versions, hardware, time) tells how a run was made, not what it is a run of.
_COMPARED = ("format", "config", "systems", "baseline", "questions_sha256", "measures", "seed", "batch_size")
_COMPARED_OF_DATASET = ("task", "rule", "lang", "index")
# Pairs are not among the questions that have a hash of their own.
_COMPARED_OF_PAIRS = ("sha256", "questions_used", "subset_seed")


class RunFolder:
    """An evaluation folder, open for writing by this process alone.

    Attributes:
        path: The folder.
        manifest: Content of run.json, as its first start wrote it.
        resumed: Whether it was there before.
        rows: Finished rows by (system, question id), as read back from JSON.
    """

    def __init__(self, path: str | Path, manifest: Mapping[str, Any], question_ids: Collection[str]) -> None:
        """Begin a run, or go on with the one that lies there.

        Args:
            path: A folder that is absent, empty, or holds the same run.
            manifest: What run.json is to say; JSON values.
            question_ids: The ids that rows may have.

        Raises:
            EvalError: The folder holds something else, another run (the message names what differs) or a damaged one,
                is in use by another process, or cannot be written; or the manifest has values that JSON lacks.
        """
        self.path = Path(path)
        self.rows: dict[tuple[str, str], Row] = {}
        try:
            wanted = json.loads(json.dumps(manifest, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise EvalError(f"the configuration of a run must be plain JSON values: {error}") from None
        try:
            self.refuse_foreign(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _acquire(self.path / _LOCK)
            try:
                self.resumed = (self.path / RUN).exists()
                if self.resumed:
                    self.manifest = self._matching_manifest(wanted)
                else:
                    self.refuse_foreign(self.path)
                    self.manifest = wanted
                    self.write(RUN, json.dumps(wanted, indent=2, ensure_ascii=False) + "\n")
                self._load_rows(question_ids)
                self._handle = self._open_predictions()
                _sync_folder(self.path)
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            raise EvalError(f"{self.path}: cannot be used as a run folder: {error.strerror or error}") from None

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """A run that is there, to publish it anew or to look at it while nobody writes to it.

        Raises:
            EvalError: There is no run at `path`; or as above.
        """
        view = RunView.open(path)
        return cls(path, view.manifest, {question.id for question in view.questions})

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others use the folder."""
        if not self._handle.closed:
            self._handle.close()
            os.close(self._lock)

    def append(self, row: Row) -> None:
        """Store a finished row; when this returns it is on disk.

        Raises:
            EvalError: The disk is full or gone; nothing but a torn last line is left, which the next start cuts off.
        """
        # A model may emit half a surrogate pair, which UTF-8 cannot hold: it becomes "?".
        line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
        try:
            left = memoryview(line)
            while left:
                left = left[self._handle.write(left) :]
            os.fsync(self._handle.fileno())
        except OSError as error:
            reason = error.strerror or error
            raise EvalError(f"{self.path / PREDICTIONS}: {reason}: mend that and run the same again to go on") from None
        self.rows[row["system"], row["id"]] = json.loads(line)

    def drop_errors(self) -> int:
        """Take out the rows that are errors, so that their questions are asked again; how many there were."""
        kept = [row for row in self.rows.values() if row["error"] is None]
        dropped = len(self.rows) - len(kept)
        if dropped:
            self._handle.close()
            self.write(PREDICTIONS, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept))
            self.rows = {(row["system"], row["id"]): row for row in kept}
            self._handle = self._open_predictions()
        return dropped

    def write(self, name: str, text: str) -> None:
        """Replace a file of the folder as a whole: a reader sees the old one or the new one.

        Raises:
            EvalError: It cannot be written.
        """
        temporary = self.path / f"{name}.tmp"
        try:
            with temporary.open("wb") as handle:
                handle.write(text.encode("utf-8", "replace"))
                handle.flush()
                os.fsync(handle.fileno())
            temporary.replace(self.path / name)
            _sync_folder(self.path)
        except OSError as error:
            raise EvalError(f"{self.path / name}: cannot be written: {error.strerror or error}") from None

    def read(self, name: str) -> str:
        """A file of the folder, "" where it is not there."""
        path = self.path / name
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def remove(self, *names: str) -> None:
        """Delete files of the folder that are there."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def _open_predictions(self) -> FileIO:
        # Unbuffered: what a full disk did not take must not be tried again when the file is closed.
        return (self.path / PREDICTIONS).open("ab", buffering=0)

    @staticmethod
    def refuse_foreign(path: Path) -> None:
        """Refuse what cannot be a run's folder; that it holds this very run is seen when it is opened.

        Raises:
            EvalError: A file, or a folder of something else.
        """
        if not path.exists():
            return
        if not path.is_dir():
            raise EvalError(f"{path} is a file: give a folder for the run")
        names = {entry.name for entry in path.iterdir()} - _LEFTOVERS
        if names and RUN not in names:
            raise EvalError(
                f"{path} is not empty and no evaluation (it has {min(names)!r} but no {RUN}): give another folder"
            )

    def _matching_manifest(self, wanted: dict[str, Any]) -> dict[str, Any]:
        place = self.path / RUN
        found = parse_object(place.read_bytes(), str(place))
        differing = differences(_identity(found), _identity(wanted))
        if differing:
            more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
            raise EvalError(
                f"{self.path} holds another run: {'; '.join(differing[:4])}{more}: "
                "give another folder, or go back to those settings to resume it"
            )
        return found

    def _load_rows(self, question_ids: Collection[str]) -> None:
        place = self.path / PREDICTIONS
        if not place.exists():
            return
        whole = place.read_bytes()
        *lines, torn = whole.split(b"\n")
        end = len(whole) - len(torn)
        for number, line in enumerate(lines, start=1):
            where = f"{place}, line {number}"
            try:
                row = parse_object(line, where)
            except EvalError:
                if number < len(lines) or torn:
                    raise
                # Power loss can leave a last line that has its end but not its middle.
                end -= len(line) + 1
                continue
            key = (row.get("system"), row.get("id"))
            if key[0] not in self.manifest["systems"] or key[1] not in question_ids or "error" not in row:
                raise EvalError(f"{where}: system {key[0]!r}, id {key[1]!r} is no row of this run: give another folder")
            if key in self.rows:
                raise EvalError(f"{where}: system {key[0]!r}, id {key[1]!r} is there twice: delete one of the lines")
            self.rows[row["system"], row["id"]] = row
        if end < len(whole):
            with place.open("r+b") as handle:
                handle.truncate(end)
                os.fsync(handle.fileno())


def _identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is a run of; a data file may have moved meanwhile, since its questions have a hash of their own."""
    datasets = {
        name: {key: facts.get(key) for key in _COMPARED_OF_DATASET + _COMPARED_OF_PAIRS * (facts.get("task") == "sts")}
        for name, facts in (manifest.get("datasets") or {}).items()
    }
    return {name: manifest.get(name) for name in _COMPARED} | {"datasets": datasets}


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """One phrase for each setting that differs between two JSON values, by its dotted name."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(key for key in new if key not in old)]
        absent = object()
        found: list[str] = []
        for key in names:
            dotted = f"{name}.{key}" if name else key
            before, after = old.get(key, absent), new.get(key, absent)
            if before is absent:
                found.append(f"{dotted} was not there, now {shown(after)}")
            elif after is absent:
                found.append(f"{dotted} was {shown(before)}, now is not there")
            else:
                found += differences(before, after, dotted)
        return found
    return [] if old == new else [f"{name} was {shown(old)}, now {shown(new)}"]


def _acquire(path: Path) -> int:
    """An open file that no other process holds; the lock ends with the process, however it ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        import fcntl
    except ImportError:  # Windows has no flock; there, two runs in one folder are the user's to avoid.
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise EvalError(f"{path.parent} is in use by another evaluation: wait for it, or give another folder") from None
    return handle


def _sync_folder(path: Path) -> None:
    """Bring the folder's list of names to disk, where the system can."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
