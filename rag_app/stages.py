"""Rankings and answers that were computed before, kept by the fingerprint of all they depend on.

A ranking is found again by its retriever's fingerprint (which binds index, encoder, similarity and every setting), the
question's text and k; an answer by its reader's fingerprint, the decoding and the very text of its prompt. So whatever
changes gives another key, and nothing else is ever computed twice: two retrievers that hand the reader the same passages
share its answer. One SQLite file in the data folder; several processes may use it at once. Deleting it costs time only.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from generator.base import Completion, Generator, Prompt, Sampling
from rag_app.errors import ConfigError
from retriever.base import Hit, IndexedRetriever, Retrieved

FILE = "stages.sqlite"
# Rankings change with the code that makes them: ours (raise RANKING when one may have), and these packages'.
RANKING = 1
_RANKING_PACKAGES = ("torch", "transformers", "sentence-transformers", "bm25s", "PyStemmer")
WAIT_S = 60.0
# SQLite takes a bounded number of values in one question.
_AT_ONCE = 500


class StageCache:
    """The file, open. Thread-safe.

    Args:
        folder: Where it is kept; made when it is missing.

    Raises:
        ConfigError: The file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()
        with self._complaints():
            folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=WAIT_S, check_same_thread=False)
            # Write-ahead: readers don't wait, and a kill leaves the last finished write.
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID"
            )
            self._database.commit()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def retrieve(self, retriever: IndexedRetriever, questions: Sequence[str], k: int) -> Retrieved:
        """As `retriever.retrieve`, asking it only what it was not asked before; seconds count what was asked now."""
        code = [RANKING, *map(_version, _RANKING_PACKAGES)]
        keys = [_key("ranking", *code, retriever.fingerprint, question, k) for question in questions]
        known = self._get(keys)
        missing = [place for place, key in enumerate(keys) if key not in known]
        seconds: dict[str, float] = {}
        if missing:
            found = retriever.retrieve([questions[place] for place in missing], k)
            seconds = found.seconds
            stored = {
                keys[place]: [_pack(hit) for hit in hits] for place, hits in zip(missing, found.hits, strict=True)
            }
            self._put(stored)
            known |= stored
        return Retrieved([_unpack(known[key], retriever) for key in keys], seconds)

    def complete(
        self, generator: Generator, prompts: Sequence[Prompt], sampling: Sampling
    ) -> tuple[list[Completion], dict[str, float]]:
        """As `generator.generate`, asking it only what it was not asked before; failures are never kept.

        What has finished is kept even if the rest fails.

        Returns:
            The completions in the order of the prompts; and by prompt id the seconds that the reader worked for it, this
            prompt's share of its batch, where it was asked now.
        """
        reader = [generator.fingerprint, asdict(sampling)]
        keys = {prompt.id: _key("answer", *reader, prompt.text, prompt.messages) for prompt in prompts}
        known = self._get(keys.values())
        # Prompts that are equal are asked once: the key names the prompt, not the question.
        waiting: dict[str, Prompt] = {}
        for prompt in prompts:
            if keys[prompt.id] not in known:
                waiting.setdefault(keys[prompt.id], prompt)
        started = time.perf_counter()
        failed: dict[str, Completion] = {}

        def keep(completion: Completion) -> None:
            key = keys[completion.id]
            if completion.error is None:
                known[key] = _stored(completion)
                self._put({key: known[key]})
            else:
                failed[key] = completion

        if waiting:
            generator.start()
            started = time.perf_counter()
            generator.generate(list(waiting.values()), sampling, on_result=keep)
        share = (time.perf_counter() - started) / max(1, len(waiting))
        seconds = {prompt.id: share for prompt in waiting.values()}
        return [
            _completion(prompt.id, known.get(keys[prompt.id]), failed.get(keys[prompt.id])) for prompt in prompts
        ], seconds

    def _get(self, keys: Iterable[str]) -> dict[str, Any]:
        wanted = list(dict.fromkeys(keys))
        found: dict[str, Any] = {}
        with self._lock, self._complaints():
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                rows = self._database.execute(f"SELECT key, value FROM results WHERE key IN ({marks})", some)
                found.update((key, json.loads(value)) for key, value in rows)
        return found

    def _put(self, results: dict[str, Any]) -> None:
        with self._lock, self._complaints():
            rows = [(key, json.dumps(value)) for key, value in results.items()]
            self._database.executemany("INSERT OR REPLACE INTO results VALUES (?, ?)", rows)
            self._database.commit()

    def _complaints(self) -> _Complaints:
        return _Complaints(self.path)


class _Complaints:
    """Turns what SQLite says into a line for people."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error | OSError):
            raise ConfigError(
                f"{self._path} cannot be used ({error}): free the disk, delete that file, or set eval.cache=false"
            ) from error


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


@cache
def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _pack(hit: Hit) -> list[Any]:
    return [hit.row, hit.score, hit.cosine, hit.norm, hit.query_norm]


def _unpack(packed: list[list[Any]], retriever: IndexedRetriever) -> list[Hit]:
    return [
        Hit(place, retriever.index.passage(row), score, cosine, norm, query_norm, row)
        for place, (row, score, cosine, norm, query_norm) in enumerate(packed, start=1)
    ]


def _stored(completion: Completion) -> list[Any]:
    return [completion.text, completion.finish_reason, completion.prompt_tokens, completion.completion_tokens]


def _completion(id: str, stored: list[Any] | None, failed: Completion | None) -> Completion:
    if stored is not None:
        return Completion(id, *stored)
    why = failed.error if failed is not None else "the reader gave no answer"
    return Completion(id, "", "error", error=why)
