"""Collectives on tensors; in a world of 1 each is the identity."""

from __future__ import annotations

from typing import Literal, cast

from burn_torch import ops
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.distributed.world import world_size
from burn_torch.tensor import Tensor

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce_scatter"]


@checked(but=("reduction",))
def all_reduce(x: Tensor, reduction: Literal["sum", "mean", "max", "min"] = "sum") -> Tensor:
    """The sum, mean, largest or smallest of all processes' values, element by element.

    Shapes: x (*s), the same on all processes -> (*s).  Dtypes: numbers; the mean of floats.
    PyTorch: torch.distributed.nn.functional.all_reduce, a function of values as well.
    """
    if reduction not in ("sum", "mean", "max", "min"):
        raise ArgumentError(
            "all_reduce: there is no such reduction",
            given=repr(reduction),
            expected='"sum", "mean", "max" or "min"',
            mend="take one of them",
        )
    world = world_size()
    total = cast(Tensor, ops.all_reduce(x, reduction="sum" if reduction == "mean" else reduction, world=world))
    return total / world if reduction == "mean" else total


@checked
def all_gather(x: Tensor, dim: int = 0) -> Tensor:
    """All processes' values, joined along an axis in the order of their ranks.

    Shapes: x (*s), the same on all processes -> (*s) with s[dim] times the number of processes.  Dtypes: any.
    """
    axis = _axis("all_gather", x, dim)
    parts = cast(Tensor, ops.all_gather(x, world=world_size()))
    order = (*range(1, axis + 1), 0, *range(axis + 1, x.ndim + 1))
    shape = (*x.shape[:axis], x.shape[axis] * world_size(), *x.shape[axis + 1 :])
    return parts.permute(order).reshape(shape)


@checked
def reduce_scatter(x: Tensor, dim: int = 0) -> Tensor:
    """The sum of all processes' values, cut along an axis: each process gets its part of it.

    Shapes: x (*s) -> (*s) with s[dim] divided by the number of processes.  Dtypes: numbers.
    Raises: ShapeError where that axis cannot be divided so.
    """
    axis, world = _axis("reduce_scatter", x, dim), world_size()
    if x.shape[axis] % world:
        raise ShapeError(
            "reduce_scatter: the axis cannot be divided among the processes",
            given=f"size {x.shape[axis]} on axis {axis} of {x.shape}, {world} processes",
            expected=f"a multiple of {world}",
            mend="pad it, or reduce the whole with all_reduce",
        )
    shape = (*x.shape[:axis], world, x.shape[axis] // world, *x.shape[axis + 1 :])
    order = (axis, *(i for i in range(x.ndim + 1) if i != axis))
    return cast(Tensor, ops.reduce_scatter(x.reshape(shape).permute(order), world=world))


@checked
def broadcast(x: Tensor, source: int = 0) -> Tensor:
    """The value of the process `source`, on all of them.

    Shapes: x (*s), the same on all processes -> (*s).  Dtypes: any.
    """
    return cast(Tensor, ops.broadcast(x, source=source, world=world_size()))


def _axis(name: str, x: Tensor, dim: int) -> int:
    if not -x.ndim <= dim < x.ndim:
        raise ShapeError(
            f"{name}: there is no such axis",
            given=f"dim {dim} of {x.shape}",
            expected=f"an axis from 0 to {x.ndim - 1}" if x.ndim else "a tensor with an axis",
            mend="name an axis of the tensor, or reshape it to (1,)",
        )
    return dim % x.ndim
