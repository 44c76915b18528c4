"""Functions that are written as source for the case at hand, since they run very often."""

from __future__ import annotations

import collections
import functools
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final, final

__all__ = ["Source", "compile_file", "compile_text"]

_MOST: Final = 4096
"""Texts that are kept for tracebacks, and whose code is kept."""

_shown: Final[collections.deque[str]] = collections.deque()
"""The names of the texts that `linecache` holds, the oldest first."""


@functools.lru_cache(maxsize=_MOST)
def compile_text(text: str, title: str) -> CodeType:
    """The code of a text, whose lines tracebacks show."""
    return compile_file(text, f"<burn_torch {title} {abs(hash(text)):x}>")


def compile_file(text: str, filename: str) -> CodeType:
    """The code of a text that lies in no file, whose lines tracebacks show."""
    if filename not in linecache.cache:
        _shown.append(filename)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    while len(_shown) > _MOST:  # of programs that are compiled for ever, the oldest lose their lines
        linecache.cache.pop(_shown.popleft(), None)
    return compile(text, filename, "exec")


@final
class Source:
    """Lines of Python that define a function, and the objects that it uses.

    >>> source = Source("double")
    >>> factor = source.name(2)
    >>> with source.block("def double(x):"):
    ...     source.add(f"return x * {factor}")
    >>> source.function("double")(21)
    42

    title    what the file of the function is called in tracebacks
    objects  by their names, what the lines use; equal lines with other objects are compiled once
    """

    def __init__(self, title: str, /, **objects: object) -> None:
        self.title: Final = title
        self.objects: Final = objects
        self._lines: list[str] = []
        self._indent = ""

    def add(self, *lines: str) -> None:
        """Appends lines to the block that is open."""
        self._lines += [self._indent + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Opens a block below a line, such as "if x:"."""
        self.add(head)
        before, self._indent = self._indent, f"{self._indent}    "
        try:
            yield
        finally:
            self._indent = before

    def name(self, value: object, hint: str = "k") -> str:
        """A name for an object that no other one has."""
        number = len(self.objects)
        while (name := f"{hint}{number}") in self.objects:
            number += 1
        self.objects[name] = value
        return name

    @property
    def text(self) -> str:
        """The lines."""
        return "".join(f"{line}\n" for line in self._lines)

    def __len__(self) -> int:
        """The number of lines."""
        return len(self._lines)

    def function(self, name: str) -> Callable[..., Any]:
        """The function of this name that the lines define."""
        body = "".join(f"    {line}\n" for line in [*self._lines, f"return {name}"])
        namespace: dict[str, Any] = {}
        exec(compile_text(f"def make({', '.join(self.objects)}):\n{body}", self.title), namespace)
        function: Callable[..., Any] = namespace["make"](*self.objects.values())
        return function
