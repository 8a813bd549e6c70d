"""GGUF to safetensors: one conversion, after which vLLM and transformers load the folder like any other."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path

from rag_app.errors import WeightsError


def convert(source: Path, target: Path) -> None:
    """Write `source` (one GGUF file) as a bfloat16 safetensors folder with its tokenizer.

    The quantised blocks are expanded to float32 and then rounded to bfloat16, so what the file lost when it was quantised
    stays lost. Takes half a minute and 4 bytes of memory a parameter for a 135M-parameter model.

    Args:
        source: A complete single-file GGUF with tokenizer metadata.
        target: A folder to fill; made when missing.

    Raises:
        WeightsError: The file can't be read as a causal language model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    try:
        with _quiet():
            # local_files_only is written into the saved configuration: fixed, so that every machine makes the same folder.
            tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True)
            model = AutoModelForCausalLM.from_pretrained(
                source.parent,
                gguf_file=source.name,
                local_files_only=True,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
            )
            model.bfloat16()
            # The saved weights are plain tensors; a loader that still saw "gguf" in the configuration would refuse them.
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            model.save_pretrained(target)
            tokenizer.save_pretrained(target)
    except ImportError as error:
        raise WeightsError(f"{source.name} is a GGUF file, and reading it needs a package: {error}") from error
    except Exception as error:  # transformers raises many types for a file it can't read
        why = str(error).strip().splitlines()
        raise WeightsError(
            f"{source} can't be converted to safetensors: {why[0] if why else type(error).__name__}; "
            "give a folder with safetensors instead"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars and remarks off the terminal; errors still come as exceptions."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.CRITICAL)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
