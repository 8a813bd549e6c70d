"""Questions with their golds, read strictly: a bad line stops the run before the first model is loaded.

Default rules (`default_rule`): the rule under which the numbers of most papers on a data set were made.

- nq: `squad`, as DPR, FiD, Atlas, FlashRAG and BERGEN score it; nq_open, by that name: `nq_open`, its own script.
- triviaqa: `squad`, because files for open-domain use (ours, DPR's, FlashRAG's) carry the raw aliases. Only with the
  normalised aliases of the original release choose `triviaqa`; a mixture of the two is wrong ("j k rowling" is not
  "jk rowling").
- hotpotqa, 2wikimultihopqa (2wiki), musique, squad_v2, curatedtrec: their own. Anything else: `squad`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.errors import EvalError
from eval.jsonl import read_rows

_DEFAULT_RULES = {
    "nq_open": "nq_open",
    "hotpotqa": "hotpotqa",
    "hotpot": "hotpotqa",
    "2wiki": "2wikimultihopqa",
    "2wikimultihopqa": "2wikimultihopqa",
    "2wikimqa": "2wikimultihopqa",
    "musique": "musique",
    "squad_v2": "squad_v2",
    "curatedtrec": "curatedtrec",
}
_SPLITS = frozenset({"questions", "train", "dev", "validation", "valid", "test"})
_NAMED = frozenset(
    {"id", "dataset", "question", "answers", "golden_answers", "gold_ids", "supporting_ids", "kind", "type", "metadata"}
)


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        id: Unique in its file.
        dataset: Which set it is of; decides the default rule and the row of the table.
        question: Never blank.
        answers: The golds; may be empty for a question without answer.
        gold_ids: Passages that a person marked; () where none are.
        supporting_ids: Passages needed for the answer (multi-hop), or known to hold its string (open domain).
        kind: What sort of question, in the data set's own words; "" when it doesn't say.
        meta: Whatever else the file says.
    """

    id: str
    dataset: str
    question: str
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...] = ()
    supporting_ids: tuple[str, ...] = ()
    kind: str = ""
    meta: dict[str, Any] = field(default_factory=dict)


def read_questions(path: str | Path, *, dataset: str = "") -> list[Question]:
    """Read a question file, ours or FlashRAG's.

    Ours: {id, dataset, question, answers, gold_ids, supporting_ids, kind}. FlashRAG's: {id, question, golden_answers,
    metadata}, where metadata may hold supporting_ids, gold_ids and type. Formats .jsonl, .jsonl.gz and .json (a list).

    Args:
        path: The file.
        dataset: The data set's name for rows that don't give one; by default the file's name, or its folder's when the
            file is named after a split (hotpotqa/questions.jsonl, nq/test.jsonl).

    Raises:
        EvalError: Names file and line: missing field, wrong type, blank id or question, duplicate id, invalid UTF-8 or
            JSON; or the file: absent, empty, of another format.
    """
    path = Path(path)
    fallback = dataset or _name_from(path)
    questions: list[Question] = []
    seen: dict[str, str] = {}
    for where, row in read_rows(path):
        question = _question(row, where, fallback)
        if question.id in seen:
            raise EvalError(f"{where}: id {question.id!r} was already used at {seen[question.id]}: ids must be unique")
        seen[question.id] = where
        questions.append(question)
    if not questions:
        raise EvalError(f"{path}: holds no questions: it must have one JSON object a line")
    return questions


def subset(questions: Sequence[Question], n: int, seed: int) -> list[Question]:
    """A sample of n questions, in the order of the file; all of them when n is at least their number.

    The sample is the n questions whose SHA-256 of "seed NUL id" is smallest. So it depends on seed and ids alone, not
    on the order of the file nor the version of a random generator, and a smaller sample is part of every larger one.

    Raises:
        EvalError: n is below 1.
    """
    if n < 1:
        raise EvalError(f"the subset must have at least 1 question, got {n}")
    if n >= len(questions):
        return list(questions)
    digests = [hashlib.sha256(f"{seed}\0{question.id}".encode()).digest() for question in questions]
    chosen = sorted(range(len(questions)), key=lambda position: digests[position])[:n]
    return [questions[position] for position in sorted(chosen)]


def content_hash(questions: Sequence[Question]) -> str:
    """SHA-256 (hexadecimal) of all that can change a prediction or a score, in order; kind and meta are left out."""
    digest = hashlib.sha256()
    for q in questions:
        fields = [q.id, q.dataset, q.question, q.answers, q.gold_ids, q.supporting_ids]
        digest.update(json.dumps(fields, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def describe_source(
    path: str | Path, everything: Sequence[Question], chosen: Sequence[Question], seed: int
) -> dict[str, Any]:
    """What a run records of its data file: path, SHA-256 of its bytes, how many questions of how many, subset seed."""
    with Path(path).open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    whole = len(chosen) == len(everything)
    return {
        "file": str(path),
        "sha256": digest,
        "questions_in_file": len(everything),
        "questions_used": len(chosen),
        "subset_seed": None if whole else seed,
    }


def default_rule(dataset: str) -> str:
    """The name of the rule for a data set, as this module's docstring lists them; case and hyphens don't matter."""
    return _DEFAULT_RULES.get(dataset.lower().replace("-", "_"), "squad")


def _name_from(path: Path) -> str:
    stem = path.name.split(".", 1)[0]
    return path.resolve().parent.name if stem.lower() in _SPLITS else stem


def _question(row: Mapping[str, Any], where: str, fallback: str) -> Question:
    metadata = row.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise EvalError(f'{where}: "metadata" must be an object, got {_shown(metadata)}')
    answers_name = "answers" if "answers" in row else "golden_answers"
    if answers_name not in row:
        raise EvalError(f'{where}: "answers" (or "golden_answers") is missing')
    either = {**metadata, **row}
    left = {name: value for name, value in either.items() if name not in _NAMED}
    return Question(
        id=_text(row, "id", where),
        dataset=_text(row, "dataset", where) if row.get("dataset") else fallback,
        question=_text(row, "question", where),
        answers=_strings(row, answers_name, where, required=True),
        gold_ids=_strings(either, "gold_ids", where),
        supporting_ids=_strings(either, "supporting_ids", where),
        kind=_kind(row, metadata, where),
        meta=left,
    )


def _kind(row: Mapping[str, Any], metadata: Mapping[str, Any], where: str) -> str:
    for name in ("kind", "type"):
        if row.get(name) is not None:
            return _text(row, name, where, required=False)
    # Other people's metadata may call anything "type": only a string is a kind of question.
    kind = metadata.get("type")
    return kind if isinstance(kind, str) else ""


def _text(row: Mapping[str, Any], name: str, where: str, *, required: bool = True) -> str:
    value = row.get(name)
    if value is None and not required:
        return ""
    if name not in row:
        raise EvalError(f'{where}: "{name}" is missing')
    if not isinstance(value, str):
        raise EvalError(f'{where}: "{name}" must be a string, got {_shown(value)}')
    if required and not value.strip():
        raise EvalError(f'{where}: "{name}" is empty')
    return value


def _strings(row: Mapping[str, Any], name: str, where: str, *, required: bool = False) -> tuple[str, ...]:
    value = row.get(name)
    if value is None and not required:
        return ()
    if not isinstance(value, list):
        raise EvalError(f'{where}: "{name}" must be a list of strings, got {_shown(value)}')
    for item in value:
        if not isinstance(item, str):
            raise EvalError(f'{where}: "{name}" must be a list of strings, got {_shown(item)} in it')
    return tuple(value)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"{text if len(text) <= 40 else text[:37] + '...'} ({type(value).__name__})"
