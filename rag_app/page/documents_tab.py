"""The tab where people bring documents of their own, and keep the corpora made of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from rag_app.errors import USER_ERRORS, ConfigError
from rag_app.gathering import NO_COLUMN, table_columns
from rag_app.page.compare_tab import CompareParts, corpus_choices
from rag_app.page.documents import render_added, render_corpora, render_making, render_preview
from rag_app.page.documents_layout import Bring, Keep, lay_out_bring, lay_out_keep
from rag_app.page.documents_preview import Previews
from rag_app.page.making import Work
from rag_app.page.render import render_message
from rag_app.page.room import Room, owner_of
from rag_app.shelf import Added, Shelved
from retriever.chunking import Chunking
from retriever.corpora.records import guess_columns
from retriever.turns import Turns

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
Update = dict[Any, Any]


@dataclass(frozen=True, slots=True)
class Used:
    """A corpus that was made, and what stood in the fields when that began."""

    made: Added
    files: tuple[str, ...]
    name: str
    chosen: str | None
    asked: str | None


def lay_out_documents(room: Room, parts: CompareParts, tabs: gr.Tabs) -> None:
    """The tab with its events.

    Args:
        room: Shared by all visitors; whose corpora are shown is decided at each call.
        parts: Where a corpus is opened to be asked.
        tabs: The tabs around this one.
    """
    with gr.Tab("Documents", id="documents") as tab:
        with gr.Row(elem_classes="mg-documents"):
            bring = lay_out_bring(room)
        keep = lay_out_keep()
        # Inside, as the wiring keeps states: what stands between two tabs is counted by Gradio as a tab.
        _wire_bring(room, bring, keep, parts)
        _wire_keep(room, keep, parts, tabs)

    def show(chosen: str | None, kept: str, request: gr.Request) -> Update:
        return _listed(room, keep, owner_of(request, kept), chosen or "")

    tab.select(show, [keep.chosen, room.browser], _list_outputs(keep), **QUIET)


def _wire_bring(room: Room, bring: Bring, keep: Keep, parts: CompareParts) -> None:
    shelf = room.shelf
    # One corpus at a time: the same encoders serve all, so that a second beside the first would make both take twice as long.
    turns = Turns()
    works: dict[str | None, Work] = {}  # by visit, to be cancelled
    previews = Previews()

    async def show(
        visit: str | None, files: list[str] | None, max_tokens: int, overlap: int, roles: tuple[str | None, ...]
    ) -> AsyncIterator[Any]:
        def read(file: Path) -> str:
            seen = shelf.preview(file, Chunking(int(max_tokens), int(overlap)), _columns(roles))
            return render_preview(seen, shelf.longest(), shelf.measure)

        async with contextlib.aclosing(previews.show(visit, _paths(files), _columns(roles), read)) as shown:
            async for html in shown:
                if html is not None:
                    yield html
        # Gradio sends the last thing once more at the end, when it may be out of date.
        yield gr.skip()

    async def look(
        files: list[str] | None,
        max_tokens: int,
        overlap: int,
        id: str | None,
        title: str | None,
        text: str | None,
        request: gr.Request,
    ) -> AsyncIterator[Any]:
        async for html in show(request.session_hash, files, max_tokens, overlap, (id, title, text)):
            yield html

    async def show_new(
        first: Update, visit: str | None, files: list[str] | None, max_tokens: int, overlap: int
    ) -> AsyncIterator[Update]:
        names = table_columns(_paths(files))
        guessed = guess_columns(names)
        roles = (guessed.get("id", NO_COLUMN), guessed.get("title", NO_COLUMN), guessed.get("text", ""))
        without = {"id": [("(none: number them)", NO_COLUMN)], "title": [("(none)", NO_COLUMN)], "text": []}
        shown = {
            dropdown: gr.Dropdown([*without[role], *names], value=value or None)
            for dropdown, role, value in zip(bring.roles, without, roles, strict=True)
        }
        about = first | {bring.columns: gr.Row(visible=bool(names)), **shown}
        async for html in show(visit, files, max_tokens, overlap, roles):
            yield about | {bring.preview: html}
            about = {}

    async def take(
        files: list[str] | None, max_tokens: int, overlap: int, request: gr.Request
    ) -> AsyncIterator[Update]:
        async for update in show_new({bring.progress: ""}, request.session_hash, files, max_tokens, overlap):
            yield update

    async def make(
        files: list[str] | None,
        max_tokens: int,
        overlap: int,
        id: str | None,
        title: str | None,
        text: str | None,
        name: str,
        chosen: str | None,
        asked: str | None,
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
        paths, columns = _paths(files), _columns((id, title, text))
        work = Work(lambda step: shelf.add(owner, name, paths, chunking=chunking, columns=columns, step=step), turns)
        works[visit] = work
        try:
            async with contextlib.aclosing(work.watch()) as watched:
                async for making in watched:
                    if making.added:
                        yield ready | {used: Used(making.added, tuple(files or []), name, chosen, asked)}
                    elif making.ended:
                        why = making.error or "cancelled: nothing of it was kept"
                        yield ready | {bring.progress: render_message(why)}
                    else:
                        yield {bring.progress: render_making(making)}
        finally:
            if works.get(visit) is work:
                del works[visit]

    async def tidy(
        was: Used | None,
        files: list[str] | None,
        name: str,
        max_tokens: int,
        overlap: int,
        id: str | None,
        title: str | None,
        text: str | None,
        chosen: str | None,
        new_name: str,
        asked: str | None,
        kept: str,
        request: gr.Request,
    ) -> AsyncIterator[Any]:
        """Tell of the corpus, and empty what went into it. What its maker has changed meanwhile stays."""
        if was is None:
            yield gr.skip()
            return
        corpora, made = shelf.corpora(owner_of(request, kept)), was.made.corpus.id
        told = {
            used: None,
            bring.progress: render_added(was.made),
            **_update_list(keep, corpora, made if chosen == was.chosen and not new_name else chosen or ""),
            parts.corpus: corpus_choices(corpora, made if asked == was.asked else asked or ""),
        }
        if name == was.name:
            told[bring.name] = ""
        files, visit = files or [], request.session_hash
        left = [file for file in files if file not in was.files]
        if len(left) == len(files):
            yield told
            yield gr.skip()
            return
        told[bring.files] = left or None
        if left and table_columns(_paths(left)) == table_columns(_paths(files)):
            async for html in show(visit, left, max_tokens, overlap, (id, title, text)):
                yield told | {bring.preview: html}
                told = {}
            return
        async for update in show_new(told, visit, left, max_tokens, overlap):
            yield update

    def cancel(request: gr.Request) -> None:
        """What became of it is told where it is watched: it may be whole by then."""
        if work := works.get(request.session_hash):
            work.cancel()

    used = gr.State(None)
    # Whoever waits for a preview sleeps in `previews`, and sees that they do.
    waiting: dict[str, Any] = {"concurrency_limit": None, **QUIET}
    about_files = [bring.preview, bring.columns, *bring.roles]
    gr.on(
        [bring.files.upload, bring.files.clear, bring.files.delete],
        take,
        [bring.files, bring.max_tokens, bring.overlap],
        [bring.progress, *about_files],
        # Also while the preview of a file that is not wanted any more is being made.
        trigger_mode="multiple",
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
    making = bring.make.click(
        make,
        [*bring.settings(), bring.name, keep.chosen, parts.corpus, room.browser],
        [bring.make, bring.cancel, bring.progress, used],
        api_visibility="private",
        show_progress="minimal",
        show_progress_on=bring.progress,
        trigger_mode="once",
        # Those who wait for their turn sleep here, and can cancel.
        concurrency_limit=None,
    )
    # In an event of its own, for it is given what stands in the fields at the end and not at the beginning.
    making.then(
        tidy,
        [
            *(used, bring.files, bring.name, bring.max_tokens, bring.overlap, *bring.roles),
            *(keep.chosen, keep.name, parts.corpus, room.browser),
        ],
        [used, bring.progress, bring.files, bring.name, *about_files, *_list_outputs(keep), parts.corpus],
        trigger_mode="multiple",
        **waiting,
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


def _paths(files: Sequence[str] | None) -> list[Path]:
    return [Path(file) for file in files or []]


def _columns(roles: tuple[str | None, ...]) -> Mapping[str, str]:
    return {role: name for role, name in zip(("id", "title", "text"), roles, strict=True) if name}
