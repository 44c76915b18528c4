"""Reductions of which a device would be idle: few results of many elements each become two steps.

sum of (8192, 768) over axis 0        sums of 16 parts of 512 rows each, then the sum of the 16
"""

from __future__ import annotations

import math
from typing import Any, Final

from burn_torch.core.sizes import Size, exact_quotient, size_hint
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.laws import Folds
from burn_torch.ops.op import Call
from burn_torch.ops.shapes import reshape

__all__ = ["columns_in_two_steps", "in_two_steps"]

ENOUGH_PROGRAMS: Final = 256
"""About two for each multiprocessor of a large device."""

COLUMNS_TOGETHER: Final = 32
"""Columns that one program reduces side by side; see `configs.py`."""

LEAST_PART: Final = 256
"""Elements that a part holds at least: less is not worth the second step."""


def columns_in_two_steps(call: Call) -> Graph | None:
    """As `in_two_steps`, of reductions over the first axes alone: inside of a norm, rows stay whole."""
    x = call.specs[0]
    rows = isinstance(x, TensorSpec) and x.ndim - 1 in call.attrs.get("dims", ())
    return None if rows else in_two_steps(call)


def in_two_steps(call: Call) -> Graph | None:
    """The reduction as parts and a reduction of these; None where it keeps a device busy as it is."""
    x = call.specs[0]
    if call.op.law(Folds) is None or not isinstance(x, TensorSpec) or not call.attrs["dims"]:
        return None
    dims = tuple(sorted(call.attrs["dims"]))
    count = math.prod(size_hint(x.shape[dim]) for dim in dims)
    results = size_hint(x.numel) // max(count, 1)
    programs = results if x.ndim - 1 in dims else -(-results // COLUMNS_TOGETHER)
    axis = dims[0]
    parts = _parts(x.shape[axis], ENOUGH_PROGRAMS // max(programs, 1), count // LEAST_PART)
    if parts < 2:
        return None
    trace = Trace()
    given: Any = trace.input(x)
    apart = (*x.shape[:axis], parts, x.shape[axis] // parts, *x.shape[axis + 1 :])
    first = call.op(reshape(given, shape=apart), dims=tuple(dim + 1 for dim in dims))
    second = call.op(first, dims=(axis,))
    return trace.graph([reshape(second, shape=call.result.shape)])


def _parts(size: int | Size, wanted: int, most: int) -> int:
    """The largest power of two that divides the axis and is neither more than wanted nor than worth it."""
    parts = 1
    while exact_quotient(size, 2 * parts) is not None and 2 * parts <= min(wanted, most):
        parts *= 2
    return parts
