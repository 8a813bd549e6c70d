"""The environment variables that vLLM and its processes read."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from generator.settings import GeneratorSettings

# So many cores or fewer all compute.
FEW_CORES = 4
BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
# Variables that an engine of this process set, and not the person.
_SET_HERE: set[str] = set()


def prepare_environment(settings: GeneratorSettings) -> None:
    """Set what vLLM reads from the environment, here and in its processes; what a person has set stays."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # A fork of a process with threads (torch's, a web page's) can deadlock.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    # vLLM on a CPU leaves a core to its scheduler, which is half of a machine with two and hardly used.
    if (os.cpu_count() or 1) <= FEW_CORES:
        os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
    if settings.batch_invariant and BATCH_INVARIANT not in os.environ:
        os.environ[BATCH_INVARIANT] = "1"
        _SET_HERE.add(BATCH_INVARIANT)
    elif not settings.batch_invariant and BATCH_INVARIANT in _SET_HERE:  # an engine before this one
        os.environ.pop(BATCH_INVARIANT, None)
        _SET_HERE.discard(BATCH_INVARIANT)
    # vLLM speaks before it has read that level, and not at all of it when it was imported earlier.
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"].upper())


def person_wants_batch_invariance() -> bool:
    """Whether the variable is on, and not because an engine of this process set it."""
    return BATCH_INVARIANT not in _SET_HERE and os.environ.get(BATCH_INVARIANT) == "1"


@contextlib.contextmanager
def variables(**values: str) -> Iterator[None]:
    """Set variables for child processes that start within, unless they are set already."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
