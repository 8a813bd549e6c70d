"""A corpus: a stream of checked passages with a report and a fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retriever.chunking import Chunking
from retriever.corpora.detect import open_source
from retriever.corpora.report import CorpusReport, Fault, Source
from retriever.corpora.seen import SeenStrings
from retriever.errors import RetrieverError
from retriever.passages import Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

OnError = Literal["fail", "skip"]

# Raised when a change of this code makes other passages of the same bytes, so that old indexes are seen to be old.
READER_VERSION = 1


class Corpus:
    """Passages of one source, read as they are asked for; iterating again begins again.

    Memory doesn't grow with the corpus except for 16 bytes a passage, by which duplicates are found.

    Attributes:
        name: The source as it was named.
        report: Counts of the latest pass, complete when it has ended.
    """

    def __init__(self, source: Source, *, on_error: OnError, collapse_duplicates: bool) -> None:
        self.name = source.name
        self.report = CorpusReport(ignored_files=source.ignored_files)
        self._source = source
        self._on_error = on_error
        self._collapse = collapse_duplicates

    def __iter__(self) -> Iterator[Passage]:
        """Yield each passage once, in the source's order.

        Raises:
            RetrieverError: A faulty record when faults aren't skipped; no passage at all; an unreadable file.
        """
        self.report = report = CorpusReport(ignored_files=self._source.ignored_files)
        ids, contents = SeenStrings(), SeenStrings()
        for where, item in self._source.items():
            report.read += 1
            if isinstance(item, Passage) and not ids.add(item.id):
                item = Fault("duplicate id", f'an earlier passage has the id "{item.id[:80]}" too')
            if isinstance(item, Fault):
                if self._on_error == "fail":
                    raise RetrieverError(
                        f"{where}: {item.detail}; mend it, or leave such {self._source.parts} out with --on-error skip"
                    )
                report.skip(where, item)
                continue
            if not contents.add(_folded(item)):
                report.duplicates += 1
                if self._collapse:
                    report.dropped += 1
                    continue
            report.kept += 1
            yield item
        if not report.kept:
            raise RetrieverError(f"{self.name} holds no passages{self._why_empty(report)}")

    def fingerprint(self) -> str:
        """64 hexadecimal digits that change whenever the passages may change.

        Files are read through once for it (about a second a gigabyte). Where a file lies doesn't matter; on_error
        doesn't either, for it decides whether there is a corpus, not what is in it.

        Raises:
            RetrieverError: A file that cannot be read.
        """
        parts = {"reader": READER_VERSION, "collapse_duplicates": self._collapse, **self._source.identity()}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def estimated_total(self) -> int | None:
        """How many passages this pass will give, judged by what it has read so far; None while that is unknown.

        Meant for the time left in a progress bar. Exact once a pass has ended.
        """
        fraction = self._source.fraction_read()
        return round(self.report.kept / fraction) if fraction else None

    def _why_empty(self, report: CorpusReport) -> str:
        if not report.read:
            return f": {self._source.empty}"
        first = next((examples[0] for examples in report.examples.values()), "")
        # Of a single document, which is not counted but told what is wrong with it.
        own = first.removeprefix(f"{self.name}: ")
        if report.read == 1 and own != first:
            return f": {own}"
        return f": {report.skipped_total:,} of {report.read:,} {self._source.parts} were skipped, the first at {first}"


def read_corpus(
    source: str | Path,
    *,
    on_error: OnError = "fail",
    collapse_duplicates: bool = False,
    chunking: Chunking | None = None,
    columns: Mapping[str, str] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Corpus:
    """Open a corpus; its format is found by looking into it.

    Known are JSONL of {id, title, text}, of FlashRAG's {id, contents} and of BEIR's {_id, title, text}; DPR's TSV; each
    of these gzipped; a folder that holds BEIR's corpus.jsonl; `hub:NAME[:CONFIG][:SPLIT]`; and .txt, .md, .html, .pdf
    and .docx, one or a folder of them.

    Args:
        source: A file, a folder or a hub address.
        on_error: "fail" stops at the first faulty record and names its line; "skip" leaves faulty ones out and counts
            them.
        collapse_duplicates: Leave out passages whose title and text equal an earlier one's (white space folded).
        chunking: How documents are cut (the defaults when None); other formats are taken as they are.
        columns: The source's own names for id, title and text.
        tokenizer: The encoder's, by which document chunks are measured; None measures in words.

    Raises:
        RetrieverError: Nothing there, an unknown format, or a setting that doesn't fit.
    """
    if on_error not in ("fail", "skip"):
        raise RetrieverError(f'on_error must be "fail" or "skip", got "{on_error}"')
    opened = open_source(source, columns=columns, chunking=chunking or Chunking(), tokenizer=tokenizer)
    return Corpus(opened, on_error=on_error, collapse_duplicates=collapse_duplicates)


def _folded(passage: Passage) -> str:
    """Title and text with every run of white space made one space; NUL, which no passage holds, keeps them apart."""
    return f"{' '.join(passage.title.split())}\0{' '.join(passage.text.split())}"
