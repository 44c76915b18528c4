"""Defines what metrics do with the tensors of an item: take them off the tape, leave out padding, refuse what does
not fit.
"""

from __future__ import annotations

import copy
from typing import TypeVar

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.tensor import Tensor

__all__ = ["changed", "exact", "fitting_scores", "not_padding", "on_leaf", "require_positive", "same_shape"]

M = TypeVar("M")


def on_leaf(x: Tensor) -> Tensor:
    """The value without gradients, so that no metric holds a tape."""
    while x.device.is_autodiff():
        x = x.inner()
    return x


def exact(x: Tensor) -> Tensor:
    """The value without gradients, in float64 where the device has it and else in float32."""
    x = on_leaf(x)
    return x.cast(DType.F64 if x.device.supports_dtype(DType.F64) else DType.F32)


def not_padding(targets: Tensor, pad_token: int) -> Tensor:
    """Returns where a target counts."""
    return on_leaf(targets).not_equal(pad_token)


def changed(metric: M, **fields: object) -> M:
    """A fresh metric like this one, with other settings."""
    other = copy.copy(metric)
    for name, value in fields.items():
        setattr(other, name, value)
    other.clear()  # type: ignore[attr-defined]  # every metric has it
    return other


def fitting_scores(reader: str, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (*items, classes) and targets (*items,), off the tape.  Raises: ShapeError."""
    scores, targets = on_leaf(scores), on_leaf(targets)
    if scores.ndim != targets.ndim + 1 or scores.shape[:-1] != targets.shape:
        raise ShapeError(
            f"{reader}: the scores do not fit the targets",
            given=f"scores {scores.shape}, targets {targets.shape}",
            expected="scores (*items, classes) and targets (*items,)",
            mend="give class indices as targets, not one-hot rows",
        )
    return scores, targets


def same_shape(reader: str, outputs: Tensor, targets: Tensor, *, ndim: int, shape: str) -> None:
    """Raises: ShapeError unless both have one shape, of `ndim` axes or more."""
    if outputs.shape != targets.shape or targets.ndim < ndim:
        raise ShapeError(
            f"{reader}: the outputs do not fit the targets",
            given=f"outputs {outputs.shape}, targets {targets.shape}",
            expected=f"both {shape}",
            mend="reshape one of them in the step",
        )


def require_positive(reader: str, **numbers: float) -> None:
    """Raises: ArgumentError with all numbers that are not above 0."""
    wrong = {name: value for name, value in numbers.items() if not value > 0}
    if wrong:
        raise ArgumentError(
            f"{reader}: not above 0",
            given=", ".join(f"{name}={value!r}" for name, value in wrong.items()),
            expected="numbers above 0",
            mend=f"give {' and '.join(wrong)} above 0",
        )
