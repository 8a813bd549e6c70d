"""MagRAG: retrieval-augmented question answering whose retriever knows that the length of an embedding matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_app.pipeline import Pipeline

__version__ = "0.1.0"
__all__ = ["Pipeline", "__version__"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: `magrag --help` must not wait for pydantic and its like.
    if name == "Pipeline":
        from rag_app.pipeline import Pipeline

        return Pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
