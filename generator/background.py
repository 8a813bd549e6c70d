"""An event loop in a thread of its own, for threads that want answers from asynchronous clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from generator.base import Completion
from generator.errors import GeneratorError

JOIN_S = 10.0

Put = Callable[[Any], None]


class BackgroundLoop:
    """Runs coroutines in the background until it is stopped. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Start a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def drain(
        self, run: Callable[[Put], Coroutine[Any, Any, None]], *, stall_s: float | None = None
    ) -> Generator[Any, None, None]:
        """Run `run(put)` and yield in this thread what it puts, as it comes; closing the generator early cancels it.

        Raises:
            TimeoutError: Nothing came for `stall_s` seconds.
            asyncio.CancelledError: The loop was stopped meanwhile.
            Exception: Whatever `run` raised, after everything that it had put before; a task group's first error.
        """
        items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        end = object()
        future = self.submit(run(items.put))
        future.add_done_callback(lambda _: items.put(end))
        try:
            while (item := items.get(timeout=stall_s)) is not end:
                yield item
            future.result()
        except GeneratorExit:
            raise  # first, since a generator left open is closed at interpreter exit, when the names below are gone
        except queue.Empty:
            raise TimeoutError(f"nothing came for {stall_s} s") from None
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError from None
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            future.cancel()

    def stop(self) -> None:
        """Cancel what still runs and end the thread; calling it twice does nothing."""
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self.submit(_cancel_all()).exception(timeout=JOIN_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=JOIN_S)
        if not self._thread.is_alive():
            self._loop.close()


def collect(
    results: Generator[tuple[int, Completion], None, None], count: int, on_result: Callable[[Completion], None] | None
) -> list[Completion]:
    """Completions of `count` prompts in their order, from (place, completion) as they come.

    Raises:
        GeneratorError: What `results` raised, with how many were finished by then.
    """
    done: dict[int, Completion] = {}
    try:
        with contextlib.closing(results):
            for place, completion in results:
                done[place] = completion
                if on_result is not None:
                    on_result(completion)
    except GeneratorError as error:
        if not done:
            raise
        raise GeneratorError(f"{error} ({len(done)} of {count} prompts were finished)") from error
    return [done[place] for place in range(count)]


async def cancel_tasks(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _cancel_all() -> None:
    await cancel_tasks([task for task in asyncio.all_tasks() if task is not asyncio.current_task()])


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
