"""A data set's rows, read from its path or the hub in whichever format they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from eval.data.columns import PAIR_FIELDS, QUESTION_FIELDS, check_columns, map_rows
from eval.data.datasets import Question, content_hash, describe_draw, describe_source, read_questions, to_questions
from eval.data.hub import hub_rows
from eval.data.jsonl import SUFFIXES, read_rows
from eval.data.judged import (
    beir_qrels,
    beir_queries,
    beir_questions,
    bright_questions,
    find_trec,
    is_beir,
    read_beir,
    read_trec,
)
from eval.data.pairs import Pair, is_pair, read_pairs, to_pairs
from eval.data.specs import DataSetSpec, Format, exists
from eval.errors import EvalError

# What to give in place of a hub set, by format.
_FILES = {
    "questions": "JSONL with {id, question, answers} or FlashRAG's {id, question, golden_answers}, other names with eval.datasets.NAME.columns",
    "beir": "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/test.tsv) or TREC topics and qrels",
    "bright": "JSONL with {id, query, gold_ids, excluded_ids}",
    "pairs": "JSONL or TSV with {text1, text2, score} or {sentence1, sentence2, score}",
}
# Files that a folder may hold in place of a set with judgments; FlashRAG names them after the split.
_IN_FOLDERS = ("questions.jsonl", "examples.jsonl", "pairs.jsonl", "sts.jsonl")
_CORPORA = ("corpus.jsonl", "corpus.jsonl.gz")


@dataclass(frozen=True, slots=True)
class Read:
    """What was read, questions or pairs, and where: `path` with the files in it, or the hub."""

    format: str
    questions: list[Question] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    path: str = ""
    files: Sequence[Path] = ()
    hub: Mapping[str, str] = field(default_factory=dict)
    corpus: str = ""

    @property
    def items(self) -> Sequence[Question] | Sequence[Pair]:
        """Whichever there are."""
        return self.pairs or self.questions

    def ids(self) -> list[str]:
        """Question ids; a pair has none but its place."""
        return [str(place) for place in range(len(self.pairs))] or [question.id for question in self.questions]

    def source(self, chosen: Sequence[object], seed: int) -> dict[str, Any]:
        """The facts of `describe_source`; a hub set's hash is that of its content."""
        if self.path:
            return {"format": self.format, **describe_source(self.path, self.items, chosen, seed, self.files)}
        # A pair is hashed as a question whose answers are its second text and score.
        content = self.questions or [
            Question(str(place), "", pair.text1, (pair.text2, repr(pair.score)))
            for place, pair in enumerate(self.pairs)
        ]
        drawn = describe_draw(self.items, chosen, seed)
        return {"format": self.format, **self.hub, "sha256": content_hash(content), **drawn}


def from_path(spec: DataSetSpec, known: Mapping[str, str], *, normalised: bool) -> Read:
    """Read what lies at spec.path.

    Args:
        spec: The rest of it says how.
        known: The registry's mapping of columns, for a file in the authors' own form.
        normalised: See `eval.data.columns.map_rows`.

    Raises:
        EvalError: Nothing is there, the format cannot be told or is another than spec's, or a file is bad.
    """
    path = Path(spec.path).expanduser()
    if not exists(str(path)):
        raise EvalError(f"{spec.name}: {path}: there is no such file or folder")
    if not path.exists():
        topics, qrels = (Path(part).expanduser() for part in str(path).split(","))
        questions, files = read_trec(topics, qrels, spec.name)
        return Read("trec", questions, path=spec.path, files=files)
    if path.is_dir():
        return _from_folder(path, spec, known, normalised=normalised)
    if spec.format in ("beir", "trec"):
        raise EvalError(f"{path}: format {spec.format} is a folder (or TOPICS,QRELS), and this is one file")
    first: Mapping[str, Any] = {}
    if path.name.endswith(SUFFIXES):
        first = next(read_rows(path), ("", {}))[1]
    format_ = spec.format if spec.format != "auto" else _guessed(path.suffix, first, spec.columns)
    columns = spec.columns
    if not columns and not {"answers", "golden_answers"} & set(first) and set(known.values()) <= set(first):
        columns = known
    check_columns(columns, PAIR_FIELDS if format_ == "pairs" else QUESTION_FIELDS)
    if format_ == "pairs":
        return Read(format_, pairs=read_pairs(path, columns), path=str(path))
    if format_ == "bright":
        return Read(format_, bright_questions(read_rows(path), columns, str(path), spec.name), path=str(path))
    questions = read_questions(path, dataset=spec.name, columns=columns, normalised=normalised)
    return Read(format_, questions, path=str(path))


