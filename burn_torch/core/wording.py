"""Texts for people: numbers with nouns, values and faults in short, control characters written out."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import Repr
from typing import Any, Final, TextIO, final

__all__ = ["VisibleText", "counted", "described", "first_line", "one_line", "visible"]


def visible(text: str, kept: str = "\n\t") -> str:
    """A text for a terminal, with what no reader sees written out, but for ends of lines and tabs.

    So the words of a file or a user cannot move the cursor, colour anything or turn a line around.

    >>> visible("a\\x1b[2Jb\\u202ec")
    'a\\\\x1b[2Jb\\\\u202ec'
    """
    if text.translate(dict.fromkeys(map(ord, kept))).isprintable():  # the most frequent case by far
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


@final
class VisibleText:
    """A stream of text whose control characters are written out; all else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes the text as `visible` gives it."""
        self._stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """The same for several."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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


def one_line(text: str) -> str:
    """A text on one line: its ends of lines and tabs are written out too."""
    return visible(text, "")


def first_line(fault: BaseException) -> str:
    """The first line of what an exception says; its class where it says nothing.

    >>> first_line(ValueError("no number\\n  given: x")), first_line(AssertionError())
    ('no number', 'AssertionError')
    """
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]


def plural(noun: str) -> str:
    """The plural of an English noun that forms it by rule."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    hisses = noun.endswith(("s", "x", "ch", "sh")) and not noun.endswith("epoch")  # whose "ch" is a "k"
    return noun + ("es" if hisses else "s")


def described(value: object) -> str:
    """A value for a message: short, with its type."""
    kind = type(value)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None and shape:
        return f"{kind.__module__}.{kind.__qualname__} {tuple(shape)} {dtype}"
    if value is None or isinstance(value, type):
        return repr(value)
    text = _short.repr(value)
    return text if kind in (bool, int, float, str) else f"{text}, a {kind.__qualname__}"


_short: Final = Repr()
_short.maxstring = _short.maxother = 60
_short.maxlevel = 3
