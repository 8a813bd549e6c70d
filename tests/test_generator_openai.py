"""The server back end against a small server that fails on purpose: what is sent, what comes back, what goes wrong."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from generator.base import Completion, Prompt, Sampling
from generator.errors import GeneratorError
from generator.openai_server import OpenAIGenerator
from generator.settings import GeneratorSettings
from tests.prompts import chat
from tests.server import Server, echo
from tests.words import make_tokenizer


@pytest.fixture
def load(server: Server) -> Iterator[Callable[..., OpenAIGenerator]]:
    loaded: list[OpenAIGenerator] = []

    def make(folder: Path | None = None, **changed: Any) -> OpenAIGenerator:
        settings = {"base_url": server.url, "retries": 1, "timeout_s": 20.0, **changed}
        loaded.append(OpenAIGenerator(GeneratorSettings(**settings), folder))
        return loaded[-1]

    yield make
    for generator in loaded:
        generator.close()


def numbered(count: int) -> list[Prompt]:
    return [Prompt(str(number), text=f"prompt {number}") for number in range(count)]


GREEDY = Sampling(max_tokens=7)
Load = Callable[..., OpenAIGenerator]


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_with_a_tokenizer_prompts_travel_as_token_ids(server: Server, load: Load, tmp_path: Path) -> None:
    generator = load(make_tokenizer(tmp_path))
    server.answer = lambda request: (200, "yes")
    prompts = [Prompt("t", text="hello world"), Prompt("c", messages=({"role": "user", "content": "hello"},))]
    completions = generator.generate(prompts, Sampling(max_tokens=7, temperature=0.5, top_p=0.9, seed=3, stop=("\n",)))
    assert completions == [Completion(name, "yes", "stop", 5, 2) for name in ("t", "c")]
    sent = {tuple(request["prompt"]): (path, request) for path, request in server.requests}
    assert set(sent) == {(0, 3, 4), (0, 5, 8, 3, 1, 6, 8)}
    path, request = sent[0, 3, 4]
    assert path == "/v1/completions"
    expected = {"model": "only", "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["\n"]}
    assert expected.items() <= request.items()
    # vLLM would else take these from the model's own generation settings.
    assert (request["repetition_penalty"], request["top_k"], request["min_p"]) == (1.0, 0, 0.0)


def test_without_a_tokenizer_the_server_renders(server: Server, load: Load) -> None:
    generator = load()
    server.answer = lambda request: (200, "yes")
    generator.generate([Prompt("t", text="hello"), chat()], GREEDY)
    sent = {path: request for path, request in server.requests}
    assert sent["/v1/completions"]["prompt"] == "hello"
    assert sent["/v1/chat/completions"]["messages"] == [dict(turn) for turn in chat().messages or ()]
    assert "repetition_penalty" not in sent["/v1/completions"]
    assert generator.has_chat_template


def test_lengths_are_estimated_without_a_tokenizer(load: Load) -> None:
    generator = load()
    assert generator.count_tokens(Prompt("1", text="a" * 300)) == 101
    assert generator.truncate("a" * 300, 10) == "a" * 30
    assert generator.truncate("a" * 300, -1) == ""


def test_the_context_is_the_lesser_of_setting_and_server(server: Server, load: Load) -> None:
    assert load(context_length=1000).context_length == 1000
    assert load(context_length=9000).context_length == 4096
    server.models = [{"id": "only"}]
    assert load(context_length=9000).context_length == 9000


def test_the_model_is_the_one_named_or_the_only_one(server: Server, load: Load) -> None:
    assert "openai=only" in load(model="pypi:whatever").fingerprint
    server.models = [{"id": "a"}, {"id": "b"}]
    assert "openai=b" in load(model="b").fingerprint
    with pytest.raises(GeneratorError, match=r"generator.model = 'c' is none of the 2 models .* one of a, b"):
        load(model="c").check()


# --- what comes back -------------------------------------------------------------------------------------------------


def test_answers_are_matched_by_prompt_whatever_the_order(server: Server, load: Load) -> None:
    def slower_first(request: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.2 / (1 + int(request["prompt"].split()[1])))
        return echo(request)

    server.answer = slower_first
    seen: list[Completion] = []
    completions = load().generate(numbered(12), GREEDY, on_result=seen.append)
    assert [(c.id, c.text) for c in completions] == [(str(n), f"<prompt {n}>") for n in range(12)]
    assert sorted(seen, key=lambda c: int(c.id)) == completions
    assert seen != completions


def test_no_more_requests_at_once_than_asked_for(server: Server, load: Load) -> None:
    def slow(request: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.02)
        return echo(request)

    server.answer = slow
    load(concurrency=3).generate(numbered(20), GREEDY)
    assert server.busiest == 3


def test_a_stream_comes_in_pieces(server: Server, load: Load) -> None:
    server.answer = lambda request: (200, ["one", " two", "", " three"])
    assert list(load().stream(Prompt("1", text="count"), GREEDY)) == ["one", " two", " three"]
    assert list(load().stream(chat(), GREEDY)) == ["one", " two", " three"]


def test_closing_a_stream_early_hangs_up(server: Server, load: Load) -> None:
    server.answer = lambda request: (200, ["x" * 4000] * 2000)
    pieces = load().stream(Prompt("1", text="count"), GREEDY)
    assert next(pieces).startswith("x")
    pieces.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 10
    while not server.broken_pipes and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.broken_pipes == 1


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_server_that_is_down_is_named_with_the_command_to_start_one(tmp_path: Path) -> None:
    with socket.socket() as taken:  # a port that nobody listens on
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        generator = OpenAIGenerator(GeneratorSettings(base_url=url, retries=1))
        for action in (generator.check, lambda: generator.generate(numbered(50), GREEDY)):
            start = time.monotonic()
            with pytest.raises(GeneratorError) as error:
                action()
            assert time.monotonic() - start < 10
            for part in (f"generator.base_url = {url}", "FOLDER --enforce-eager"):
                assert part in str(error.value)
            assert "\n" not in str(error.value)
        generator.close()
        generator.close()
        with pytest.raises(GeneratorError, match="closed"):
            generator.check()


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_passing_failure_is_tried_again(server: Server, load: Load, status: int) -> None:
    failed: set[str] = set()

    def once(request: dict[str, Any]) -> tuple[int, Any]:
        if request["prompt"] in failed:
            return echo(request)
        failed.add(request["prompt"])
        return status, "busy"

    server.answer = once
    assert [c.text for c in load().generate(numbered(4), GREEDY)] == [f"<prompt {n}>" for n in range(4)]
    assert len(server.requests) == 8


def test_a_refused_prompt_is_its_own_error(server: Server, load: Load) -> None:
    server.answer = lambda r: (400, "maximum context length is 5") if r["prompt"] == "prompt 2" else echo(r)
    completions = load().generate(numbered(4), GREEDY)
    assert [c.finish_reason for c in completions] == ["stop", "stop", "error", "stop"]
    assert completions[2].error == "the server refuses the prompt: maximum context length is 5"
    assert len(server.requests) == 4  # trying again would not help
    with pytest.raises(GeneratorError, match="refuses the prompt: maximum"):
        list(load().stream(numbered(3)[2], GREEDY))


def test_a_prompt_too_long_is_not_even_sent(server: Server, load: Load, tmp_path: Path) -> None:
    server.answer = lambda request: (200, "yes")
    prompts = [Prompt("1", text="hello"), Prompt("2", text="hello " * 50)]
    completions = load(make_tokenizer(tmp_path), context_length=20).generate(prompts, GREEDY)
    assert [c.finish_reason for c in completions] == ["stop", "error"]
    assert "51 tokens" in (completions[1].error or "")
    assert len(server.requests) == 1


def test_a_prompt_that_the_server_chokes_on_does_not_end_the_batch(server: Server, load: Load) -> None:
    def chokes(request: dict[str, Any]) -> tuple[int, Any]:
        if request.get("prompt") == "prompt 1":
            return 500, "index out of range"
        return 200, "fine"

    server.answer = chokes
    completions = load(retries=0).generate(numbered(3), GREEDY)
    assert [c.text for c in completions] == ["fine", "", "fine"]
    assert completions[1].error == "the server failed on this prompt (tries: 1): index out of range"


def test_a_server_that_breaks_keeps_what_was_finished(server: Server, load: Load) -> None:
    def breaks(request: dict[str, Any]) -> tuple[int, Any]:
        return echo(request) if len(server.requests) <= 5 else (500, "engine is dead")

    server.answer = breaks
    seen: list[Completion] = []
    with pytest.raises(GeneratorError, match=r"fails \(engine is dead\).*\(5 of 40 prompts were finished\)"):
        load(retries=0, concurrency=2).generate(numbered(40), GREEDY, on_result=seen.append)
    assert len(seen) == 5


def test_a_server_that_dies_in_mid_batch_keeps_what_was_finished(server: Server, load: Load) -> None:
    seen: list[Completion] = []

    def third(completion: Completion) -> None:
        seen.append(completion)
        if len(seen) == 3:
            server.http.shutdown()
            server.http.server_close()

    def slow(request: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.05)
        return echo(request)

    server.answer = slow
    # A connection a prompt, so that none outlives the listening socket.
    generator = load(retries=1, concurrency=1)
    generator._client = generator._client.with_options(default_headers={"Connection": "close"})
    with pytest.raises(GeneratorError, match=r"no server answers .* of 40 prompts were finished\)"):
        generator.generate(numbered(40), GREEDY, on_result=third)
    assert 3 <= len(seen) < 40


def test_a_server_that_only_lists_its_models_is_not_healthy(server: Server, load: Load) -> None:
    server.answer = lambda request: (500, "engine is dead")
    with pytest.raises(GeneratorError, match="engine is dead"):
        load(retries=0).check()
    server.answer = lambda request: (200, "ok")
    load().check()
    # A base model: no chat.
    server.answer = lambda request: (400, "no template") if "messages" in request else (200, "ok")
    load().check()


def test_a_hanging_server_is_told_from_a_slow_prompt(server: Server, load: Load) -> None:
    released = threading.Event()

    def hangs(request: dict[str, Any]) -> tuple[int, Any]:
        if request.get("prompt") == "prompt 1":
            released.wait(10)
        return 200, "fine"

    server.answer = hangs
    completions = load(retries=0, timeout_s=0.5).generate(numbered(3), GREEDY)
    assert [c.text for c in completions] == ["fine", "", "fine"]
    assert "timed out" in (completions[1].error or "")

    def all_hang(request: dict[str, Any]) -> tuple[int, Any]:
        released.wait(10)
        return 200, "fine"

    server.answer = all_hang
    with pytest.raises(GeneratorError, match=r"no answer within generator.timeout_s = 0.5 s"):
        load(retries=0, timeout_s=0.5).generate(numbered(3), GREEDY)
    released.set()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "refuses the key: set MY_KEY"),
        (404, "check that it ends in /v1"),
        (429, "takes no more requests .* further tries: wait"),
    ],
)
def test_what_no_prompt_could_mend_ends_the_batch(server: Server, load: Load, status: int, said: str) -> None:
    server.answer = lambda request: (status, "no")
    with pytest.raises(GeneratorError, match=said):
        load(retries=0, api_key_env="MY_KEY").generate(numbered(3), GREEDY)


def test_the_key_comes_from_the_environment_and_is_never_shown(
    server: Server, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    server.answer = lambda request: (401, "no")
    with pytest.raises(GeneratorError) as error:
        load(retries=0, api_key_env="MY_KEY").check()
    assert "sk-secret" not in str(error.value)


def test_an_error_in_on_result_ends_the_batch(server: Server, load: Load) -> None:
    def full(completion: Completion) -> None:
        raise OSError("disk full")

    def slow(request: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(0.05)
        return echo(request)

    server.answer = slow
    generator = load(concurrency=2)
    with pytest.raises(OSError, match="disk full"):
        generator.generate(numbered(100), GREEDY, on_result=full)
    time.sleep(0.3)
    assert len(server.requests) < 20
