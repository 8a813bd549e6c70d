"""GGUF to safetensors: one conversion, after which vLLM and transformers load the folder like any other."""

from __future__ import annotations

from pathlib import Path

from generator.quiet import quiet_transformers
from rag_app.errors import WeightsError


def convert(source: Path, target: Path) -> None:
    """Write `source` (one GGUF file) as a bfloat16 safetensors folder with its tokenizer.

    The quantised blocks are expanded to float32 and then rounded to bfloat16; what the file lost when it was quantised
    stays lost. Takes 4 bytes of memory a parameter, and half a minute for 135M parameters.

    Args:
        source: A complete single-file GGUF with tokenizer metadata.
        target: A folder to fill; made when missing.

    Raises:
        WeightsError: The file can't be read as a causal language model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    try:
        with quiet_transformers():
            # local_files_only is saved with the tokenizer: fixed, so that every machine makes the same folder.
            tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True)
            model = AutoModelForCausalLM.from_pretrained(
                source.parent,
                gguf_file=source.name,
                local_files_only=True,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
            )
            model.bfloat16()
            # The saved weights are plain tensors; a loader that still read "gguf" here would refuse them.
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
