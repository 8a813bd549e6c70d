"""Previews of the Documents tab: what is shown when files come and go while one is being read."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rag_app.page.documents import NO_PREVIEW, render_reading
from rag_app.page.documents_preview import AT_ONCE, Previews


async def shown(previews: Previews, visit: str, *files: Path, go_on: threading.Event | None = None) -> list[str | None]:
    """What the pane shows of the files; the reading takes until it may go on."""

    def read(file: Path) -> str:
        assert go_on is None or go_on.wait(10)
        return f"passages of {file.name}"

    return [html async for html in previews.show(visit, files, {}, read)]


async def begun(previews: Previews, visit: str, go_on: threading.Event, file: Path) -> asyncio.Task[list[str | None]]:
    task = asyncio.create_task(shown(previews, visit, file, go_on=go_on))
    await asyncio.sleep(0.05)
    return task


@pytest.mark.parametrize("then", [(), ("new.txt",)], ids=["removed", "replaced"])
def test_a_preview_of_a_file_that_is_gone_is_never_shown(then: tuple[str, ...]) -> None:
    async def run() -> None:
        previews, go_on, files = Previews(), threading.Event(), [Path(name) for name in then]
        old = await begun(previews, "anna", go_on, Path("old.txt"))
        expected = [render_reading("new.txt"), "passages of new.txt"] if then else [NO_PREVIEW]
        assert await shown(previews, "anna", *files) == expected
        assert await shown(previews, "ben", Path("his.txt")) == [render_reading("his.txt"), "passages of his.txt"]
        go_on.set()
        assert await old == [render_reading("old.txt"), None]
        assert "Reading old.txt" in render_reading("old.txt") and not previews._latest

    asyncio.run(run())


def test_who_waits_sees_it_and_what_nobody_wants_any_more_is_not_read() -> None:
    async def run() -> None:
        previews, go_on = Previews(), threading.Event()
        first = [await begun(previews, f"{n}", go_on, Path("long.txt")) for n in range(AT_ONCE)]
        never = threading.Event()
        waiting = await begun(previews, "anna", never, Path("old.txt"))
        assert await shown(previews, "anna") == [NO_PREVIEW]
        go_on.set()
        assert [(await task)[-1] for task in first] == ["passages of long.txt"] * AT_ONCE
        assert await waiting == [render_reading("old.txt"), None]

    asyncio.run(run())


def test_whatever_goes_wrong_is_told_in_the_pane() -> None:
    def read(file: Path) -> str:
        raise KeyError("/home/secret")

    async def run() -> list[str | None]:
        return [html async for html in Previews().show("anna", [Path("a.txt")], {}, read)]

    last = asyncio.run(run())[-1]
    assert last and "nexpected KeyError" in last and "secret" not in last
