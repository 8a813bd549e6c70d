"""Questions with their golds, read strictly: a bad line stops the run before the first model is loaded.

Default rules (`default_rule`, kept in `eval.data.registry`): the rule under which the numbers of most papers on a data set
were made.

- nq: `squad`, as DPR, FiD, Atlas, FlashRAG and BERGEN score it; nq_open, by that name: `nq_open`, its own script.
- triviaqa: `squad`, because files for open-domain use (ours, DPR's, FlashRAG's) carry the raw aliases. Only with the
  normalised aliases of the original release choose `triviaqa`; a mixture of the two is wrong ("j k rowling" is not
  "jk rowling").
- hotpotqa, 2wikimultihopqa (2wiki), musique, squad_v2, curatedtrec: their own. Anything else: `squad`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eval.data.columns import map_rows
from eval.data.jsonl import read_rows, shown
from eval.data.registry import find
from eval.errors import EvalError

# Names that ask for a rule and are no data set of the registry.
_NAMED_AFTER_RULES = ("nq_open", "squad_v2")
# Files called so are named after their folder.
_GENERIC = frozenset(
    {"questions", "train", "dev", "validation", "valid", "test", "queries", "examples", "pairs", "sts", "data"}
)
_LISTS = ("gold_ids", "supporting_ids", "excluded_ids")
_NAMED = frozenset(
    {"id", "dataset", "question", "answers", "golden_answers", "kind", "type", "metadata", "qrels", "lang", *_LISTS}
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
        qrels: Graded judgments of passages, 0 for not relevant; {} where the set has none (most question sets).
        excluded_ids: Passages that are taken out of this question's ranking before anything is counted.
        lang: Language code; "" for English.
        meta: Whatever else the file says in single values; lists, such as whole contexts, are left out.
    """

    id: str
    dataset: str
    question: str
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...] = ()
    supporting_ids: tuple[str, ...] = ()
    kind: str = ""
    qrels: dict[str, int] = field(default_factory=dict)
    excluded_ids: tuple[str, ...] = ()
    lang: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def own_id(self) -> str:
        """Its id in its data set, where the run had to give it another (`renamed`)."""
        return str(self.meta.get("own_id", self.id))

    def renamed(self) -> Question:
        """The same with its data set's name before its id, for runs whose data sets share ids."""
        return replace(self, id=f"{self.dataset}:{self.id}", meta={**self.meta, "own_id": self.id})

    @property
    def has_answers(self) -> bool:
        """Whether there is a gold that is not blank."""
        return any(answer.strip() for answer in self.answers)

    @property
    def relevance(self) -> dict[str, int]:
        """The judgments that ranking measures use: qrels, else the supporting passages, else the gold ones, as 1."""
        return self.qrels or dict.fromkeys(self.supporting_ids or self.gold_ids, 1)


def read_questions(
    path: str | Path, *, dataset: str = "", columns: Mapping[str, str] | None = None, normalised: bool = False
) -> list[Question]:
    """Read a question file, ours, FlashRAG's, or any whose columns are mapped.

    Ours: {id, dataset, question, answers, gold_ids, supporting_ids, excluded_ids, qrels, kind, lang}. FlashRAG's: {id,
    question, golden_answers, metadata}, where metadata may hold supporting_ids, gold_ids and type. Formats .jsonl,
    .jsonl.gz and .json (a list).

    Args:
        path: The file.
        dataset: The data set's name for rows that don't give one; by default the file's name, or its folder's when the
            file is named after a split (hotpotqa/questions.jsonl, nq/test.jsonl).
        columns: Our field to the file's column, see `eval.data.columns.map_rows`; None or {} reads the row as it is.
        normalised: See `eval.data.columns.map_rows`.

    Raises:
        EvalError: Names file and line: missing field, wrong type, blank id or question, duplicate id, invalid UTF-8 or
            JSON; or the file: absent, empty, of another format.
    """
    path = Path(path)
    rows: Iterable[tuple[str, dict[str, Any]]] = read_rows(path)
    if columns:
        rows = map_rows(rows, columns, normalised=normalised)
    return to_questions(rows, str(path), dataset or name_from(path))


def to_questions(rows: Iterable[tuple[str, dict[str, Any]]], origin: str, dataset: str) -> list[Question]:
    """The questions in (place, row) pairs; the rest as `read_questions`.

    Raises:
        EvalError: As `read_questions`; `origin` is named where there are no rows.
    """
    questions: list[Question] = []
    seen: dict[str, str] = {}
    for where, row in rows:
        question = _question(row, where, dataset)
        if question.id in seen:
            raise EvalError(f"{where}: id {question.id!r} was already used at {seen[question.id]}: ids must be unique")
        seen[question.id] = where
        questions.append(question)
    if not questions:
        raise EvalError(f"{origin}: holds no questions: it must have one JSON object a line")
    return questions


