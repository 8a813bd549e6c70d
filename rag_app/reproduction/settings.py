"""The configuration of `magrag reproduce`: configs/reproduce-cpu.toml names and explains every setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rag_app.clip.config import ClipConfig, load_clip_config
from rag_app.config_checks import each_once
from rag_app.config_layers import layered, validated
from rag_app.config_tables import Count, Natural, Positive, Seed, Similarity, Table, Texts
from rag_app.errors import ConfigError
from rag_app.training.config import DevSetConfig, TrainConfig, load_train_config

Seeds = Annotated[tuple[Seed, ...], Field(min_length=1, strict=False)]
Similarities = Annotated[tuple[Similarity, ...], Field(min_length=1, strict=False)]
_START = "reproduce-"


class SymmetryConfig(Table):
    """[symmetry]: sentence pairs, where s(a, b) must equal s(b, a).

    Attributes:
        sets: Files of pairs with people's scores, by name.
        pairs: A file of the same kind to train on.
        least: Pairs that people score at least this are trained on as (query, positive).
        n: Pairs of each set, drawn with seed 0; 0 scores all.
        similarities: What is trained for; cosine is what the others are compared with.
        seeds: Of the trainings.
        set: Settings of these trainings.
    """

    sets: dict[str, str] = Field(default_factory=dict)
    pairs: str = "stsb/sts.train.jsonl"
    least: float = 4.0
    n: Natural = 1500
    similarities: Similarities = ("cosine", "dot", "qnorm", "dnorm")
    seeds: Seeds = (0,)
    set: Texts = ()


class InitialisationConfig(Table):
    """[initialisation]: the same training from the model's weights and from random ones.

    Attributes:
        similarities: What is trained for, cosine among them.
        seeds: Of the trainings; the random weights have seed 0.
        set: Settings of these trainings.
    """

    similarities: Similarities = ("cosine", "qnorm")
    seeds: Seeds = (0,)
    set: Texts = ()


class PairsConfig(Table):
    """[pairs]: more and more training pairs.

    Attributes:
        sizes: How many pairs, the smallest first; each is drawn with the seed, and the larger hold the smaller.
        similarities: What is trained for, cosine among them.
        seeds: Of the trainings.
        set: Settings of these trainings.
    """

    sizes: Annotated[tuple[Count, ...], Field(min_length=2, strict=False)] = (1000, 5000, 20_000)
    similarities: Similarities = ("cosine", "qnorm")
    seeds: Seeds = (0,)
    set: Texts = ()


class GradientsConfig(Table):
    """[gradients]: what a query's norm does to the loss and its gradient; nothing is trained.

    Attributes:
        queries: The first so many pairs; each query is compared with all their passages.
        factors: By which queries are lengthened.
        dot: An adapter that was trained for dot; "" leaves the comparison of query norms out.
        dnorm: The same for dnorm.
    """

    queries: Annotated[int, Field(ge=3)] = 256
    factors: Annotated[tuple[Positive, ...], Field(min_length=1, strict=False)] = (0.5, 2.0, 4.0)
    dot: str = "minilm-dot"
    dnorm: str = "minilm-dnorm"


class GammaConfig(Table):
    """[gamma]: where learnable exponents go.

    Attributes:
        rates: Their learning rates, by what figures call them; "encoder" is the encoder's, as in the paper.
        seeds: Of the trainings; an interval needs two.
        set: Settings of these trainings.
    """

    rates: dict[str, Positive | Literal["encoder"]] = Field(default_factory=dict)
    seeds: Seeds = (0, 1, 2)
    set: Texts = ()


class ClipExperimentConfig(Table):
    """[clip]: two towers on pictures and captions.

    Attributes:
        config: A configuration of `magrag train-clip`, beside this file.
        set: Settings that are changed in it.
    """

    config: str = "clip-shapes.toml"
    set: Texts = ()


class ReproduceConfig(Table):
    """The whole tree.

    Attributes:
        data: Folder that the paths of data start from.
        training: The training that all are made of, a file beside this configuration.
        train_pairs: What is trained on, in place of that file's.
        set: Settings that all trainings change in it, as --set takes them.
        sets: Judged sets that rankings are compared on, each cut to a pool.
        symmetry: Symmetric tasks.
        initialisation: Random against pre-trained weights.
        pairs: How much data.
        gradients: Dynamics.
        gamma: Learnable exponents.
        clip: Pictures and captions.
    """

    data: str = ""
    training: str = "train-cpu.toml"
    train_pairs: str = ""
    set: Texts = ()
    sets: dict[str, DevSetConfig] = Field(default_factory=dict)
    symmetry: SymmetryConfig = Field(default_factory=SymmetryConfig)
    initialisation: InitialisationConfig = Field(default_factory=InitialisationConfig)
    pairs: PairsConfig = Field(default_factory=PairsConfig)
    gradients: GradientsConfig = Field(default_factory=GradientsConfig)
    gamma: GammaConfig = Field(default_factory=GammaConfig)
    clip: ClipExperimentConfig = Field(default_factory=ClipExperimentConfig)

    @model_validator(mode="after")
    def _fits(self) -> ReproduceConfig:
        """What would be found out after the trainings, or would make an interval of the same training twice."""
        for table in ("symmetry", "initialisation", "pairs", "gamma"):
            for name in ("similarities", "seeds", "sizes"):
                each_once(f"{table}.{name}", getattr(getattr(self, table), name, ()))
        for table in ("initialisation", "pairs"):
            names = getattr(self, table).similarities
            if "cosine" not in names:
                raise ValueError(
                    f"{table}.similarities must have cosine, which the others are compared with, got {', '.join(names)}"
                )
        return self

    def path(self, name: str) -> str:
        """A path of data."""
        return str(Path(self.data) / name)

    def train_config(self, overrides: Sequence[str] = ()) -> TrainConfig:
        """The training, with the settings that all change and these over them.

        Raises:
            ConfigError: See `load_train_config`.
        """
        config = load_train_config(self.training, [*self.set, *overrides])
        if not self.train_pairs:
            return config
        data = config.data.model_copy(update={"pairs": self.path(self.train_pairs)})
        return config.model_copy(update={"data": data})

    def clip_config(self) -> ClipConfig:
        """The two towers' configuration.

        Raises:
            ConfigError: See `load_clip_config`.
        """
        return load_clip_config(self.clip.config, self.clip.set)

    def seeds(self, experiment: str) -> int:
        """How many trainings of an experiment differ in the seed alone; 0 where it trains none."""
        if experiment == "clip":
            return len(self.clip_config().grid.seeds)
        return len(getattr(getattr(self, experiment), "seeds", ()))

    def identity(self, experiment: str) -> dict[str, Any]:
        """What decides an experiment's figures, as JSON values; where data lie does not."""
        if experiment == "clip":
            return self.clip_config().recipe()
        own = getattr(self, experiment)
        training = self.train_config(getattr(own, "set", ())).identity()
        training["data"] = {key: value for key, value in training["data"].items() if key != "pairs"}
        # Of overrides it is what they come to that counts.
        table = {key: value for key, value in own.model_dump(mode="json").items() if key != "set"}
        sets = {name: one.model_dump(mode="json") for name, one in self.sets.items()}
        return {"training": training, "train_pairs": self.train_pairs, "sets": sets, experiment: table}


