"""Cutting a long text into pieces that an encoder can read whole.

Lengths are counted by the encoder's own tokenizer. Cuts fall between paragraphs or sentences where one ends near the
limit, otherwise between words, and inside a word only when the word alone is too long. A chunk is a substring of the
text, so it can be found there again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from retriever.errors import RetrieverError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# A book is tokenised piece by piece: the token objects of a whole one would take a hundred times its size.
BLOCK_CHARACTERS = 100_000

_GAP = re.compile(r"\s+")
_PARAGRAPH = re.compile(r"[^\S\n]*\n[^\S\n]*\n\s*")
# A full stop before a small letter is an abbreviation more often than an end. CJK sentences end without a space.
_SENTENCE = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+(?![a-z])|[。！？]+[」』”’）]*\s*")
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]{{1,12}}|[^\w\s]")

Offsets = Callable[[str], Sequence[tuple[int, int]]]
"""From a text to the (start, end) of each of its tokens, in characters."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """How documents are cut.

    Attributes:
        max_tokens: Most tokens a chunk may have, special tokens not counted.
        overlap: Most tokens that a chunk repeats from the end of the one before.

    Raises:
        RetrieverError: A value out of range.
    """

    max_tokens: int = 180
    overlap: int = 30

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise RetrieverError(f"chunking: max_tokens must be at least 1, got {self.max_tokens}")
        if not 0 <= self.overlap < self.max_tokens:
            raise RetrieverError(
                f"chunking: overlap must be at least 0 and less than max_tokens ({self.max_tokens}), got {self.overlap}"
            )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a text: `text == source[start:end]`."""

    text: str
    start: int
    end: int


def token_offsets(tokenizer: PreTrainedTokenizerBase | None) -> Offsets:
    """The function that finds tokens.

    Args:
        tokenizer: A fast tokenizer of transformers. None counts words and punctuation marks instead, which are fewer
            than any encoder's tokens: good for BM25 alone.

    Raises:
        RetrieverError: A slow tokenizer, which doesn't say where its tokens are.
    """
    if tokenizer is None:
        return lambda text: [match.span() for match in _WORD.finditer(text)]
    if not tokenizer.is_fast:
        raise RetrieverError(
            f"cannot cut documents with {type(tokenizer).__name__}, a slow tokenizer: use an encoder with a fast one"
        )

    def offsets(text: str) -> Sequence[tuple[int, int]]:
        encoded = tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, padding=False, verbose=False
        )
        spans: Sequence[tuple[int, int]] = encoded["offset_mapping"]
        return spans

    return offsets


def chunk_text(
    text: str, tokenizer: PreTrainedTokenizerBase | None = None, chunking: Chunking | None = None
) -> list[Chunk]:
    """Cut a text into overlapping chunks.

    Every character that isn't white space is in some chunk, and no chunk tokenises to more than `max_tokens` (only a
    single character that alone needs more is kept as it is).

    Args:
        text: Any text; a blank one has no chunks.
        tokenizer: As for `token_offsets`.
        chunking: Limits; the defaults when None.
    """
    return _Cutter(text, token_offsets(tokenizer), chunking or Chunking()).chunks()


class _Cutter:
    """One text, its token starts and the places where it may be cut (all in characters, ascending)."""

    def __init__(self, text: str, offsets: Offsets, chunking: Chunking) -> None:
        self.text = text
        self.offsets = offsets
        self.chunking = chunking
        self.gaps = [match.end() for match in _GAP.finditer(text)]
        self.sentences = [match.end() for match in _SENTENCE.finditer(text)]
        self.paragraphs = [match.end() for match in _PARAGRAPH.finditer(text)]
        self.starts = self._token_starts()

    def chunks(self) -> list[Chunk]:
        result: list[Chunk] = []
        text_end = len(self.text.rstrip())
        start = done = 0
        while done < text_end:
            end = self._cut(start, done)
            if end is None:  # what is repeated leaves no room for anything new
                start = done
                continue
            piece = self.text[start:end]
            if piece.strip():
                begin = start + len(piece) - len(piece.lstrip())
                result.append(Chunk(piece.strip(), begin, start + len(piece.rstrip())))
            start, done = self._overlap_start(start, end), end
        return result

    def _token_starts(self) -> np.ndarray:
        """[tokens] int64: where the first visible character of each token is; blank tokens are left out."""
        parts: list[np.ndarray] = []
        at = 0
        while at < len(self.text):
            end = min(at + BLOCK_CHARACTERS, len(self.text))
            if end < len(self.text):
                gap = self.gaps[bisect_right(self.gaps, end) - 1] if self.gaps else at
                end = gap if gap > at else end
            block = self.text[at:end]
            # Byte-level tokenizers count the space before a word as a part of it.
            visible = ((stop, len(block[begin:stop].lstrip())) for begin, stop in self.offsets(block))
            parts.append(np.array([at + stop - width for stop, width in visible if width], dtype=np.int64))
            at = end
        return np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)

    def _count(self, start: int, end: int) -> int:
        return sum(1 for begin, stop in self.offsets(self.text[start:end].strip()) if stop > begin)

    def _cut(self, start: int, done: int) -> int | None:
        """Where the chunk that begins at `start` ends, or None when it would end before `done`, or at it."""
        most = self.chunking.max_tokens
        first = int(np.searchsorted(self.starts, start))
        allowed = most
        end = len(self.text)
        # A substring can have more tokens than the same span had inside the text (a word without the space before
        # it, half a word), so the chunk itself is counted and the cut moved back until it fits.
        while allowed >= 1:
            over = first + allowed
            limit = int(self.starts[over]) if over < len(self.starts) else len(self.text)
            if limit <= done:
                break
            middle = int(self.starts[min(first + allowed // 2, len(self.starts) - 1)]) if len(self.starts) else start
            end = limit if limit == len(self.text) else self._best_cut(done, middle, limit)
            excess = self._count(start, end) - most
            if excess <= 0:
                return end
            allowed -= excess
        if start < done:
            return None
        while end - start > 1 and self._count(start, end) > most:
            end = start + (end - start) // 2
        return end

    def _best_cut(self, done: int, middle: int, limit: int) -> int:
        """The best place in (done, limit]: a paragraph's or sentence's end past the middle, a gap, or the limit."""
        late = max(middle, done)
        for places, low in ((self.paragraphs, late), (self.sentences, late), (self.gaps, done)):
            at = bisect_right(places, limit) - 1
            if at >= 0 and places[at] > low:
                return places[at]
        return limit

    def _overlap_start(self, start: int, end: int) -> int:
        """Where the next chunk begins: at a sentence, else a word, at most `overlap` tokens before `end`."""
        if self.chunking.overlap == 0:
            return end
        first = max(int(np.searchsorted(self.starts, end)) - self.chunking.overlap, 0)
        low = max(int(self.starts[first]), start + 1) if first < len(self.starts) else end
        for places in (self.sentences, self.gaps):
            at = bisect_left(places, low)
            if at < len(places) and places[at] < end:
                return places[at]
        return end
