"""Numbers in lines for people."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """As "1 pair" or "2,000 pairs".

    Args:
        number: How many.
        noun: In the singular.
        plural: Where an s does not make it.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
