"""The whole page as people meet it: twenty at once, with hostile documents, and through a screen reader's eyes.

One page serves all tests: MiniLM as it comes over a few passages of the demo, and a scripted server that reads.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from eval.data.datasets import read_questions
from rag_app.config import load_config
from rag_app.demo import PASSAGES, QUESTIONS
from rag_app.page.compare_tab import COMPARISONS_AT_ONCE
from rag_app.pipeline import Pipeline
from tests.browser import open_page, served
from tests.one_encoder import untrained
from tests.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.model, pytest.mark.timeout(300)]

PEOPLE = 20
SLOW_MS = 60_000
ASKED = [question for question in read_questions(QUESTIONS) if question.kind == "trivia"][:PEOPLE]

HURT = "window.hurt=1"
ELSEWHERE = "http://93.184.215.14/pixel.png"
NAME = f"<img src=x onerror={HURT}>"
TITLES = [
    f"<script>{HURT}</script>",
    f"[otters](javascript:{HURT})",
    f'"><img src="{ELSEWHERE}" onerror="{HURT}">',
    f"</title></li></ol></details><svg onload={HURT}>",
]
TEXTS = [
    f"</p></details></mark><iframe srcdoc='<script>parent.{HURT}</script>'></iframe> ![otters]({ELSEWHERE}) "
    f"<a href=javascript:{HURT}>sea otters</a> <style>body{{background:url({ELSEWHERE})}}</style> hold hands {n} "
    f"{'while they sleep ' * 30}<b onmouseover={HURT}>and dream</b>"
    for n in range(len(TITLES))
]
ANSWER = f"otters</p><img src={ELSEWHERE} onerror={HURT}> [hold](javascript:{HURT}) hands"


def read(request: dict[str, Any]) -> tuple[int, Any]:
    """The gold where the prompt has it, as an honest reader would; to a question that is not the demo's, markup."""
    prompt = request["prompt"]
    question = next((own for own in ASKED if own.question in prompt[-len(own.question) - 40 :]), None)
    if question is None:
        return 200, [ANSWER]
    found = next((gold for gold in question.answers if gold in prompt), "no idea")
    return 200, list(found) if request.get("stream") else f" {found}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    made.answer = read
    yield made
    made.close()


