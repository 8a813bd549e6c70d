"""`magrag diagnose --pilot`: short trainings of the real encoder on a corpus of a few passages, and what their outcome is called."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from eval.paired import Comparison
from eval.sweep import RANKING, UNTRAINED, Row, Sweep
from rag_app.cli import app
from rag_app.config import Config, load_config
from rag_app.config_layers import setting_paths
from rag_app.demo import PASSAGES, QUESTIONS
from rag_app.diagnosis.pilot import Pilot
from rag_app.diagnosis.pilot_config import PilotConfig, load_pilot_config
from rag_app.diagnosis.pilot_words import pilot_differences, pilot_headline, pilot_reading, pilot_reasons
from rag_app.errors import ConfigError
from rag_app.pipeline import Pipeline
from retriever.passages import Passage
from tests.config_files import CONFIGS, named_paths
from tests.one_encoder import untrained
from tests.sweep_example import write_lines
from tests.test_sweep import ndcg, rows_of

CONFIG = CONFIGS / "pilot-cpu.toml"
TRAINING = """
[pilot]
seeds = [3]
others = 12
[data]
pairs = "{root}/pairs.jsonl"
[training]
steps = 2
batch_size = 4
learning_rate = 5e-3
scale = "matched"
query_max_tokens = 16
passage_max_tokens = 16
[lora]
rank = 2
targets = ["query"]
[dev]
queries = 0
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight questions of the demo over 60 of its passages, and pairs of others, one of which asks one of the eight."""
    root = tmp_path_factory.mktemp("pilot")
    passages, questions = rows_of(PASSAGES), [row for row in rows_of(QUESTIONS) if row["gold_ids"]]
    marked = {id for row in questions[:8] for id in row["gold_ids"]}
    others = [row for row in passages if row["id"] not in marked]
    write_lines(root / "corpus.jsonl", [*(row for row in passages if row["id"] in marked), *others[:50]])
    write_lines(root / "asked.jsonl", questions[:8])
    write_lines(root / "open.jsonl", [{"id": "1", "question": "who?", "answers": ["nobody"]}])
    write_lines(root / "sts.jsonl", [{"text1": f"a {at}", "text2": f"b {at}", "score": at} for at in range(4)])
    pairs = [{"query": row["title"], "positive": row["text"]} for row in others[50:62]]
    write_lines(root / "pairs.jsonl", [*pairs, {"query": questions[0]["question"], "positive": others[70]["text"]}])
    (root / "pilot.toml").write_text(TRAINING.format(root=root))
    return root


def magrag(root: Path, *arguments: object) -> Any:
    """`magrag diagnose` in this process, over the small corpus and with the pilot of a few steps."""
    settings = ("--corpus", root / "corpus.jsonl", "--encoder", "minilm", "--set", f"data_dir={root}/data")
    return CliRunner().invoke(app, ["diagnose", *map(str, (*arguments, *settings))])


@pytest.mark.model
def test_both_sides_are_trained_and_ranked_on_the_questions_at_hand(root: Path, minilm_folder: Path) -> None:
    model = [option for own in untrained(minilm_folder) for option in ("--set", own)]
    command = (root / "asked.jsonl", "--pilot", root / "pilot.toml", "--out", root / "out", *model)
    done = magrag(root, *command)
    assert done.exit_code == 0, done.output
    assert "1 pair left out, whose query an evaluation asks" in done.output
    written = json.loads((root / "out/diagnosis.json").read_text(), parse_constant=pytest.fail)
    pilot = written["figures"]["pilot"]
    judged = [Passage(row["id"], row["title"], row["text"]) for row in rows_of(root / "out/pilot/passages.jsonl")]
    questions = rows_of(root / "asked.jsonl")
    marked = {id for row in questions for id in row["gold_ids"]}
    assert marked < {own.id for own in judged} and len(judged) == len(marked) + 12 == pilot["passages"]

    places = {own.id: place for place, own in enumerate(judged)}
    values = {}
    for name, magnitude in (("qnorm", True), ("dnorm", False)):
        table = load_config(None, untrained(minilm_folder), {}).encoder("minilm")
        table = table.model_copy(update={"adapter": str(root / f"out/pilot/train/{name}-3/best")})
        encoder = Pipeline(Config(encoders={**Config().encoders, "minilm": table})).encoder("minilm")
        queries = encoder.encode_queries([row["question"] for row in questions])
        vectors = encoder.encode_passages(judged)
        scores = queries.units @ vectors.units.T * (vectors.norms if magnitude else 1)
        relevant = [{places[id] for id in row["gold_ids"]} for row in questions]
        values[name] = np.array([ndcg(*own) for own in zip(scores, relevant, strict=True)])
    [row] = [own for own in pilot["sweep"]["rows"] if own["trained_for"] == "qnorm"]
    change = row["against_dnorm"]
    assert change["difference"] == pytest.approx((values["qnorm"] - values["dnorm"]).mean(), abs=1e-6)
    assert change["n"] == len(questions) and pilot["seeds"] == [3] and pilot["steps"] == 2

    page = (root / "out/diagnosis.html").read_text()
    assert '<h2 id="pilot">Pilot</h2>' in page and "qnorm − dnorm" in page
    assert pilot["sweep"]["rows"] and "Pilot, against cosine trained alike: qnorm" in written["reasons"][1]
    assert f"Verdict: {written['verdict'][:40]}" in done.stdout and "As it comes: " in written["verdict"]
    # Where it was stopped it goes on: what is there is not trained again.
    again = magrag(root, *command, "--json")
    assert "step 1:" in done.output and "step 1:" not in again.output
    assert json.loads(again.stdout.splitlines()[-1]) == written


@pytest.mark.parametrize(
    ("data", "pilot", "message"),
    [
        ("asked.jsonl", "nowhere.toml", "cannot read the configuration .*nowhere.toml"),
        ("open.jsonl", "pilot.toml", "judged by questions that mark passages, and these mark none"),
        ("sts.jsonl", "pilot.toml", "sts.jsonl holds sentence pairs"),
        ("asked.jsonl", "twice.toml", "pilot.seeds must name each once, got 1, 1"),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(root: Path, data: str, pilot: str, message: str) -> None:
    (root / "twice.toml").write_text('[pilot]\nseeds = [1, 1]\n[data]\npairs = "x"\n')
    done = magrag(root, root / data, "--pilot", root / pilot)
    assert isinstance(done.exception, ConfigError)
    assert re.search(message, str(done.exception)) and "loading encoder" not in done.output


NONE = (-0.02, 0.01)
ABOVE, BELOW = (0.01, 0.05), (-0.03, -0.01)
Interval = tuple[float, float]


def change(baseline: str, interval: Interval) -> Comparison:
    middle = sum(interval) / 2
    return Comparison(baseline, "s", "d", RANKING, 30, middle, interval, 9, 5, 16, "permutation", 0.1, 0.1, False)


def outcome(
    sides: Interval,
    cosine: tuple[Interval, Interval] = (ABOVE, ABOVE),
    untrained: tuple[Interval, Interval] = (ABOVE, ABOVE),
    both: Interval = ABOVE,
) -> Pilot:
    """A pilot by its intervals: of qnorm − dnorm, of (qnorm, dnorm) − cosine and − untrained, of cosine − untrained."""
    rows = [
        Row("d", RANKING, trained, by, 30, value, None, [value])
        for trained, by, value in (
            (UNTRAINED, "cosine", 0.61),
            (UNTRAINED, "dot", 0.52),
            ("cosine", "cosine", 0.625),
            ("qnorm", "qnorm", 0.6),
            ("dnorm", "dnorm", 0.62),
        )
    ]
    rows[2] = replace(rows[2], against_untrained=change(UNTRAINED, both))
    for place, own, before in zip((3, 4), cosine, untrained, strict=True):
        rows[place] = replace(
            rows[place], against_cosine=change("cosine", own), against_untrained=change(UNTRAINED, before)
        )
    rows[3] = replace(rows[3], against_dnorm=change("dnorm", sides))
    return Pilot(Sweep([], [], rows), "pairs.jsonl", 40, (0, 1), 1283, 5183)


def test_a_side_ahead_of_the_other_and_of_cosine_is_recommended() -> None:
    keeps, takes = outcome(ABOVE), outcome(BELOW)
    assert (keeps.side, takes.side, keeps.advised, takes.advised) == ("qnorm", "dnorm", "qnorm", "dnorm")
    assert (
        "To fine-tune this encoder, normalise the questions and keep the passages' magnitude (qnorm)"
        in pilot_headline(keeps)
    )
    assert (
        "To fine-tune this encoder, normalise the passages and keep the questions' magnitude (dnorm)"
        in pilot_headline(takes)
    )
    assert "and than untrained." in pilot_headline(takes)
    assert "nothing shows it to be ahead of the untrained encoder" in pilot_headline(
        outcome(ABOVE, untrained=(NONE, NONE))
    )
    first, against, before = pilot_reasons(outcome(BELOW, (BELOW, NONE)))
    assert "nDCG@10 over 30 questions, qnorm − dnorm is -2.0 points, 95 % interval -3.0 to -1.0, below 0; it" in first
    assert "cosine trained alike: qnorm -2.0 points, 95 % interval -3.0 to -1.0, below 0; dnorm -0.5 points" in against
    assert "which holds 0" in against and before.count("above 0") == 2
    assert [name for name, _ in pilot_differences(keeps)][:3] == ["qnorm − dnorm", "qnorm − cosine", "dnorm − cosine"]
    reading = pilot_reading(takes)
    assert reading.value == "-2.0 points" and reading.detail.endswith("30 questions, 2 seeds")
    for words in ("untrained 61.0 by cosine and 52.0 by magnitude", "1,283 of 5,183 passages", "by cosine 62.5"):
        assert words in reading.meaning


@pytest.mark.parametrize(
    ("found", "advised", "words"),
    [
        (
            outcome(ABOVE, (BELOW, BELOW)),
            "cosine",
            "Stay with cosine, which normalises both sides: trained by qnorm, the",
        ),
        (
            outcome(NONE, (BELOW, BELOW)),
            "cosine",
            "Stay with cosine, which normalises both sides: trained by qnorm as well as",
        ),
        # dnorm, the better side, is what is weighed: that qnorm is behind cosine does not count.
        (outcome(BELOW, (BELOW, ABOVE)), "dnorm", "normalise the passages"),
        (outcome(BELOW, (BELOW, NONE)), "", "dnorm is the better (normalise the passages and keep"),
        (outcome(ABOVE, (NONE, NONE)), "", "nothing shows it to be ahead of cosine trained alike"),
        (outcome(ABOVE, untrained=(BELOW, ABOVE)), "untrained", "it ranks worse than it does untrained, by cosine"),
        (
            outcome(NONE, (BELOW, BELOW), both=BELOW),
            "untrained",
            "than by cosine trained alike, and that worse than it does",
        ),
        (outcome(NONE, (NONE, BELOW)), "", "shows neither to be ahead of cosine trained alike"),
        (outcome(NONE, (NONE, NONE)), "", "the default stands: qnorm or dot"),
        (outcome(NONE, (ABOVE, NONE)), "", "does not tell which side to normalise; qnorm alone is ahead of cosine"),
        (outcome(NONE), "", "qnorm and dnorm are each ahead of cosine trained alike"),
    ],
)
def test_cosine_and_no_training_are_weighed_too(found: Pilot, advised: str, words: str) -> None:
    assert found.advised == advised and words in pilot_headline(found)
    assert ("To fine-tune this encoder" in pilot_headline(found)) == (advised in ("qnorm", "dnorm"))


def test_the_shipped_file_names_every_setting_that_counts() -> None:
    unset = re.sub(r"^# (?=\[?[\w.]+\]?( = .+)?$)", "", CONFIG.read_text(encoding="utf-8"), flags=re.MULTILINE)
    chosen = {"similarity", "gamma_q", "gamma_d", "seed", "out", "data_dir", "encoder"}
    counting = {path for path in setting_paths(PilotConfig) if path[0] not in chosen}
    assert set(named_paths(tomllib.loads(unset), {("data", "columns")})) == counting
    assert load_pilot_config(CONFIG).pilot.seeds == (0, 1)
