"""Programs that hand the page's endpoints what they do not take: each gets a line, and the terminal stays clean."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest

from rag_app.config import load_config
from rag_app.errors import ConfigError
from rag_app.page.api import text_argument, told_in_a_line, whole_argument
from rag_app.page.compare_tab import GONE, corpus_choices
from rag_app.page.evaluate_tab import whole_field
from rag_app.pipeline import Pipeline
from rag_app.shelf import Shelved
from rag_app.ui import build_page

ASKED = {"question": "Who?", "retriever_a": "cosine", "retriever_b": "bm25", "k": 3, "corpus": ""}


@pytest.fixture(scope="module")
def endpoints() -> dict[str, Any]:
    """The page's functions by the names that programs call them by; nothing is loaded before an argument is right."""
    page = build_page(Pipeline(load_config(None, [], {})))
    return {own.api_name: own.fn for own in page.fns.values() if own.api_visibility == "public"}


def _ask(endpoint: Any, **arguments: Any) -> Any:
    given = endpoint(**arguments)
    return list(given) if isinstance(given, Iterator) else given


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"k": "3"}, "k must be a whole number from 1 to 20, got '3'"),
        ({"k": "abc"}, "got 'abc'"),
        ({"k": None}, "got None"),
        ({"k": [3]}, r"got \[3\]"),
        ({"k": 2.5}, "got 2.5"),
        ({"k": math.nan}, "got nan"),
        ({"k": True}, "got True"),
        ({"k": 21}, "got 21"),
        ({"question": 123}, "question must be text, what to ask, got 123"),
        ({"question": None}, "got None"),
        ({"question": "x" * 2001}, "the question has 2001 characters; shorten it to at most 2000"),
        ({"corpus": 5}, "corpus must be text, .* got 5"),
        ({"corpus": "../../etc"}, "this corpus is not there"),
        ({"retriever_a": None}, "retriever_a must be text, the name of a retriever, got None"),
        ({"retriever_b": ["a"]}, "retriever_b must be text"),
        ({"retriever_b": "cosin"}, 'no retriever "cosin"'),
    ],
)
def test_a_wrong_argument_of_compare_is_a_line(endpoints: dict[str, Any], wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(gr.Error, match=says) as caught:
        _ask(endpoints["compare"], **{**ASKED, **wrong})
    assert not caught.value.print_exception and "\n" not in caught.value.message


@pytest.mark.parametrize("wrong", [None, 5, ["a"], "minilmm"])
def test_a_wrong_encoder_is_a_line(endpoints: dict[str, Any], wrong: object) -> None:
    with pytest.raises(gr.Error, match="encoder") as caught:
        _ask(endpoints["diagnose"], encoder=wrong)
    assert not caught.value.print_exception


def test_every_endpoint_that_takes_something_is_tried_here(endpoints: dict[str, Any]) -> None:
    takes = {name for name, own in endpoints.items() if set(inspect.signature(own).parameters) - {"request"}}
    assert takes == {"compare", "diagnose"} and set(endpoints) - takes == {"runs"}


def test_arguments_pass_that_are_right_and_long_ones_are_shown_cut() -> None:
    assert [whole_argument(own, "k", 1, 20) for own in (1, 20, 3.0)] == [1, 20, 3]
    assert text_argument("", "corpus", "an id") == ""
    with pytest.raises(ConfigError) as caught:
        text_argument(["x" * 10_000], "corpus", "an id")
    assert len(str(caught.value)) < 120


def test_what_nobody_foresaw_is_a_line_too(caplog: pytest.LogCaptureFixture) -> None:
    with (
        pytest.raises(gr.Error, match="^'unexpected ZeroDivisionError; the terminal shows where'$"),
        told_in_a_line("x"),
    ):
        raise ZeroDivisionError("/secret/path")
    assert "unexpected error in x" in caplog.text


def test_a_corpus_that_is_gone_stays_chosen_so_that_no_other_one_answers() -> None:
    corpora = [Shelved("", "Demo corpus", 9, "", ""), Shelved("a" * 16, "mine", 3, "2026", "f.txt")]
    own = corpus_choices(corpora, "a" * 16)
    assert own.value == "a" * 16 and [name for name, _ in own.choices] == ["Demo corpus", "mine"]
    for gone in ("64e11deea86bb6ef", "../../etc"):
        kept = corpus_choices(corpora[:1], gone)
        assert kept.value == gone and kept.visible and kept.choices == [("Demo corpus", ""), (GONE, gone)]
    assert not corpus_choices(corpora[:1]).visible


def test_an_empty_field_says_which_and_what_to_enter() -> None:
    assert whole_field(40.0, "Questions", "40") == 40
    with pytest.raises(ConfigError, match='"Questions" is empty: enter a whole number, such as 40, or 0 for all'):
        whole_field(None, "Questions", "40, or 0 for all")
    with pytest.raises(ConfigError, match="takes a whole number, such as 0; got 0.5"):
        whole_field(0.5, "Seed", "0")
