"""What no single table of the configuration can see: names that nothing has, settings that do not go together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rag_app.config_layers import nearest
from rag_app.config_tables import CLOSED_BOOK, EncoderConfig, Kind, RetrieverConfig

if TYPE_CHECKING:
    from rag_app.config import Config

READER_TABLES = ("generator.", "prompt.", "decoding.")
"""What a reader of an evaluation may set."""

COMPOSED: tuple[Kind, ...] = ("hybrid", "rerank", "iterative")
"""Kinds that stand on other retrievers and take encoder and index from them."""

# The kinds each setting goes with; `kind` and `k` go with all.
_KINDS_OF: dict[str, tuple[Kind, ...]] = {
    "encoder": ("dense", "bm25", "trec_run"),
    "similarity": ("dense",),
    "gamma_q": ("dense",),
    "gamma_d": ("dense",),
    "searcher": ("dense",),
    "stemmer": ("bm25",),
    "k1": ("bm25",),
    "b": ("bm25",),
    "of": COMPOSED,
    "depth": ("hybrid", "rerank"),
    "rrf_k": ("hybrid",),
    "model": ("rerank",),
    "max_tokens": ("rerank",),
    "batch_size": ("rerank",),
    "device": ("rerank",),
    "rounds": ("iterative",),
    "width": ("iterative",),
    "path": ("trec_run",),
}
_NEEDED: dict[Kind, tuple[str, ...]] = {
    "hybrid": ("of",),
    "rerank": ("of", "model"),
    "iterative": ("of",),
    "trec_run": ("path",),
}


def problems(config: Config) -> Iterable[str]:
    """Every mistake, each in a line that begins with the setting's dotted name."""
    for table, names in (
        ("encoders", config.encoders),
        ("retrievers", config.retrievers),
        ("eval.readers", config.eval.readers),
    ):
        for name in names:
            if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
                yield f'{table}: the name "{name}" may hold letters, digits, "_", "-" and "." only'
    yield from _encoder_problems(config)
    for name, retriever in config.retrievers.items():
        path = f"retrievers.{name}"
        yield from _misplaced_keys(path, retriever)
        if retriever.kind not in COMPOSED and retriever.encoder not in config.encoders:
            yield f"{path}.encoder: {unknown('encoder', retriever.encoder, config.encoders)}"
        for key in ("gamma_q", "gamma_d"):
            given = getattr(retriever, key) is not None
            other = retriever.gamma_d if key == "gamma_q" else retriever.gamma_q
            # Without both, the encoder's checkpoint says them (rag_app.stores).
            if retriever.similarity == "learnable" and not given and other is not None:
                yield f"{path}.{key} is missing: give both gammas, or none to take those the encoder was trained to"
            if retriever.similarity != "learnable" and given:
                yield f'{path}.{key} goes with similarity "learnable" only, got similarity "{retriever.similarity}"'
    yield from _part_problems(config)
    for name in config.page.retrievers:
        if name not in config.retrievers:
            yield f"page.retrievers: {unknown('retriever', name, config.retrievers)}"
    if config.chunking.overlap >= config.chunking.max_tokens:
        most = config.chunking.max_tokens
        yield f"chunking.overlap must be less than chunking.max_tokens ({most}), got {config.chunking.overlap}"
    if config.decoding.max_tokens >= config.generator.context_length:
        yield (
            f"decoding.max_tokens must be less than generator.context_length ({config.generator.context_length}), "
            f"got {config.decoding.max_tokens}"
        )
    for name in config.eval.retrievers:
        if name != CLOSED_BOOK and name not in config.retrievers:
            yield f"eval.retrievers: {unknown('retriever', name, [*config.retrievers, CLOSED_BOOK])}"
    for name, overrides in config.eval.readers.items():
        for override in overrides:
            if not override.startswith(READER_TABLES):
                yield (
                    f"eval.readers.{name}: a reader is made of {', '.join(READER_TABLES)} settings, as in "
                    f'"prompt.style=chat", got "{override}"'
                )
    rules = {"eval.rule": config.eval.rule}
    rules |= {f"eval.datasets.{name}.rule": dataset.rule for name, dataset in config.eval.datasets.items()}
    for place, rule in rules.items():
        if rule:
            yield from _rule_problems(place, rule)


def _misplaced_keys(path: str, retriever: RetrieverConfig) -> Iterable[str]:
    """Settings that the retriever's kind has no use for, and those it cannot do without."""
    for key, kinds in _KINDS_OF.items():
        value = getattr(retriever, key)
        # A default that is written out does no harm.
        if retriever.kind not in kinds and value != RetrieverConfig.model_fields[key].default:
            allowed = " or ".join(f'"{kind}"' for kind in kinds)
            yield f'{path}.{key} goes with kind {allowed} only, got kind "{retriever.kind}"'
    for key in _NEEDED.get(retriever.kind, ()):
        if getattr(retriever, key) is None:
            yield f'{path}.kind "{retriever.kind}" needs {key}, which is missing'


def _part_problems(config: Config) -> Iterable[str]:
    """What is wrong with the retrievers that retrievers stand on."""
    for name, retriever in config.retrievers.items():
        path, parts = f"retrievers.{name}.of", retriever.of or ()
        for part in parts:
            if part not in config.retrievers:
                yield f"{path}: {unknown('retriever', part, config.retrievers)}"
        if len(set(parts)) < len(parts):
            yield f"{path} names a retriever twice"
        if retriever.kind == "hybrid" and len(parts) == 1:
            yield f"{path} must name at least two retrievers to fuse, got one"
        if retriever.kind in ("rerank", "iterative") and len(parts) > 1:
            yield f'{path} must name one retriever for kind "{retriever.kind}", got {len(parts)}'
    for name, retriever in config.retrievers.items():
        below = list(_below(config, name, (name,)))
        for trail in below:
            if trail[-1] in trail[:-1]:
                yield f"retrievers.{name}.of leads in a circle: {' -> '.join(trail)}"
        if retriever.kind == "iterative":
            for trail in below:
                if config.retrievers[trail[-1]].kind == "trec_run":
                    yield (
                        f"retrievers.{name}.of leads to {trail[-1]}, a TREC run, which answers the questions of its file "
                        "and not those of a later round"
                    )


def _below(config: Config, name: str, trail: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    """The way to every retriever that `name` stands on; one that meets itself ends there."""
    for part in config.retrievers[name].of or ():
        yield (*trail, part)
        if part not in trail:
            yield from _below(config, part, (*trail, part))


def _rule_problems(place: str, rule: str) -> Iterable[str]:
    from eval.errors import EvalError
    from eval.metrics import get_rule

    try:
        get_rule(rule)
    except EvalError as error:
        yield f"{place}: {error}"


def _encoder_problems(config: Config) -> Iterable[str]:
    for name, encoder in config.encoders.items():
        yield from preset_problems(f"encoders.{name}", encoder)


def preset_problems(table: str, encoder: EncoderConfig) -> Iterable[str]:
    """A preset that there is not."""
    from retriever.encoder import PRESETS

    if encoder.preset not in PRESETS:
        yield f"{table}.preset: {unknown('preset', encoder.preset, PRESETS)}"


def each_once(setting: str, values: Sequence[object]) -> None:
    """Refuse a list that has a value twice.

    Raises:
        ValueError: The setting and its values.
    """
    if len(set(values)) < len(values):
        raise ValueError(f"{setting} must name each once, got {', '.join(map(str, values))}")


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """That there is no such name, the nearest one, and which there are."""
    names = list(known)
    return f'there is no {what} "{name}"{nearest(name, names)} (there are: {", ".join(names) or "none"})'
