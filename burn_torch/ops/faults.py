"""Faults that a rule of shapes and types raises where its inputs do not fit."""

from __future__ import annotations

from typing import Final

from burn_torch.core.errors import BurnTorchError, DTypeError, ShapeError

__all__ = ["RuleFault", "dtype_fault", "shape_fault"]


class RuleFault(Exception):
    """A fault that a rule of shapes and types reports; `bind` adds the op's name and what was given."""

    def __init__(self, error: type[BurnTorchError], what: str, expected: str, mend: str) -> None:
        super().__init__(what)
        self.error: Final = error
        self.what: Final = what
        self.expected: Final = expected
        self.mend: Final = mend


def shape_fault(what: str, *, expected: str, mend: str) -> RuleFault:
    """To be raised by a rule whose inputs do not fit in shape."""
    return RuleFault(ShapeError, what, expected, mend)


def dtype_fault(what: str, *, expected: str, mend: str) -> RuleFault:
    """To be raised by a rule whose inputs do not fit in element type."""
    return RuleFault(DTypeError, what, expected, mend)
