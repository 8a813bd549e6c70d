"""The page's evaluations: plans, pace, and runs beside a pipeline at work, with the demo's real encoder."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.data.datasets import read_questions, subset
from eval.view import RunView
from rag_app.config import Config, load_config
from rag_app.demo import QUESTIONS
from rag_app.errors import ConfigError
from rag_app.evaluate import run
from rag_app.experiment import open_experiment
from rag_app.page.evaluation import BATCH_SIZE, Desk, Pace, Plan, Status, in_order
from rag_app.page.library import Library
from rag_app.page.opening import open_question, why_closed
from rag_app.pipeline import Pipeline
from tests.one_encoder import untrained
from tests.server import Server

LONG = 120.0


def answer_from_passages(request: dict[str, Any]) -> tuple[int, Any]:
    """A gold answer where the prompt has one, as an honest reader would."""
    prompt = request["prompt"]
    question = next(q for q in read_questions(QUESTIONS) if q.question in prompt[-len(q.question) - 40 :])
    found = next((gold for gold in question.answers if gold in prompt), "no idea")
    return 200, [found] if request.get("stream") else f" {found}"


def test_the_rate_is_of_the_last_while_and_none_before_anything_is_done() -> None:
    pace = Pace(window=10)
    assert pace.rate(0) is None
    pace.add(100, 0)  # kept from before: no work of now
    assert pace.rate(5) is None
    pace.add(108, 4)
    assert pace.rate(4) == pytest.approx(2)
    assert pace.rate(8) == pytest.approx(1)  # nothing came meanwhile
    for second in range(5, 40):
        pace.add(108 + second - 4, second)
    # Long ago no longer counts: one a second since then.
    assert pace.rate(39) == pytest.approx(1)


def test_time_left_is_what_remains_at_that_rate() -> None:
    status = Status("running", step="answers", done=30, total=90, rate=2.0)
    assert status.busy and status.seconds_left == 30
    assert Status("running", done=3, total=None, rate=2.0).seconds_left is None
    assert Status("running", done=3, total=9).seconds_left is None


def test_a_plan_becomes_the_eval_table_and_nothing_else_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[eval]\nk = [1, 2]\ndepth = 7\n[eval.readers]\na = ["prompt.style=chat"]\n')
    config = load_config(tmp_path / "own.toml", [], {})
    made = Plan("demo", ("qnorm", "closed-book"), n=5, seed=3, read=False).configured(config)
    assert made.eval.retrievers == ("qnorm", "closed-book") and (made.eval.n, made.eval.seed) == (5, 3)
    assert (made.eval.read, made.eval.batch_size, made.eval.depth) == (False, BATCH_SIZE, 7)
    assert made.eval.readers == {} and made.eval.k == ()
    assert list(made.eval.datasets) == ["demo"] and Path(made.eval.datasets["demo"].path) == QUESTIONS
    assert made.model_dump(exclude={"eval"}) == config.model_dump(exclude={"eval"})


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan("nowhere", ("cosine",)), "no data set"),
        (Plan("demo", ()), "no retriever is chosen"),
        (Plan("demo", ("cosin",)), 'no retriever "cosin"'),
        (Plan("demo", ("cosine",), n=-1), "from 0 on"),
        (Plan("demo", ("closed-book",), read=False), "nothing to measure"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_says_why(plan: Plan, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan.configured(load_config(environ={}))


def test_another_corpus_has_no_demo_questions_but_those_that_are_named() -> None:
    config = load_config(None, ["corpus=/elsewhere"], {})
    with pytest.raises(ConfigError, match="no data set"):
        Plan("demo", ("cosine",)).configured(config)


def test_retrievers_stand_in_the_page_s_order_with_closed_book_last() -> None:
    config = load_config(None, ['page.retrievers=["bm25","qnorm"]'], {})
    assert in_order(["closed-book", "cosine", "qnorm", "bm25"], config) == ("bm25", "qnorm", "cosine", "closed-book")
    assert in_order(["cosin"], config) == ("cosin",)  # refused where the plan is carried out


@pytest.fixture(scope="module")
def settings(minilm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    own = tmp_path_factory.mktemp("data")
    return [*untrained(minilm_folder), f'data_dir="{own}"', "eval.recheck=4"]


@pytest.fixture
def make(settings: list[str], tmp_path: Path, server: Server) -> Callable[..., Pipeline]:
    """A pipeline whose reader is a scripted server, and whose page keeps its runs in a folder of the test's."""
    server.answer = answer_from_passages
    reader = ["generator.backend=openai", f"generator.base_url={server.url}", "generator.model=only"]

    def made(*overrides: str) -> Pipeline:
        return Pipeline(load_config(None, [*settings, *reader, f'page.runs="{tmp_path / "runs"}"', *overrides], {}))

    return made


