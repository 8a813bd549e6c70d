"""The questions that systems answered differently: as data for the page's script, and as a table for where none runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from eval.causes import CAUSES, CORRECT, answer_passages, cause_of
from eval.data.datasets import Question
from eval.report.html.markup import scroller, text
from eval.view import Row, RunView

PASSAGES = 10
"""So many of a ranking are in the page; predictions.jsonl has the rest."""

QUESTIONS = 2000
"""So many questions are in the page: about 2 MB for five systems."""

_PLAIN = 100

Side = list[Any]


def questions_html(view: RunView) -> str:
    """The section; "" where no two systems can be told apart by their answers."""
    data = question_data(view)
    if not data["questions"]:
        return ""
    # "<" is all that could end the script element; as \u003c it is the same JSON.
    embedded = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    left_out = ""
    if data["found"] > len(data["questions"]):
        left_out = (f" The page holds the first {len(data['questions'])} of {data['found']} such questions; "
                    "predictions.jsonl has all.")  # fmt: skip
    options = [
        "".join(
            f'<option value="{at}"{" selected" if at == chosen else ""}>{text(name)}</option>'
            for at, name in enumerate(data["systems"])
        )
        for chosen in _first_pair(data["questions"])
    ]
    sets = "".join(f'<option value="{at}">{text(name)}</option>' for at, name in enumerate(data["datasets"]))
    return (
        '<section id="flips" aria-labelledby="flips-title"><h2 id="flips-title">Questions that flip</h2>'
        '<p class="how">Questions that one of two systems has right and the other wrong. '
        "Answer at: rank of the first passage with an answer; percentile: share of the corpus whose vectors are at most "
        f"as long as that passage's.{left_out}</p>"
        '<form class="controls" id="controls" hidden>'
        f'<label>From <select id="from">{options[0]}</select></label>'
        f'<label>to <select id="to">{options[1]}</select></label>'
        f'<label>Data set <select id="set"><option value="">all</option>{sets}</select></label>'
        '<label>Show <select id="kind"><option value="">won and lost</option><option value="won">won</option>'
        '<option value="lost">lost</option></select></label>'
        '<label class="search">Search <input id="search" type="search" placeholder="question or answer" '
        'autocomplete="off"></label></form>'
        '<p id="count" class="count" role="status" hidden></p><div id="found"></div>'
        '<button type="button" id="more" hidden>Show more</button>'
        f"<noscript>{_plain_table(data)}</noscript></section>"
        f'<script type="application/json" id="data">{embedded}</script>'
    )


def question_data(view: RunView) -> dict[str, Any]:
    """What the script shows.

    Returns:
        systems, datasets, causes: names that the rest refers to by position; found: how many questions flip between
        any two systems; passages: [title, norm, percentile] each; questions: [data set, question, golds, sides], with
        a side for each system: None where it was not asked, else [prediction, correct (0 or 1), cause, rank of the
        first answer passage or 0, its norm's percentile, ranking, error], with [passage, score, holds an answer (0 or
        1)] for each passage of the ranking.
    """
    passages: dict[tuple[Any, ...], int] = {}
    questions: list[list[Any]] = []
    found = 0
    for question in view.questions:
        rule = view.rules[question.dataset]
        if rule is None:
            continue
        rows = [view.rows.get((system, question.id)) for system in view.systems]
        causes = [
            None if row is None else cause_of(question, row, rule, view.answerable.get(question.id)) for row in rows
        ]
        if len({cause == CORRECT for cause in causes if cause is not None}) < 2:
            continue
        found += 1
        if len(questions) < QUESTIONS:
            sides = [
                None if row is None or cause is None else _side(question, row, cause, passages)
                for row, cause in zip(rows, causes, strict=True)
            ]
            questions.append([view.datasets.index(question.dataset), question.question, question.answers, sides])
    return {
        "systems": view.systems,
        "datasets": view.datasets,
        "causes": CAUSES,
        "found": found,
        "passages": [[title, _rounded(norm, 4), _rounded(percentile, 1)] for _, title, norm, percentile in passages],
        "questions": questions,
    }


def _side(question: Question, row: Row, cause: str, passages: dict[tuple[Any, ...], int]) -> Side:
    first = next(answer_passages(question, row), None)
    ranking = []
    for passage in row["passages"][:PASSAGES]:
        key = (passage["id"], passage["title"] or passage["id"], passage["norm"], passage["percentile"])
        at = passages.setdefault(key, len(passages))
        ranking.append([at, _rounded(passage["score"], 4), int(passage["has_answer"])])
    return [
        row["prediction"],
        int(cause == CORRECT),
        CAUSES.index(cause),
        first["rank"] if first else 0,
        _rounded(first["percentile"], 1) if first else None,
        ranking,
        row["error"],
    ]


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _first_pair(questions: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """The first two systems that differ somewhere: the baseline and the one after it, as a rule."""
    count = len(questions[0][3])
    for a in range(count):
        for b in range(a + 1, count):
            if any(q[3][a] and q[3][b] and q[3][a][1] != q[3][b][1] for q in questions):
                return a, b
    return 0, min(1, count - 1)


def _plain_table(data: dict[str, Any]) -> str:
    shown = data["questions"][:_PLAIN]
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in ("question", *data["systems"]))
    rows = []
    for _, question, golds, sides in shown:
        cells = "".join(f"<td>{_plain_side(data, side)}</td>" for side in sides)
        rows.append(
            f'<tr><th scope="row"><span dir="auto">{text(question)}</span>'
            f'<small dir="auto">{text(" | ".join(golds))}</small></th>{cells}</tr>'
        )
    title = f"The first {len(shown)} of {data['found']} questions on which systems differ"
    return scroller(
        f'<table class="plain"><caption>{text(title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>",
        title,
    )


def _plain_side(data: dict[str, Any], side: Side | None) -> str:
    if side is None:
        return "not asked"
    prediction, correct, cause, rank, percentile, _, error = side
    answer = f"no answer: {error}" if error else prediction or "(empty)"
    facts = data["causes"][cause]
    if rank:
        facts += f", answer at {rank}" + (f", percentile {percentile:g}" if percentile is not None else "")
    return f'{"✓" if correct else "✗"} <span dir="auto">{text(answer)}</span><small>{text(facts)}</small>'
