"""The page's tabs; `rag_app.ui` serves them."""

from __future__ import annotations

import gradio as gr

from rag_app.page.compare_tab import lay_out_compare
from rag_app.page.diagnose_tab import lay_out_diagnose
from rag_app.page.documents_tab import lay_out_documents
from rag_app.page.evaluate_tab import lay_out_evaluate
from rag_app.page.place import place
from rag_app.page.render import render_header
from rag_app.page.room import Room, browser_id
from rag_app.pipeline import Pipeline

TITLE = "MagRAG"
EXPLANATION = (
    "One question, two retrievers: see which passages each puts first, why, and what a language model answers from "
    "them. Cosine compares directions alone; QNorm also counts the length of a passage's vector."
)
# Uploaded files are copied when a corpus is made of them, so what lies about is what nobody used.
CLEAN_EVERY_S, KEEP_UPLOADS_S = 3600, 24 * 3600


def lay_out(pipeline: Pipeline) -> gr.Blocks:
    """The page around a pipeline, which is only read."""
    with gr.Blocks(
        title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=(CLEAN_EVERY_S, KEEP_UPLOADS_S)
    ) as page:
        room = Room(pipeline)
        place(render_header(TITLE, EXPLANATION))
        # Where they do not fit they wrap: a tab in a menu is one that few find.
        with gr.Tabs(overflow_behavior="wrap") as tabs:
            with gr.Tab("Compare", id="compare") as compare:
                parts = lay_out_compare(room, page, compare)
            lay_out_documents(room, parts, tabs)
            lay_out_evaluate(room, parts, tabs)
            lay_out_diagnose(room)
        page.load(browser_id, room.browser, room.browser, api_visibility="private", show_progress="hidden")
    return page
