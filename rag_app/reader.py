"""The generation side of a configuration: which model reads, and on which back end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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

    settings = GeneratorSettings(**config.generator.model_dump())
    folder = reader_folder(config, log)
    if folder is not None:
        settings = replace(settings, weights_id=weights_hash(folder, data_dir=config.resolved_data_dir()))
    return load_generator(settings, folder, log=log)


def reader_folder(config: Config, log: Callable[[str], None]) -> Path | None:
    """The reader's folder, its weights fetched if need be; None where a server has the model.

    A folder named as generator.model is taken for a server too: it lends its tokenizer, and prompts then go there as
    token ids.

    Raises:
        WeightsError: The weights cannot be had.
    """
    from generator.factory import GeneratorSettings, choose_backend

    model = config.generator.model
    backend, _ = choose_backend(GeneratorSettings(**config.generator.model_dump()))
    if backend == "openai" and not Path(model).expanduser().is_dir():
        return None
    return resolve(model, data_dir=config.resolved_data_dir(), log=log, setting="generator.model")
