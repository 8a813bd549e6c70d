"""The tabs Evaluate and Diagnose in a real browser: the demo's encoder, and a scripted server that reads."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rag_app.config import load_config
from rag_app.pipeline import Pipeline
from rag_app.ui import load_retrievers
from tests.browser import ANSWER_MS, open_page, served
from tests.one_encoder import untrained
from tests.server import Server
from tests.test_page_evaluation import answer_from_passages

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.timeout(900)]

SLOW_MS = 120_000


@pytest.fixture
def gate(server: Server) -> threading.Event:
    """Where the reader waits with its second batch; set, it lets everything through."""
    opened = threading.Event()

    def answer(request: dict[str, Any]) -> tuple[int, Any]:
        if len(server.requests) > 8:
            opened.wait(SLOW_MS / 1000)
        return answer_from_passages(request)

    server.answer = answer
    return opened


@pytest.fixture
def url(minilm_folder: Path, server: Server, tmp_path: Path) -> Iterator[str]:
    reader = ["generator.backend=openai", f"generator.base_url={server.url}", "generator.model=only"]
    own = [*untrained(minilm_folder), f'page.runs="{tmp_path / "runs"}"', "eval.cache=false"]
    pipeline = Pipeline(load_config(None, [*reader, *own, "eval.recheck=0"], {}))
    load_retrievers(pipeline)
    with served(pipeline) as address:
        yield address


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def button(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


def test_a_run_is_begun_paused_resumed_and_its_flips_open_in_compare(
    url: str, browser: Browser, gate: threading.Event, tmp_path: Path
) -> None:
    page, other = open_page(browser, url), open_page(browser, url)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    tab(page, "Evaluate")
    expect(page.locator("#runs")).to_contain_text("No runs yet", timeout=SLOW_MS)
    page.locator("#eval-n input").fill("24")
    button(page, "Run").click()
    status = page.locator("#eval-status")
    expect(status).to_contain_text("8 of 48 answers", timeout=SLOW_MS)

    # Others see that one is running, and can neither pause it nor begin another.
    tab(other, "Evaluate")
    expect(other.locator("#eval-status")).to_contain_text("Somebody else began it", timeout=SLOW_MS)
    expect(button(other, "Pause")).to_be_disabled()
    expect(button(other, "Running …")).to_be_disabled()

    button(page, "Pause").click()
    expect(status).to_contain_text("pausing after the batch", timeout=SLOW_MS)
    gate.set()
    expect(status).to_contain_text("Paused: 16 of 48 answers", timeout=SLOW_MS)
    expect(page.locator("#figures")).to_contain_text("UNFINISHED: 16 of 48 answers", timeout=SLOW_MS)
    expect(other.locator("#eval-status")).to_contain_text("Paused", timeout=SLOW_MS)

    # Whoever comes later may go on with it; who loads the page again still may pause.
    page.reload()
    tab(page, "Evaluate")
    button(page, "Resume").click()
    expect(status).to_contain_text("Finished", timeout=SLOW_MS)
    expect(page.locator("#figures")).to_contain_text("McNemar", timeout=SLOW_MS)
    expect(button(page, "Resume")).to_be_disabled()
    expect(page.locator("#runs")).to_contain_text("finished")
    expect(page.locator("#flips")).to_contain_text("cosine alone is right on")
    page.screenshot(path=tmp_path / "evaluated.png", full_page=True)

    first = page.locator(".mg-flips li").first
    question = first.locator("h3").inner_text()
    first.get_by_role("button", name="Open in Compare").click()
    expect(page.get_by_label("Question", exact=True)).to_have_value(question, timeout=SLOW_MS)
    expect(page.get_by_label("Retriever A")).to_have_value("cosine")
    expect(page.get_by_label("Retriever B")).to_have_value("qnorm")
    # Nobody has to ask again.
    expect(page.locator("#side-a .mg-card").first).to_be_visible(timeout=ANSWER_MS)

    # The same run beside itself, from the list, in another session.
    tab(other, "Compare")
    tab(other, "Evaluate")
    for label in ("Show the run", "Compared with"):
        other.get_by_label(label).click()
        other.get_by_role("option", name=re.compile("^demo-")).first.click()
    expect(other.locator("#figures")).to_contain_text("both are the same run", timeout=SLOW_MS)
    assert not complaints
    assert all(address.startswith((url, "data:", "blob:")) for address in requests), requests
    page.context.close()
    other.context.close()


def test_a_run_of_nothing_is_refused_in_a_line(url: str, browser: Browser) -> None:
    page = open_page(browser, url)
    tab(page, "Evaluate")
    expect(page.locator("#runs")).to_contain_text("No runs yet", timeout=SLOW_MS)
    for box in page.locator("#eval-retrievers input:checked").all()[::-1]:
        box.uncheck()
    button(page, "Run").click()
    expect(page.locator("#eval-status")).to_contain_text("No retriever is chosen", timeout=SLOW_MS)
    # What is shown after a run has nothing to show, and must not break over it.
    page.wait_for_timeout(1000)
    expect(page.get_by_test_id("toast-body")).to_have_count(0)
    page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(380, "light")])
def test_norms_are_diagnosed_and_fit_every_width(
    url: str, browser: Browser, width: int, scheme: Any, tmp_path: Path
) -> None:
    page = open_page(browser, url, width=width, scheme=scheme)
    tab(page, "Diagnose")
    expect(page.locator(".mg-reading")).to_have_count(6, timeout=SLOW_MS)
    expect(page.locator("#diagnosis")).to_contain_text("Mostly a length bias")
    assert page.locator("#diagnosis svg[role=img]").count() == 2
    page.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tab(page, "Evaluate")
    expect(page.locator("#runs")).to_contain_text("No runs yet", timeout=SLOW_MS)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()


def test_a_program_can_list_runs_and_ask_for_the_diagnosis(url: str) -> None:
    from gradio_client import Client  # type: ignore[import-untyped]
    from gradio_client.exceptions import AppError  # type: ignore[import-untyped]

    client = Client(url, verbose=False)
    assert client.predict(api_name="/runs") == []
    found = client.predict("minilm", api_name="/diagnose")
    assert found["encoder"] == "minilm" and found["corpus"] == "demo" and "length" in found["summary"]
    assert [set(figure) for figure in found["figures"]] == [{"title", "value", "detail", "meaning"}] * 6
    with pytest.raises(AppError, match="no encoder"):
        client.predict("minilmm", api_name="/diagnose")