def find_configuration(name: str) -> Path:
    """The file that a person means: a TOML file, or the NAME of configs/reproduce-NAME.toml.

    Raises:
        ConfigError: There is none; the message lists those that there are.
    """
    if name.endswith(".toml"):
        return Path(name).expanduser()
    known: dict[str, Path] = {}
    # The folder one is in, and a checkout that one is not in.
    for folder in (Path("configs"), Path(__file__).resolve().parents[2] / "configs"):
        for path in sorted(folder.glob(f"{_START}*.toml")):
            known.setdefault(path.stem.removeprefix(_START), path)
    if name not in known:
        there = f" (there is {', '.join(known)})" if known else ""
        raise ConfigError(f"there is no configs/{_START}{name}.toml to reproduce by{there}: give a name or a file")
    return known[name]


def load_reproduction(path: Path, overrides: Sequence[str] = ()) -> ReproduceConfig:
    """Read a configuration.

    Args:
        path: A TOML file; its `training` and `clip.config` are looked for beside it.
        overrides: "a.b=value" each, laid over it.

    Raises:
        ConfigError: What cannot be used, where it came from and what would do.
    """
    defaults = ReproduceConfig().model_dump(exclude_none=True)
    config = validated(ReproduceConfig, layered(ReproduceConfig, defaults, path, overrides))
    clip = config.clip.model_copy(update={"config": str(path.parent / config.clip.config)})
    return config.model_copy(update={"training": str(path.parent / config.training), "clip": clip})
