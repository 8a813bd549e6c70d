"""Three passages in every format of a corpus of one passage a line."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

from retriever.passages import Passage

GOOD = '{"id": "g", "title": "", "text": "good"}'
PASSAGES = [
    Passage("1", "Aaron", 'Aaron ("the priest", Hebrew אַהֲרֹן) was a brother of Moses.'),
    Passage("2", 'The "Fifth" Season', '"Quoted" at the start, and\ta tab? No: a space.'.replace("\t", " ")),
    Passage("p-3", "Ålesund", "Ålesund er en by i Norge. 東京 😀"),
]


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def write_ours(path: Path) -> Path:
    return write_jsonl(path, [{"id": p.id, "title": p.title, "text": p.text} for p in PASSAGES])


def write_beir(path: Path) -> Path:
    return write_jsonl(path, [{"_id": p.id, "title": p.title, "text": p.text} for p in PASSAGES])


def write_flashrag(path: Path) -> Path:
    return write_jsonl(path, [{"id": p.id, "contents": f'"{p.title}"\n{p.text}'} for p in PASSAGES])


def write_dpr(path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([("id", "text", "title"), *((p.id, p.text, p.title) for p in PASSAGES)])
    return path


def zipped(path: Path) -> Path:
    """A compressed copy beside the file."""
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target
