"""The configuration of `magrag train-clip`: every setting with its default (configs/clip-shapes.toml explains)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rag_app.config_checks import each_once
from rag_app.config_layers import layered, validated
from rag_app.config_tables import Beta, Count, Device, Natural, NotNegative, Positive, Seed, Share, Table

Direction = Literal["both", "text_to_image", "image_to_text"]
PairSimilarity = Literal["cosine", "qnorm", "dnorm", "dot"]


class ClipDataConfig(Table):
    """[data]: pictures and captions.

    Attributes:
        kind: shapes (generated) or pictures (a data set of the hub, or a folder that the datasets library reads).
        seed: Of what is generated.
        train: Pictures to train on; 0 takes all of a data set.
        test: Pictures of the evaluation; 0 takes all of a data set.
        evaluate: Which generated part is evaluated on: test, or dev while a recipe is being chosen.
        captions: A generated picture's.
        image_size: Pixels a side of a generated picture.
        noise: Standard deviation of a generated picture's noise, in steps of 256.
        hub: The data set.
        subset: Its configuration.
        train_split: Which part is trained on; parts are joined with "+".
        test_split: Which part is evaluated on.
        image_column: Holds the picture, or its file's path below `images`; columns joined with "/" are the path's parts.
        caption_column: Holds a picture's caption or captions.
        images: Folder of the pictures, where the data set has paths.
        workers: Pictures read at once.
    """

    kind: Literal["shapes", "pictures"] = "shapes"
    seed: Seed = 0
    train: Natural = 4000
    test: Natural = 400
    evaluate: Literal["test", "dev"] = "test"
    captions: Count = 3
    image_size: Annotated[int, Field(ge=16)] = 32
    noise: NotNegative = 8.0
    hub: str = ""
    subset: str = ""
    train_split: str = "train"
    test_split: str = "test"
    image_column: str = "image"
    caption_column: str = "caption"
    images: str = ""
    workers: Count = 8


class TowerConfig(Table):
    """[model.text] and [model.image]: a transformer's size.

    Attributes:
        hidden: Width.
        layers: Blocks.
        heads: Of attention; they divide the width.
        intermediate: Width of the layer between.
    """

    hidden: Count = 64
    layers: Count = 2
    heads: Count = 4
    intermediate: Count = 128


class ClipModelConfig(Table):
    """[model]: a CLIP of one's own size, or one of the hub.

    Attributes:
        name: A hub id or folder of a CLIP; "" builds one from the settings below, whose words are those of the shapes.
        pretrained: Take its weights too; otherwise its sizes, tokenizer and image processing alone.
        dim: Of the embeddings.
        patch: Pixels a side of a patch.
        text: The text tower.
        image: The image tower.
    """

    name: str = ""
    pretrained: bool = False
    dim: Count = 64
    patch: Count = 8
    text: TowerConfig = Field(default_factory=TowerConfig)
    image: TowerConfig = Field(default_factory=TowerConfig)


class ClipTrainingConfig(Table):
    """[training]: the recipe; `retriever.training.settings.TrainingSettings` describes each.

    Attributes:
        device: auto takes a GPU where there is one.
        eval_batch_size: Pictures or captions encoded at once.
    """

    steps: Count = 500
    batch_size: Annotated[int, Field(ge=2)] = 128
    learning_rate: Positive = 2e-3
    warmup: Share = 0.1
    weight_decay: NotNegative = 0.01
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.98)
    eps: Positive = 1e-8
    clip: NotNegative = 1.0
    scale: Literal["fixed", "matched"] = "matched"
    alpha: Positive = 20.0
    precision: Literal["float32", "bfloat16"] = "float32"
    device: Device = "auto"
    eval_batch_size: Count = 256


class GridConfig(Table):
    """[grid]: what is trained, every direction with every similarity and seed.

    Attributes:
        directions: Of the loss.
        similarities: The query is the side that asks; with both, the text.
        seeds: Of weights and order.
    """

    directions: Annotated[tuple[Direction, ...], Field(strict=False, min_length=1)] = (
        "both",
        "text_to_image",
        "image_to_text",
    )
    similarities: Annotated[tuple[PairSimilarity, ...], Field(strict=False, min_length=1)] = (
        "cosine",
        "qnorm",
        "dnorm",
        "dot",
    )
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1)] = (0, 1)


class ClipConfig(Table):
    """The whole tree."""

    data: ClipDataConfig = Field(default_factory=ClipDataConfig)
    model: ClipModelConfig = Field(default_factory=ClipModelConfig)
    training: ClipTrainingConfig = Field(default_factory=ClipTrainingConfig)
    grid: GridConfig = Field(default_factory=GridConfig)

    def recipe(self) -> dict[str, Any]:
        """What figures depend on, as JSON values: not where and how fast they are computed."""
        speed = {"data": {"workers"}, "training": {"device", "eval_batch_size"}}
        return self.model_dump(mode="json", exclude=speed)

    @model_validator(mode="after")
    def _fits(self) -> ClipConfig:
        data, model = self.data, self.model
        for name in ("directions", "similarities", "seeds"):
            each_once(f"grid.{name}", getattr(self.grid, name))
        for side, tower in (("text", model.text), ("image", model.image)):
            if tower.hidden % tower.heads:
                raise ValueError(
                    f"model.{side}.heads must divide model.{side}.hidden {tower.hidden}, got {tower.heads}"
                )
        if data.kind == "pictures" and not (data.hub and model.name):
            raise ValueError("data.kind pictures needs data.hub, a data set, and model.name, a CLIP that knows words")
        if data.kind == "shapes":
            if model.name:
                raise ValueError(
                    f'data.kind shapes trains a model of its own words: set model.name "", got "{model.name}"'
                )
            if data.image_size % model.patch:
                raise ValueError(f"model.patch must divide data.image_size {data.image_size}, got {model.patch}")
            if not (data.train and data.test):
                raise ValueError("data.train and data.test must be at least 1 where data.kind is shapes")
        return self


def load_clip_config(path: str | Path, overrides: Sequence[str] = ()) -> ClipConfig:
    """Read a configuration.

    Args:
        path: A TOML file.
        overrides: "a.b=value" each, laid over it.

    Raises:
        ConfigError: What cannot be used, where it came from and what would do.
    """
    return validated(ClipConfig, layered(ClipConfig, ClipConfig().model_dump(), path, overrides))
