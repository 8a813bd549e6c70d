"""Cutting texts: nothing lost, nothing too long, cuts where people would put them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retriever.chunking import BLOCK_CHARACTERS, Chunking, chunk_text, token_offsets
from retriever.errors import RetrieverError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def word_tokenizer() -> PreTrainedTokenizerBase:
    """One token a run of characters that aren't white space: texts of plain words are counted with str.split."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def byte_tokenizer() -> PreTrainedTokenizerBase:
    """One token a byte, white space included, as in byte-level models that have learnt no merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


WORDS = word_tokenizer()
BYTES = byte_tokenizer()

limits = st.integers(1, 12).flatmap(lambda most: st.tuples(st.just(most), st.integers(0, most - 1)))
texts = st.one_of(
    st.text(max_size=400),
    st.text(alphabet="ab.?! \n\t。中é", max_size=400),
    st.lists(
        st.sampled_from(["word", "end.", "a" * 30, "\n\n", " ", "\n", "Why?", "étude", "“Yes.”"]), max_size=80
    ).map(" ".join),
)


def covered(text: str, tokenizer: PreTrainedTokenizerBase | None, chunking: Chunking) -> set[int]:
    """Positions that some chunk holds, after checking what every chunk promises."""
    positions: set[int] = set()
    for chunk in chunk_text(text, tokenizer, chunking):
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text == chunk.text.strip() != ""
        positions.update(range(chunk.start, chunk.end))
    return positions


@settings(max_examples=300, deadline=None)
@given(texts, limits)
def test_every_visible_character_is_in_a_chunk_and_no_chunk_has_more_words_than_allowed(
    text: str, limit: tuple[int, int]
) -> None:
    chunking = Chunking(*limit)
    missing = {at for at, letter in enumerate(text) if not letter.isspace()} - covered(text, WORDS, chunking)
    assert not missing
    counts = [
        len(WORDS(chunk.text, add_special_tokens=False)["input_ids"]) for chunk in chunk_text(text, WORDS, chunking)
    ]
    assert all(count <= chunking.max_tokens for count in counts)


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(4, 40), st.integers(0, 3))
def test_chunks_that_must_cut_words_keep_to_the_limit_in_bytes(text: str, most: int, overlap: int) -> None:
    # Four bytes hold any character, so from four on no character is too long by itself.
    chunking = Chunking(most, overlap)
    missing = {at for at, letter in enumerate(text) if not letter.isspace()} - covered(text, BYTES, chunking)
    assert not missing
    assert all(len(chunk.text.encode()) <= most for chunk in chunk_text(text, BYTES, chunking))


@settings(max_examples=200, deadline=None)
@given(texts, limits)
def test_counting_words_without_a_tokenizer_keeps_the_promises_too(text: str, limit: tuple[int, int]) -> None:
    chunking = Chunking(*limit)
    missing = {at for at, letter in enumerate(text) if not letter.isspace()} - covered(text, None, chunking)
    assert not missing
    counts = [len(token_offsets(None)(chunk.text)) for chunk in chunk_text(text, None, chunking)]
    assert all(count <= chunking.max_tokens for count in counts)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("abc.", min_size=1, max_size=6), min_size=1, max_size=80), limits)
def test_words_are_kept_whole_and_at_most_the_overlap_is_repeated(words: list[str], limit: tuple[int, int]) -> None:
    most, overlap = limit
    chunks = [chunk.text.split() for chunk in chunk_text(" ".join(words), WORDS, Chunking(most, overlap))]
    rebuilt = list(chunks[0])
    for chunk in chunks[1:]:
        repeats = [n for n in range(min(overlap, len(chunk)) + 1) if rebuilt[len(rebuilt) - n :] == chunk[:n]]
        # Which of several possible repeats it was is told by what must come next.
        fits = [n for n in repeats if rebuilt + chunk[n:] == words[: len(rebuilt) + len(chunk) - n]]
        assert fits
        rebuilt += chunk[fits[-1] :]
    assert rebuilt == words


def test_a_short_text_is_one_chunk() -> None:
    assert [(c.text, c.start, c.end) for c in chunk_text("  One two. \n", WORDS)] == [("One two.", 2, 10)]


@pytest.mark.parametrize("text", ["", "   ", "\n\t\n"])
def test_a_blank_text_has_no_chunks(text: str) -> None:
    assert chunk_text(text, WORDS) == []


def test_a_paragraph_that_ends_near_the_limit_is_preferred_to_a_sentence_and_that_to_a_word() -> None:
    text = "a b c d e f.\n\nG h. I j k l m"
    assert chunk_text(text, WORDS, Chunking(10, 0))[0].text == "a b c d e f."
    assert chunk_text(text.replace("\n\n", " "), WORDS, Chunking(10, 0))[0].text == "a b c d e f. G h."
    assert chunk_text("a b c d e f g h i j k l", WORDS, Chunking(10, 0))[0].text == "a b c d e f g h i j"


def test_a_paragraph_that_ends_long_before_the_limit_does_not_make_a_short_chunk() -> None:
    assert chunk_text("Title\n\na b c d e f g h i j k", WORDS, Chunking(10, 0))[0].text == "Title\n\na b c d e f g h i"


def test_an_abbreviation_before_a_small_letter_ends_no_sentence() -> None:
    text = "a b c d e f i.e. g h j k l m"
    assert chunk_text(text, WORDS, Chunking(10, 0))[0].text == "a b c d e f i.e. g h j"


def test_what_is_repeated_begins_at_a_sentence_where_one_fits() -> None:
    first, second = chunk_text("a b c. d e f. G h. I j k l.", WORDS, Chunking(8, 4))[:2]
    assert first.text.endswith("G h.")
    assert second.text.startswith("G h. I j")


def test_a_language_without_spaces_is_cut_at_its_full_stops() -> None:
    text = "東京は日本の首都です。人口は多いです。川があります。"
    chunks = [chunk.text for chunk in chunk_text(text, None, Chunking(20, 0))]
    assert chunks == ["東京は日本の首都です。人口は多いです。", "川があります。"]


def test_tokens_of_a_text_longer_than_a_block_have_their_own_places() -> None:
    text = " ".join(f"w{number}" for number in range(BLOCK_CHARACTERS // 4))
    chunks = [chunk.text.split() for chunk in chunk_text(text, WORDS, Chunking(100, 0))]
    assert [word for chunk in chunks for word in chunk] == text.split()
    assert {len(chunk) for chunk in chunks} == {100}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Chunking(0, 0), "max_tokens must be at least 1, got 0"),
        (lambda: Chunking(10, 10), "less than max_tokens (10), got 10"),
        (lambda: Chunking(10, -1), "at least 0"),
    ],
)
def test_limits_that_cannot_work_are_refused(make: Callable[[], Chunking], words: str) -> None:
    with pytest.raises(RetrieverError) as caught:
        make()
    assert words in str(caught.value)


def test_a_slow_tokenizer_is_refused_with_its_name() -> None:
    class SlowTokenizer:
        is_fast = False

    with pytest.raises(RetrieverError, match="SlowTokenizer"):
        chunk_text("text", SlowTokenizer())


@pytest.mark.model
def test_chunks_of_a_real_tokenizer_fit_its_encoder(minilm_folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder)
    text = "Magnitude-aware retrieval weighs passages by ‖d‖. It isn't new; " * 200 + "x" * 5000 + " 東京" * 300
    chunks = chunk_text(text, tokenizer, Chunking(60, 10))
    lengths = [len(tokenizer(chunk.text, add_special_tokens=False)["input_ids"]) for chunk in chunks]
    assert max(lengths) <= 60
    assert min(lengths[:-1]) > 20
    covered_to = 0
    for chunk in chunks:
        assert not text[covered_to : chunk.start].strip()
        covered_to = max(covered_to, chunk.end)
    assert covered_to == len(text)
