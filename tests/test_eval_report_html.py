"""The report's page as text: its markup is whole, its data cannot end its script, and it asks nothing of anybody."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from eval.flips import flips
from eval.report.html import html_report
from eval.report.html.questions import question_data
from tests.markup import Markup
from tests.report_example import example, hostile, measured


@pytest.mark.parametrize(("systems", "datasets"), [(1, 1), (2, 1), (8, 12)])
def test_the_page_has_scoped_headers_unique_ids_and_no_address(systems: int, datasets: int) -> None:
    view = example(systems=systems, datasets=datasets, n=12)
    page = html_report(view, measured(view))
    elements = Markup(page).tags
    assert {attributes.get("scope") for tag, attributes in elements if tag == "th"} <= {"row", "col"}
    ids = Counter(attributes["id"] for _, attributes in elements if "id" in attributes)
    assert ids.most_common(1)[0][1] == 1
    for tag, attributes in elements:
        for name in ("src", "href", "action", "srcset", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or (tag, value) == ("link", "data:,"), (tag, value)
            assert value is None or not value.startswith("#") or value[1:] in ids
    assert "http:" not in page.replace("http-equiv", "") and "https:" not in page and "@import" not in page
    captions = [tag for tag, _ in elements].count("caption")
    assert captions == [tag for tag, _ in elements].count("table")


def test_the_data_of_the_page_cannot_end_its_script() -> None:
    view = hostile()
    page = html_report(view, measured(view))
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert embedded and "<" not in embedded[1]
    assert json.loads(embedded[1]) == json.loads(json.dumps(question_data(view)))
    # The only scripts are the data and the page's own.
    assert [dict(attributes) for tag, attributes in Markup(page).tags if tag == "script"] == [
        {"type": "application/json", "id": "data"}, {}]  # fmt: skip
    rest = page.replace(embedded[0], "")
    assert (
        "<img" not in rest and "onerror=alert(2)>" not in rest and "<script>alert" not in rest and "\u202e" not in rest
    )


def test_half_a_surrogate_pair_does_not_keep_the_page_from_being_written(tmp_path: Path) -> None:
    view = example(systems=2, datasets=1, n=20)
    view = dataclasses.replace(view, questions=[dataclasses.replace(q, question="half \ud83d") for q in view.questions])
    (tmp_path / "report.html").write_text(html_report(view, measured(view)), encoding="utf-8")


def test_only_questions_on_which_systems_differ_are_in_the_page_and_their_sides_are_right() -> None:
    view = example(systems=3, datasets=2, n=60)
    data = question_data(view)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        expected = Counter(
            (flip.question.question, flip.b.correct) for flip in flips(view, view.systems[a], view.systems[b])
        )
        found = Counter(
            (question, bool(sides[b][1])) for _, question, _, sides in data["questions"] if sides[a][1] != sides[b][1]
        )
        assert found == expected and len(found) > 1
    assert data["found"] == len(data["questions"]) < len(view.questions)
    flip = flips(view, "cosine", "qnorm")[0]
    side = next(sides[1] for _, text, _, sides in data["questions"] if text == flip.question.question)
    row = view.rows["qnorm", flip.question.id]
    assert [data["passages"][at][1] for at, _, _ in side[5]] == [round(p["norm"], 4) for p in row["passages"][:10]]
    if flip.b.answer is not None:
        assert side[3] == flip.b.answer.rank and side[4] == pytest.approx(flip.b.answer.percentile, abs=0.05)


def test_questions_beyond_the_limit_are_said_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.report.html.questions.QUESTIONS", 3)
    view = example(systems=3, datasets=1, n=30)
    page = html_report(view, measured(view))
    assert re.search(r"The page holds the first 3 of \d+ such questions; predictions\.jsonl has all\.", page)


def test_a_large_run_stays_below_three_megabytes() -> None:
    view = example(systems=5, datasets=1, n=478)
    assert len(view.rows) == 2390
    assert len(html_report(view, measured(view)).encode()) < 3_000_000
