"""The generation side of a configuration: which model reads, and on which back end."""

from __future__ import annotations

from collections.abc import Callable

from generator.base import Generator
from rag_app.config import Config
from rag_app.weights import resolve, weights_hash


def load_reader(config: Config, log: Callable[[str], None]) -> Generator:
    """Load the model that [generator] names.

    Raises:
        WeightsError: Its weights cannot be had.
        GeneratorError: The back end cannot be started.
    """
    from generator.factory import GeneratorSettings, load_generator

    settings = config.generator
    data_dir = config.resolved_data_dir()
    folder = resolve(settings.model, data_dir=data_dir, log=log, setting="generator.model")
    weights_id = weights_hash(folder, data_dir=data_dir)
    return load_generator(GeneratorSettings(**settings.model_dump(), weights_id=weights_id), folder, log=log)
