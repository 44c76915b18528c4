"""The registry of exports: one small function for each row of the table, which writes its ONNX operators.

    @row("relu")
    def _(w: Writer, x: Wire) -> Wire:
        return w.node("Relu", x)

It is called as the row is: positional inputs, attributes by name.  A tensor is a `Wire`, a number a number (a `Size`
where it depends on a dynamic axis), an absent input None; attributes may hold sizes.  A row with several outputs gives
a tuple, None for what nothing reads.  It raises `Cannot` for a row that it cannot write.

`when` says for which calls the function stands; for others, and for rows that have none, the decomposition of the
row is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from burn_torch.core.checking import checked
from burn_torch.ops.op import Call

__all__ = ["Export", "Rule", "find", "known", "row"]

Rule: TypeAlias = Callable[..., Any]
R = TypeVar("R", bound=Rule)

When: TypeAlias = Callable[[Call, Sequence[bool], int], bool]
"""Takes a call, which of its outputs are read, and the opset: whether the function stands for it."""


@dataclass(frozen=True)
class Export:
    """How a row is written."""

    name: str
    rule: Rule
    when: When | None

    def stands_for(self, call: Call, used: Sequence[bool], opset: int) -> bool:
        """Returns whether it writes this call."""
        return self.when is None or self.when(call, used, opset)


_EXPORTS: Final[dict[str, Export]] = {}


@checked
def row(*names: str, when: When | None = None) -> Callable[[R], R]:
    """Declares how rows of these names are written; one declared later takes the place of one before."""

    def register(rule: R) -> R:
        _EXPORTS.update({name: Export(name, rule, when) for name in names})
        return rule

    return register


def find(name: str) -> Export | None:
    """How a row is written; None if nobody has told."""
    return _EXPORTS.get(name)


def known() -> list[str]:
    """The names of all rows that can be written themselves."""
    return sorted(_EXPORTS)
