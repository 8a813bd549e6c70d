"""The errors people meet: one line each, gathered here so that the command line and the page treat them alike."""

from __future__ import annotations

import logging

from eval.errors import EvalError
from generator.errors import GeneratorError
from retriever.errors import RetrieverError


class ConfigError(Exception):
    """A configuration that cannot be used: which setting, what was got, what would do."""


class WeightsError(Exception):
    """Weights that cannot be found, fetched or read."""


USER_ERRORS = (ConfigError, WeightsError, RetrieverError, GeneratorError, EvalError)

_log = logging.getLogger(__name__)


def in_words(error: Exception, doing: str) -> str:
    """One line for a visitor of the page.

    Args:
        error: What went wrong. Of what nobody foresaw its kind alone is told, since its text may hold paths and other people's
            things; the log has that, and the traceback.
        doing: In what, for the log ("a comparison").
    """
    if isinstance(error, USER_ERRORS):
        return " ".join(str(error).split())
    _log.error("unexpected error in %s", doing, exc_info=error)
    return f"unexpected {type(error).__name__}; the terminal shows where"
