"""The errors people meet: one line each, gathered here so that the command line and the page treat them alike."""

from __future__ import annotations

from eval.errors import EvalError
from generator.errors import GeneratorError
from retriever.errors import RetrieverError


class ConfigError(Exception):
    """A configuration that cannot be used: which setting, what was got, what would do."""


class WeightsError(Exception):
    """Weights that cannot be found, fetched or read."""


USER_ERRORS = (ConfigError, WeightsError, RetrieverError, GeneratorError, EvalError)
