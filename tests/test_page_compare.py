"""What of Compare can only be seen in a browser: links, the dial and the file, with MiniLM and a scripted reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from rag_app.page.compare_tab import GONE
from rag_app.pipeline import Pipeline
from tests.browser import open_page, served
from tests.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.model, pytest.mark.timeout(300)]

QUESTION = "Who was born first, Edward Jenner or James Watt?"


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    server = Server()
    server.answer = lambda request: (200, ["James ", "Watt"])
    reader = ["backend=openai", f"base_url={server.url}", "model=only", "adapter="]
    made = Pipeline.from_config(None, [f"generator.{setting}" for setting in reader])
    for name in ("cosine", "qnorm", "cosine-untrained", "qnorm-untrained", "bm25"):
        made.retriever(name)  # where this machine has no index of it yet, that takes longer than a browser waits
    yield made
    server.close()


@pytest.fixture(scope="module")
def url(pipeline: Pipeline) -> Iterator[str]:
    with served(pipeline) as address:
        yield address


def _reopened(browser: Browser, url: str, **asked: Any) -> Page:
    query = "&".join(f"{key}={quote(str(value))}" for key, value in asked.items())
    page = open_page(browser, f"{url}?{query}")
    page.locator(".mg-take").wait_for()
    return page


def test_a_link_asks_again_and_a_citation_leads_to_its_card(url: str, browser: Browser) -> None:
    page = _reopened(browser, url, q=QUESTION, a="bm25", b="qnorm", k=4)
    expect(page.get_by_label("Question")).to_have_value(QUESTION)
    expect(page.get_by_label("Retriever A")).to_have_value("bm25")
    expect(page.locator("#side-a .mg-card")).to_have_count(4)
    expect(page.locator("#verdict")).to_contain_text("Both answers are right.")
    address = page.url
    page.locator("#side-b .mg-cites a").first.click()
    assert page.url == address
    assert (page.evaluate("document.activeElement.id") or "").startswith("mg-b-")
    page.get_by_role("link", name="Link to this comparison").click()
    page.locator(".mg-take").wait_for()
    expect(page.locator("#side-a .mg-card")).to_have_count(4)
    with page.expect_download() as file:
        page.get_by_role("link", name="Save as JSON").click()
    told = json.loads(file.value.path().read_text("utf-8"))
    assert told["question"] == QUESTION and [len(answer["passages"]) for answer in told["answers"]] == [4, 4]
    page.context.close()


def test_the_dial_ranks_anew_at_once_and_from_the_keyboard(url: str, browser: Browser, pipeline: Pipeline) -> None:
    page = _reopened(browser, url, q=QUESTION, a="cosine-untrained", b="qnorm-untrained", k=3)
    dial = page.locator("#gamma input[type=range]")
    formula = page.locator(".mg-formula")
    expect(formula).to_contain_text("cosine alone, as cosine-untrained ranks them")
    dial.focus()
    dial.press("ArrowLeft")
    expect(formula).to_contain_text("cosine × |d|0.05, ")
    dial.press("Home")
    expect(formula).to_contain_text("cosine × |d|, ")
    expected = pipeline.search([QUESTION], "qnorm-untrained", 3)[0].hits
    expect(page.locator("#dial-ranking .mg-dial-title")).to_have_text([hit.passage.title for hit in expected])
    assert page.locator("#dial-plot .mg-best").count() == 3 + 1  # and the legend's
    page.context.close()


def test_two_checkpoints_have_a_dial_each(url: str, browser: Browser) -> None:
    page = _reopened(browser, url, q=QUESTION, a="cosine", b="qnorm", k=3)
    expect(page.locator(".mg-formula")).to_contain_text("cosine alone, as cosine ranks them")
    page.locator("#dial-encoder").get_by_label("qnorm", exact=True).check()
    expect(page.locator(".mg-formula")).to_contain_text("as qnorm ranks them")
    page.context.close()


def test_a_link_that_cannot_be_followed_says_why(url: str, browser: Browser) -> None:
    page = open_page(browser, f"{url}?q=x&a=nothing")
    expect(page.locator("#verdict")).to_contain_text('The link asks for a retriever "nothing"')
    expect(page.get_by_role("button", name="Compare", exact=True)).to_be_enabled()
    page.context.close()


def test_a_link_to_a_corpus_that_is_not_ones_own_asks_no_other_one(url: str, browser: Browser) -> None:
    page = open_page(browser, f"{url}?q=Who%20built&c=64e11deea86bb6ef")
    expect(page.locator("#verdict")).to_contain_text("This corpus is not there (any more): choose another")
    expect(page.get_by_label("Question")).to_have_value("Who built")
    expect(page.locator(".mg-card")).to_have_count(0)
    expect(page.get_by_label("Corpus")).to_have_value(GONE)
    page.context.close()


def test_a_question_that_is_too_long_is_told_and_not_cut(url: str, browser: Browser) -> None:
    page = open_page(browser, url)
    page.get_by_label("Question").fill("x" * 5000)
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#verdict")).to_contain_text("The question has 5000 characters; shorten it to at most 2000")
    assert len(page.get_by_label("Question").input_value()) == 5000
    page.context.close()


def test_no_old_answer_stands_under_a_question_that_the_server_never_got(pipeline: Pipeline, browser: Browser) -> None:
    with served(pipeline) as address:
        page = _reopened(browser, address, q=QUESTION, a="bm25", b="qnorm", k=3)
        expect(page.locator("#side-a .mg-card")).to_have_count(3)
    # Gradio notices that the server is gone, and from then on neither sends nor changes anything itself.
    page.get_by_role("tab", name="Diagnose", exact=True).click()
    page.get_by_text("Connection to the server was lost").wait_for()
    page.get_by_role("tab", name="Compare", exact=True).click()
    expect(page.locator("#side-a .mg-card")).to_have_count(3)
    page.get_by_label("Question").fill("Who built the first lighthouse?")
    page.get_by_label("Question").press("Enter")
    expect(page.locator(".mg-card")).to_have_count(0)
    for place in ("#verdict", "#side-a", "#side-b", "#slopes", "#dial-ranking"):
        expect(page.locator(place)).to_have_text("")
    page.context.close()
