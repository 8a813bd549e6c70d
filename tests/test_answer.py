"""Where an answer ends, and that its pieces are never taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from generator.answer import AnswerText
from generator.base import Sampling
from generator.render import Renderer

END = 2


@pytest.fixture(scope="module")
def backend(smol_folder: Path):  # type: ignore[no-untyped-def]
    return Renderer(smol_folder).tokenizer.backend_tokenizer


def feed(backend, text: str, *, end: bool = False, **sampling) -> tuple[AnswerText, list[str]]:  # type: ignore[no-untyped-def]
    ids = backend.encode(text, add_special_tokens=False).ids + ([END] if end else [])
    answer = AnswerText(backend, [504], Sampling(**{"max_tokens": 1000, **sampling}), {END})
    pieces = []
    for token in ids:
        if answer.finish_reason is None:
            pieces.append(answer.feed(token))
    return answer, pieces


pytestmark = pytest.mark.model


def test_an_end_token_ends_counts_and_is_not_shown(backend) -> None:  # type: ignore[no-untyped-def]
    answer, pieces = feed(backend, "in Paris", end=True)
    assert (answer.text, answer.finish_reason, "".join(pieces)) == ("in Paris", "stop", "in Paris")
    assert answer.tokens == len(backend.encode("in Paris").ids) + 1


def test_a_stop_string_ends_the_text_before_it(backend) -> None:  # type: ignore[no-untyped-def]
    answer, pieces = feed(backend, "in Paris\n\nQuestion: and", stop=("\n",))
    assert (answer.text, answer.finish_reason, "".join(pieces)) == ("in Paris", "stop", "in Paris")


def test_the_stop_string_that_is_complete_first_counts(backend) -> None:  # type: ignore[no-untyped-def]
    answer, _ = feed(backend, "one two three", stop=("three", "two t", "o"))
    assert answer.text == ""
    answer, _ = feed(backend, "one two three", stop=("three", "two t"))
    assert answer.text == "one "


def test_what_may_become_a_stop_string_is_held_back_and_given_at_the_end(backend) -> None:  # type: ignore[no-untyped-def]
    answer, pieces = feed(backend, "a b c d", max_tokens=4, stop=("dddddddd",))
    assert pieces[:3] == ["", "", ""]
    assert (answer.text, answer.finish_reason, "".join(pieces)) == ("a b c d", "length", "a b c d")


def test_the_last_token_ends_by_length(backend) -> None:  # type: ignore[no-untyped-def]
    answer, _ = feed(backend, "one two three four", max_tokens=2)
    assert (answer.text, answer.finish_reason, answer.tokens) == ("one two", "length", 2)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text("aab  é日本🦊\n", max_size=30), stop=st.text("ab 🦊é", min_size=1, max_size=4))
def test_pieces_make_the_text_up_to_the_first_stop_string(backend, text: str, stop: str) -> None:  # type: ignore[no-untyped-def]
    answer, pieces = feed(backend, text, end=True, stop=(stop,))
    assert "".join(pieces) == answer.text == text.split(stop)[0]
    assert answer.finish_reason == "stop"
