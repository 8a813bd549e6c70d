"""Seconds until a page that is open shows both passage lists, and the first words of both answers.

    magrag serve &
    python -m benchmarks.page_latency [-n 10]

Chromium types the demo's questions, drawn with a seed, one after the other, each into a page loaded anew; the clock runs
from Enter to what a visitor sees. The first question warms up and is not counted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from eval.data.datasets import read_questions
from rag_app.demo import QUESTIONS
from tests.browser import ANSWER_MS, open_browser, open_page, wait_for_answers

SEEN = {
    "both passage lists": "document.querySelectorAll('#side-a .mg-card').length && document.querySelectorAll('#side-b .mg-card').length",
    "first words of both answers": "document.querySelectorAll('.mg-text-answer:not(.mg-pending)').length === 2",
}


def main() -> None:
    """Ask, time, print medians and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=10, help="questions")
    parser.add_argument("--url", default="http://127.0.0.1:7860")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    known = [question.question for question in read_questions(QUESTIONS) if question.answers]
    questions = random.Random(arguments.seed).sample(known, arguments.n + 1)
    seconds: dict[str, list[float]] = {name: [] for name in SEEN}
    with open_browser() as browser:
        for number, question in enumerate(questions):
            page = open_page(browser, arguments.url)
            page.get_by_label("Question").fill(question)
            started = time.perf_counter()
            page.get_by_label("Question").press("Enter")
            for name, seen in SEEN.items():
                page.wait_for_function(seen, polling=10, timeout=ANSWER_MS)
                if number:
                    seconds[name].append(time.perf_counter() - started)
            wait_for_answers(page)
            page.context.close()
    print(f"{arguments.n} questions, seed {arguments.seed}, seconds from Enter")
    for name, times in seconds.items():
        print(f"{name:30}median {statistics.median(times):6.2f}   worst {max(times):6.2f}")


if __name__ == "__main__":
    main()
