"""The dial, its plots and the slope chart, on made-up vectors and on the demo's."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from rag_app.answers import Answer
from rag_app.page.compare import Found, Side
from rag_app.page.dial import Candidate, Candidates, find_candidates, turn
from rag_app.page.plots import render_candidates, render_scatter, render_slopes
from rag_app.page.render import render_dial
from rag_app.page.run import Snapshot, run_comparison
from rag_app.pipeline import Pipeline
from retriever.base import Hit
from retriever.passages import Passage
from retriever.search.contenders import Contenders
from retriever.similarity import COSINE, QNORM

# Under cosine: near, middle, long. Under qnorm (cosine × |d|): long 1.2, middle 1.0, near 0.9.
COSINES, NORMS = [0.9, 0.5, 0.3], [1.0, 2.0, 4.0]


def _candidates(k: int = 2, attack: str = "") -> Candidates:
    titles = [f"{attack}near", "middle", "long"]
    return Candidates(
        "encoder",
        k,
        ("cosine", "qnorm"),
        (1.0, 0.0),
        0,
        Contenders(np.arange(3), np.array(COSINES, np.float32), np.array(NORMS, np.float32)),
        tuple(
            Candidate(title, title, f"{attack}about {title}", cosine, norm, (rank, 4 - rank))
            for rank, (title, cosine, norm) in enumerate(zip(titles, COSINES, NORMS, strict=True), 1)
        ),
    )


@pytest.mark.parametrize(
    ("gamma", "titles", "moves"),
    [
        (1.0, ["near", "middle"], ["same", "same"]),
        (0.0, ["long", "middle"], ["up", "same"]),
        # √: near 0.9, middle 0.5 × 1.414 = 0.707, long 0.3 × 2 = 0.6.
        (0.5, ["near", "middle"], ["same", "same"]),
        # 4^0.75 = 2.828: long 0.849; 2^0.75 = 1.682: middle 0.841.
        (0.25, ["near", "long"], ["same", "up"]),
    ],
)
def test_the_dial_ranks_by_cosine_and_a_power_of_magnitude(gamma: float, titles: list[str], moves: list[str]) -> None:
    turned = turn(_candidates(), gamma)
    assert [one.candidate.title for one in turned] == titles
    assert [one.move.kind for one in turned] == moves
    for one in turned:
        assert one.score == pytest.approx(one.candidate.cosine * one.candidate.norm ** (1 - gamma), rel=1e-6)


def test_the_list_says_what_the_score_is_and_how_much_moved() -> None:
    ranking, _ = render_dial(_candidates(), 0.0)
    assert "<b>cosine × |d|</b>, 1 of 2 moved against cosine" in ranking
    assert "2 places higher than under cosine, where it has rank 3" in ranking
    assert "<b>cosine alone</b>, as cosine ranks them" in render_dial(_candidates(), 1.0)[0]
    assert "<b>cosine × |d|<sup>0.75</sup></b>" in render_dial(_candidates(), 0.25)[0]


def _svg(html: str) -> ElementTree.Element:
    found = re.search(r"<svg viewBox.*?</svg>", html, re.S)
    assert found
    return ElementTree.fromstring(found.group().replace(" tabindex", " data-x"))


def test_the_plot_draws_each_ranking_with_its_own_shape_and_the_line_between() -> None:
    candidates = _candidates()
    turned = turn(candidates, 0.25)
    svg = _svg(render_scatter(candidates, turned, 0.25))
    places = {
        kind: {
            (
                round(float(shape.get("cx") or float(shape.get("x", 0)) + 9)),
                round(float(shape.get("cy") or float(shape.get("y", 0)) + 9)),
            )
            for shape in svg.iter()
            if shape.get("class") == kind
        }
        for kind in ("mg-ring", "mg-box", "mg-best", "mg-dot")
    }
    assert len(places["mg-ring"]) == len(places["mg-box"]) == len(places["mg-best"]) == 2 and len(places["mg-dot"]) == 1
    # Ringed (near, middle) and boxed (middle, long) share the middle one, which the dial leaves out.
    assert places["mg-ring"] & places["mg-box"] == places["mg-dot"]
    for kind, gamma in (("mg-line-a", 1.0), ("mg-line-b", 0.0), ("mg-line-dial", 0.25)):
        line = next(shape for shape in svg.iter() if shape.get("class") == f"mg-line {kind}")
        points = np.array([point.split(",") for point in line.get("points", "").split()], dtype=float)
        assert len(points) > 10
        # Upwards (y falls) the border never leans to the right: more magnitude needs less cosine.
        order = np.argsort(points[:, 1])
        assert (np.diff(points[order, 0]) >= -0.11).all(), kind
        if gamma == 1.0:
            assert np.ptp(points[:, 0]) < 0.2
    label = svg.get("aria-label") or ""
    assert "3 candidates" in label and "1 near; 2 long" in label


def test_the_kth_passage_lies_on_the_border_of_its_ranking() -> None:
    candidates = _candidates(k=1)
    svg = _svg(render_scatter(candidates, turn(candidates, 0.0), 0.0))
    best = next(shape for shape in svg.iter() if shape.get("class") == "mg-best")
    line = next(shape for shape in svg.iter() if shape.get("class") == "mg-line mg-line-dial")
    points = np.array([point.split(",") for point in line.get("points", "").split()], dtype=float)
    y, x = float(best.get("cy", 0)), float(best.get("cx", 0))
    assert np.interp(y, points[::-1, 1], points[::-1, 0]) == pytest.approx(x, abs=0.5)


def test_the_plot_is_also_a_table() -> None:
    table = render_candidates(_candidates(), turn(_candidates(), 0.0))
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", table)
    assert [(title, re.findall(r"<td>(.*?)</td>", cells)) for title, cells in rows] == [
        ("long", ["0.3000", "4.000", "3", "1", "1"]),
        ("middle", ["0.5000", "2.000", "2", "2", "2"]),
        ("near", ["0.9000", "1.000", "1", "3", "–"]),
    ]


def test_titles_are_text_in_every_plot() -> None:
    attack = '<img src=x onerror=alert(1)>"'
    candidates = _candidates(attack=attack)
    ranking, plot = render_dial(candidates, 1.0)
    hits = [Hit(1, Passage("a", attack, "text"), 1.0)]
    side = Side(attack, "bm25")
    answers = (Answer("x", hits=hits), Answer("y", hits=hits))
    slopes = render_slopes(Snapshot("q", (side, side), answers, found=(Found({"a": 1}), Found({"a": 1}))))
    for html in (ranking, plot, slopes):
        assert "<img" not in html and "&lt;img" in html


def test_slopes_lead_from_rank_to_rank_and_name_ranks_that_are_not_shown() -> None:
    def hits(ids: str) -> list[Hit]:
        return [Hit(rank, Passage(id, f"Title {id}", "text"), 1.0) for rank, id in enumerate(ids, 1)]

    html = render_slopes(
        Snapshot(
            "q",
            (Side("left", "bm25"), Side("right", "bm25")),
            (Answer("left", hits=hits("ab")), Answer("right", hits=hits("bc"))),
            found=(Found({"a": 1, "b": 2, "c": 9}), Found({"b": 1, "c": 2})),
        )
    )
    lines = re.findall(r'<line class="(.*?)" x1="0" x2="100" y1="(\d+)" y2="(\d+)"/>', html)
    # Rows of 28 pixels, and a gap of 16 above what is not shown.
    assert sorted(lines) == [
        ("mg-slope-down", "14", str(14 + 56 + 16)),
        ("mg-slope-up", str(14 + 28), "14"),
        ("mg-slope-up", str(14 + 56 + 16), str(14 + 28)),
    ]
    assert '<li class="mg-beyond-first"><i>9</i><span>Title c</span></li>' in html
    assert '<li class="mg-beyond-first"><i>–</i><span>Title a</span></li>' in html
    assert '<tr><th scope="row">Title c</th><td>9</td><td>2</td></tr>' in html
    assert render_slopes(Snapshot("q", (Side("a", "bm25"), Side("b", "bm25")), (Answer("a"), Answer("b")))) == ""


@pytest.mark.model
def test_on_the_demo_the_dial_ranks_as_the_raw_vectors_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline.from_config(None, [f"generator.model={tmp_path / 'nowhere'}"])
    question, k = "Who was born first, Edward Jenner or James Watt?", 5
    last = list(run_comparison(pipeline, question, ("cosine-untrained", "qnorm-untrained"), k))[-1]
    (candidates,) = last.candidates
    retriever = pipeline.retriever("qnorm-untrained")
    index = retriever.index
    units, norms = index.vectors(range(len(index)))
    query = retriever.encoder.encode_queries([question]).units[0].astype(np.float64)  # type: ignore[attr-defined]
    cosines = units.astype(np.float64) @ query
    for gamma in np.linspace(0, 1, 11):
        expected = np.argsort(-cosines * norms.astype(np.float64) ** (1 - gamma), kind="stable")[:k]
        turned = turn(candidates, float(gamma))
        assert [one.candidate.id for one in turned] == [index.passage(int(row)).id for row in expected]
    for side, gamma in enumerate((1.0, 0.0)):
        shown = [hit.passage.id for hit in last.answers[side].hits]
        assert [one.candidate.id for one in turn(candidates, gamma)] == shown
        assert last.found[side].percentiles == tuple(
            100 * np.count_nonzero(norms <= norm) / len(norms)
            for norm in norms[[hit.row for hit in last.answers[side].hits]]
        )
    assert last.sides[0].similarity == COSINE and last.sides[1].similarity == QNORM
    asked = pipeline, question, last.sides, last.answers, last.found, k
    monkeypatch.setattr("rag_app.page.dial.MOST_ROWS", len(index))
    assert [one.encoder for one in find_candidates(*asked)] == [candidates.encoder]
    monkeypatch.setattr("rag_app.page.dial.MOST_ROWS", len(index) - 1)
    assert find_candidates(*asked) == ()
