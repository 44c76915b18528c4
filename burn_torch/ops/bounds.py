"""Indices in the data: their type is checked when a row is bound, their values where they are read.

On the host an index outside its axis is a BoundsError.  On a GPU the check would have to wait for the device, so the
kernels check themselves (a device-side assertion); nothing is read or written out of range in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from burn_torch.core.dtype import INT, DType
from burn_torch.core.errors import BoundsError
from burn_torch.core.frames import at_user_line
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call, Candidate, PerCall
from burn_torch.ops.value import Primitive

__all__ = ["bounds_error", "check_numpy", "checking", "indexing", "on_host", "require_indices", "widened"]


def require_indices(indices: TensorSpec) -> TensorSpec:
    """Indices of any integer type."""
    return indices.require(INT)


def on_host(call: Call) -> bool:
    """Tells if the first input lies in host memory."""
    spec = call.specs[0]
    return isinstance(spec, TensorSpec) and spec.place == "cpu"


def widened(call: Call, position: int) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """How to make indices of small types int64, which all of torch's kernels take; None if they are."""
    return None if call.tensor(position).dtype is DType.I64 else torch.Tensor.long


def indexing(call: Call, function: Candidate, size: int, position: int = 1, lowest: int = 0) -> Candidate:
    """A torch candidate whose input at `position` are indices into an axis of `size`.

    Widens them; words torch's complaint about one that is out of range.  Costs nothing where nothing is wrong.
    """
    widen = widened(call, position)
    if widen is None:
        ready = function
    else:

        def ready(*inputs: Primitive) -> Any:
            return function(*inputs[:position], widen(inputs[position]), *inputs[position + 1 :])

    if not on_host(call):
        return ready

    def run(*inputs: Primitive) -> Primitive:
        try:
            return ready(*inputs)
        except (IndexError, RuntimeError) as err:
            error = bounds_error(call, inputs[position], size, lowest)
            if error is None:
                raise
            raise error from err

    return run


def check_numpy(call: Call, indices: Primitive, size: int, lowest: int = 0, *, name: str | None = None) -> None:
    """Raises BoundsError unless all indices are in [lowest, size); numpy would count all negative ones from the end."""
    error = bounds_error(call, indices, size, lowest, name=name)
    if error is not None:
        raise error


def checking(compute: Candidate, position: int = 1) -> PerCall:
    """numpy's candidate `compute(*inputs, **attrs)` of a row with `dim`, whose input at `position` are indices.

    It checks them against the attribute `size`, or against the axis of the first input.
    """

    def build(call: Call) -> Candidate:
        dim, size = call.attrs["dim"], call.attrs.get("size")

        def run(*inputs: Primitive) -> Primitive:
            check_numpy(call, inputs[position], inputs[0].shape[dim] if size is None else size)
            return compute(*inputs, **call.attrs)

        return run

    return PerCall(build)


def bounds_error(
    call: Call, indices: object, size: int, lowest: int = 0, *, name: str | None = None
) -> BoundsError | None:
    """The error of indices that leave [lowest, size), or None."""
    values = np.asarray(indices)
    if not values.size:
        return None
    low, high = int(values.min()), int(values.max())
    if low >= lowest and high < size:
        return None
    return at_user_line(
        BoundsError(
            f"{name or call.op.name}: an index is out of range",
            given=f"indices from {low} to {high} into an axis of size {size}",
            expected=f"{lowest} to {size - 1}" if size else "no index: the axis is empty",
            mend="add the size to negative indices: they do not count from the end"
            if low < lowest == 0
            else "check how the indices are made, or clamp them",
        )
    )
