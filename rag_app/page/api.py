"""What programs may hand the page's endpoints (gradio_client, HTTP): checked here, since Gradio passes any JSON value on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import gradio as gr

from rag_app.errors import ConfigError, in_words

_SHOWN = 60


def text_argument(value: object, name: str, meaning: str) -> str:
    """An argument that must be text.

    Args:
        value: What came.
        name: Of the argument.
        meaning: What it should hold, for the message ("what to ask").

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text, {meaning}, got {_shown(value)}")
    return value


def whole_argument(value: object, name: str, low: int, high: int) -> int:
    """An argument that must be a whole number from `low` to `high`; neither "3" nor true is one.

    Raises:
        ConfigError: It is none.
    """
    # JSON has one kind of number, so that some clients send 3.0 for 3.
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise ConfigError(f"{name} must be a whole number from {low} to {high}, got {_shown(value)}")
    return number


@contextlib.contextmanager
def told_in_a_line(doing: str) -> Iterator[None]:
    """Whatever goes wrong in the block reaches the client as one line, without a traceback; see `in_words`."""
    try:
        yield
    except Exception as error:
        raise gr.Error(in_words(error, doing), print_exception=False) from error


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} …"
