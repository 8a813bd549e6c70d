"""Previews of files on the Documents tab: of each visitor the latest wish alone is shown, whatever is ready first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path

from rag_app.errors import in_words
from rag_app.gathering import table_columns
from rag_app.page.documents import NO_PREVIEW, render_reading
from rag_app.page.render import render_message

AT_ONCE = 4
"""Files that are read for previews at a time; other visitors wait."""

Read = Callable[[Path], str]


class Previews:
    """What stands in the pane, for all visitors. To be used in one event loop."""

    def __init__(self) -> None:
        self._latest: dict[str | None, object] = {}  # by visit, while it is worked on
        self._places = asyncio.Semaphore(AT_ONCE)

    async def show(
        self, visit: str | None, files: Sequence[Path], columns: Mapping[str, str], read: Read
    ) -> AsyncGenerator[str | None]:
        """What is shown one after the other, as HTML; None where the visitor has wished for another preview meanwhile.

        Args:
            visit: Whose pane it is.
            files: All that are there; the first is read.
            columns: Those chosen for id, title and text.
            read: Makes the preview of a file, in a thread; what it raises is shown.
        """
        self._latest[visit] = mine = object()
        try:
            if not files:
                yield NO_PREVIEW
                return
            names = table_columns(files)
            if names and "text" not in columns:
                yield render_message(f"choose the column that holds the texts: {', '.join(names)}")
                return
            yield render_reading(files[0].name)
            shown = ""
            async with self._places:
                if self._latest.get(visit) is mine:
                    shown = await asyncio.to_thread(_read, read, files[0])
            yield shown if self._latest.get(visit) is mine else None
        finally:
            if self._latest.get(visit) is mine:
                del self._latest[visit]


def _read(read: Read, file: Path) -> str:
    try:
        return read(file)
    except Exception as error:  # noqa: BLE001 - whatever it is, the visitor reads a line
        return render_message(in_words(error, "a preview"))