@pytest.fixture(scope="module")
def pipeline(server: Server, minilm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("whole")
    golds = {id for question in ASKED for id in question.gold_ids}
    passages = PASSAGES.read_text("utf-8").splitlines(keepends=True)
    (folder / "corpus.jsonl").write_text("".join(line for line in passages if json.loads(line)["id"] in golds), "utf-8")
    questions = QUESTIONS.read_text("utf-8").splitlines(keepends=True)
    ids = {question.id for question in ASKED}
    (folder / "own.jsonl").write_text("".join(line for line in questions if json.loads(line)["id"] in ids), "utf-8")
    (folder / "page.toml").write_text(
        f'corpus = "{folder / "corpus.jsonl"}"\ndata_dir = "{folder / "data"}"\n[page]\nruns = "{folder / "runs"}"\n'
        f'[generator]\nbackend = "openai"\nbase_url = "{server.url}"\nmodel = "only"\n'
        f'[eval]\ndata = "{folder}"\nrecheck = 0\ncache = false\n[eval.datasets.own]\npath = "own.jsonl"\n'
    )
    made = Pipeline(load_config(folder / "page.toml", untrained(minilm_folder), {}))
    for name in made.config.page.retrievers:
        made.retriever(name)
    return made


@pytest.fixture(scope="module")
def url(pipeline: Pipeline) -> Iterator[str]:
    with served(pipeline) as address:
        yield address


def test_twenty_people_at_once_get_their_own_answers(url: str, pipeline: Pipeline, server: Server) -> None:
    from gradio_client import Client  # type: ignore[import-untyped]

    full = threading.Event()

    def read_together(request: dict[str, Any]) -> tuple[int, Any]:
        """Nobody is answered before as many ask as may: both sides of each comparison."""
        if server.busy >= 2 * COMPARISONS_AT_ONCE:
            full.set()
        full.wait(SLOW_MS / 1000)
        return read(request)

    server.answer = read_together
    names = ("cosine", "qnorm")
    alone = {own.question: [pipeline.search([own.question], name, 3)[0].hits for name in names] for own in ASKED}
    with ThreadPoolExecutor(PEOPLE) as people:
        clients = list(people.map(lambda _: Client(url, verbose=False), ASKED))
    jobs = [
        client.submit(own.question, *names, 3, api_name="/compare") for client, own in zip(clients, ASKED, strict=True)
    ]
    for own, job in zip(ASKED, jobs, strict=True):
        told = job.result(timeout=SLOW_MS / 1000)
        for step in job.outputs():
            assert step["question"] == own.question
            for answer, hits in zip(step["answers"], alone[own.question], strict=True):
                assert [passage["id"] for passage in answer["passages"]] == [hit.passage.id for hit in hits]
                assert any(gold.startswith(answer["answer"]) for gold in own.answers), answer["answer"]
        for answer in told["answers"]:
            assert answer["answer"] in own.answers and own.question in answer["prompt"]
            assert not [other.id for other in ASKED if other is not own and other.question in answer["prompt"]]
    assert server.busiest == 2 * COMPARISONS_AT_ONCE


@pytest.fixture(scope="module")
def visit(url: str, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page on which everything was done, with the most hostile documents, watched for what it asks of others."""
    folder = tmp_path_factory.mktemp("hostile")
    file = folder / "otters.jsonl"
    rows = [
        {"id": f"{n}{title}", "title": title, "text": text}
        for n, (title, text) in enumerate(zip(TITLES, TEXTS, strict=True))
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    page = open_page(browser, url)
    page.watched = []  # type: ignore[attr-defined]
    for event, told in (("dialog", "message"), ("pageerror", "message"), ("popup", "url")):
        page.on(event, lambda it, told=told: page.watched.append(getattr(it, told)))
    page.context.on("request", lambda request: page.watched.append(request.url) if _leaves(request.url) else None)

    page.locator("#k input[type=number]").fill(str(len(TITLES)))
    page.get_by_label("Question").fill(f"Which otters hold hands? {NAME}")
    page.get_by_role("tab", name="Documents").click()
    page.locator("#files input[type=file]").set_input_files(file)
    expect(page.locator("#preview .mg-card")).to_have_count(len(TITLES), timeout=SLOW_MS)
    page.locator("#corpus-name textarea, #corpus-name input").fill(NAME)
    page.get_by_role("button", name="Make the corpus").click()
    expect(page.locator("#making")).to_contain_text("can be asked now", timeout=SLOW_MS)
    # What stands in Compare is asked over it at once.
    page.get_by_role("button", name="Ask it").click()
    page.locator(".mg-take").wait_for(timeout=SLOW_MS)
    expect(page.locator(".mg-formula")).to_be_visible(timeout=SLOW_MS)
    page.locator("#gamma input[type=range]").press("Home")
    expect(page.locator(".mg-formula")).to_contain_text("cosine × |d|,")
    yield page
    page.context.close()


def test_hostile_documents_are_text_everywhere(visit: Page) -> None:
    visit.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    for letter in "ab":
        cards = visit.locator(f"#side-{letter} .mg-card")
        expect(cards).to_have_count(len(TITLES))
        assert sorted(cards.locator("h3").all_inner_texts()) == sorted(TITLES)
        for card in cards.all():
            shown = " ".join(card.locator(".mg-text").all_inner_texts()).replace(" … … ", " ")
            assert shown in TEXTS
            card.locator("h3").click()
        assert visit.locator(f"#side-{letter} .mg-text-answer").inner_text() == ANSWER
    for where in ("#dial-ranking .mg-dial-title", "#slopes ol:first-of-type span", "#dial-plot tbody th"):
        assert sorted(visit.locator(where).all_inner_texts()) == sorted(TITLES)
    assert sorted(visit.locator("#dial-plot title").all_text_contents())[0].startswith('"><img src=')
    visit.get_by_role("tab", name="Documents").click()
    expect(visit.locator("#corpora tbody th").nth(1)).to_have_text(NAME)
    visit.get_by_role("tab", name="Compare").click()
    made = (
        "script, iframe, img, style, a[href^='javascript'], [onload], [onerror], [onmouseover]",
        ".mg-verdict, .mg-answer, .mg-card, #dial-ranking, #dial-plot, #slopes, #corpora, #making, #preview",
    )
    assert (
        visit.evaluate("([bad, ours]) => [...document.querySelectorAll(bad)].filter(e => e.closest(ours)).length", made)
        == 0
    )
    visit.wait_for_timeout(300)
    assert visit.evaluate("window.hurt") is None
    assert visit.watched == []  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def evaluated(visit: Page) -> Page:
    """The same visit, with an evaluation whose answers flip and a diagnosis."""
    visit.get_by_role("tab", name="Evaluate").click()
    visit.locator("#eval-retrievers").get_by_label("qnorm", exact=True).uncheck()
    visit.locator("#eval-retrievers").get_by_label("closed-book").check()
    visit.get_by_role("button", name="Run", exact=True).click()
    expect(visit.locator("#flips .mg-open").first).to_be_visible(timeout=SLOW_MS)
    visit.get_by_role("tab", name="Diagnose").click()
    expect(visit.locator(".mg-reading").first).to_be_visible(timeout=SLOW_MS)
    return visit


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_shuts_out_those_who_see_little_or_use_the_keyboard(
    evaluated: Page, scheme: Literal["light", "dark"]
) -> None:
    evaluated.emulate_media(color_scheme=scheme)
    found = []
    for tab in ("Compare", "Documents", "Evaluate", "Diagnose"):
        evaluated.get_by_role("tab", name=tab).click()
        evaluated.get_by_role("tab", name=tab).blur()
        evaluated.wait_for_timeout(300)  # colours fade in
        for rule in Axe().run(evaluated).response["violations"]:
            if rule["impact"] in ("serious", "critical"):
                found += [
                    f"{tab}: {rule['id']}: {node['html'][:200]} {node['failureSummary']}" for node in rule["nodes"]
                ]
    assert not found, "\n".join(found)
    assert evaluated.watched == []  # type: ignore[attr-defined]


def _leaves(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1"
