"""Numbers and values in lines for people."""

from __future__ import annotations

import json
from typing import Any


def counted(number: int, noun: str, plural: str = "") -> str:
    """As "1 pair" or "2,000 pairs".

    Args:
        number: How many.
        noun: In the singular.
        plural: Where an s does not make it.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shown(value: Any, longest: int = 80) -> str:
    """A value as JSON (and nearly as TOML) has it, cut at `longest` characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= longest else text[: longest - 3] + "..."
