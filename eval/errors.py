"""The one error type this package raises for mistakes a person can mend."""

from __future__ import annotations


class EvalError(Exception):
    """What was wrong, what was got and what to do, in one line (shown to people without a traceback)."""
