"""The server back end against a real server: vLLM's own, with the demo's reader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from generator.base import Completion, Prompt, Sampling
from generator.errors import GeneratorError
from generator.openai_server import OpenAIGenerator
from generator.settings import GeneratorSettings
from tests.prompts import chat, facts, too_long
from tests.server import free_port


@pytest.fixture(scope="module")
def real(smol_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """vLLM's own server with the demo's reader; its address and process."""
    pytest.importorskip("vllm")
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(smol_folder),
        "--enforce-eager",
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "1024", "--dtype", "float32"]
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        deadline = time.monotonic() + 500
        while time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                generator = OpenAIGenerator(GeneratorSettings(base_url=url, retries=0))
                generator.check()
                break
            except GeneratorError:
                time.sleep(1)
            finally:
                generator.close()
        else:
            pytest.fail(f"the server did not start: {log.read_text()[-3000:]}")
        yield url, process.pid
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_real_server_answers_like_the_model_here(smol_folder: Path, real: tuple[str, int]) -> None:
    import torch

    from generator.transformers_local import TransformersGenerator

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        local = TransformersGenerator(GeneratorSettings(backend="transformers"), smol_folder)
        expected = local.generate([*facts(), chat()], Sampling(max_tokens=12))
    finally:
        torch.set_num_threads(before)
    for folder in (smol_folder, None):
        generator = OpenAIGenerator(GeneratorSettings(base_url=real[0]), folder)
        completions = generator.generate([*facts(), too_long(), chat()], Sampling(max_tokens=12))
        failed = completions.pop(len(facts()))
        assert failed.finish_reason == "error"
        assert "context" in (failed.error or "")
        same = sum(ours == theirs for ours, theirs in zip(completions, expected, strict=True))
        assert same >= len(expected) - 1  # a tie of two tokens may fall either way, once
        for prompt, completion in list(zip(facts(), completions, strict=False))[:4]:
            assert "".join(generator.stream(prompt, Sampling(max_tokens=12))) == completion.text
        assert generator.context_length == 1024
        generator.close()


# The server is dead after this one, so it stands last.
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_real_server_killed_in_mid_batch(smol_folder: Path, real: tuple[str, int]) -> None:
    generator = OpenAIGenerator(GeneratorSettings(base_url=real[0], retries=1, concurrency=8), smol_folder)
    seen: list[Completion] = []

    def third(completion: Completion) -> None:
        seen.append(completion)
        if len(seen) == 3:
            os.killpg(real[1], signal.SIGKILL)

    prompts = [Prompt(f"b{number}", text=f"Story {number}: once") for number in range(100)]
    with pytest.raises(GeneratorError, match="no server answers at generator.base_url") as error:
        generator.generate(prompts, Sampling(max_tokens=20), on_result=third)
    assert 3 <= len(seen) < 100
    assert f"{len(seen)} of 100 prompts were finished" in str(error.value)
    generator.close()
