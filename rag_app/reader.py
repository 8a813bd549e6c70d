"""The generation side of a configuration: which model reads, and on which back end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from generator.base import Generator
from rag_app.adapters import check_base, find_adapter, merged, read_description
from rag_app.config import Config
from rag_app.errors import ConfigError
from rag_app.weight_hashes import weights_hash
from rag_app.weights import resolve

if TYPE_CHECKING:
    from generator.settings import GeneratorSettings


def load_reader(config: Config, log: Callable[[str], None]) -> Generator:
    """Load the model that [generator] names.

    Raises:
        WeightsError: Its weights cannot be had.
        GeneratorError: The back end cannot be started.
    """
    from generator.factory import load_generator

    settings = generator_settings(config)
    folder = reader_folder(config, log)
    if folder is not None:
        settings = replace(settings, weights_id=weights_hash(folder, data_dir=config.resolved_data_dir()))
    return load_generator(settings, folder, log=log)


def reader_folder(config: Config, log: Callable[[str], None]) -> Path | None:
    """The reader's folder, its weights fetched if need be; None where a server has the model.

    A folder named as generator.model is taken for a server too: it lends its tokenizer, and prompts then go there as
    token ids.

    Raises:
        ConfigError: An adapter that is not there, does not fit the model or is meant for a server.
        WeightsError: The weights cannot be had.
    """
    from generator.factory import choose_backend

    model = config.generator.model
    backend, _ = choose_backend(generator_settings(config))
    if backend == "openai":
        if config.generator.adapter:
            raise ConfigError(
                "generator.adapter is for a model that runs here; a server has weights of its own: set "
                'generator.adapter to "", and serve a model with the adapter merged (`magrag fetch` says where it lies)'
            )
        if not Path(model).expanduser().is_dir():
            return None
    data_dir = config.resolved_data_dir()
    folder = resolve(model, data_dir=data_dir, log=log, setting="generator.model")
    if not config.generator.adapter:
        return folder
    adapter = find_adapter(config.generator.adapter, "generator.adapter")
    check_base(adapter, folder, model, "generator.adapter", data_dir)
    trained = read_description(adapter, "generator.adapter").get("prompt", {})
    asked = config.prompt.model_dump(mode="json")
    for name in ("style", "few_shot", "instruction"):
        if name in trained and trained[name] != asked[name]:
            log(
                f"the reader's adapter was trained with prompt.{name} = {json.dumps(trained[name])} and is asked with "
                f"{json.dumps(asked[name])}: it may answer worse"
            )
    return merged(folder, adapter, data_dir=data_dir, log=log)


def generator_settings(config: Config) -> GeneratorSettings:
    """What a back end is told of [generator]; adapters are merged before it sees the weights."""
    from generator.factory import GeneratorSettings

    return GeneratorSettings(**config.generator.model_dump(exclude={"adapter"}))
