"""Pairs of a query and a passage that answers it: their type, their files, and data sets of the hub.

A file holds one JSON object a line. `write_pairs` writes what `read_pairs` reads without any mapping:
{"query", "positive": {"id", "title", "text"}, "negatives": [...], "answers": [...], "source"}. Other people's names and
shapes are known to `retriever.training.rows`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retriever.corpora.lines import NumberedLines
from retriever.corpora.records import has_lone_surrogate, to_record
from retriever.errors import RetrieverError
from retriever.passages import Passage
from retriever.shards import write_json_lines


@dataclass(frozen=True, slots=True)
class TrainingPair:
    """A query, a passage that answers it, and passages that don't though they look as if they might.

    Attributes:
        query: Never blank.
        positive: The passage to be found. One without an id of its own has `stable_id` of its title and text.
        negatives: Hard negatives, given or mined, the hardest first.
        answers: Strings that answer the query; () where the data has none.
        source: Which data the pair is from; "" where nobody says.
    """

    query: str
    positive: Passage
    negatives: tuple[Passage, ...] = ()
    answers: tuple[str, ...] = ()
    source: str = ""


def stable_id(title: str, text: str) -> str:
    """An id that depends on title and text alone (64 bits in hexadecimal)."""
    return hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:16]


def read_pairs(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    title_separator: str = "",
    tell: Callable[[str], None] | None = None,
) -> list[TrainingPair]:
    """Read pairs from JSON lines, plain or gzipped, in the order of the file.

    A row with several positives is as many pairs; a row without any, or whose list is empty, is none, and counted.

    Args:
        path: The file.
        columns: Our role to the file's column, see `retriever.training.rows.ROLES`; usual names need no mapping.
        title_separator: What stands between title and text in passages that are one string, such as ". "; "" takes the
            whole string as text. See `retriever.training.rows.split_title` for titles that hold the separator.
        tell: Told, in a line, how many rows have no positive.

    Raises:
        RetrieverError: Names file and line: no such file, invalid JSON, a missing or mistyped field, a blank text, or an
            id that stands for two texts; or the file, where it holds no pair.
    """
    from retriever.training.rows import pairs_of_rows

    path = Path(path)
    if path.is_dir():
        raise RetrieverError(f"{path} is a folder: name the file of training pairs in it")
    if not path.is_file():
        raise RetrieverError(f"{path}: there is no such file of training pairs")
    return pairs_of_rows(_json_rows(path), str(path), columns or {}, title_separator, tell)


def read_hub_pairs(
    name: str,
    subset: str = "",
    split: str = "train",
    columns: Mapping[str, str] | None = None,
    *,
    title_separator: str = "",
    tell: Callable[[str], None] | None = None,
) -> list[TrainingPair]:
    """Read pairs from a data set of the Hugging Face hub, streamed, in its order.

    No mapping is needed for MS MARCO's questions (microsoft/ms_marco, v1.1 and v2.1), whose passages that are marked
    is_selected are positives; queries without any are left out, and the other passages become negatives where positive and
    negatives are both mapped to "passages". Nor for Natural Questions in its own form (the long answers are positives), nor
    for DPR's and Tevatron's rows.

    Args:
        name: Name on the hub, or a folder that the datasets library can read.
        subset: Its configuration; "" for the only or default one.
        split: Which part.
        columns: As in `read_pairs`.
        title_separator: As in `read_pairs`.
        tell: As in `read_pairs`.

    Raises:
        RetrieverError: Not found, no connection, a damaged file, or a row as in `read_pairs`; in one line.
    """
    from retriever.training.rows import pairs_of_rows

    what = ", ".join(filter(None, (name, subset, split)))
    return pairs_of_rows(_hub_rows(name, subset, split, what), what, columns or {}, title_separator, tell)


def write_pairs(path: str | Path, pairs: Iterable[TrainingPair]) -> None:
    """Write pairs through a temporary name, so that a file under this name is whole; `Passage.meta` is left out.

    Raises:
        RetrieverError: The folder cannot be written to.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_lines(path, map(to_row, pairs))
    except OSError as error:
        raise RetrieverError(f"cannot write {path}: {error.strerror or error}") from error


def data_hash(pairs: Iterable[TrainingPair]) -> str:
    """SHA-256 (hexadecimal) of the pairs in their order, each as JSON with sorted keys and no spaces."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(json.dumps(to_row(pair), sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def passages_of(pairs: Iterable[TrainingPair]) -> list[Passage]:
    """Every passage of the pairs once, positives and negatives, in the order in which they first stand there.

    Raises:
        RetrieverError: An id stands for two texts, as in pairs put together from sources that number alike.
    """
    found: dict[str, Passage] = {}
    for pair in pairs:
        for passage in (pair.positive, *pair.negatives):
            known = found.setdefault(passage.id, passage)
            if (known.title, known.text) != (passage.title, passage.text):
                raise RetrieverError(
                    f"passage id {passage.id!r} stands for two texts ({known.text[:40]!r}, {passage.text[:40]!r}): "
                    "give each text an id of its own, or leave the ids out"
                )
    return list(found.values())


def to_row(pair: TrainingPair) -> dict[str, Any]:
    """The JSON object of a pair."""
    return {
        "query": pair.query,
        "positive": to_record(pair.positive),
        "negatives": [to_record(passage) for passage in pair.negatives],
        "answers": list(pair.answers),
        "source": pair.source,
    }


def _json_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, raw in NumberedLines(path):
        where = f"{path}, line {number}"
        if raw is None:
            raise RetrieverError(f"{where}: too long to be a pair; the file must have one JSON object a line")
        try:
            row = json.loads(raw)
        except UnicodeDecodeError:
            raise RetrieverError(f"{where}: invalid UTF-8; save the file as UTF-8") from None
        except (ValueError, RecursionError) as error:
            raise RetrieverError(f"{where}: invalid JSON ({error}); the file must have one object a line") from None
        if not isinstance(row, dict):
            raise RetrieverError(f"{where}: must be a JSON object {{...}}, got {type(row).__name__}")
        # Half an emoji, as a cut in the middle of "\ud83d\ude00" leaves it: no UTF-8 file can hold it.
        if b"\\ud" in raw.lower() and has_lone_surrogate(row):
            raise RetrieverError(f"{where}: invalid Unicode (half a surrogate pair); repair the text")
        yield where, row


def _hub_rows(name: str, subset: str, split: str, what: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    from datasets import load_dataset

    # It tells of each retry; whoever has no hub reads one line at the end instead.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    number = 0
    try:
        for number, row in enumerate(load_dataset(name, subset or None, split=split, streaming=True), start=1):
            yield f"{what}, row {number}", row
    except RetrieverError:
        raise
    except Exception as error:  # the library raises errors of a dozen libraries below it
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        place = f"stopped after row {number} of" if number else "cannot load"
        raise RetrieverError(f"{place} {what} from the Hugging Face hub ({reason})") from error
