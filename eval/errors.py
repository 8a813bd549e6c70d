"""The one error type this package raises for mistakes a person can mend, with a kind for wrong options."""

from __future__ import annotations


class EvalError(Exception):
    """What was wrong, what was got and what to do, in one line (shown to people without a traceback)."""


class UsageError(EvalError):
    """An EvalError about an option of the command rather than a file: the command line ends with status 2."""


class Stopped(EvalError):
    """Somebody asked a run to stop, and it did between two batches; the same run started again goes on."""
