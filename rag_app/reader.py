"""The generation side of a configuration: which model reads, and on which back end."""

from __future__ import annotations

from collections.abc import Callable

from generator.base import Generator
from rag_app.config import Config
from rag_app.weights import resolve


def load_reader(config: Config, log: Callable[[str], None]) -> Generator:
    """Load the model that [generator] names.

    Raises:
        WeightsError: Its weights cannot be had.
        GeneratorError: The back end cannot be started.
    """
    from generator.factory import GeneratorSettings, load_generator

    settings = config.generator
    folder = resolve(settings.model, data_dir=config.resolved_data_dir(), log=log, setting="generator.model")
    return load_generator(GeneratorSettings(**settings.model_dump()), folder, log=log)
