"""Places for markup of ours on the page."""

from __future__ import annotations

from typing import Any

import gradio as gr


def place(value: str = "", *, script: str | None = None, **placing: Any) -> gr.HTML:
    """Markup as it is: none of Gradio's styles for prose, and no script but the given one."""
    return gr.HTML(value, apply_default_css=False, js_on_load=script, **placing)
