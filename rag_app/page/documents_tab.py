"""The tab where people bring documents of their own, and keep the corpora made of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from rag_app.errors import USER_ERRORS, ConfigError
from rag_app.gathering import MOST_FILES, NO_COLUMN, SUFFIXES, table_columns
from rag_app.page.compare_tab import CompareParts, corpus_choices
from rag_app.page.documents import NO_PREVIEW, render_added, render_corpora, render_making, render_preview
from rag_app.page.making import Work
from rag_app.page.place import place
from rag_app.page.render import render_message
from rag_app.page.room import Room, owner_of
from rag_app.shelf import LONGEST_NAME, Added, Shelved
from retriever.chunking import Chunking
from retriever.corpora.records import guess_columns
from retriever.turns import Turns

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
Update = dict[Any, Any]


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


def lay_out_documents(room: Room, parts: CompareParts, tabs: gr.Tabs) -> None:
    """The tab with its events.

    Args:
        room: Shared by all visitors; whose corpora are shown is decided at each call.
        parts: Where a corpus is opened to be asked.
        tabs: The tabs around this one.
    """
    with gr.Tab("Documents", id="documents") as tab:
        with gr.Row(elem_classes="mg-documents"):
            bring = _bring(room)
        keep = _keep()
    _wire_bring(room, bring, keep, parts)
    _wire_keep(room, keep, parts, tabs)

    def show(kept: str, request: gr.Request) -> Update:
        return _listed(room, keep, owner_of(request, kept))

    tab.select(show, room.browser, _list_outputs(keep), **QUIET)


def _bring(room: Room) -> Bring:
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


def _keep() -> Keep:
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


def _wire_bring(room: Room, bring: Bring, keep: Keep, parts: CompareParts) -> None:
    shelf = room.shelf
    # One corpus at a time: the same encoders serve all, so that a second beside the first would make both take twice as long.
    turns = Turns()
    works: dict[str | None, Work] = {}  # by visit, to be cancelled

    def look(files: list[str] | None, max_tokens: int, overlap: int, *roles: str | None) -> Update:
        if not files:
            return {bring.preview: NO_PREVIEW}
        names = table_columns([Path(file) for file in files])
        if names and not roles[2]:
            return {bring.preview: render_message(f"choose the column that holds the texts: {', '.join(names)}")}
        try:
            seen = shelf.preview(Path(files[0]), Chunking(int(max_tokens), int(overlap)), _columns(roles))
            return {bring.preview: render_preview(seen, shelf.longest(), shelf.measure)}
        except USER_ERRORS as error:
            return {bring.preview: render_message(str(error))}

    def take(files: list[str] | None, max_tokens: int, overlap: int) -> Update:
        names = table_columns([Path(file) for file in files or []])
        guessed = guess_columns(names)
        roles = (guessed.get("id", NO_COLUMN), guessed.get("title", NO_COLUMN), guessed.get("text", ""))
        without = {"id": [("(none: number them)", NO_COLUMN)], "title": [("(none)", NO_COLUMN)], "text": []}
        shown = {
            dropdown: gr.Dropdown([*without[role], *names], value=value or None)
            for dropdown, role, value in zip(bring.roles, without, roles, strict=True)
        }
        about = look(files, max_tokens, overlap, *roles)
        return about | {bring.columns: gr.Row(visible=bool(names)), bring.progress: "", **shown}

    async def make(
        files: list[str] | None,
        max_tokens: int,
        overlap: int,
        id: str | None,
        title: str | None,
        text: str | None,
        name: str,
        kept: str,
        request: gr.Request,
    ) -> AsyncIterator[Update]:
        owner, visit = owner_of(request, kept), request.session_hash
        yield {bring.make: gr.Button(interactive=False), bring.cancel: gr.Button(visible=True), bring.progress: ""}
        ready = {bring.make: gr.Button(interactive=True), bring.cancel: gr.Button(visible=False)}
        try:
            chunking = Chunking(int(max_tokens), int(overlap))
        except USER_ERRORS as error:
            yield ready | {bring.progress: render_message(str(error))}
            return
        paths, columns = [Path(file) for file in files or []], _columns((id, title, text))
        work = Work(lambda step: shelf.add(owner, name, paths, chunking=chunking, columns=columns, step=step), turns)
        works[visit] = work
        try:
            async with contextlib.aclosing(work.watch()) as watched:
                async for making in watched:
                    if making.added:
                        yield ready | added(making.added, owner)
                    elif making.ended:
                        why = making.error or "cancelled: nothing of it was kept"
                        yield ready | {bring.progress: render_message(why)}
                    else:
                        yield {bring.progress: render_making(making)}
        finally:
            if works.get(visit) is work:
                del works[visit]

    def added(made: Added, owner: str) -> Update:
        corpora = shelf.corpora(owner)
        return {
            bring.progress: render_added(made),
            bring.files: None,
            bring.name: "",
            bring.preview: NO_PREVIEW,
            bring.columns: gr.Row(visible=False),
            **_update_list(keep, corpora, made.corpus.id),
            parts.corpus: corpus_choices(corpora, made.corpus.id),
        }

    def cancel(request: gr.Request) -> None:
        """What became of it is told where it is watched: it may be whole by then."""
        if work := works.get(request.session_hash):
            work.cancel()

    waiting: dict[str, Any] = {"concurrency_id": "preview", "concurrency_limit": 4, **QUIET}
    outputs = [bring.preview, bring.columns, bring.progress, *bring.roles]
    bring.files.upload(take, [bring.files, bring.max_tokens, bring.overlap], outputs, **waiting)
    gr.on(
        [bring.files.clear, bring.files.delete],
        take,
        [bring.files, bring.max_tokens, bring.overlap],
        outputs,
        **waiting,
    )
    gr.on(
        [bring.max_tokens.release, bring.overlap.release, *(role.input for role in bring.roles)],
        look,
        bring.settings(),
        bring.preview,
        trigger_mode="always_last",
        **waiting,
    )
    bring.make.click(
        make,
        [*bring.settings(), bring.name, room.browser],
        [
            *(bring.make, bring.cancel, bring.progress, bring.files, bring.name, bring.preview, bring.columns),
            parts.corpus,
            *_list_outputs(keep),
        ],
        api_visibility="private",
        show_progress="minimal",
        show_progress_on=bring.progress,
        trigger_mode="once",
        # Those who wait for their turn sleep here, and can cancel.
        concurrency_limit=None,
    )
    bring.cancel.click(cancel, None, None, queue=False, **QUIET)


def _wire_keep(room: Room, keep: Keep, parts: CompareParts, tabs: gr.Tabs) -> None:
    shelf = room.shelf

    def rename(corpus: str | None, name: str, kept: str, request: gr.Request) -> Update:
        owner = owner_of(request, kept)
        try:
            shelf.rename(_chosen(corpus), owner, name)
        except USER_ERRORS as error:
            return {keep.notice: render_message(str(error))}
        return _listed(room, keep, owner, corpus or "") | {keep.name: ""}

    def delete(corpus: str | None, kept: str, request: gr.Request) -> Update:
        owner = owner_of(request, kept)
        try:
            shelf.delete(_chosen(corpus), owner)
        except USER_ERRORS as error:
            return _listed(room, keep, owner) | {keep.notice: render_message(str(error))}
        return _listed(room, keep, owner)

    def ask(corpus: str | None, kept: str, request: gr.Request) -> Update:
        corpora = shelf.corpora(owner_of(request, kept))
        return {parts.corpus: corpus_choices(corpora, corpus or ""), tabs: gr.Tabs(selected="compare")}

    own = [keep.chosen, room.browser]
    listed = _list_outputs(keep)
    gr.on(
        [keep.rename.click, keep.name.submit],
        rename,
        [keep.chosen, keep.name, room.browser],
        [*listed, keep.name],
        **QUIET,
    )
    keep.delete.click(lambda: gr.Row(visible=True), None, keep.sure, **QUIET)
    gr.on([keep.keep.click, keep.chosen.input], lambda: gr.Row(visible=False), None, keep.sure, **QUIET)
    keep.really.click(delete, own, listed, **QUIET)
    parts.ask_after(keep.ask.click(ask, own, [parts.corpus, tabs], **QUIET))


def _list_outputs(keep: Keep) -> list[Any]:
    return [keep.listing, keep.tools, keep.chosen, keep.sure, keep.notice]


def _listed(room: Room, keep: Keep, owner: str, chosen: str = "") -> Update:
    return _update_list(keep, room.shelf.corpora(owner), chosen)


def _update_list(keep: Keep, corpora: list[Shelved], chosen: str = "") -> Update:
    own = [(corpus.name, corpus.id) for corpus in corpora if corpus.id]
    ids = [id for _, id in own]
    first = ids[0] if ids else None
    return {
        keep.listing: render_corpora(corpora),
        keep.tools: gr.Column(visible=bool(own)),
        keep.chosen: gr.Dropdown(own, value=chosen if chosen in ids else first),
        keep.sure: gr.Row(visible=False),
        keep.notice: "",
    }


def _chosen(corpus: str | None) -> str:
    if not corpus:
        raise ConfigError("no corpus is chosen: choose one of yours")
    return corpus


def _columns(roles: tuple[str | None, ...]) -> Mapping[str, str]:
    return {role: name for role, name in zip(("id", "title", "text"), roles, strict=True) if name}
