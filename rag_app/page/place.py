"""Places for markup of ours on the page."""

from __future__ import annotations

from typing import Any

import gradio as gr

NEXT_QUESTION = "mg-next-question"
"""The browser's event that empties answer places."""


def place(value: str = "", *, script: str | None = None, **placing: Any) -> gr.HTML:
    """Markup as it is: none of Gradio's styles for prose, and no script but the given one."""
    return gr.HTML(value, apply_default_css=False, js_on_load=script, **placing)


def answer_place(*, script: str = "", **placing: Any) -> gr.HTML:
    """A place for what belongs to one question: the browser empties it when the next one is sent, whatever the server does."""
    return place(
        script=f"document.addEventListener('{NEXT_QUESTION}', () => {{ props.value = ''; }});{script}", **placing
    )
