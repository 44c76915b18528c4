"""Settings of windows and norms as callers write them: sizes of axes, epsilons, and the errors of those."""

from __future__ import annotations

import math
from typing import Final

from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import integer, real
from burn_torch.tensor.apply import require_tensor
from burn_torch.tensor.tensor import Tensor

__all__ = ["Sizes", "Step", "each_axis", "epsilon_of", "require_spatial"]

Sizes = int | tuple[int, ...] | list[int]
Step = Sizes | None  # None is the size of the kernel


def require_spatial(x: Tensor, n: int) -> None:
    """Refuses a tensor without axes of batch and channels in front of n others.  Raises: ShapeError."""
    require_tensor(x)
    if x.spec.ndim != n + 2:
        raise told(
            ShapeError,
            f"{n} spatial axes are needed",
            given=str(x.spec),
            expected=f"{n + 2} axes: batch, channels and {n} spatial",
            mend="insert the batch axis with x.unsqueeze_dim(0)",
        )


def epsilon_of(epsilon: float) -> float:
    """The number that a norm adds to a variance: finite, 0 or more.  Raises: ArgumentError."""
    value = real(epsilon, "epsilon")
    if not isinstance(value, float) or 0 <= value < math.inf:
        return value
    raise told(
        ArgumentError,
        "epsilon is not a small number",
        given=f"epsilon {epsilon}",
        expected="a finite number of 0 or more",
        mend="write epsilon=1e-5",
    )


def _count(value: object, name: str) -> int:
    size = integer(value, name)
    if size.__class__ is int and not -_LARGEST < size < _LARGEST:
        raise told(
            ArgumentError,
            f"{name} is larger than any tensor",
            given=f"{name} {size}",
            expected="a number below 2^31",
            mend="check how it was computed",
        )
    return size


_LARGEST: Final = 1 << 31


def each_axis(name: str, value: Sizes, n: int) -> tuple[int, ...]:
    """One whole number for each of n axes.  Raises: ArgumentError, DTypeError."""
    if not isinstance(value, list | tuple):
        return (_count(value, name),) * n
    sizes = tuple([_count(size, name) for size in value])
    if len(sizes) != n:
        raise told(
            DTypeError,
            f"{name} is not one number for each axis",
            given=f"{name} {value}",
            expected=f"one number, or {n}",
            mend="write one number where all axes have the same",
        )
    return sizes
