"""The generator's smaller parts: settings, the choice of a back end, the background loop, the guard."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from generator.background import BackgroundLoop, Put
from generator.errors import GeneratorError
from generator.factory import choose_backend, load_generator
from generator.settings import GeneratorSettings, check_folder
from generator.vllm_engine import check_room


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"backend": "vlm"}, "generator.backend must be one of auto, vllm, openai, transformers, got 'vlm'"),
        ({"dtype": "int8"}, "generator.dtype must be one of"),
        ({"context_length": 1}, "generator.context_length must be at least 2, got 1"),
        ({"retries": -1}, "generator.retries must be at least 0, got -1"),
        ({"timeout_s": 0}, "generator.timeout_s must be more than 0, got 0"),
        ({"gpu_memory_utilization": 1.5}, "generator.gpu_memory_utilization must be in"),
    ],
)
def test_wrong_settings_say_which_what_and_what_would_do(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(GeneratorError, match=said):
        GeneratorSettings(**wrong)  # type: ignore[arg-type]


def test_auto_takes_a_given_server_then_vllm_then_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_backend(GeneratorSettings(base_url="http://127.0.0.1:1/v1"))[0] == "openai"
    assert (
        choose_backend(GeneratorSettings(backend="transformers", base_url="http://127.0.0.1:1/v1"))[0] == "transformers"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "vllm" else None)
    assert choose_backend(GeneratorSettings())[0] == "vllm"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    backend, why = choose_backend(GeneratorSettings())
    assert backend == "transformers"
    assert "vLLM is not installed" in why


def test_a_back_end_in_this_process_needs_a_folder() -> None:
    with pytest.raises(GeneratorError, match="needs a model folder"):
        load_generator(GeneratorSettings(backend="transformers"))


def test_a_server_needs_an_address(tmp_path: Path) -> None:
    with pytest.raises(GeneratorError, match="generator.base_url is empty.*serve.*--enforce-eager|api_server"):
        load_generator(GeneratorSettings(backend="openai"))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GeneratorError, match="holds no model"):
        check_folder(GeneratorSettings(), tmp_path)


@pytest.mark.parametrize(
    "config", ['{"max_position_embeddings": 512}', '{"text_config": {"max_position_embeddings": 512}}']
)
def test_a_context_longer_than_the_models_is_refused(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    check_folder(GeneratorSettings(context_length=512), tmp_path)
    with pytest.raises(GeneratorError, match="context_length is 513, but the model .* takes at most 512"):
        check_folder(GeneratorSettings(context_length=513), tmp_path)


def test_a_share_of_the_gpu_that_is_taken_is_refused_with_one_that_would_do() -> None:
    check_room(0.6, free=60 * 2**30, total=100 * 2**30)
    with pytest.raises(GeneratorError, match=r"asks for 60\.0 GiB .* 50\.0 of 100\.0 GiB are free: lower it to 0\.47"):
        check_room(0.6, free=50 * 2**30, total=100 * 2**30)


# --- the background loop ---------------------------------------------------------------------------------------------


def test_what_is_put_comes_out_in_order_before_the_error() -> None:
    loop = BackgroundLoop("test")

    async def run(put: Put) -> None:
        for number in range(3):
            put(number)
            await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(10))
            group.create_task(fail())

    async def fail() -> None:
        raise GeneratorError("as planned")

    seen = []
    with pytest.raises(GeneratorError, match="as planned"):
        for item in loop.drain(run):
            seen.append(item)
    assert seen == [0, 1, 2]
    loop.stop()
    loop.stop()


def test_closing_early_cancels_the_work() -> None:
    loop = BackgroundLoop("test")
    cancelled = threading.Event()

    async def run(put: Put) -> None:
        try:
            put("first")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    items = loop.drain(run)
    assert next(items) == "first"
    items.close()
    assert cancelled.wait(5)
    loop.stop()


def test_silence_is_an_error() -> None:
    loop = BackgroundLoop("test")

    async def run(put: Put) -> None:
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError, match="nothing came for 0.05 s"):
        next(loop.drain(run, stall_s=0.05))
    loop.stop()


def test_stopping_ends_what_others_wait_for() -> None:
    loop = BackgroundLoop("test")
    ended: list[BaseException] = []

    async def run(put: Put) -> None:
        put("started")
        await asyncio.sleep(60)

    items = loop.drain(run)
    assert next(items) == "started"

    def wait() -> None:
        try:
            next(items)
        except (asyncio.CancelledError, StopIteration) as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    loop.stop()
    waiting.join(timeout=5)
    assert [type(error) for error in ended] == [asyncio.CancelledError]


# --- the guard -------------------------------------------------------------------------------------------------------

KILLED = """
import multiprocessing, os, signal, sys, time
from generator.guard import Guard

def engine():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as stuck as one can be
    time.sleep(120)

if __name__ == "__main__":
    guard = Guard("EngineCore")
    children = [multiprocessing.get_context("spawn").Process(target=engine, name=n) for n in ("EngineCore", "other")]
    for child in children:
        child.start()
    guard.watch_children()
    print(*(child.pid for child in children), flush=True)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads Linux's /proc")
def test_an_engine_does_not_outlive_a_killed_process(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        engine, other = (int(pid) for pid in process.stdout.readline().split())
        process.wait(timeout=60)
    try:
        deadline = time.monotonic() + 20
        while alive(engine) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not alive(engine)
        assert alive(other)  # somebody else's child is none of the guard's business
    finally:
        for pid in (engine, other):
            if alive(pid):
                os.kill(pid, 9)
