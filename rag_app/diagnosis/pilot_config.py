"""The configuration of a pilot: that of a training, and what is tried and ranked (configs/pilot-cpu.toml explains)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from rag_app.config import Config
from rag_app.config_checks import each_once
from rag_app.config_tables import Natural, Seed, Table
from rag_app.training.config import TrainConfig, load_as


class PilotTable(Table):
    """[pilot]: how often it is trained, and among what each checkpoint ranks.

    Attributes:
        seeds: Of the trainings; each is trained for cosine, qnorm and dnorm.
        others: Passages that no question marks, drawn with `seed`, beside all that the judged questions mark; 0 takes all.
        seed: Of that draw.
    """

    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, strict=False)] = (0, 1)
    others: Natural = 1000
    seed: Seed = 0

    @model_validator(mode="after")
    def _each_once(self) -> PilotTable:
        each_once("pilot.seeds", self.seeds)
        return self


class PilotConfig(TrainConfig):
    """The whole tree. Its similarity, seed, encoder and data_dir are the pilot's to choose, and what stands there is not used."""

    pilot: PilotTable = Field(default_factory=PilotTable)

    def trained(self, config: Config, encoder: str) -> TrainConfig:
        """The training of a configured encoder."""
        own = {name: getattr(self, name) for name in TrainConfig.model_fields}
        found = {"encoder": config.encoder(encoder), "data_dir": str(config.resolved_data_dir())}
        return TrainConfig(**{**own, **found})


def load_pilot_config(path: str | Path, overrides: Sequence[str] = ()) -> PilotConfig:
    """Read a pilot's configuration; that of a training will do.

    Raises:
        ConfigError: As `rag_app.training.config.load_train_config`.
    """
    return load_as(PilotConfig, path, overrides)
