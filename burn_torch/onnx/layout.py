"""Python source laid out as ruff formats it: one line where it fits, else brackets opened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

__all__ = ["WIDTH", "Group", "Keyword", "array", "lines", "literal", "plain"]

WIDTH: Final = 88
"""Columns of a line, as ruff formats where a project says nothing else."""


@dataclass(frozen=True)
class Group:
    """A head, items in brackets, and a tail: `op.conv(`, x, w, `)`."""

    head: str
    items: tuple[Any, ...]
    tail: str

    def __str__(self) -> str:
        end = "," if self.head == "(" and len(self.items) == 1 else ""  # a tuple of one
        return self.head + ", ".join(str(item) for item in self.items) + end + self.tail


@dataclass(frozen=True)
class Keyword:
    """`name=value` in a call."""

    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def lines(prefix: str, expression: object, indent: int) -> list[str]:
    """`prefix expression` in as few lines as fit."""
    return _lines(prefix, expression, "", indent)


def _lines(prefix: str, expression: object, suffix: str, indent: int) -> list[str]:
    space = " " * indent
    flat = f"{space}{prefix}{expression}{suffix}"
    if len(flat) <= WIDTH or not isinstance(expression, Group) or not expression.items:
        return [flat]
    first, last = f"{space}{prefix}{expression.head}", f"{space}{expression.tail}{suffix}"
    inner = " " * (indent + 4) + ", ".join(str(item) for item in expression.items)
    if len(inner) <= WIDTH and expression.head != "(":
        return [first, inner, last]
    body = [line for item in expression.items for line in _item(item, indent + 4)]
    return [first, *body, last]


def _item(item: object, indent: int) -> list[str]:
    if isinstance(item, Keyword):
        return _lines(f"{item.name}=", item.value, ",", indent)
    return _lines("", item, ",", indent)


# -- values ------------------------------------------------------------------------------------------------
def literal(value: object) -> object:
    """An attribute as source."""
    if isinstance(value, np.ndarray):
        return array(value)
    if isinstance(value, tuple):
        return Group("(", tuple(literal(part) for part in value), ")")
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return _quote(value) if isinstance(value, str) else repr(value)


def _quote(text: str) -> str:
    """A string literal in double quotes, of ASCII alone."""
    inner = ascii(text)[1:-1].replace("\\'", "'").replace('"', '\\"') if "'" in text else ascii(text)[1:-1]
    inner = inner if "'" in text else inner.replace('"', '\\"')
    return f'"{inner}"'


def _number(value: Any, dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return "True" if value else "False"
    if dtype.kind != "f":
        return str(int(value))
    number = float(str(value))
    if math.isnan(number):
        return "np.nan"
    return repr(number).replace("e+", "e") if math.isfinite(number) else "np.inf" if number > 0 else "-np.inf"


def _nest(value: Any) -> object:
    if value.ndim == 0:
        return _number(value[()], value.dtype)
    return Group("[", tuple(_nest(part) for part in value), "]")


def array(value: Any, *, bare: bool = False) -> Any:
    """An array as source; `bare` writes lists and numbers where int64 is understood."""
    if bare and value.dtype == np.int64 and value.size and value.ndim <= 1:
        return _nest(value)
    if not value.size:
        shape = literal(tuple(int(size) for size in value.shape))
        return Group("np.zeros(", (shape, f"np.{_name(value.dtype)}"), ")")
    return Group("np.array(", (_nest(value), f"np.{_name(value.dtype)}"), ")")


def _name(dtype: np.dtype[Any]) -> str:
    return "bool_" if dtype.kind == "b" else dtype.name


def plain(text: str, limit: int = 60) -> str:
    """A text of the file for a comment: letters, digits and a few signs, and nothing that could end the comment."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._:/ -,()+") else "?" for c in text)
    return kept if len(kept) <= limit else kept[: limit - 3] + "..."
