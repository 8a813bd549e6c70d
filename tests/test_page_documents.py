"""Documents of one's own in a real browser: real MiniLM, no reader (passages are shown without one)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from gradio import processing_utils
from gradio_client import Client  # type: ignore[import-untyped]
from gradio_client.exceptions import AppError  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from rag_app.config import Config, load_config
from rag_app.errors import ConfigError
from rag_app.pipeline import Pipeline
from rag_app.ui import load_retrievers
from tests.browser import open_page, served
from tests.one_encoder import untrained
from tests.server import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.model, pytest.mark.timeout(300)]

OTTERS = "Sea otters hold hands while they sleep, so that they do not drift apart."
MADE_MS = 60_000


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, minilm_folder: Path) -> Config:
    folder = tmp_path_factory.mktemp("page")
    (folder / "base.jsonl").write_text('{"id": "1", "title": "Lions", "text": "Lions sleep in the sun."}\n')
    return load_config(
        None,
        [
            f'corpus="{folder / "base.jsonl"}"',
            f'data_dir="{folder / "data"}"',
            *untrained(minilm_folder),
            f'generator.model="{folder / "nowhere"}"',
            "page.max_upload_mb=1",
        ],
        {},
    )


@contextmanager
def opened(config: Config, port: int = 0) -> Iterator[str]:
    """The page over a configuration."""
    pipeline = Pipeline(config)
    load_retrievers(pipeline)
    with served(pipeline, port) as address:
        yield address


@pytest.fixture(scope="module")
def url(config: Config) -> Iterator[str]:
    with opened(config) as address:
        yield address


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("brought")
    (folder / "otters.txt").write_text(OTTERS)
    (folder / "bees.txt").write_text("Bees dance to tell others where flowers are.")
    rows = "".join(f'animal {n},"{"Otters and lions and bees, " * 30}number {n}."\n' for n in range(1000))
    (folder / "slow.csv").write_text(f"Animal,What it does\n{rows}")
    rows = "".join(f'animal {n},"{"Otters and lions and bees, " * 30}number {n}."\n' for n in range(60))
    (folder / "short.csv").write_text(f"name,text\n{rows}")
    (folder / "long.txt").write_text("word " * 150_000)
    (folder / "large.txt").write_text("word " * 400_000)
    return folder


def bring(page: Page, *files: Path) -> None:
    page.get_by_role("tab", name="Documents").click()
    page.locator("#files input[type=file]").set_input_files(files)


def make(page: Page, *files: Path) -> None:
    bring(page, *files)
    expect(page.locator("#preview .mg-card").first).to_be_visible(timeout=MADE_MS)
    page.get_by_role("button", name="Make the corpus").click()
    expect(page.locator("#making")).to_contain_text("can be asked now", timeout=MADE_MS)


def names(page: Page) -> list[str]:
    page.get_by_role("tab", name="Compare").click()
    page.get_by_role("tab", name="Documents").click()
    page.wait_for_timeout(700)
    return page.locator("#corpora tbody th").all_inner_texts()


def making(config: Config) -> list[Path]:
    return list((config.resolved_data_dir() / "corpora").glob("*/.making-*"))


def corpora(config: Config) -> set[str]:
    return {path.parent.name for path in (config.resolved_data_dir() / "corpora").glob("*/*/meta.json")}


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.1)


def test_a_file_is_asked_under_both_retrievers_and_by_nobody_else(
    url: str, browser: Browser, brought: Path, config: Config, tmp_path: Path
) -> None:
    page, other = open_page(browser, url), open_page(browser, url)
    make(page, brought / "otters.txt", brought / "bees.txt")
    page.screenshot(path=tmp_path / "made.png", full_page=True)
    page.get_by_role("button", name="Ask it").click()
    expect(page.get_by_label("Corpus", exact=True).first).to_have_value("otters")
    page.get_by_label("Question").fill("Which animals hold hands?")
    page.get_by_label("Question").press("Enter")
    for letter in "ab":
        cards = page.locator(f"#side-{letter} .mg-card")
        expect(cards).to_have_count(2, timeout=MADE_MS)
        expect(cards.first).to_contain_text(OTTERS)
        expect(cards.nth(1)).to_contain_text("Bees dance")
    assert names(page) == ["base", "otters"]
    assert names(other) == ["base"]
    expect(other.locator("#corpus")).to_have_count(0)
    page.reload()
    page.get_by_label("Question").wait_for()
    assert names(page) == ["base", "otters"]
    page.get_by_label("New name").fill("<b>Mine</b>")
    page.get_by_role("button", name="Rename").click()
    expect(page.locator("#corpora tbody th").nth(1)).to_have_text("<b>Mine</b>")
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("button", name="Delete it for good")).to_have_count(0)
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("button", name="Delete it for good").click()
    expect(page.locator("#corpora tbody th")).to_have_text(["base"])
    assert not list((config.resolved_data_dir() / "corpora").glob("*/*"))
    page.context.close()
    other.context.close()


def test_a_table_is_previewed_once_its_column_of_texts_is_known(url: str, browser: Browser, brought: Path) -> None:
    page = open_page(browser, url)
    bring(page, brought / "slow.csv")
    expect(page.locator("#preview")).to_contain_text("hoose the column that holds the texts: Animal, What it does")
    page.get_by_label("Column of texts").click()
    page.get_by_role("option", name="What it does").click()
    expect(page.locator("#preview .mg-card")).to_have_count(5, timeout=MADE_MS)
    expect(page.locator("#preview")).to_contain_text("1,000 passages, the first 5")
    page.context.close()


def test_what_is_brought_while_a_corpus_is_made_stays_and_what_is_removed_is_gone(
    url: str, browser: Browser, brought: Path
) -> None:
    page = open_page(browser, url)
    name, files, preview = page.locator("#corpus-name textarea, #corpus-name input"), page.locator("#files"), "#preview"
    bring(page, brought / "long.txt")
    expect(page.locator(preview)).to_contain_text("Reading long.txt …")
    files.get_by_label("Remove this file").or_(files.get_by_label("Clear")).first.click()
    expect(page.locator(preview)).to_contain_text("Drop files to see")
    bring(page, brought / "short.csv")
    expect(page.locator(preview)).to_contain_text("columns, by the first line: name, text", timeout=MADE_MS)
    name.fill("First")
    page.get_by_role("button", name="Make the corpus").click()
    expect(page.locator("#making progress")).to_be_visible(timeout=MADE_MS)
    bring(page, brought / "otters.txt")
    expect(files).to_contain_text("otters")
    name.fill("Second")
    expect(page.locator("#making")).to_contain_text("First can be asked now: 60 passages", timeout=MADE_MS)
    expect(files).not_to_contain_text("short")
    expect(files).to_contain_text("otters")
    expect(name).to_have_value("Second")
    expect(page.locator(preview)).to_contain_text(OTTERS, timeout=MADE_MS)
    page.get_by_role("button", name="Make the corpus").click()
    expect(page.locator("#making")).to_contain_text("Second can be asked now: 1 passage.", timeout=MADE_MS)
    expect(name).to_have_value("")
    expect(files).not_to_contain_text("otters")
    expect(page.locator(preview)).to_contain_text("Drop files to see")
    page.context.close()


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_build_that_nobody_waits_for_ends_and_leaves_nothing(
    url: str, browser: Browser, brought: Path, config: Config, how: str
) -> None:
    page = open_page(browser, url)
    bring(page, brought / "slow.csv")
    page.get_by_label("Column of texts").click()
    page.get_by_role("option", name="What it does").click()
    page.get_by_role("button", name="Make the corpus").click()
    expect(page.locator("#making")).to_contain_text("a second", timeout=MADE_MS)
    expect(page.locator("#making")).to_contain_text("left")
    assert len(making(config)) == 1
    if how == "cancelled":
        other = open_page(browser, url)
        bring(other, brought / "otters.txt")
        other.get_by_role("button", name="Make the corpus").click()
        expect(other.locator("#making")).to_contain_text("Waiting …", timeout=MADE_MS)
        other.get_by_role("button", name="Cancel").click()
        expect(other.locator("#making")).to_contain_text("ancelled: nothing of it was kept", timeout=MADE_MS)
        other.context.close()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#making")).to_contain_text("ancelled: nothing of it was kept", timeout=MADE_MS)
        expect(page.get_by_role("button", name="Make the corpus")).to_be_enabled()
        wait_until(lambda: not making(config))
        assert names(page) == ["base"]
        page.context.close()
    else:
        page.context.close()
        wait_until(lambda: not making(config))
        again = open_page(browser, url)  # and its place in the queue is free
        make(again, brought / "otters.txt")
        again.context.close()


def test_too_large_a_file_is_refused_in_words(url: str, browser: Browser, brought: Path, tmp_path: Path) -> None:
    page = open_page(browser, url)
    bring(page, brought / "large.txt")
    expect(page.get_by_text('exceed the maximum allowed size of 1.0 Mb: "large.txt"')).to_be_visible(timeout=MADE_MS)
    page.screenshot(path=tmp_path / "large.png")
    page.context.close()


def test_no_visitor_can_have_an_address_fetched(url: str) -> None:
    for address in ("https://huggingface.co/x", "http://93.184.215.14/x", "http://127.0.0.1:1/x"):
        answer = httpx.get(f"{url}/gradio_api/file={address}")
        assert answer.status_code == 403
        # In a thread, since Playwright has an event loop of its own in this one.
        with ThreadPoolExecutor() as pool, pytest.raises(ConfigError, match="fetches nothing from elsewhere"):
            pool.submit(asyncio.run, processing_utils.async_ssrf_protected_get(address)).result()


def test_an_id_outlives_a_restart_and_users_keep_theirs_apart(
    config: Config, browser: Browser, brought: Path, tmp_path: Path
) -> None:
    # The browser keeps its id by address.
    port = free_port()
    users = tmp_path / "users"
    users.write_text("anna:one\nben:two\n")
    own = config.overridden([f'data_dir="{tmp_path / "data"}"'])
    with opened(own, port) as address:
        page = open_page(browser, address)
        make(page, brought / "otters.txt")
    with opened(own, port) as address:
        page.goto(address)
        page.get_by_label("Question").wait_for()
        assert names(page) == ["base", "otters"]
    with opened(own.overridden([f'page.auth="{users}"'])) as address:
        anna, ben = (browser.new_page(viewport={"width": width, "height": 800}) for width in (380, 1400))
        requests: list[str] = []
        for visitor in (anna, ben):
            visitor.on("request", lambda request: requests.append(request.url))
        for visitor, user, password in ((anna, "anna", "one"), (ben, "ben", "two")):
            visitor.goto(address)
            visitor.get_by_label("Username").wait_for()
            assert visitor.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            for typed in ("wrong", password):
                visitor.get_by_label("Username").fill(user)
                visitor.get_by_label("Password").fill(typed)
                visitor.get_by_role("button", name="Login").click()
                if typed == "wrong":
                    expect(visitor.get_by_text("Incorrect")).to_be_visible()
                    expect(visitor.get_by_label("Password")).to_have_value("")
            visitor.get_by_label("Question").wait_for()
            assert names(visitor) == ["base"]
        assert requests and all(one.startswith((address, "data:", "blob:")) for one in requests), requests
        before = corpora(own)
        make(anna, brought / "otters.txt")
        assert (names(anna), names(ben)) == (["base", "otters"], ["base"])
        (made,) = corpora(own) - before
        asked = ("Which animals hold hands?", "cosine", "qnorm", 1, made)
        found = Client(address, auth=("anna", "one"), verbose=False).predict(*asked, api_name="/compare")
        assert [answer["passages"][0]["text"] for answer in found["answers"]] == [OTTERS, OTTERS]
        with pytest.raises(AppError, match="this corpus is not there"):
            Client(address, auth=("ben", "two"), verbose=False).predict(*asked, api_name="/compare")
        for visitor in (anna, ben, page):
            visitor.context.close()
