"""vLLM in this process: one engine, used as the product uses it, and ended as it may end."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from generator.base import Completion, Prompt, Sampling
from generator.errors import GeneratorError
from generator.factory import GeneratorSettings
from tests.prompts import chat, facts, too_long

pytest.importorskip("vllm")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FREE = Sampling(max_tokens=12)


@pytest.fixture(scope="module")
def generator(smol_folder: Path) -> Iterator:  # type: ignore[type-arg]
    from generator.vllm_engine import VllmGenerator

    made = VllmGenerator(GeneratorSettings(backend="vllm", weights_id="w", context_length=1024), smol_folder)
    yield made
    made.close()
    made.close()
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("EngineCore")]
    with pytest.raises(GeneratorError, match="closed"):
        made.check()


@pytest.fixture(scope="module")
def answers(generator) -> list[Completion]:  # type: ignore[no-untyped-def]
    return generator.generate(facts(), FREE)


def unfinished(generator) -> int:  # type: ignore[no-untyped-def]
    """Requests that the engine still works on, a moment later."""
    deadline = time.monotonic() + 10
    while (count := generator._engine.get_num_unfinished_requests()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return count


def test_greedy_answers_are_those_of_the_transformers_back_end(
    smol_folder: Path,
    generator,
    answers: list[Completion],  # type: ignore[no-untyped-def]
) -> None:
    import torch

    from generator.transformers_local import TransformersGenerator

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        other = TransformersGenerator(GeneratorSettings(backend="transformers"), smol_folder)
        expected = other.generate(facts(), FREE)
    finally:
        torch.set_num_threads(before)
    same = sum(ours == theirs for ours, theirs in zip(answers, expected, strict=True))
    # Both compute in float32 with other kernels; a tie of two tokens may fall either way, once.
    assert same >= len(answers) - 1
    assert [c.prompt_tokens for c in answers] == [c.prompt_tokens for c in expected]
    assert other.count_tokens(chat()) == generator.count_tokens(chat())


def test_completions_follow_their_prompts_whatever_the_order(generator, answers) -> None:  # type: ignore[no-untyped-def]
    prompts = facts()
    random.Random(3).shuffle(prompts)
    seen: list[Completion] = []
    shuffled = generator.generate(prompts, FREE, on_result=seen.append)
    assert [completion.id for completion in shuffled] == [prompt.id for prompt in prompts]
    assert sorted(shuffled, key=lambda c: int(c.id[1:])) == answers
    assert sorted(seen, key=lambda c: int(c.id[1:])) == answers


def test_one_prompt_too_long_leaves_the_others_alone(generator, answers) -> None:  # type: ignore[no-untyped-def]
    prompts = facts()
    prompts.insert(4, too_long())
    completions = generator.generate(prompts, FREE)
    failed = completions.pop(4)
    assert completions == answers
    assert (failed.id, failed.finish_reason, failed.text) == ("long", "error", "")
    assert "3001 tokens" in (failed.error or "")


def test_what_vllm_itself_refuses_is_that_prompts_error(generator) -> None:  # type: ignore[no-untyped-def]
    [completion] = generator.generate(facts()[:1], Sampling(max_tokens=4, temperature=5.0))
    assert completion.finish_reason == "error"
    assert "temperature" in (completion.error or "")


def test_a_stream_is_the_text_in_pieces(generator, answers) -> None:  # type: ignore[no-untyped-def]
    for prompt, completion in zip(facts(), answers, strict=True):
        pieces = list(generator.stream(prompt, FREE))
        assert "".join(pieces) == completion.text
        assert len(pieces) > 1


def test_a_stop_string_ends_text_and_stream(generator, answers) -> None:  # type: ignore[no-untyped-def]
    line = Sampling(max_tokens=12, stop=("\n",))
    lines = generator.generate(facts(), line)
    assert [c.text for c in lines] == [c.text.split("\n")[0] for c in answers]
    assert ["".join(generator.stream(prompt, line)) for prompt in facts()[:4]] == [c.text for c in lines[:4]]


def test_a_chat_begins_once(generator) -> None:  # type: ignore[no-untyped-def]
    ids = generator._renderer.ids(chat())
    text = generator._renderer.tokenizer.decode(ids)
    assert text.startswith("<|im_start|>system\n")
    assert not text.startswith("<|im_start|><|im_start|>")
    [completion] = generator.generate([chat()], FREE)
    assert completion.prompt_tokens == len(ids)


def test_two_threads_stream_while_a_batch_runs(generator, answers) -> None:  # type: ignore[no-untyped-def]
    order: list[str] = []
    texts: dict[int, str] = {}

    def read(place: int) -> None:
        for piece in generator.stream(facts()[place], FREE):
            texts[place] = texts.get(place, "") + piece
            order.append(f"stream {place}")

    def work() -> None:
        prompts = [Prompt(f"b{number}", text=f"Story {number}: once upon a time") for number in range(48)]
        generator.generate(prompts, Sampling(max_tokens=16), on_result=lambda c: order.append("batch"))

    threads = [threading.Thread(target=work), *(threading.Thread(target=read, args=(place,)) for place in (0, 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert texts == {place: answers[place].text for place in (0, 5)}
    assert order.count("batch") == 48
    first, last = order.index("stream 0"), len(order) - 1 - order[::-1].index("stream 0")
    assert "stream 5" in order[first:last]
    assert "batch" in order[last:]  # who waits for a stream does not wait for the batch


def test_closing_a_stream_early_ends_its_request(generator) -> None:  # type: ignore[no-untyped-def]
    pieces = generator.stream(Prompt("1", text="Once upon a time"), Sampling(max_tokens=900))
    assert next(pieces)
    pieces.close()
    assert unfinished(generator) == 0


def test_an_error_in_on_result_ends_the_batch_and_nothing_else(generator, answers) -> None:  # type: ignore[no-untyped-def]
    def full(completion: Completion) -> None:
        raise OSError("disk full")

    prompts = [Prompt(f"b{number}", text=f"Story {number}: once upon a time") for number in range(30)]
    with pytest.raises(OSError, match="disk full"):
        generator.generate(prompts, Sampling(max_tokens=40), on_result=full)
    assert unfinished(generator) == 0
    assert generator.generate(facts()[:2], FREE) == answers[:2]


def test_drawing_depends_on_the_seed(generator) -> None:  # type: ignore[no-untyped-def]
    one, again, other = (
        [c.text for c in generator.generate(facts()[:6], Sampling(max_tokens=12, temperature=1.0, seed=seed))]
        for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_the_fingerprint_names_weights_precision_and_back_end(generator) -> None:  # type: ignore[no-untyped-def]
    for part in ("weights=w ", "vllm=", "device=cpu", "dtype=float32", "context=1024"):
        assert part in generator.fingerprint


def test_it_is_healthy(generator) -> None:  # type: ignore[no-untyped-def]
    generator.check()


# The engine is dead after this one, so it stands last.
def test_a_dying_engine_keeps_what_was_finished(generator) -> None:  # type: ignore[no-untyped-def]
    [engine] = [child for child in multiprocessing.active_children() if child.name.startswith("EngineCore")]
    seen: list[Completion] = []

    def third(completion: Completion) -> None:
        seen.append(completion)
        if len(seen) == 3:
            engine.kill()

    prompts = [Prompt(f"b{number}", text=f"Story {number}: once") for number in range(200)]
    with pytest.raises(GeneratorError, match=r"engine process died: start again.*\(\d+ of 200 prompts were finished\)"):
        generator.generate(prompts, Sampling(max_tokens=30), on_result=third)
    assert 3 <= len(seen) < 200
    assert all(completion.text for completion in seen)
    with pytest.raises(GeneratorError, match="engine process died"):
        generator.check()


LEFT_OPEN = """
import multiprocessing, sys
from pathlib import Path
from generator.base import Prompt, Sampling
from generator.factory import GeneratorSettings, load_generator

if __name__ == "__main__":
    generator = load_generator(GeneratorSettings(backend="vllm"), Path(sys.argv[1]))
    generator.start()
    print(*(child.pid for child in multiprocessing.active_children()))
    print(repr("".join(generator.stream(Prompt("1", text="One, two, three,"), Sampling(max_tokens=4)))))
    pieces = generator.stream(Prompt("1", text="One, two, three,"), Sampling(max_tokens=900))
    next(pieces)
    print("end", flush=True)
"""


def test_a_script_that_forgets_to_close_ends_cleanly_and_quietly(smol_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "left_open.py"
    script.write_text(LEFT_OPEN)
    root = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, str(script), str(smol_folder)], capture_output=True, text=True, timeout=500, env=environment
    )
    assert done.returncode == 0, done.stderr
    pids, text, end = done.stdout.splitlines()
    assert (text, end) == ("' four, five,'", "end")
    for pid in pids.split():
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
    noise = [line for line in done.stderr.splitlines() if not line.startswith("Triton is installed, but")]
    assert noise == []