def subset(questions: Sequence[Question], n: int, seed: int) -> list[Question]:
    """A sample of n questions, in the order of the file; all of them when n is at least their number.

    The sample is the n questions whose SHA-256 of "seed NUL id" is smallest. So it depends on seed and ids alone, not
    on the order of the file nor the version of a random generator, and a smaller sample is part of every larger one.

    Raises:
        EvalError: n is below 1.
    """
    return [questions[position] for position in draw([question.id for question in questions], n, seed)]


def draw(ids: Sequence[str], n: int, seed: int) -> list[int]:
    """The positions that `subset` takes, ascending.

    Raises:
        EvalError: n is below 1.
    """
    if n < 1:
        raise EvalError(f"the subset must have at least 1 question, got {n}")
    if n >= len(ids):
        return list(range(len(ids)))
    digests = [hashlib.sha256(f"{seed}\0{identity}".encode()).digest() for identity in ids]
    return sorted(sorted(range(len(ids)), key=lambda position: digests[position])[:n])


def content_hash(questions: Sequence[Question]) -> str:
    """SHA-256 (hexadecimal) of all that can change a prediction or a score, in order; kind and meta are left out."""
    digest = hashlib.sha256()
    for q in questions:
        texts = [q.id, q.dataset, q.question, q.answers, q.gold_ids, q.supporting_ids, q.excluded_ids, q.lang]
        fields = [*texts, sorted(q.qrels.items())]
        digest.update(json.dumps(fields, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def describe_source(
    path: str | Path, everything: Sequence[object], chosen: Sequence[object], seed: int, files: Sequence[Path] = ()
) -> dict[str, Any]:
    """What a run records of its data: where, SHA-256 of its bytes, how many questions of how many, the draw's seed.

    Args:
        path: A file, or the folder that `files` are in.
        everything: The questions (or pairs) there.
        chosen: Those that are used.
        seed: Of the draw; recorded only where some were left out.
        files: What was read, when it is more than `path`; hashed one after the other.
    """
    digest = hashlib.sha256()
    for file in files or [Path(path)]:
        with file.open("rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
    return {
        "file": str(path),
        "sha256": digest.hexdigest(),
        **describe_draw(everything, chosen, seed),
    }


def describe_draw(everything: Sequence[object], chosen: Sequence[object], seed: int) -> dict[str, Any]:
    """The part of `describe_source` that says which questions were used."""
    whole = len(chosen) == len(everything)
    return {
        "questions_in_file": len(everything),
        "questions_used": len(chosen),
        "subset_seed": None if whole else seed,
    }


def default_rule(dataset: str) -> str:
    """The name of the rule for a data set, as this module's docstring lists them; case and hyphens don't matter."""
    plain = dataset.lower().replace("-", "_")
    if plain in _NAMED_AFTER_RULES:
        return plain
    info = find(dataset)
    return (info and info.rule) or "squad"


def name_from(path: Path) -> str:
    """The data set's name by its file's, or by its folder's where the file is called after a split or a format."""
    stem = path.name.split(".", 1)[0]
    return path.resolve().parent.name if stem.lower() in _GENERIC else stem


def _question(row: Mapping[str, Any], where: str, dataset: str) -> Question:
    metadata = row.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise EvalError(f'{where}: "metadata" must be an object, got {_shown(metadata)}')
    answers_name = "answers" if "answers" in row else "golden_answers"
    if answers_name not in row:
        raise EvalError(f'{where}: "answers" (or "golden_answers") is missing')
    either = {**metadata, **row}
    single = (str, int, float)
    left = {name: value for name, value in either.items() if name not in _NAMED and isinstance(value, single)}
    return Question(
        id=_text(row, "id", where),
        dataset=_text(row, "dataset", where) if row.get("dataset") else dataset,
        question=_text(row, "question", where),
        answers=_strings(row, answers_name, where, required=True),
        gold_ids=_strings(either, "gold_ids", where),
        supporting_ids=_strings(either, "supporting_ids", where),
        kind=_kind(row, metadata, where),
        qrels=_qrels(row, where),
        excluded_ids=_strings(row, "excluded_ids", where),
        lang=_text(row, "lang", where, required=False),
        meta=left,
    )


def _qrels(row: Mapping[str, Any], where: str) -> dict[str, int]:
    value = row.get("qrels")
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(type(grade) is int for grade in value.values()):
        raise EvalError(f'{where}: "qrels" must be an object of whole numbers by passage id, got {_shown(value)}')
    return value


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
    return f"{shown(value, 40)} ({type(value).__name__})"
