"""The real page in a real browser: real MiniLM, real SmolLM2 through vLLM, the demo corpus."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import ANSWER_MS, open_page, wait_for_answers
from tests.server import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.timeout(900)]

APP = Path(__file__).parent.parent / "app.py"
START_S = 600
QUESTION = "Who built the first lighthouse on the Eddystone rocks?"
FACTORS = {"cosine": r"cosine 0\.\d{4}", "qnorm": r"cosine 0\.\d{4} × \|d\| \d+\.\d{3} = \d+\.\d{3}"}


def _start(port: int, log: Path, **settings: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"MAGRAG_PAGE__PORT": str(port), "PYTHONUNBUFFERED": "1", **settings}
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, str(APP)], stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )


def _wait_until_open(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while "The page is open" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the page did not open:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.2)


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the page, started once with the defaults."""
    log = tmp_path_factory.mktemp("page") / "page.log"
    port = free_port()
    process = _start(port, log)
    try:
        _wait_until_open(process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        status = _stop(process)
    assert status == 0, log.read_text(errors="replace")[-3000:]
    assert "Traceback" not in log.read_text(errors="replace")


def _side(page: Page, letter: str) -> tuple[str, list[str]]:
    """Answer and cards of one side, as read by a person."""
    side = page.locator(f"#side-{letter}")
    answer = side.locator(".mg-text-answer").inner_text()
    return answer, [" ".join(card.split()) for card in side.locator(".mg-card").all_inner_texts()]


def test_a_question_is_answered_on_both_sides_without_a_request_to_elsewhere(
    url: str, browser: Browser, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_label("Question").press("Enter")
    wait_for_answers(page)
    for letter, name in (("a", "cosine"), ("b", "qnorm")):
        answer, cards = _side(page, letter)
        assert answer.strip() and "no answer" not in answer
        assert len(cards) == 3
        assert all(re.search(FACTORS[name], card) for card in cards), cards
        assert "Winstanley" in cards[0]
    expect(page.locator("#verdict")).to_contain_text("different checkpoints")
    expect(page.locator("#verdict")).to_contain_text(re.compile(r"percentile \d+"))
    page.screenshot(path=tmp_path / "wide.png", full_page=True)
    assert not complaints
    outside = [address for address in requests if _host(address) not in ("127.0.0.1", "")]
    assert requests and not outside, outside
    context.close()


def test_an_example_fills_the_question_and_runs_it(url: str, browser: Browser) -> None:
    page = open_page(browser, url)
    example = page.locator(".mg-example").first
    example.click()
    wait_for_answers(page)
    expect(page.get_by_label("Question")).to_have_value(example.inner_text().strip())
    assert all(answer.strip() and len(cards) == 3 for answer, cards in (_side(page, "a"), _side(page, "b")))
    page.context.close()


def test_other_retrievers_can_be_chosen_and_closed_book_shows_no_passages(url: str, browser: Browser) -> None:
    page = open_page(browser, url)
    for label, name in (("Retriever A", "bm25"), ("Retriever B", "closed-book")):
        page.get_by_label(label).fill(name)
        page.get_by_role("option", name=name, exact=True).click()
        expect(page.get_by_label(label)).to_have_value(name)
        expect(page.get_by_role("option")).to_have_count(0)
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_role("button", name="Compare").click()
    wait_for_answers(page)
    cards = _side(page, "a")[1]
    assert len(cards) == 3 and all(
        re.search(r"score \d+\.\d{3} magnitude percentile \d+ · \d+ words$", card) for card in cards
    ), cards
    assert _side(page, "b")[1] == []
    expect(page.locator("#side-b")).to_contain_text("No passages")
    page.context.close()


def test_an_empty_question_is_told_in_words(url: str, browser: Browser) -> None:
    page = open_page(browser, url)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#verdict")).to_contain_text("The question is empty", timeout=ANSWER_MS)
    expect(page.get_by_role("button", name="Compare")).to_be_enabled()
    page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (2000, "light")])
