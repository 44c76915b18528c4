"""Words around numbers."""

from __future__ import annotations

__all__ = ["counted", "one_line", "printable"]


def counted(count: int, noun: str, *, grouped: bool = False) -> str:
    """A number with its noun, in the singular or the plural.

    >>> [counted(count, "batch") for count in (0, 1, 2)]
    ['0 batches', '1 batch', '2 batches']
    >>> counted(2, "epoch")
    '2 epochs'
    >>> counted(1, "entry"), counted(12345, "entry", grouped=True)
    ('1 entry', '12,345 entries')
    """
    number = f"{count:,}" if grouped else f"{count}"
    return f"{number} {noun if count == 1 else plural(noun)}"


def printable(text: str) -> str:
    """Text for a terminal: what a file says cannot move the cursor, colour anything or turn the line around.

    Ends of lines stay.

    >>> print(printable("a\\x1b[2Jb"))
    a\\x1b[2Jb
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Text for a terminal, its ends of lines escaped too."""
    return printable(text).replace("\n", "\\n")


def plural(noun: str) -> str:
    """The plural of an English noun that forms it by rule."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    hisses = noun.endswith(("s", "x", "ch", "sh")) and not noun.endswith("epoch")  # whose "ch" is a "k"
    return noun + ("es" if hisses else "s")
