"""The settings of every back end, typed once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from generator.errors import GeneratorError

Backend = Literal["auto", "vllm", "openai", "transformers"]
DType = Literal["auto", "bfloat16", "float16", "float32"]
BACKENDS = ("auto", "vllm", "openai", "transformers")
DTYPES = ("auto", "bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """Which back end runs the model, and how.

    Attributes:
        backend: "auto" takes the server at `base_url` when one is given, vLLM where it is installed, else transformers.
        model: What a server calls the model; "" or a name that it does not list means its only model.
        dtype: Precision of weights and arithmetic. "auto" is float32 on a CPU, where it is fast and makes an answer
            independent of what else is in its batch, and the model's own (or the nearest the GPU has) elsewhere.
        context_length: Most tokens of prompt and answer together.
        enforce_eager: vLLM: no compilation; starts minutes sooner and runs somewhat slower.
        kv_cache_gib: vLLM on a CPU: memory for the KV cache (a set VLLM_CPU_KVCACHE_SPACE wins).
        gpu_memory_utilization: vLLM on a GPU: share of the GPU's memory that weights and KV cache may take.
        base_url: Of an OpenAI-compatible server, with its /v1.
        api_key_env: Name of the environment variable that holds the server's key; it may be unset.
        timeout_s: Seconds to wait for a server's answer to one prompt.
        retries: Further tries after a lost connection, a 429 or a 5xx.
        concurrency: Requests that a server gets at once.
        batch_invariant: vLLM: kernels whose results do not depend on what else is in the batch, where the GPU has them.
        batch_size: transformers: most prompts in one batch.
        weights_id: A hash of the weights by whoever resolved the folder; "" means hash them here when it is asked for.
    """

    backend: Backend = "auto"
    model: str = ""
    dtype: DType = "auto"
    context_length: int = 2048
    enforce_eager: bool = True
    kv_cache_gib: float = 1.0
    gpu_memory_utilization: float = 0.6
    base_url: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 60.0
    retries: int = 3
    concurrency: int = 32
    batch_invariant: bool = False
    batch_size: int = 8
    weights_id: str = ""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise GeneratorError(f"generator.backend must be one of {', '.join(BACKENDS)}, got {self.backend!r}")
        if self.dtype not in DTYPES:
            raise GeneratorError(f"generator.dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        for name, least in (("context_length", 2), ("concurrency", 1), ("batch_size", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise GeneratorError(f"generator.{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("kv_cache_gib", "timeout_s"):
            if getattr(self, name) <= 0:
                raise GeneratorError(f"generator.{name} must be more than 0, got {getattr(self, name)}")
        share = self.gpu_memory_utilization
        if not 0 < share <= 1:
            raise GeneratorError(f"generator.gpu_memory_utilization must be in (0, 1], got {share}")


def check_folder(settings: GeneratorSettings, folder: Path) -> None:
    """Refuse a folder without a model, and a context longer than the model was made for.

    Raises:
        GeneratorError: What is missing or too long.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise GeneratorError(f"{folder} holds no model (no config.json): give the folder that the weights resolve to")
    config = json.loads(path.read_text(encoding="utf-8"))
    # Models of text and images keep the language model's figures one level down.
    longest = config.get("text_config", config).get("max_position_embeddings")
    if isinstance(longest, int) and settings.context_length > longest:
        raise GeneratorError(
            f"generator.context_length is {settings.context_length}, but the model in {folder} takes at most {longest}"
        )
