"""The parts of the Documents tab: what a corpus is made of, and the corpora that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from rag_app.gathering import MOST_FILES, SUFFIXES
from rag_app.page.documents import NO_PREVIEW
from rag_app.page.place import place
from rag_app.page.room import Room
from rag_app.shelf import LONGEST_NAME


@dataclass(frozen=True, slots=True)
class Bring:
    """What a corpus is made of."""

    files: gr.File
    name: gr.Textbox
    max_tokens: gr.Slider
    overlap: gr.Slider
    columns: gr.Row
    roles: tuple[gr.Dropdown, gr.Dropdown, gr.Dropdown]
    make: gr.Button
    cancel: gr.Button
    progress: gr.HTML
    preview: gr.HTML

    def settings(self) -> list[Any]:
        """Files, chunk settings and columns, as the functions below take them."""
        return [self.files, self.max_tokens, self.overlap, *self.roles]


@dataclass(frozen=True, slots=True)
class Keep:
    """The corpora that are there."""

    listing: gr.HTML
    tools: gr.Column
    chosen: gr.Dropdown
    name: gr.Textbox
    rename: gr.Button
    ask: gr.Button
    delete: gr.Button
    sure: gr.Row
    really: gr.Button
    keep: gr.Button
    notice: gr.HTML


def lay_out_bring(room: Room) -> Bring:
    """Where files are dropped, with what is made of them and its preview."""
    page, chunking = room.config.page, room.shelf.chunking
    with gr.Column(elem_classes="mg-bring", min_width=320):
        place(
            '<h2 class="mg-title">Ask your own documents</h2><p class="mg-hint">'
            f"{' '.join(SUFFIXES)} · at most {page.max_upload_mb} MB and {page.max_passages:,} passages together. They stay on "
            "the machine that runs this page, and only you see them.</p>"
        )
        files = gr.File(
            label=f"Files (up to {MOST_FILES})",
            file_count="multiple",
            file_types=list(SUFFIXES),
            height=170,
            elem_id="files",
        )
        name = gr.Textbox(
            label="Name", placeholder="the first file's name", max_length=LONGEST_NAME, elem_id="corpus-name"
        )
        with gr.Row():
            max_tokens = gr.Slider(
                20,
                512,
                chunking.max_tokens,
                step=1,
                label="Tokens a passage, at most",
                elem_id="max-tokens",
                min_width=220,
            )
            overlap = gr.Slider(
                0,
                200,
                chunking.overlap,
                step=1,
                label="Tokens repeated from the last",
                elem_id="overlap",
                min_width=220,
            )
        with gr.Row(visible=False, elem_id="columns") as columns:
            roles = tuple(
                gr.Dropdown([], label=label, elem_id=f"column-{role}", min_width=150)
                for role, label in (("id", "Column of ids"), ("title", "Column of titles"), ("text", "Column of texts"))
            )
        with gr.Row():
            make = gr.Button("Make the corpus", variant="primary", elem_id="make")
            cancel = gr.Button("Cancel", visible=False, elem_id="cancel")
        progress = place(elem_id="making")
    with gr.Column(min_width=320):
        preview = place(NO_PREVIEW, elem_id="preview")
    return Bring(
        files, name, max_tokens, overlap, columns, (roles[0], roles[1], roles[2]), make, cancel, progress, preview
    )


def lay_out_keep() -> Keep:
    """The visitor's corpora, and what can be done with one."""
    place('<h2 class="mg-title">Your corpora</h2>')
    listing = place(elem_id="corpora")
    with gr.Column(visible=False) as tools:
        with gr.Row(elem_classes="mg-tools"):
            chosen = gr.Dropdown([], label="Corpus", elem_id="chosen", min_width=200, scale=2)
            name = gr.Textbox(label="New name", max_length=LONGEST_NAME, elem_id="new-name", min_width=200, scale=2)
            ask = gr.Button("Ask it", variant="primary", min_width=100, elem_id="ask")
            rename = gr.Button("Rename", min_width=100, elem_id="rename")
            delete = gr.Button("Delete …", min_width=100, elem_id="delete")
        with gr.Row(visible=False) as sure:
            really = gr.Button("Delete it for good", variant="stop", elem_id="really")
            keep = gr.Button("Keep it", elem_id="keep")
    notice = place(elem_id="notice")
    return Keep(listing, tools, chosen, name, rename, ask, delete, sure, really, keep, notice)
