"""The command line as a person meets it: output, exit codes, one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOWERS = [
    {
        "id": "t1",
        "title": "Eiffel Tower",
        "text": "The iron tower in Paris was built by Gustave Eiffel's company in 1889.",
    },
    {"id": "t2", "title": "Tokyo Tower", "text": "Tokyo Tower is a red and white lattice tower finished in 1958."},
    {"id": "t3", "title": "Rye bread", "text": "Rye bread keeps for a long time and is common around the Baltic Sea."},
]


def magrag(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rag_app.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=cwd)


def one_line_error(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, minilm_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    corpus = folder / "towers.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in TOWERS), "utf-8")
    done = magrag("index", corpus, folder / "idx", "--json")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["encoder"], row["passages"]) for row in told] == [("minilm-cosine", 3), ("minilm-qnorm", 3)]
    return folder / "idx"


def test_help_names_every_command_and_needs_no_heavy_import() -> None:
    done = magrag("--help")
    assert done.returncode == 0
    for command in ("ask", "index", "search", "eval", "diagnose", "score", "serve", "fetch", "doctor"):
        assert command in done.stdout
    code = "import sys; import rag_app.cli; print([m for m in ('torch','vllm','gradio','pydantic','rich.table') if m in sys.modules])"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert imported.stdout.strip() == "[]"


def test_wrong_usage_ends_with_2_and_says_what_would_do(tmp_path: Path) -> None:
    assert "Missing argument" in one_line_error(magrag("ask"), 2)
    assert "one of --retriever and --compare" in one_line_error(magrag("ask", "w", "--compare", "a", "-r", "a"), 2)
    assert "mine --help` says" in one_line_error(magrag("mine", "a", "b", "-n", "0"), 2)
    assert "encoders.minilm.precision" in one_line_error(
        magrag("ask", "who", "-s", "encoders.minilm.precison=float32"), 2
    )
    assert "qnorm" in one_line_error(magrag("search", "who", "-r", "qnrom"), 2)
    assert "nowhere.toml" in one_line_error(magrag("search", "who", "-c", "nowhere.toml"), 2)


def test_failures_end_with_1_in_one_line_and_debug_shows_the_traceback(tmp_path: Path) -> None:
    missing = ("search", "who", "--index", tmp_path / "none")
    assert "no index at" in one_line_error(magrag(*missing), 1)
    assert "Traceback" in magrag(*missing, "--debug").stderr
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "1", "title": "", "text": "fine"}\n{"id": "2", "title": ""}\n', "utf-8")
    assert "bad.jsonl:2" in one_line_error(magrag("index", bad, tmp_path / "idx"), 1)
    assert "no file or folder" in one_line_error(magrag("index", tmp_path / "gone.jsonl", tmp_path / "idx"), 1)


def test_score_gives_the_official_figures(tmp_path: Path) -> None:
    questions, predictions = tmp_path / "q.jsonl", tmp_path / "p.jsonl"
    rows = [("1", ["Paris"]), ("2", ["J. K. Rowling", "Joanne Rowling"]), ("3", ["the sea"]), ("4", ["1958"])]
    questions.write_text("".join(json.dumps({"id": i, "question": "?", "answers": a}) + "\n" for i, a in rows))
    said = [("1", "paris."), ("2", "J.K. Rowling"), ("3", "a deep sea")]
    predictions.write_text("".join(json.dumps({"id": i, "prediction": p}) + "\n" for i, p in said))
    arguments = ("score", "--questions", questions, "--predictions", predictions, "--json", "--rule")
    squad = json.loads(magrag(*arguments, "squad").stdout)
    assert (squad["n"], squad["missing"], squad["em"]) == (4, 1, 25.0)
    # F1: 1, then "jk rowling" against "j k rowling" (1 of 2 and 3 tokens: .4) or "joanne rowling" (.5), then 2/3, then 0.
    assert squad["f1"] == pytest.approx(100 * (1 + 0.5 + 2 / 3 + 0) / 4)
    assert json.loads(magrag(*arguments, "triviaqa").stdout)["em"] == 50.0
    predictions.write_text('{"id": "9", "prediction": "x"}\n')
    assert "p.jsonl, line 1" in one_line_error(magrag(*arguments, "squad"), 1)


@pytest.mark.model
def test_search_prints_one_object_a_question_with_the_factors_of_each_score(index: Path) -> None:
    done = magrag(
        "search",
        "iron tower in paris",
        "bread",
        "--index",
        index,
        "--compare",
        "cosine,qnorm,bm25",
        "--json",
        "-k",
        "9",
    )
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["question"] for o in objects] == ["iron tower in paris", "bread"]
    for o, best in zip(objects, ("t1", "t3"), strict=True):
        cosine, qnorm, bm25 = o["answers"]
        assert [a["retriever"] for a in o["answers"]] == ["cosine", "qnorm", "bm25"]
        assert cosine["passages"][0]["id"] == bm25["passages"][0]["id"] == best
        assert [p["rank"] for p in cosine["passages"]] == [1, 2, 3]
        for p in cosine["passages"]:
            assert p["score"] == pytest.approx(p["cosine"], abs=1e-6)
        for p in qnorm["passages"]:
            assert p["score"] == pytest.approx(p["cosine"] * p["norm"], rel=1e-5)
        assert bm25["passages"][0]["cosine"] is None
        assert {"title", "text", "dropped", "timings"} <= {*cosine["passages"][0], *cosine}


@pytest.mark.model
def test_an_index_of_another_encoder_is_refused_by_name(index: Path) -> None:
    done = magrag("search", "who", "--index", index, "-s", "encoders.minilm-cosine.query_max_tokens=64")
    assert "query_max_tokens: index 256, encoder 64" in one_line_error(done, 1)


@pytest.mark.model
def test_ask_answers_with_every_retriever_and_shows_passages(index: Path, smol_folder: Path) -> None:
    reader = ("-s", "generator.backend=transformers")
    question = "Who built the iron tower in Paris?"
    done = magrag("ask", question, "--index", index, "--compare", "cosine,qnorm,bm25,closed-book", "--json", *reader)
    assert done.returncode == 0, done.stderr
    got: dict[str, Any] = json.loads(done.stdout)
    assert set(got) == {"question", "answers"}
    assert [a["retriever"] for a in got["answers"]] == ["cosine", "qnorm", "bm25", "closed-book"]
    assert all(a["answer"] and a["error"] is None for a in got["answers"])
    assert "Eiffel" in got["answers"][0]["answer"]
    assert got["answers"][-1]["passages"] == []
    assert {"encode", "search", "prompt", "generate"} <= set(got["answers"][0]["timings"])
