"""The report's page in Chromium: nothing runs, flips are searched, every width shows all, keys and print work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from eval.flips import flips
from eval.report.html import html_report
from eval.report.html.questions import question_data
from eval.view import RunView
from tests.report_example import HOSTILE, example, hostile, measured


def show(browser: Browser, folder: Path, view: RunView, **settings: Any) -> tuple[Page, list[str], list[str]]:
    """The page as a browser shows it, what it asked for, and what went wrong."""
    path = folder / "report.html"
    path.write_text(html_report(view, measured(view)), encoding="utf-8")
    page = browser.new_context(**settings).new_page()
    requests: list[str] = []
    faults: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.goto(path.as_uri())
    return page, [url for url in requests if url not in (path.as_uri(), "data:,")], faults


@pytest.mark.browser
@pytest.mark.e2e
def test_hostile_text_is_shown_and_nothing_of_it_runs(browser: Browser, tmp_path: Path) -> None:
    view = hostile()
    page, requests, faults = show(browser, tmp_path, view)
    page.locator(".flips summary").first.click()
    page.locator(".both table").first.wait_for()
    plain = HOSTILE.replace("\u202e", "")
    said = page.locator(".flips .said").all_inner_texts()
    assert said and all(plain in text.replace("\u202e", "") for text in said)
    assert plain in page.locator(".both tbody th").first.inner_text().replace("\u202e", "")
    assert plain in page.locator("#overview tbody th").first.inner_text()
    # A direction of its own for each text: what follows it on the page keeps its own.
    assert page.locator(".flips > tbody > tr > th > span").first.get_attribute("dir") == "auto"
    assert page.locator("img").count() == 0
    assert (requests, faults) == ([], [])


@pytest.mark.browser
@pytest.mark.e2e
def test_flips_are_chosen_filtered_and_searched(browser: Browser, tmp_path: Path) -> None:
    view = example(systems=4, datasets=2, n=60)
    page, requests, faults = show(browser, tmp_path, view)
    page.locator("#from").select_option(label="qnorm")
    page.locator("#to").select_option(label="closed-book")
    found = flips(view, "qnorm", "closed-book")
    won = sum(flip.b.correct for flip in found)
    assert page.locator("#count").inner_text() == f"closed-book against qnorm: {won} won, {len(found) - won} lost."
    page.locator("#kind").select_option(label="won")
    page.locator("#set").select_option(label="hotpotqa")
    here = [flip for flip in found if flip.b.correct and flip.dataset == "hotpotqa"]
    assert page.locator(".flips > tbody").count() == min(25, len(here))
    page.locator("#kind").select_option(label="won and lost")
    page.locator("#set").select_option(label="all")
    assert page.locator(".flips > tbody").count() == 25 < len(found)
    page.get_by_role("button", name="Show").click()
    assert page.locator(".flips > tbody").count() == min(50, len(found))
    page.get_by_label("Search").fill("NOETHER")
    wanted = [flip for flip in found if "Noether" in flip.question.question]
    assert 0 < len(wanted) < len(found) and page.locator(".flips > tbody").count() == min(25, len(wanted))
    page.get_by_label("Search").fill("nothing has this")
    assert page.locator(".flips").count() == 0 and "0 won, 0 lost" in page.locator("#count").inner_text()
    page.get_by_label("Search").fill("")
    page.locator("#to").select_option(label="qnorm")
    assert page.locator("#count").inner_text() == "Choose two different systems."
    assert (requests, faults) == ([], [])


@pytest.mark.browser
@pytest.mark.e2e
def test_without_script_the_page_is_whole(browser: Browser, tmp_path: Path) -> None:
    view = example(systems=3, datasets=1, n=30)
    page, requests, _ = show(browser, tmp_path, view, java_script_enabled=False)
    assert page.locator("table.plain tbody tr").count() == question_data(view)["found"] > 3
    assert page.locator("table.plain").inner_text().count("✓") > 3
    assert not page.locator("#controls").is_visible() and page.locator(".track").first.is_visible()
    assert requests == []


@pytest.mark.browser
@pytest.mark.e2e
@pytest.mark.parametrize(("systems", "datasets"), [(8, 12), (1, 1)])
@pytest.mark.parametrize("width", [380, 900, 2000])
def test_every_width_shows_all_without_overlap(
    browser: Browser, tmp_path: Path, width: int, systems: int, datasets: int
) -> None:
    view = example(systems=systems, datasets=datasets, n=12)
    page, _, faults = show(browser, tmp_path, view, viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    clipped = page.evaluate("""() => [...document.querySelectorAll("svg text")].filter((text) => {
        const box = text.getBoundingClientRect(), around = text.closest("svg").getBoundingClientRect();
        return box.width && (box.left < around.left - 12 || box.right > around.right + 12 || box.bottom > around.bottom + 4);
    }).map((text) => text.textContent)""")
    assert clipped == []
    touching = page.evaluate("""() => [...document.querySelectorAll("svg.axis, svg.chart")].filter((svg) => {
        const boxes = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect()).filter((box) => box.width);
        return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
            && a.top < b.bottom - 2 && b.top < a.bottom - 2));
    }).map((svg) => svg.textContent)""")
    assert touching == []
    outside = page.evaluate("""() => [...document.querySelectorAll("section *")].filter((element) => {
        if (element.closest(".scroll, svg, .hidden") || !element.getClientRects().length) return false;
        return element.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
    }).map((element) => element.outerHTML.slice(0, 90))""")
    assert outside == []
    assert faults == []


@pytest.mark.browser
@pytest.mark.e2e
def test_the_keyboard_reaches_everything_and_print_leaves_the_controls_out(browser: Browser, tmp_path: Path) -> None:
    view = example(systems=3, datasets=1, n=30)
    page, _, _ = show(browser, tmp_path, view, viewport={"width": 700, "height": 900})
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "(document.activeElement.id || document.activeElement.className || document.activeElement.tagName)"
        )
        if here == "BODY":
            break
        reached.add(here)
    assert {"skip", "A", "scroll", "SUMMARY", "from", "to", "search"} <= reached
    # Whatever is too wide for the window is in a region that can be scrolled, hence focused.
    assert page.evaluate("""() => [...document.querySelectorAll(".scroll")].every((element) => element.tabIndex === 0
        && element.getAttribute("aria-label"))""")
    page.emulate_media(media="print")
    assert not page.locator("#controls").is_visible() and page.locator(".flips").is_visible()
