"""Retrieval sets as questions with judgments: BEIR folders, BRIGHT's rows, TREC topics with their qrels.

A judged query is a question without answers whose `qrels` hold the judgments; queries that nobody judged are not asked,
as in trec_eval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from eval.data.columns import map_rows
from eval.data.datasets import Question
from eval.data.jsonl import read_rows
from eval.data.trec import read_qrels, read_topics
from eval.errors import EvalError

_QUERIES = ("queries.jsonl", "queries.jsonl.gz")
_QRELS_ENDINGS = (".tsv", ".txt", ".qrels", ".trec")
# What BRIGHT writes into `excluded_ids` where there is nothing to exclude.
_NOTHING = "N/A"


def is_beir(folder: Path) -> bool:
    """Whether a folder has BEIR's queries and judgments."""
    return _queries_file(folder) is not None and (folder / "qrels").is_dir()


def read_beir(folder: Path, split: str, dataset: str) -> tuple[list[Question], list[Path]]:
    """A BEIR folder: queries.jsonl {_id, text} and qrels/SPLIT.tsv {query-id, corpus-id, score}.

    BEIR's own evaluation drops a retrieved document whose id equals the query's (in some sets the query is a document),
    so that id is in every question's `excluded_ids`.

    Returns:
        The judged queries in the order of queries.jsonl, and the files they came from.

    Raises:
        EvalError: A file is absent or malformed, or a judged query has no text.
    """
    queries_file = _queries_file(folder)
    if queries_file is None:
        raise EvalError(f"{folder}: holds no queries.jsonl: a BEIR folder has it beside corpus.jsonl and qrels")
    qrels_file = folder / "qrels" / f"{split}.tsv"
    if not qrels_file.is_file():
        there = ", ".join(sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))) or "none"
        raise EvalError(f"{qrels_file}: there is no such file: set split to one that is there ({there})")
    queries = beir_queries(read_rows(queries_file))
    return beir_questions(queries, read_qrels(qrels_file), str(folder), dataset), [queries_file, qrels_file]


def beir_queries(rows: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """Texts by query id, of (place, {_id, text}) rows.

    Raises:
        EvalError: Names the place: a field is missing or no text, or the id was used before.
    """
    queries: dict[str, str] = {}
    for where, row in rows:
        identity, text = row.get("_id"), row.get("text")
        if not isinstance(identity, str) or not identity or not isinstance(text, str) or not text.strip():
            raise EvalError(f'{where}: a query must have "_id" and "text", both strings that are not empty')
        if identity in queries:
            raise EvalError(f"{where}: query id {identity!r} is there twice: ids must be unique")
        queries[identity] = text
    return queries


def beir_qrels(rows: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, int]]:
    """Judgments by query and document, of (place, {query-id, corpus-id, score}) rows; the hub has scores as floats.

    Raises:
        EvalError: Names the place: a field is missing, or a score is no whole number.
    """
    qrels: dict[str, dict[str, int]] = {}
    for where, row in rows:
        try:
            query, document, score = str(row["query-id"]), str(row["corpus-id"]), float(row["score"])
        except (KeyError, TypeError, ValueError):
            raise EvalError(f"{where}: a judgment must have query-id, corpus-id and a score, got {row}") from None
        if not score.is_integer():
            raise EvalError(f"{where}: a score must be a whole number, got {score}")
        qrels.setdefault(query, {})[document] = int(score)
    return qrels


def beir_questions(
    queries: Mapping[str, str], qrels: Mapping[str, Mapping[str, int]], origin: str, dataset: str
) -> list[Question]:
    """The judged queries, in the order of `queries`, each with its own id excluded.

    Raises:
        EvalError: A judged query has no text, or nothing is judged.
    """
    return _judged(queries, qrels, origin, dataset, exclude_own_id=True)


def read_trec(topics: Path, qrels: Path, dataset: str) -> tuple[list[Question], list[Path]]:
    """Topics with their qrels; returns the judged topics and the two files.

    Raises:
        EvalError: A file is absent or malformed, or a judged topic has no text.
    """
    return _judged(read_topics(topics), read_qrels(qrels), str(topics), dataset, exclude_own_id=False), [topics, qrels]


def find_trec(folder: Path) -> tuple[Path, Path] | None:
    """The one topics (or queries) file and the one qrels file of a folder; None where it hasn't one of each."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    qrels = [path for path in files if "qrels" in path.name.lower() and path.suffix in _QRELS_ENDINGS]
    topics = [path for path in files if path not in qrels and path.name.lower().startswith(("topics", "queries"))]
    return (topics[0], qrels[0]) if len(topics) == len(qrels) == 1 else None


def bright_questions(
    rows: Iterable[tuple[str, dict[str, Any]]], columns: Mapping[str, str], origin: str, dataset: str
) -> list[Question]:
    """BRIGHT's examples: (place, {id, query, gold_ids, excluded_ids}) rows.

    Every gold counts 1. For the long documents map {"gold_ids": "gold_ids_long"}.

    Raises:
        EvalError: Names the place: a field is missing or of another type, an id was used before, or a document is gold
            and excluded at once; or there are no rows.
    """
    questions: list[Question] = []
    seen: set[str] = set()
    for where, row in map_rows(rows, {"question": "query", **columns}):
        gold, excluded = _ids(row, "gold_ids", where), _ids(row, "excluded_ids", where)
        identity, text = row["id"], row["question"]
        if not isinstance(text, str) or not text.strip() or not isinstance(identity, str) or not identity:
            raise EvalError(f'{where}: "id" and "query" must be strings that are not empty')
        if identity in seen:
            raise EvalError(f"{where}: id {identity!r} is there twice: ids must be unique")
        both = set(gold) & set(excluded)
        if both:
            raise EvalError(f"{where}: {min(both)!r} is in gold_ids and excluded_ids: it can only be in one")
        seen.add(identity)
        qrels = dict.fromkeys(gold, 1)
        questions.append(Question(identity, dataset, text, (), qrels=qrels, excluded_ids=tuple(excluded)))
    if not questions:
        raise EvalError(f"{origin}: holds no queries")
    return questions


def _queries_file(folder: Path) -> Path | None:
    return next((folder / name for name in _QUERIES if (folder / name).is_file()), None)


def _judged(
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    origin: str,
    dataset: str,
    *,
    exclude_own_id: bool,
) -> list[Question]:
    lacking = [identity for identity in qrels if identity not in queries]
    if lacking:
        raise EvalError(f"{origin}: {len(lacking):,} judged queries have no text, such as {lacking[0]!r}")
    questions = [
        Question(
            identity,
            dataset,
            text,
            (),
            qrels=dict(qrels[identity]),
            excluded_ids=(identity,) if exclude_own_id else (),
        )
        for identity, text in queries.items()
        if identity in qrels
    ]
    if not questions:
        raise EvalError(f"{origin}: no query is judged: the qrels are empty")
    return questions


def _ids(row: Mapping[str, Any], name: str, where: str) -> list[str]:
    value = row.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise EvalError(f'{where}: "{name}" must be a list of document ids')
    return [item for item in value if item != _NOTHING]