def _from_folder(path: Path, spec: DataSetSpec, known: Mapping[str, str], *, normalised: bool) -> Read:
    corpus = str(path) if any((path / name).is_file() for name in _CORPORA) else ""
    if spec.format in ("auto", "beir") and is_beir(path):
        questions, files = read_beir(path, spec.split or "test", spec.name)
        return Read("beir", questions, path=str(path), files=files, corpus=corpus)
    pair = find_trec(path) if spec.format in ("auto", "trec") else None
    if pair is not None:
        questions, files = read_trec(*pair, spec.name)
        return Read("trec", questions, path=str(path), files=files, corpus=corpus)
    names = (*_IN_FOLDERS, f"{spec.split or 'test'}.jsonl")
    inside = next((path / name for name in names if (path / name).is_file()), None)
    if inside is None or spec.format in ("beir", "trec"):
        raise EvalError(
            f"{path}: holds neither queries.jsonl beside qrels (BEIR), nor one topics and one qrels file (TREC), nor "
            f"{' or '.join(names)}: give the file itself"
        )
    return replace(from_path(replace(spec, path=str(inside)), known, normalised=normalised), corpus=corpus)


def from_hub(spec: DataSetSpec, *, normalised: bool) -> Read:
    """Read spec.hub; ids of questions with answers get the set's name before them.

    Raises:
        EvalError: It cannot be loaded, or is bad; the message says which file can be given instead.
    """
    format_ = spec.format
    try:
        rows: Iterator[tuple[str, dict[str, Any]]] = hub_rows(spec.hub, spec.subset, spec.split)
        if format_ == "auto":
            first = next(rows, ("", {}))
            rows = chain([first], rows) if first[1] else rows
            format_ = _guessed("", first[1], spec.columns)
        if format_ == "trec":
            raise EvalError("TREC's format is not on the hub")
        check_columns(spec.columns, PAIR_FIELDS if format_ == "pairs" else QUESTION_FIELDS)
        read = Read(format_, hub={"hub": spec.hub, "subset": spec.subset, "split": spec.split})
        if format_ == "pairs":
            return replace(read, pairs=to_pairs(rows, spec.hub, spec.columns))
        if format_ == "beir":
            queries = beir_queries(hub_rows(spec.hub, "queries", "queries"))
            judged = beir_questions(queries, beir_qrels(rows), spec.hub, spec.name)
            return replace(read, questions=judged, corpus=f"hub:{spec.hub}:corpus")
        if format_ == "bright":
            return replace(read, questions=bright_questions(rows, spec.columns, spec.hub, spec.name))
        mapped = map_rows(rows, spec.columns, normalised=normalised)
        return replace(read, questions=to_questions(_prefixed(mapped, spec.name), spec.hub, spec.name))
    except EvalError as error:
        wanted = _FILES.get(format_, _FILES["questions"])
        raise EvalError(
            f"{spec.name}: {error}; to use a file: magrag eval {spec.name}=PATH, PATH being {wanted}"
        ) from None


def _guessed(suffix: str, first: Mapping[str, Any], columns: Mapping[str, str]) -> Format:
    """The format by a file's ending and its first row."""
    names = set(first)
    if suffix == ".tsv" or is_pair(first) or "text1" in columns:
        return "pairs"
    if {"query-id", "corpus-id", "score"} <= names:
        return "beir"
    if {"query", "gold_ids", "excluded_ids"} <= names and "answers" not in columns:
        return "bright"
    return "questions"


def _prefixed(rows: Iterable[tuple[str, dict[str, Any]]], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """FlashRAG numbers each set anew, and ids must be unique in a run."""
    for where, row in rows:
        yield where, {**row, "id": f"{name}:{row['id']}"} if isinstance(row["id"], str) else row