def answers_of(path: Path) -> dict[tuple[str, str], str]:
    return {key: row["prediction"] for key, row in RunView.open(path).rows.items()}


@pytest.mark.model
def test_without_the_reader_rankings_are_measured_and_no_reader_is_loaded(settings: list[str], tmp_path: Path) -> None:
    nowhere = [f'generator.model="{tmp_path / "nowhere"}"', f'page.runs="{tmp_path / "runs"}"']
    desk = Desk(Pipeline(load_config(None, [*settings, *nowhere], {})))
    desk.start(Plan("demo", ("cosine", "qnorm"), n=20, read=False), "me")
    status = desk.wait(LONG)
    assert (status.state, status.done, status.total, status.error) == ("finished", 40, 40, "")
    view, metrics = Library(desk.folder).open(status.run)
    assert [own.system for own in metrics.systems] == ["cosine", "qnorm"]
    assert all(own.em is None and 0 < own.measures["nDCG@10"].value <= 1 for own in metrics.systems)
    assert {q.id for q in view.questions} == {q.id for q in subset(read_questions(QUESTIONS), 20, 0)}
    # Asking the reader that is not there fails in words, and the page goes on.
    desk.start(Plan("demo", ("cosine",), n=4), "me")
    assert (failed := desk.wait(LONG)).state == "failed" and "generator.model" in failed.error


