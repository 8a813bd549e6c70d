"""The list of run folders: newest first, how far each got, and damage that hides no other run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.data.datasets import Question
from eval.errors import EvalError
from eval.runs import RunSummary, list_runs, runs_json, runs_text
from tests.run_folders import row, write_run

QUESTIONS = [
    Question("q1", "nq", "capital of France?", ("Paris",)),
    Question("q2", "nq", "author of Emma?", ("Austen",)),
    Question("h1", "hotpotqa", "where?", ("Rome",)),
]
ROWS = [row(system, question.id, "x") for system in ("cosine", "qnorm") for question in QUESTIONS]


def run(path: Path, rows: int = 6, *, started: str = "2026-01-02T03:04:05+00:00", **changes: Any) -> Path:
    write_run(path, QUESTIONS, ["cosine", "qnorm"], ROWS[:rows], started=started, **changes)
    return path


def finish(path: Path, *systems: tuple[str, str, int, float | None]) -> None:
    figures = [
        {"dataset": dataset, "system": system, "n": n, "em": em, "measures": {"nDCG@10": {"value": n / 4000, "n": n}}}
        for dataset, system, n, em in systems
    ]
    (path / "metrics.json").write_text(json.dumps({"seed": 0, "systems": figures}))


def only(path: Path) -> RunSummary:
    (summary,) = list_runs(path)
    return summary


def test_a_finished_run_shows_its_figures(tmp_path: Path) -> None:
    place = run(tmp_path / "first")
    finish(place, ("nq", "cosine", 2, 50.0), ("nq", "qnorm", 2, 0.0), ("hotpotqa", "cosine", 1, 100.0),
           ("hotpotqa", "qnorm", 1, 0.0))  # fmt: skip
    assert only(tmp_path) == RunSummary(
        name="first",
        path=place,
        damage=None,
        started="2026-01-02T03:04:05+00:00",
        finished=True,
        answers=6,
        expected=6,
        datasets={"nq": 2, "hotpotqa": 1},
        systems=["cosine", "qnorm"],
        measures={
            "nq": {"cosine": {"nDCG@10": 0.0005}, "qnorm": {"nDCG@10": 0.0005}},
            "hotpotqa": {"cosine": {"nDCG@10": 0.00025}, "qnorm": {"nDCG@10": 0.00025}},
        },
        em={"nq": {"cosine": 50.0, "qnorm": 0.0}, "hotpotqa": {"cosine": 100.0, "qnorm": 0.0}},
        revision="aaaaaaaa",
        dirty=False,
    )
    assert only(tmp_path).state == "finished"


def test_an_unfinished_run_says_how_far_it_got_and_has_no_figures(tmp_path: Path) -> None:
    place = run(tmp_path / "half", rows=4)
    with (place / "predictions.jsonl").open("a") as handle:
        handle.write('{"system": "qnorm", "id": "q2", "pre')  # a torn line is no answer
    found = only(tmp_path)
    assert (found.state, found.finished, found.em) == ("4 of 6 answers", False, {})
    (place / "predictions.jsonl").unlink()
    assert only(tmp_path).state == "0 of 6 answers"


def test_thousands_are_grouped_and_the_manifest_knows_best_how_many_answers_there_will_be(tmp_path: Path) -> None:
    place = run(tmp_path / "long", answers=2400)
    (place / "predictions.jsonl").write_text("{}\n" * 1200)
    assert only(tmp_path).state == "1,200 of 2,400 answers"


def test_newest_first_and_no_deeper_than_one_level(tmp_path: Path) -> None:
    run(tmp_path / "b", started="2026-01-02T00:00:00+00:00")
    run(tmp_path / "a", started="2026-01-01T00:00:00+00:00")
    run(tmp_path / "c", started="2026-03-01T00:00:00+00:00")
    run(tmp_path / "a" / "deeper")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "run.txt").write_text("no run")
    (tmp_path / "run.txt").write_text("no run")
    assert [found.name for found in list_runs(tmp_path)] == ["c", "b", "a"]
    # A run folder itself is listed too, with what lies right below it.
    assert [found.name for found in list_runs(tmp_path / "a")] == ["deeper", "a"]


def test_a_folder_is_named_whatever_path_leads_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run(tmp_path / "here"))
    assert only(Path(".")).name == "here"


def test_dirty_code_and_none_at_all_are_told_apart(tmp_path: Path) -> None:
    run(tmp_path / "dirty", environment={"git": {"commit": "0123456789abcdef", "changed": True}})
    run(tmp_path / "installed", environment={"git": None})
    found = {summary.name: (summary.revision, summary.dirty) for summary in list_runs(tmp_path)}
    assert found == {"dirty": ("01234567", True), "installed": (None, False)}
    lines = {line.split()[0]: line for line in runs_text(list_runs(tmp_path)).splitlines()}
    assert "01234567 + changes" in lines["dirty"] and "changes" not in lines["installed"]


def test_data_sets_without_answers_have_no_exact_match(tmp_path: Path) -> None:
    place = run(tmp_path / "mixed")
    finish(place, ("nq", "cosine", 2, 50.0), ("hotpotqa", "cosine", 1, None), ("stsb", "cosine", 1379, None))
    found = only(tmp_path)
    assert found.datasets == {"nq": 2, "hotpotqa": 1, "stsb": 1379}
    nq, hotpotqa, stsb = runs_text([found]).splitlines()[1:]
    assert nq.split()[-4:] == ["cosine", "50.0", "aaaaaaaa", "2"]
    assert hotpotqa.split() == ["hotpotqa", "nDCG@10:", "cosine", "0.0003", "1"]
    assert stsb.split() == ["stsb", "nDCG@10:", "cosine", "0.3448", "1,379"]


@pytest.mark.parametrize(
    ("file", "content", "damage"),
    [
        ("run.json", b"{torn", "run.json: invalid JSON at column 2"),
        ("run.json", b"[]", "run.json: must be a JSON object"),
        ("run.json", b'{"systems": {}}', "it lacks 'started'"),
        ("run.json", b'{"started": "2026", "systems": 5}', "a file has values of another kind than a run writes"),
        ("run.json", None, "it has predictions.jsonl but no run.json"),
        ("questions.jsonl", None, "written by an older version (no questions.jsonl)"),
        ("questions.jsonl", b"\xff\n", "questions.jsonl, line 1: invalid UTF-8"),
        ("questions.jsonl", b'{"id": "q1"}\n', "it lacks 'dataset'"),
        ("metrics.json", b"{}", "it lacks 'systems'"),
        ("metrics.json", b"", "metrics.json: invalid JSON"),
    ],
)
def test_a_damaged_folder_is_listed_with_its_reason_beside_the_others(
    tmp_path: Path, file: str, content: bytes | None, damage: str
) -> None:
    run(tmp_path / "good", started="2020-01-01T00:00:00+00:00")
    place = run(tmp_path / "bad") / file
    if content is None:
        place.unlink()
    else:
        place.write_bytes(content)
    found = {summary.name: summary for summary in list_runs(tmp_path)}
    assert found["good"].damage is None and found["good"].answers == 6
    assert found["bad"].damage is not None and damage in found["bad"].damage and "\n" not in found["bad"].damage
    assert found["bad"].state == "damaged"
    text = runs_text(list(found.values()))
    assert f"bad: {found['bad'].damage}" in text.splitlines()


def test_an_old_run_keeps_its_date_and_systems(tmp_path: Path) -> None:
    (run(tmp_path / "old") / "questions.jsonl").unlink()
    found = only(tmp_path)
    assert (found.started[:4], found.systems, found.revision) == ("2026", ["cosine", "qnorm"], "aaaaaaaa")


def test_text_has_a_line_for_each_data_set_of_a_run(tmp_path: Path) -> None:
    finish(run(tmp_path / "first"), ("nq", "cosine", 2, 50.0), ("nq", "qnorm", 2, 0.0), ("hotpotqa", "qnorm", 1, 100.0))
    run(tmp_path / "later", rows=1, started="2026-05-06T07:08:09+00:00")
    header, *lines = runs_text(list_runs(tmp_path)).splitlines()
    assert header.split() == ["run", "started", "(UTC)", "state", "data", "set", "EM,", "else", "the", "first", "measure",
                              "revision", "questions"]  # fmt: skip
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert cells == [
        ["later", "2026-05-06 07:08", "1 of 6 answers", "nq", "-", "aaaaaaaa", "2"],
        ["hotpotqa", "-", "1"],
        ["first", "2026-01-02 03:04", "finished", "nq", "cosine 50.0, qnorm 0.0", "aaaaaaaa", "2"],
        ["hotpotqa", "qnorm 100.0", "1"],
    ]


def test_json_is_plain_values(tmp_path: Path) -> None:
    finish(run(tmp_path / "first"), ("nq", "cosine", 2, 50.0))
    (value,) = json.loads(json.dumps(runs_json(list_runs(tmp_path))))
    assert (value["path"], value["state"], value["em"]) == (
        str(tmp_path / "first"),
        "finished",
        {"nq": {"cosine": 50.0}},
    )


def test_a_folder_without_runs_is_an_empty_list_and_no_folder_an_error(tmp_path: Path) -> None:
    assert list_runs(tmp_path) == []
    assert runs_text([]) == "no runs here: `magrag eval --out FOLDER` makes one"
    for place in (tmp_path / "nowhere", tmp_path / "file"):
        (tmp_path / "file").write_text("x")
        with pytest.raises(EvalError, match="is no folder: give the one that your runs lie in"):
            list_runs(place)
