"""Words around numbers."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str, *, grouped: bool = False) -> str:
    """A number with its noun, in the singular or the plural.

    >>> [counted(count, "batch") for count in (0, 1, 2)]
    ['0 batches', '1 batch', '2 batches']
    >>> counted(1, "entry"), counted(12345, "entry", grouped=True)
    ('1 entry', '12,345 entries')
    """
    number = f"{count:,}" if grouped else f"{count}"
    return f"{number} {noun if count == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """The plural of an English noun that forms it by rule."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
