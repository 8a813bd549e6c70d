"""Where words stand in a text: answers and the question's terms in passages, and the words in which two answers differ.

Words are compared without case, accents and punctuation. Where a script does not space its words, each character is one.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from eval.languages import passage_tokens
from rag_app.page.golds import declines

MarkKind = Literal["", "answer", "term", "differs"]

# Words that say nothing of what a question is about.
_STOP_WORDS = (
    "a an and any are as at be been but by can could did do does for from had has have he her his how i if in into is it "
    "its many me more most much my no not of on or our she so such than that the their them then there these they this "
    "those to was we were what when where which who whom whose why will with would you your s t"
)
_STOP = frozenset(_STOP_WORDS.split())
_ARTICLES = frozenset({"a", "an", "the"})
_UNTELLING = frozenset({("yes",), ("no",)})
"""They stand in most passages and prove nothing."""

_TOKENS = passage_tokens("zh")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text and what it is."""

    text: str
    kind: MarkKind = ""


@dataclass(frozen=True, slots=True)
class _Token:
    start: int
    end: int
    key: str


def mark_text(text: str, answers: Sequence[str], question: str) -> list[Piece]:
    """The text in pieces that make it up whole: answers in it, the question's terms, and the rest."""
    tokens = _tokens(text)
    keys = [token.key for token in tokens]
    kinds: list[MarkKind] = [""] * len(tokens)
    stems = _stems(keys)
    terms = set(_stems([token.key for token in _tokens(question) if token.key not in _STOP]))
    for place, stem in enumerate(stems):
        if stem in terms and keys[place] not in _STOP:
            kinds[place] = "term"
    spans = [span for answer in answers for span in _find(keys, phrase(answer))]
    for start, end in spans:
        kinds[start:end] = ["answer"] * (end - start)
    return _pieces(text, tokens, kinds, spans)


def phrase(answer: str) -> tuple[str, ...]:
    """What to look for of an answer: its words without a leading article; () for one that no passage could show."""
    keys = [token.key for token in _tokens(answer)]
    while len(keys) > 1 and keys[0] in _ARTICLES:
        keys.pop(0)
    found = tuple(keys)
    return () if found in _UNTELLING or declines(answer) else found


@dataclass(frozen=True, slots=True)
class Support:
    """Which passages an answer's words stand in.

    Attributes:
        places: Positions among the passages that were looked at, best first.
        whole: Whether its words stand there together, or only each somewhere.
    """

    places: tuple[int, ...]
    whole: bool = True


def support(answer: str, texts: Sequence[str]) -> Support | None:
    """The passages that hold the answer, else those that hold all of its words; None for an answer that says nothing."""
    wanted = phrase(answer)
    if not wanted:
        return None
    all_keys = [[token.key for token in _tokens(text)] for text in texts]
    whole = tuple(place for place, keys in enumerate(all_keys) if _find(keys, wanted))
    if whole:
        return Support(whole)
    words = {key for key in wanted if key not in _STOP}
    return Support(tuple(place for place, keys in enumerate(all_keys) if words and words <= set(keys)), whole=False)


def differences(left: str, right: str) -> tuple[list[Piece], list[Piece]]:
    """Both answers, the words marked that the other one lacks; nothing is marked where they share no word."""
    words = left.split(), right.split()
    keys = [[_key(word) or word for word in side] for side in words]
    blocks = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks()
    same: tuple[set[int], set[int]] = (set(), set())
    for block in blocks:
        same[0].update(range(block.a, block.a + block.size))
        same[1].update(range(block.b, block.b + block.size))
    if not same[0]:
        return [Piece(left)], [Piece(right)]
    return _compared(words[0], same[0]), _compared(words[1], same[1])


def same_words(left: str, right: str) -> bool:
    """Whether two answers are the same but for case, accents and punctuation."""
    return [token.key for token in _tokens(left)] == [token.key for token in _tokens(right)]


def _compared(words: Sequence[str], same: set[int]) -> list[Piece]:
    pieces: list[Piece] = []
    for place, word in enumerate(words):
        kind: MarkKind = "" if place in same else "differs"
        space = " " if place else ""
        if pieces and pieces[-1].kind == kind:
            pieces[-1] = Piece(pieces[-1].text + space + word, kind)
        else:
            pieces += [Piece(space)] * bool(space) + [Piece(word, kind)]
    return pieces


def _pieces(
    text: str, tokens: Sequence[_Token], kinds: Sequence[MarkKind], spans: Iterable[tuple[int, int]]
) -> list[Piece]:
    inside = {place for start, end in spans for place in range(start + 1, end)}
    pieces, done = [], 0
    place = 0
    while place < len(tokens):
        kind = kinds[place]
        last = place
        # What stands between the words of one answer belongs to it.
        while kind == "answer" and last + 1 in inside:
            last += 1
        if kind:
            if tokens[place].start > done:
                pieces.append(Piece(text[done : tokens[place].start]))
            done = tokens[last].end
            pieces.append(Piece(text[tokens[place].start : done], kind))
        place = last + 1
    if done < len(text):
        pieces.append(Piece(text[done:]))
    return pieces


def _find(keys: Sequence[str], wanted: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where the wanted keys stand together: (start, end) of each place."""
    if not wanted:
        return []
    n = len(wanted)
    return [
        (at, at + n) for at in range(len(keys) - n + 1) if keys[at] == wanted[0] and tuple(keys[at : at + n]) == wanted
    ]


def _tokens(text: str) -> list[_Token]:
    assert _TOKENS is not None
    found = ((match.start(), match.end(), _key(match.group())) for match in _TOKENS.finditer(text))
    return [_Token(start, end, key) for start, end, key in found if key]


def _key(word: str) -> str:
    """Without case, accents and punctuation."""
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in decomposed if letter.isalnum())


def _stems(keys: list[str]) -> list[str]:
    import Stemmer

    # Made anew each time: a stemmer cannot be used by two threads at once.
    return list(Stemmer.Stemmer("english").stemWords(keys))
