"""What the Evaluate tab shows, without a browser and without models."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from eval.compare import compare_runs
from eval.data.datasets import Question
from eval.flips import count_flips, flips
from eval.publish import measure
from eval.runs import list_runs
from eval.view import RunView
from rag_app.page.evaluate_view import (
    flips_in_words,
    render_comparison,
    render_flips,
    render_run,
    render_runs,
    render_status,
)
from rag_app.page.evaluation import Plan, Status
from rag_app.page.library import Library
from tests.run_folders import row, write_run

EVIL = "<img src=x onerror=alert(1)>"
FOLDER = Path("runs")
PLAN = Plan("demo", ("cosine", "qnorm"))

QUESTIONS = [
    Question("q1", "nq", "capital of France?", ("Paris",), ("p1",)),
    Question("q2", "nq", f"who wrote {EVIL}?", (f"Austen {EVIL}",), ("p3",)),
    Question("q3", "nq", "largest planet?", ("Jupiter",)),
]


class _Text(HTMLParser):
    """Text and tags of markup; every opened element must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag not in ("img", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def text_of(html: str) -> str:
    return " ".join(" ".join(_Text(html).words).split())


def a_run(path: Path, *, first: str = "Paris") -> RunView:
    rows = [
        row("cosine", "q1", first, "p1* p2", percentiles=(30, 40)),
        row("cosine", "q2", f"Jane {EVIL}", "p4 p3*", percentiles=(10, 20)),
        row("cosine", "q3", "Saturn", "p5"),
        row("qnorm", "q1", "Lyon", "p2 p1*", percentiles=(40, 30)),
        row("qnorm", "q2", f"Austen {EVIL}", "p3* p4", percentiles=(20, 10)),
        row("qnorm", "q3", "Saturn", "p5"),
    ]
    return write_run(path, QUESTIONS, ["cosine", "qnorm"], rows)


def test_progress_says_how_far_how_fast_and_how_long_still() -> None:
    running = Status("running", "me", PLAN, "demo-1", "answers", 20, 80, 2.5)
    html = render_status(running, FOLDER, own=True)
    assert "Evaluating demo: cosine, qnorm" in html
    assert "20 of 80 answers · 2.5 a second · about 24 s left" in html
    assert '<progress max="80" value="20" aria-label="Evaluating demo: cosine, qnorm">' in html
    assert "Somebody else" not in html and "Somebody else began it" in render_status(running, FOLDER, own=False)
    slow = replace(running, rate=0.25)
    assert "one in 4.0 s · about 4 min left" in render_status(slow, FOLDER, own=True)


def test_every_state_has_its_words() -> None:
    assert render_status(Status(), FOLDER, own=False) == ""
    running = Status("running", "me", PLAN, "demo-1", line="loading <encoder>")
    assert "Getting ready: loading &lt;encoder&gt;" in render_status(running, FOLDER, own=True)
    building = replace(running, step="passages", done=30, total=None)
    assert "30 passages" in render_status(building, FOLDER, own=True)
    whole = replace(running, step="answers", done=8, total=8)
    assert "asked again" in render_status(whole, FOLDER, own=True)
    pausing = replace(whole, state="pausing", done=6)
    assert "pausing after the batch" in render_status(pausing, FOLDER, own=True)
    paused = render_status(replace(whole, state="paused", done=6), FOLDER, own=True)
    assert "Paused: 6 of 8 answers" in paused and "Resume" in paused and "runs/demo-1" in paused
    assert "Finished" in render_status(replace(whole, state="finished"), FOLDER, own=True)
    failed = render_status(replace(whole, state="failed", error=f"no reader {EVIL}."), FOLDER, own=True)
    assert 'role="alert"' in failed and "<img" not in failed and "Resume goes on" in failed
    # With nothing answered there is nothing to go on from.
    for step, done in (("", 0), ("answers", 0), ("passages", 5)):
        at_once = render_status(Status("failed", plan=PLAN, step=step, done=done, error="no file"), FOLDER, own=True)
        assert "no file. Resume tries again." in at_once and "kept" not in at_once


def test_flips_are_those_of_the_harness_and_open_by_id(tmp_path: Path) -> None:
    view = a_run(tmp_path / "run")
    found = flips(view, "cosine", "qnorm")
    html = render_flips(found, count_flips(found), "cosine", "qnorm", openable=True, answers=True)
    assert re.findall(r'data-question="(\w+)"', html) == ["q1", "q2"]
    assert "cosine alone is right on 1 question, qnorm alone on 1 question." in html
    shown = text_of(html)
    assert "✓ Paris answer at rank 1 · |d| at percentile 30" in shown
    assert "✗ Lyon reader miss · answer at rank 2 · |d| at percentile 30" in shown
    assert "img" not in _Text(html).tags and EVIL in shown
    assert (
        "button"
        not in _Text(render_flips(found, count_flips(found), "cosine", "qnorm", openable=False, answers=True)).tags
    )


def test_without_flips_it_is_said_why(tmp_path: Path) -> None:
    view = a_run(tmp_path / "run")
    none = count_flips([])
    assert "asked no reader" in render_flips([], none, "a", "b", openable=True, answers=False)
    assert "two different systems" in render_flips([], none, "a", "a", openable=True, answers=True)
    assert "No question flips" in render_flips([], none, "a", "b", openable=True, answers=True)
    assert flips_in_words(count_flips([]), "a", "b").startswith("a alone is right on no question")
    assert view.finished


def test_a_run_s_figures_are_the_report_s(tmp_path: Path) -> None:
    view = a_run(tmp_path / "run")
    html = render_run(view, measure(view), note=f"closed {EVIL}")
    shown = text_of(html)
    assert "33.3" in shown  # one of three right
    assert "Why questions were missed" in shown and "McNemar" in shown and "Norm and length" in shown
    assert "<img" not in html and "<script" not in html and EVIL in shown


def test_runs_are_listed_with_date_data_systems_and_figures(tmp_path: Path) -> None:
    for name in ("one", "two"):
        view = a_run(tmp_path / name)
        if name == "two":
            (view.path / "metrics.json").write_text(
                '{"systems": [{"dataset": "nq", "system": "cosine", "n": 3, "em": 33.333, "measures": '
                '{"RR@10": {"value": 0.4}, "nDCG@10": {"value": 0.51239}}}, '
                '{"dataset": "nq", "system": "qnorm", "n": 3, "em": 66.6, "measures": {}}]}'
            )
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "predictions.jsonl").write_text("")
    shown = text_of(render_runs(list_runs(tmp_path), FOLDER))
    assert "two 2026-01-02 03:04 finished nq 3 cosine 33.3, qnorm 66.6 nDCG@10 cosine 0.5124" in shown
    assert "one 2026-01-02 03:04 6 of 6 answers nq 3 – –" in shown
    assert "broken: it has predictions.jsonl but no run.json" in shown
    assert "No runs yet" in render_runs([], FOLDER)