@pytest.mark.model
def test_a_run_shares_what_is_loaded_and_leaves_it_as_it_was(
    make: Callable[..., Pipeline], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make()
    encoder, reader, cosine = pipeline.encoder("minilm"), pipeline.generator, pipeline.retriever("cosine")

    def load_again(*given: object) -> None:
        raise AssertionError("it is loaded already")

    monkeypatch.setattr("rag_app.stores.load_configured_encoder", load_again)
    monkeypatch.setattr("rag_app.stores.Index", load_again)
    monkeypatch.setattr("rag_app.reader.load_reader", load_again)
    monkeypatch.setattr("rag_app.bench.load_reader", load_again)
    desk = Desk(pipeline)
    desk.start(Plan("demo", ("cosine", "qnorm", "closed-book"), n=10), "me")
    assert desk.wait(LONG).state == "finished"
    assert pipeline.encoder("minilm") is encoder and pipeline.generator is reader
    assert pipeline.retriever("cosine") is cosine
    assert pipeline.answer(["Who built the first lighthouse on the Eddystone rocks?"], "cosine")[0].error is None
    assert 0 < server.busiest <= BATCH_SIZE


@pytest.mark.model
def test_the_page_s_run_is_the_command_s_run(make: Callable[..., Pipeline], tmp_path: Path) -> None:
    pipeline = make("eval.cache=false")
    desk, plan = Desk(pipeline), Plan("demo", ("cosine", "qnorm"), n=9)
    desk.start(plan, "me")
    status = desk.wait(LONG)
    config: Config = plan.configured(pipeline.config)
    alone = run(config, open_experiment(config, [], lambda line: None), tmp_path / "alone", log=lambda line: None)
    assert answers_of(desk.folder / status.run) == answers_of(alone.path)
    mine, theirs = (json.loads((path / "run.json").read_text()) for path in (desk.folder / status.run, alone.path))
    for key in ("systems", "config", "questions_sha256", "batch_size", "measures"):
        assert mine[key] == theirs[key]


@pytest.mark.model
def test_pause_ends_after_the_batch_and_resume_goes_on_to_the_same_answers(
    make: Callable[..., Pipeline], server: Server, tmp_path: Path
) -> None:
    pipeline = make("eval.cache=false")
    desk, plan = Desk(pipeline), Plan("demo", ("cosine", "qnorm"), n=24)
    gate, reached = threading.Event(), threading.Event()

    def gated(request: dict[str, Any]) -> tuple[int, Any]:
        if len(server.requests) > BATCH_SIZE:  # in the second batch
            reached.set()
            gate.wait(LONG)
        return answer_from_passages(request)

    server.answer = gated
    status = desk.start(plan, "me")
    assert status.busy
    assert reached.wait(LONG)
    with pytest.raises(ConfigError, match="one runs at a time"):
        desk.start(plan, "somebody")
    with pytest.raises(ConfigError, match="only they can pause"):
        desk.pause("somebody")
    desk.pause("me")
    assert desk.status.state == "pausing"
    gate.set()
    status = desk.wait(LONG)
    assert (status.state, status.done, status.total) == ("paused", 2 * BATCH_SIZE, 48)
    folder = desk.folder / status.run
    assert len(answers_of(folder)) == 2 * BATCH_SIZE
    listed = Library(desk.folder).runs()
    assert [(own.name, own.state) for own in listed] == [(status.run, "16 of 48 answers")]

    # After the page was closed and opened again, by somebody else: the folder says what the plan was.
    asked = len(server.requests)
    again = Desk(make("eval.cache=false"))
    again.start(Plan.of_run(RunView.open(folder).manifest), "somebody", status.run)
    assert again.wait(LONG).state == "finished"
    assert len(server.requests) - asked == 48 - 16 + 4  # four are asked twice, to see whether answers repeat
    whole = Desk(pipeline)
    whole.start(plan, "me")
    end = whole.wait(LONG)
    assert end.run != status.run and answers_of(whole.folder / end.run) == answers_of(folder)


@pytest.mark.model
def test_a_reader_that_dies_is_told_in_a_line_and_the_answers_stay(
    make: Callable[..., Pipeline], server: Server
) -> None:
    pipeline = make("eval.cache=false", "generator.retries=0")
    desk = Desk(pipeline)
    server.answer = lambda request: (401, "wrong key") if len(server.requests) > 12 else answer_from_passages(request)
    desk.start(Plan("demo", ("cosine",), n=24), "me")
    status = desk.wait(LONG)
    assert status.state == "failed" and status.error and "\n" not in status.error
    server.answer = answer_from_passages
    assert status.plan is not None
    desk.start(status.plan, "me", status.run)
    assert desk.wait(LONG).state == "finished"


@pytest.mark.model
def test_a_question_of_a_run_opens_with_its_retrievers(make: Callable[..., Pipeline]) -> None:
    pipeline = make()
    desk = Desk(pipeline)
    desk.start(Plan("demo", ("cosine", "qnorm", "closed-book"), n=6), "me")
    library = Library(desk.folder)
    view = library.open(desk.wait(LONG).run)[0]
    first = view.questions[0]
    opening = open_question(view, first.id, "cosine", "closed-book", pipeline.config)
    assert (opening.question, opening.retrievers, opening.k) == (first.question, ("cosine", "closed-book"), 3)
    assert why_closed(view, pipeline.config) == ""
    elsewhere = load_config(None, ["corpus=/elsewhere"], {})
    assert "another corpus" in why_closed(view, elsewhere)
    with pytest.raises(ConfigError, match="another corpus"):
        open_question(view, first.id, "cosine", "qnorm", elsewhere)
    with pytest.raises(ConfigError, match="no question"):
        open_question(view, "../etc", "cosine", "qnorm", pipeline.config)
    assert library.open(view.path.name)[0] is view  # read once
    for name in ("..", "../runs", str(view.path), ""):
        with pytest.raises(ConfigError, match="there is no run"):
            library.open(name)
