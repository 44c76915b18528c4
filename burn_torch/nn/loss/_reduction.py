"""Reduction: how the losses of elements become one number; and what all losses check."""

from __future__ import annotations

from enum import Enum

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.module import Module
from burn_torch.nn._layer import Rules, in_layer
from burn_torch.tensor import Device, Tensor

__all__ = ["Reduction", "as_type", "class_weights", "reduced", "require_weights", "same_shape"]


class Reduction(Enum):
    """How the losses of elements become one number."""

    Mean = "Mean"
    """The mean over all elements; NaN for an empty batch, as in PyTorch."""
    Sum = "Sum"
    """The sum of all elements."""
    BatchMean = "BatchMean"
    """The sum of all elements, divided by the size of the first axis."""
    Auto = "Auto"
    """Holds what suits the loss: the mean, and for KLDivLoss the batch mean."""


def reduced(losses: Tensor, reduction: Reduction) -> Tensor:
    """The losses as one number, shape (1,).

    Raises: ArgumentError for what is no Reduction; ShapeError for BatchMean without a batch.
    """
    if reduction is Reduction.Mean or reduction is Reduction.Auto:
        return losses.mean()
    if reduction is Reduction.Sum:
        return losses.sum()
    if reduction is not Reduction.BatchMean:
        raise ArgumentError(
            "this is not a reduction",
            given=f"{reduction!r} of type {type(reduction).__name__}",
            expected=", ".join(map(str, Reduction)),
            mend="write Reduction.Mean; without a reduction there is forward_no_reduction",
        )
    if not losses.ndim or not losses.shape[0]:
        raise ShapeError(
            "Reduction.BatchMean: there is no batch to divide by",
            given=f"losses {losses.spec}",
            expected="a first axis of 1 or more",
            mend="take Reduction.Sum",
        )
    return losses.sum() / float(losses.shape[0])


# -- inputs ---------------------------------------------------------------------------------------------
def same_shape(loss: Module, **inputs: Tensor) -> None:
    """Raises: ShapeError unless all inputs have one shape: a loss that broadcasts hides mistakes."""
    shapes = [x.shape for x in inputs.values()]
    if shapes.count(shapes[0]) < len(shapes):
        raise in_layer(
            ShapeError(
                f"{type(loss).__name__}: the shapes differ",
                given=", ".join(f"{name} {x.spec}" for name, x in inputs.items()),
                expected="one shape; a loss does not broadcast",
                mend="reshape or expand one of them",
            ),
            loss,
        )


def as_type(x: Tensor, dtype: DType) -> Tensor:
    """x in an element type."""
    return x if x.dtype is dtype else x.cast(dtype)


# -- weights of classes ---------------------------------------------------------------------------------
def require_weights(rules: Rules, weights: list[float] | None) -> None:
    """Notes a fault of the field `weights` unless all are above 0."""
    if weights is not None and not all(weight > 0 for weight in weights):
        rules.fault("weights", "not above 0", "numbers above 0", "leave items out with a pad token instead")


def class_weights(weights: list[float] | None, device: Device | None) -> Tensor | None:
    """One number for each class, as a constant of the device."""
    return None if weights is None else Tensor.from_data(list(weights), device or Device.cpu(), DType.F32)
