"""Reduction: how the losses of elements become one number."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from burn_torch import ops
from burn_torch.core.errors import ShapeError, explain
from burn_torch.module import Module
from burn_torch.nn._layer import in_layer
from burn_torch.tensor import Tensor

__all__ = ["Reduction", "mean", "over_dims", "reduced", "same_shape", "total"]


class Reduction(Enum):
    """How the losses of elements become one number."""

    Mean = "Mean"
    """The mean over all elements."""
    Sum = "Sum"
    """The sum of all elements."""
    BatchMean = "BatchMean"
    """The sum of all elements, divided by the size of the first axis."""
    Auto = "Auto"
    """What the loss does when nothing is said: the mean."""


def over(row: Any, x: Tensor) -> Tensor:
    """A reduction over all axes as one axis of size 1, as Burn gives it."""
    found: Tensor = ops.reshape(row(x, dims=tuple(range(x.ndim))), shape=(1,))
    return found


def total(x: Tensor) -> Tensor:
    """The sum, shape (1,)."""
    return over(ops.sum, x)


def mean(x: Tensor) -> Tensor:
    """The mean, shape (1,)."""
    return over(ops.mean, x)


def reduced(losses: Tensor, reduction: Reduction) -> Tensor:
    """The losses as one number, shape (1,).

    An empty batch has mean NaN, as in PyTorch.
    """
    if reduction is Reduction.Sum:
        return total(losses)
    if reduction is Reduction.BatchMean:
        if not losses.ndim or not losses.shape[0]:
            raise ShapeError(
                explain(
                    "Reduction.BatchMean: there is no batch to divide by",
                    given=f"losses {losses.spec}",
                    expected="a first axis of 1 or more",
                    mend="take Reduction.Sum",
                )
            )
        return total(losses) / float(losses.shape[0])
    return mean(losses)


def over_dims(losses: Tensor, dims: Sequence[int]) -> Tensor:
    """The mean over some axes, which stay with size 1."""
    axes = tuple(sorted({dim + losses.ndim if dim < 0 else dim for dim in dims}))
    found: Tensor = ops.mean(losses, dims=axes)
    return found


def same_shape(loss: Module, **inputs: Tensor) -> None:
    """Raises: ShapeError unless all inputs have one shape: broadcasting a loss hides mistakes."""
    if len({x.shape for x in inputs.values()}) > 1:
        raise in_layer(
            ShapeError(
                explain(
                    f"{type(loss).__name__}: the shapes differ",
                    given=", ".join(f"{name} {x.shape}" for name, x in inputs.items()),
                    expected="one shape",
                    mend="reshape one of them; a loss does not broadcast",
                )
            ),
            loss,
        )
