"""A ranking made elsewhere (Pyserini, a server, an older run) as a retriever: read from a TREC run file.

A line holds six columns: question id, "Q0", passage id, rank, score, and a name for the run. Retrievers are given the text
of questions, so the ids must be told before: `bind_questions`, which an evaluation calls.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from retriever.base import Hit, IndexedRetriever, Retrieved
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.search.base import clip_k
from retriever.shards import hash_file


class RunFileRetriever:
    """Gives back the ranking of a TREC run file, its passages looked up in an index by their ids.

    Args:
        name: What people call this retriever.
        index: Where the passages are.
        path: The run file.

    Raises:
        RetrieverError: The file cannot be read, or names passages that are not in the index.
    """

    def __init__(self, name: str, index: Index, path: str | Path) -> None:
        self.name = name
        self.index = index
        self._path = Path(path).expanduser()
        self._run = read_run(self._path)
        self._rows = self._find_rows()
        self._hash = hash_file(self._path)
        self._ids: dict[str, str] = {}

    @property
    def fingerprint(self) -> str:
        """Of the file, the index, and which question has which id."""
        content = json.dumps(["trec_run", self.index.fingerprint, self._hash, sorted(self._ids.items())])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def notes(self) -> list[str]:
        """How many of the bound questions the file does not rank passages for."""
        missing = sum(id_ not in self._run for id_ in self._ids.values())
        if not missing:
            return []
        return [f"{self._path.name} ranks nothing for {missing} of {len(self._ids)} questions: they get no passages"]

    def bind(self, questions: Mapping[str, str]) -> None:
        """Tell the ids of questions.

        Args:
            questions: Id by text; added to those told before.

        Raises:
            RetrieverError: None of them is in the file.
        """
        if questions and not any(id_ in self._run for id_ in questions.values()):
            raise RetrieverError(
                f"{self._path} ranks passages for none of the {len(questions)} questions: its ids are like "
                f"{next(iter(self._run))!r}, theirs like {next(iter(questions.values()))!r}; use the same ids in both"
            )
        self._ids.update(questions)

    def retrieve(self, questions: Sequence[str], k: int) -> Retrieved:
        """See `Retriever.retrieve`; as many hits as the file ranks, none for a question that it lacks.

        Raises:
            RetrieverError: A question whose id was not told.
        """
        started = time.perf_counter()
        k = clip_k(k, len(self.index))
        hits = [self._hits(question, k) for question in questions]
        return Retrieved(hits, {"encode": 0.0, "search": time.perf_counter() - started})

    def _hits(self, question: str, k: int) -> list[Hit]:
        if question not in self._ids:
            raise RetrieverError(
                f"{self.name} only ranks passages for the questions of {self._path}, within an evaluation of a data set "
                f"with their ids; it knows no id of {question[:60]!r}"
            )
        ranking = self._run.get(self._ids[question], [])[:k]
        return [
            Hit(rank, self.index.passage(self._rows[passage]), score, row=self._rows[passage])
            for rank, (passage, score) in enumerate(ranking, 1)
        ]

    def _find_rows(self) -> dict[str, int]:
        named = {passage for ranking in self._run.values() for passage, _ in ranking}
        rows = self.index.find(named)
        missing = sorted(named - rows.keys())
        if missing:
            raise RetrieverError(
                f"{len(missing)} of the {len(named)} passages in {self._path} ({100 * len(missing) / len(named):.1f} %) are "
                f"not in index {self.index.folder}, such as {missing[0]!r}; index the corpus that the run ranked"
            )
        return rows


def bind_questions(retriever: IndexedRetriever, questions: Mapping[str, str]) -> None:
    """Tell the ids of questions to every run file that a retriever is or stands on.

    Args:
        retriever: Any retriever.
        questions: Id by text.

    Raises:
        RetrieverError: A run file ranks nothing for any of them.
    """
    if isinstance(retriever, RunFileRetriever):
        retriever.bind(questions)
    for part in getattr(retriever, "parts", ()):
        bind_questions(part, questions)


def read_run(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Passage ids and scores by question id, by falling score as trec_eval takes them, then by rank.

    Ids with white space are read as an evaluation's own files hold them: "escaped:" and the id, percent-encoded.

    Raises:
        RetrieverError: The file cannot be read or is empty, or a line of it is faulty; the line is named.
    """
    found: dict[str, dict[str, tuple[float, int]]] = {}
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    question, _, passage, rank, score, _ = map(_unescaped, line.split())
                    place = (-float(score), int(rank))
                except ValueError:
                    raise RetrieverError(
                        f"{path}:{number}: a line of a TREC run is QUESTION Q0 PASSAGE RANK SCORE NAME, got {line.strip()[:80]!r}"
                    ) from None
                if not math.isfinite(place[0]):
                    raise RetrieverError(f"{path}:{number}: the score must be a finite number, got {score}")
                ranking = found.setdefault(question, {})
                if passage in ranking:
                    raise RetrieverError(
                        f"{path}:{number}: passage {passage!r} is ranked twice for question {question!r}"
                    )
                ranking[passage] = place
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise RetrieverError(f"cannot read the TREC run {path}: {error}") from error
    if not found:
        raise RetrieverError(f"the TREC run {path} is empty")
    return {
        question: [(passage, -place[0]) for passage, place in sorted(ranking.items(), key=lambda item: item[1])]
        for question, ranking in found.items()
    }


def _unescaped(column: str) -> str:
    return unquote(column.removeprefix("escaped:")) if column.startswith("escaped:") else column
