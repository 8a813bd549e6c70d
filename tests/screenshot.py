"""Pictures of a page that is open: those of docs/tour.md, or one comparison; or of an evaluation's report.

magrag serve &
python -m tests.screenshot --all docs
python -m tests.screenshot narrow.png --width 400 --dark
python -m tests.screenshot docs/report.png --report runs/nq/report.html
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.browser import open_browser, open_page, wait_for_answers

QUESTION = "Who was born first, Edward Jenner or James Watt?"
WIDE, NARROW = 1400, 400
LARGEST = 400_000
"""Bytes of a picture of the tour."""
EVALUATED = 20
EVALUATED_MS = 900_000
BROUGHT = Path(__file__).parent.parent / "README.md"

Scheme = Literal["light", "dark"]


def main() -> None:
    """Open, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="one picture; with --all, where all go")
    parser.add_argument("--url", default="http://127.0.0.1:7860")
    parser.add_argument("--all", action="store_true", help="those of the tour, into the folder OUT")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--report", type=Path, help="a report.html, in place of the page")
    parser.add_argument("--width", type=int, default=WIDE)
    parser.add_argument("--height", type=int, default=0, help="from the top; 0 takes all of it")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    if options.out is None:
        parser.error("name the picture, or the folder of --all")
    scheme: Scheme = "dark" if options.dark else "light"
    with open_browser() as browser:
        if options.all:
            _tour(browser, options.url, options.question, options.out)
            return
        page = (
            _report(browser, options.report, options.width, scheme)
            if options.report
            else _comparison(browser, options.url, options.question, options.width, scheme)
        )
        _save(page, options.out, options.height)


def _tour(browser: Browser, url: str, question: str, folder: Path) -> None:
    """A comparison in three looks, and each other tab."""
    _save(_comparison(browser, url, question, NARROW, "light"), folder / "page-narrow.png", 2400)
    _save(_comparison(browser, url, question, WIDE, "dark"), folder / "page-dark.png")
    page = _comparison(browser, url, question, WIDE, "light")
    _save(page, folder / "page-wide.png")

    _tab(page, "Documents")
    page.locator("#files input[type=file]").set_input_files(BROUGHT)
    page.locator("#preview .mg-card").first.wait_for()
    page.get_by_role("button", name="Make the corpus").click()
    expect(page.locator("#making")).to_contain_text("can be asked now", timeout=EVALUATED_MS)
    page.locator("#files input[type=file]").set_input_files(BROUGHT)
    page.locator("#preview .mg-card").first.wait_for()
    _save(page, folder / "page-documents.png", 1500)
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("button", name="Delete it for good").click()

    _tab(page, "Evaluate")
    page.locator("#eval-n input").fill(str(EVALUATED))
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#eval-status")).to_contain_text("Finished", timeout=EVALUATED_MS)
    expect(page.locator("#figures h2").first).to_be_visible()
    _save(page, folder / "page-evaluate.png", 1700)

    _tab(page, "Diagnose")
    page.locator(".mg-reading").first.wait_for(timeout=EVALUATED_MS)
    _save(page, folder / "page-diagnose.png", 1500)


def _comparison(browser: Browser, url: str, question: str, width: int, scheme: Scheme) -> Page:
    page = open_page(browser, url, width=width, scheme=scheme)
    page.get_by_label("Question").fill(question)
    page.get_by_role("button", name="Compare").click()
    wait_for_answers(page)
    return page


def _report(browser: Browser, report: Path, width: int, scheme: Scheme) -> Page:
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    page.goto(report.resolve().as_uri())
    return page


def _tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def _save(page: Page, out: Path, height: int = 0) -> None:
    """The whole page or its upper part, in 256 colours."""
    # Focus, a blinking cursor and a button under the mouse are no part of the picture.
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)
    out.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=out, full_page=True)
    with Image.open(out) as taken:
        whole = taken.convert("RGB")
    part = whole.crop((0, 0, whole.width, min(height or whole.height, whole.height)))
    part.quantize(256).save(out, optimize=True)
    if out.stat().st_size > LARGEST:
        raise SystemExit(f"{out} has {out.stat().st_size:,} bytes, more than {LARGEST:,}: show less of the page")


if __name__ == "__main__":
    main()
