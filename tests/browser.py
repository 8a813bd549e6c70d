"""A real headless Chromium on the page, for its tests and its screenshots.

Chromium comes from the system (`apt-get install chromium`): CHROMIUM names it where it is not on the path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from rag_app.pipeline import Pipeline
from rag_app.ui import access, appearance, build_page
from tests.server import free_port

# The browser's own errands are off, so that what it requests is what the page makes it request.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ANSWER_MS = 120_000


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium without a window."""
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        reason = "no Chromium here: `apt-get install chromium`, or name one in CHROMIUM"
        if os.environ.get("CI"):
            raise RuntimeError(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(pipeline: Pipeline, port: int = 0) -> Iterator[str]:
    """The address of a page in this process."""
    page = build_page(pipeline)
    page.launch(
        server_name="127.0.0.1",
        server_port=port or free_port(),
        prevent_thread_lock=True,
        quiet=True,
        **access(pipeline.config),
        **appearance(),
    )
    try:
        yield page.local_url.rstrip("/")
    finally:
        page.close(verbose=False)


def open_page(
    browser: Browser, url: str, *, width: int = 1400, height: int = 900, scheme: Literal["light", "dark"] = "light"
) -> Page:
    """The page in a session of its own, ready to be asked."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(url)
    page.get_by_label("Question").wait_for()
    return page


def wait_for_answers(page: Page) -> None:
    """Until both sides are done: the seconds stand below each."""
    page.locator(".mg-seconds").nth(1).wait_for(timeout=ANSWER_MS)
