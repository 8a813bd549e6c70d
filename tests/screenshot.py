"""Picture of a comparison on a page that is open, or of an evaluation's report.

magrag serve &
python -m tests.screenshot docs/page.png
python -m tests.screenshot narrow.png --width 400 --dark
python -m tests.screenshot docs/report.png --report runs/nq/report.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.browser import open_browser, open_page, wait_for_answers

QUESTION = "Who was born first, Edward Jenner or James Watt?"


def main() -> None:
    """Open, and save the whole page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:7860")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--report", type=Path, help="a report.html, in place of the page")
    parser.add_argument("--width", type=int, default=1400)
    parser.add_argument("--height", type=int, default=0, help="of a report, from its top; 0 takes all of it")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    with open_browser() as browser:
        page = _report(browser, options) if options.report else _comparison(browser, options)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        top = {"x": 0, "y": 0, "width": options.width, "height": options.height}
        page.screenshot(path=options.out, full_page=True, **({"clip": top} if options.height else {}))


def _comparison(browser: Browser, options: argparse.Namespace) -> Page:
    page = open_page(browser, options.url, width=options.width, scheme="dark" if options.dark else "light")
    page.get_by_label("Question").fill(options.question)
    page.get_by_role("button", name="Compare").click()
    wait_for_answers(page)
    # Focus, a blinking cursor and a button under the mouse are no part of the picture.
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)
    return page


def _report(browser: Browser, options: argparse.Namespace) -> Page:
    context = browser.new_context(
        viewport={"width": options.width, "height": 900}, color_scheme="dark" if options.dark else "light"
    )
    page = context.new_page()
    page.goto(options.report.resolve().as_uri())
    return page


if __name__ == "__main__":
    main()