def test_two_runs_are_compared_as_the_command_compares_them(tmp_path: Path) -> None:
    first, second = a_run(tmp_path / "one"), a_run(tmp_path / "two", first="Nice")
    html = render_comparison(compare_runs(first, second))
    shown = text_of(html)
    assert shown.startswith("one against two common questions: 3")
    assert "Flips of cosine on nq" in shown and "capital of France?" in shown
    assert str(tmp_path) not in html and "<img" not in html


def test_the_library_holds_a_few_runs_and_sees_when_one_has_grown(tmp_path: Path) -> None:
    for name in "abcd":
        a_run(tmp_path / name)
    library = Library(tmp_path)
    assert [run.name for run in library.runs()] == list("abcd")
    first = library.open("a")[0]
    assert library.open("a")[0] is first
    with (tmp_path / "a/predictions.jsonl").open("a") as handle:
        handle.write('{"system": "cosine", "id": "q9"}\n')
    grown = RunView.open(tmp_path / "a")
    assert len(grown.rows) == len(first.rows) + 1
    (tmp_path / "a/predictions.jsonl").write_text((tmp_path / "b/predictions.jsonl").read_text() + " ")
    assert library.open("a")[0] is not first
    b = library.open("b")[0]
    for name in "cd":
        library.open(name)
    library.open("a")
    assert library.open("b")[0] is not b  # three are held
    assert Library(tmp_path / "nowhere").runs() == []