def test_the_page_fits_every_width_and_stacks_when_narrow(
    url: str, browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    page = open_page(browser, url, width=width, scheme="dark" if scheme == "dark" else "light")
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_label("Question").press("Enter")
    wait_for_answers(page)
    page.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    left, right = (page.locator(f"#side-{letter}").bounding_box() for letter in "ab")
    assert left and right
    if width < 900:
        assert right["y"] >= left["y"] + left["height"] and right["x"] == left["x"]
    else:
        assert right["y"] == left["y"] and right["x"] >= left["x"] + left["width"]
        tops = [page.locator(f"#side-{letter} .mg-card").first.bounding_box() for letter in "ab"]
        assert tops[0] and tops[1] and tops[0]["y"] == tops[1]["y"]
    page.context.close()


def test_a_program_can_compare_too(url: str) -> None:
    from gradio_client import Client  # type: ignore[import-untyped]
    from gradio_client.exceptions import AppError  # type: ignore[import-untyped]

    client = Client(url, verbose=False)
    job = client.submit(QUESTION, "cosine", "qnorm", 2, api_name="/compare")
    result = job.result(timeout=ANSWER_MS / 1000)
    assert result["question"] == QUESTION and result["badge"] == "different checkpoints"
    for answer, name in zip(result["answers"], ("cosine", "qnorm"), strict=True):
        assert answer["retriever"] == name and answer["answer"] and answer["error"] is None
        assert [passage["rank"] for passage in answer["passages"]] == [1, 2]
        for passage in answer["passages"]:
            magnitude = passage["norm"] if name == "qnorm" else 1.0
            assert passage["score"] == pytest.approx(passage["cosine"] * magnitude, rel=1e-5)
    first = job.outputs()[0]
    assert [len(answer["passages"]) for answer in first["answers"]] == [2, 2]
    assert [answer["answer"] for answer in first["answers"]] == ["", ""]
    with pytest.raises(AppError, match="question is empty"):
        client.predict(" ", "cosine", "qnorm", 2, api_name="/compare")
    untrained = client.predict(QUESTION, "cosine-untrained", "qnorm-untrained", 2, api_name="/compare")
    assert untrained["badge"] == "same encoder, different scoring"
    with pytest.raises(AppError, match='there is no retriever "cosin"'):
        client.predict(QUESTION, "cosin", "qnorm", 2, api_name="/compare")
    with pytest.raises(AppError, match="k must be a whole number from 1 to 20, got '3'"):
        client.predict(QUESTION, "cosine", "qnorm", "3", api_name="/compare")


def test_a_busy_port_is_one_line_that_names_the_option(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        log = tmp_path / "page.log"
        process = _start(taken.getsockname()[1], log)
        assert process.wait(timeout=120) == 1
    assert re.fullmatch(r"error: the page cannot listen on 127\.0\.0\.1:\d+: .*--port\n", log.read_text())


def test_without_a_reader_the_page_opens_and_passages_are_shown(browser: Browser, tmp_path: Path) -> None:
    log = tmp_path / "page.log"
    port = free_port()
    process = _start(port, log, MAGRAG_GENERATOR__MODEL=str(tmp_path / "nowhere"))
    try:
        _wait_until_open(process, log)
        page = open_page(browser, f"http://127.0.0.1:{port}")
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Question").press("Enter")
        for letter in "ab":
            expect(page.locator(f"#side-{letter} .mg-error")).to_contain_text("There is no reader", timeout=ANSWER_MS)
            expect(page.locator(f"#side-{letter} .mg-error")).to_contain_text("magrag doctor")
            expect(page.locator(f"#side-{letter} .mg-card")).to_have_count(3)
        page.context.close()
    finally:
        status = _stop(process)
    assert status == 0


def _host(address: str) -> str:
    """Host of an address; "" for what is no request (data:, blob:)."""
    parts = urlsplit(address)
    return "" if parts.scheme in ("data", "blob") else parts.hostname or "?"
