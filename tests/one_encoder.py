"""Settings under which the demo's retrievers share the encoder as it comes, for tests of what is not about checkpoints."""

from __future__ import annotations

from pathlib import Path


def untrained(folder: Path) -> list[str]:
    """Overrides that put cosine, qnorm, dot, dnorm and bm25 on encoder "minilm", whose weights lie in this folder."""
    moved = [f"retrievers.{name}.encoder=minilm" for name in ("cosine", "qnorm", "dot", "dnorm", "bm25")]
    return [f'encoders.minilm.model="{folder}"', *moved]
