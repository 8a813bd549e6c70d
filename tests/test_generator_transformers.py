"""The transformers back end: its text against transformers' own generate(), and what holds under threads and pressure."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from generator.base import Completion, Prompt, Sampling
from generator.errors import GeneratorError
from generator.factory import GeneratorSettings, load_generator
from generator.transformers_local import TransformersGenerator
from tests.prompts import chat, facts, too_long

pytestmark = pytest.mark.model

LINE = Sampling(max_tokens=12, stop=("\n",))
FREE = Sampling(max_tokens=12)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of torch that wait for each other stall for seconds when other work takes their cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def generator(smol_folder: Path) -> Iterator[TransformersGenerator]:
    made = TransformersGenerator(GeneratorSettings(backend="transformers", weights_id="w", batch_size=5), smol_folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def answers(generator: TransformersGenerator) -> list[Completion]:
    return generator.generate(facts(), FREE)


def test_greedy_text_is_what_transformers_own_generate_gives(
    smol_folder: Path, generator: TransformersGenerator, answers: list[Completion]
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smol_folder)
    model = AutoModelForCausalLM.from_pretrained(smol_folder, dtype=torch.float32)
    for prompt, completion in zip(facts(), answers, strict=True):
        ids = tokenizer(prompt.text, return_tensors="pt")
        output = model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
        assert completion.text == tokenizer.decode(output, skip_special_tokens=True)
        assert completion.completion_tokens == len(output)
        assert completion.prompt_tokens == ids["input_ids"].shape[1]
        assert completion.finish_reason == ("stop" if output[-1] == tokenizer.eos_token_id else "length")


def test_completions_follow_their_prompts_whatever_the_order(
    generator: TransformersGenerator, answers: list[Completion]
) -> None:
    prompts = facts()
    random.Random(3).shuffle(prompts)
    shuffled = generator.generate(prompts, FREE)
    assert [completion.id for completion in shuffled] == [prompt.id for prompt in prompts]
    assert sorted(shuffled, key=lambda c: int(c.id[1:])) == answers


def test_one_prompt_too_long_leaves_the_others_alone(
    generator: TransformersGenerator, answers: list[Completion]
) -> None:
    seen: list[Completion] = []
    prompts = facts()
    prompts.insert(4, too_long())
    completions = generator.generate(prompts, FREE, on_result=seen.append)
    failed = completions.pop(4)
    assert completions == answers
    assert (failed.id, failed.finish_reason, failed.text) == ("long", "error", "")
    assert "3001 tokens" in (failed.error or "")
    assert "generator.context_length" in (failed.error or "")
    assert sorted(seen, key=str) == sorted([*completions, failed], key=str)


def test_a_stream_is_the_text_in_pieces(generator: TransformersGenerator, answers: list[Completion]) -> None:
    for prompt, completion in list(zip(facts(), answers, strict=True))[:4]:
        pieces = list(generator.stream(prompt, FREE))
        assert "".join(pieces) == completion.text
        assert len(pieces) > 1


def test_a_stop_string_ends_text_and_stream(generator: TransformersGenerator, answers: list[Completion]) -> None:
    lines = generator.generate(facts(), LINE)
    assert [line.text for line in lines] == [free.text.split("\n")[0] for free in answers]
    assert any("\n" in free.text for free in answers)
    for prompt, line in list(zip(facts(), lines, strict=True))[:3]:
        assert "".join(generator.stream(prompt, LINE)) == line.text


def test_a_chat_is_rendered_with_the_template(generator: TransformersGenerator) -> None:
    [completion] = generator.generate([chat()], FREE)
    assert completion.prompt_tokens == generator.count_tokens(chat())
    assert "oney" in completion.text


def test_two_threads_stream_at_once(generator: TransformersGenerator, answers: list[Completion]) -> None:
    texts: dict[int, str] = {}
    turns: list[int] = []

    def read(place: int) -> None:
        for piece in generator.stream(facts()[place], FREE):
            turns.append(place)
            texts[place] = texts.get(place, "") + piece

    threads = [threading.Thread(target=read, args=(place,)) for place in (0, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert texts == {place: answers[place].text for place in (0, 5)}
    assert turns.index(5) < len(turns) - 1 - turns[::-1].index(0)  # one began before the other had ended


def test_streams_of_one_thread_can_be_read_in_turns(
    generator: TransformersGenerator, answers: list[Completion]
) -> None:
    one, other = generator.stream(facts()[0], FREE), generator.stream(facts()[5], FREE)
    first = next(one) + next(other)
    assert first
    other.close()  # type: ignore[attr-defined]
    assert answers[0].text.endswith("".join(one))


def test_drawing_depends_on_the_seed_and_not_on_the_batch(generator: TransformersGenerator) -> None:
    warm = Sampling(max_tokens=8, temperature=1.0, top_p=0.95, seed=7)
    together = generator.generate(facts()[:5], warm)
    alone = [generator.generate([prompt], warm)[0] for prompt in facts()[:5]]
    assert alone == together
    other = generator.generate(facts()[:5], Sampling(max_tokens=8, temperature=1.0, top_p=0.95, seed=8))
    assert [c.text for c in other] != [c.text for c in together]


def test_a_tiny_nucleus_is_greedy(generator: TransformersGenerator, answers: list[Completion]) -> None:
    drawn = generator.generate(facts()[:3], Sampling(max_tokens=12, temperature=1.0, top_p=1e-6, seed=1))
    assert [c.text for c in drawn] == [c.text for c in answers[:3]]


def test_a_batch_that_does_not_fit_is_halved(
    generator: TransformersGenerator, answers: list[Completion], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    sizes: list[int] = []
    forward = generator._forward

    def tight(ids, positions, state):  # type: ignore[no-untyped-def]
        sizes.append(len(ids))
        if len(ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(ids, positions, state)

    monkeypatch.setattr(generator, "_forward", tight)
    assert generator.generate(facts(), FREE) == answers
    assert max(sizes) == 5
    monkeypatch.setattr(generator, "_forward", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("no")))
    failed = generator.generate(facts()[:3], FREE)
    assert [c.finish_reason for c in failed] == ["error"] * 3
    assert "out of memory" in (failed[0].error or "")


def test_an_error_in_on_result_reaches_the_caller_and_the_generator_goes_on(
    generator: TransformersGenerator, answers: list[Completion]
) -> None:
    def full(completion: Completion) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        generator.generate(facts(), FREE, on_result=full)
    assert generator.generate(facts()[:2], FREE) == answers[:2]


def test_a_stream_of_a_prompt_too_long_raises(generator: TransformersGenerator) -> None:
    with pytest.raises(GeneratorError, match="3001 tokens"):
        next(generator.stream(too_long(), FREE))


def test_the_fingerprint_names_weights_precision_and_back_end(
    smol_folder: Path, generator: TransformersGenerator
) -> None:
    assert "weights=w " in generator.fingerprint
    for part in ("transformers=", "dtype=float32", "device=cpu", "context=2048"):
        assert part in generator.fingerprint


def test_truncating_agrees_with_counting(generator: TransformersGenerator) -> None:
    text = " ".join(f"word{number}" for number in range(50))
    short = generator.truncate(text, 20)
    assert generator.count_tokens(Prompt("1", text=short)) == 20


def test_the_factory_loads_checks_and_closes(smol_folder: Path) -> None:
    said: list[str] = []
    loaded = load_generator(GeneratorSettings(backend="transformers"), smol_folder, log=said.append)
    assert said == ["generator: transformers (as generator.backend says)"]
    loaded.check()
    loaded.close()
    loaded.close()
    with pytest.raises(GeneratorError, match="closed"):
        loaded.check()
