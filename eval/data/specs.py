"""Which data set is meant, by a name, a path or both, and in which format it is.

A path wins over the hub. What a known name leaves open is the registry's. Formats:

- questions: JSONL, ours or FlashRAG's, or any with mapped columns;
- beir: a folder of queries.jsonl and qrels/SPLIT.tsv, beside its corpus.jsonl;
- trec: a folder with one topics file and one qrels file, or TOPICS,QRELS;
- bright: JSONL with query, gold_ids and excluded_ids;
- pairs: JSONL or TSV with text1, text2 and score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from eval.data.datasets import name_from
from eval.data.jsonl import SUFFIXES
from eval.data.registry import DataSetInfo, find, get
from eval.errors import EvalError

Format = Literal["auto", "questions", "beir", "trec", "bright", "pairs"]
FORMATS: tuple[Format, ...] = get_args(Format)
_OF_TASK: dict[str, Format] = {"qa": "questions", "retrieval": "beir", "sts": "pairs"}


@dataclass(frozen=True, slots=True)
class DataSetSpec:
    """Which data set, and how to read it; what is empty is the registry's for a known name, or found out.

    Attributes:
        name: What tables call it; every question's `dataset`.
        path: A file or folder; "TOPICS,QRELS" for TREC's two files. Wins over the hub.
        hub: Name on the Hugging Face hub.
        subset: The hub's configuration.
        split: Of the hub, or which qrels of a BEIR folder (there "" means test).
        format: See the module; "auto" looks at the file.
        columns: Our field to the set's column.
        rule: EM rule in place of the default.
        lang: Language code.
        sha256: Of the file's bytes (of several files one after the other; of a hub set the content hash); "" checks nothing.
        count: Questions there must be before any are drawn; None or 0 checks nothing.
    """

    name: str
    path: str = ""
    hub: str = ""
    subset: str = ""
    split: str = ""
    format: Format = "auto"
    columns: Mapping[str, str] = field(default_factory=dict)
    rule: str = ""
    lang: str = ""
    sha256: str = ""
    count: int | None = None


def resolve_spec(text: str) -> DataSetSpec:
    """The data set that an argument of the command line means: a known name, a path, or NAME=PATH.

    Raises:
        EvalError: None of these; the message offers the nearest name, or says which file is missing.
    """
    text = text.strip()
    if not text:
        raise EvalError("a data set must be a known name, a path or NAME=PATH, got an empty text")
    if not exists(text):
        name, equals, path = text.partition("=")
        if equals and name.strip() and path.strip():
            if not exists(path.strip()):
                raise EvalError(f"{name.strip()}={path.strip()}: there is no such file or folder")
            return DataSetSpec(_canonical(name.strip()), path=path.strip())
    info = find(text)
    if info is not None:
        return DataSetSpec(info.name)
    if exists(text):
        return DataSetSpec(_canonical(name_from(Path(text.partition(",")[0]))), path=text)
    if "/" in text or text.endswith((*SUFFIXES, ".tsv")):
        raise EvalError(f"{text}: there is no such file or folder")
    return DataSetSpec(get(text).name)


def completed(spec: DataSetSpec, info: DataSetInfo | None) -> DataSetSpec:
    """The spec with the registry's facts in place of what it leaves open.

    Raises:
        EvalError: It has neither path nor hub and the registry doesn't know its name, or it asks for a wrong format.
    """
    if spec.format not in FORMATS:
        raise EvalError(f"{spec.name}: there is no format {spec.format!r}: use {', '.join(FORMATS)}")
    if info is not None:
        spec = replace(spec, lang=spec.lang or info.lang)
    if spec.path or spec.hub:
        return spec
    if info is None:
        get(spec.name)
        raise AssertionError("get() refuses what find() does not know")
    if spec.format not in ("auto", _OF_TASK[info.task]):
        raise EvalError(
            f"{spec.name} on the hub has the format {_OF_TASK[info.task]}, not {spec.format}: leave format out"
        )
    # The registry's size and hash are of its own configuration and split.
    own = (spec.subset or info.subset, spec.split or info.split) == (info.subset, info.split)
    return replace(
        spec,
        hub=info.hub,
        subset=spec.subset or info.subset,
        split=spec.split or info.split,
        format=_OF_TASK[info.task],
        columns=spec.columns or info.columns,
        sha256=spec.sha256 or (own and info.sha256) or "",
        count=spec.count or (info.size if own else None),
    )


def exists(text: str) -> bool:
    """Whether a text is a path, or two with a comma between them, that exist."""
    parts = text.split(",")
    try:
        return Path(text).expanduser().exists() or (
            len(parts) == 2 and all(part and Path(part).expanduser().exists() for part in parts)
        )
    except OSError:  # too long to be a path
        return False


def _canonical(name: str) -> str:
    """The registry's name in place of an alias or another spelling, so that one set has one name in all runs."""
    info = find(name)
    return info.name if info is not None else name
