"""Rows and run folders written by hand, as `magrag eval` leaves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.data.datasets import Question, content_hash
from eval.view import CorpusFacts, RunView, stored_corpora, stored_questions


def passage(rank: int, id: str, has_answer: bool = False, percentile: float | None = None) -> dict[str, Any]:
    norm = None if percentile is None else percentile / 10
    factors = {"score": 1 / rank, "cosine": None, "norm": norm, "percentile": percentile, "words": 9}
    return {"rank": rank, "id": id, "title": f"title of {id}", "has_answer": has_answer, **factors}


def ranking(text: str, percentiles: Sequence[float | None] = ()) -> list[dict[str, Any]]:
    """From "p1 p2* p3": ids, best first, with a star where an answer is in the passage."""
    known = [*percentiles, *[None] * len(text)]
    return [passage(at + 1, id.rstrip("*"), "*" in id, known[at]) for at, id in enumerate(text.split())]


def row(
    system: str, id: str, prediction: str = "", passages: str = "", *, k: int = -1, error: str | None = None,
    dropped: int = 0, cut: bool = False, percentiles: Sequence[float | None] = (),
) -> dict[str, Any]:  # fmt: skip
    """A row; k is the number of passages where it isn't given."""
    found = ranking(passages, percentiles)
    return {
        "system": system,
        "id": id,
        "prediction": prediction,
        "error": error,
        "k": len(found) if k < 0 else k,
        "dropped": dropped,
        "cut": cut,
        "prompt_tokens": 10,
        "passages": found,
        "seconds": {},
    }


def manifest(questions: Sequence[Question], names: Sequence[str], **changes: Any) -> dict[str, Any]:
    sets = dict.fromkeys(question.dataset for question in questions)
    return {
        "format": 2,
        "started": "2026-01-02T03:04:05+00:00",
        "config": {"k": 2},
        "systems": {name: f"mark of {name}" for name in names},
        "baseline": names[0],
        "datasets": {
            name: {"task": "qa", "rule": "squad", "lang": "en", "corpus": "demo", "index": "i1", "file": "x"}
            for name in sets
        },
        "questions": len(questions),
        "answers": len(questions) * len(names),
        "questions_sha256": content_hash(questions),
        "measures": [],
        "seed": 0,
        "batch_size": 2,
        "environment": {"python": "3.11", "packages": {"torch": "2.9"}, "git": {"commit": "a" * 40, "changed": False}},
        **changes,
    }


def write_run(
    path: Path,
    questions: Sequence[Question],
    names: Sequence[str],
    rows: Sequence[dict[str, Any]],
    *,
    answerable: dict[str, bool] | None = None,
    **changes: Any,
) -> RunView:
    """Write the folder of a run of systems by these names; `changes` replace entries of its run.json."""
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(manifest(questions, names, **changes)), encoding="utf-8")
    (path / "questions.jsonl").write_text(stored_questions(list(questions)), encoding="utf-8")
    (path / "predictions.jsonl").write_text("".join(json.dumps(own) + "\n" for own in rows), encoding="utf-8")
    facts = {name: CorpusFacts(answerable) for name in dict.fromkeys(question.dataset for question in questions)}
    (path / "corpus.json").write_text(stored_corpora(facts), encoding="utf-8")
    return RunView.open(path)
