"""Reductions of which a device would be idle: few results of many elements each become two steps.

sum of (8192, 768) over axis 0        sums of 16 parts of 512 rows each, then the sum of the 16
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.columns import FEWEST_PARTS, LONGEST_GATHERED, of_rows
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.laws import Folds
from burn_torch.ops.op import Call
from burn_torch.ops.selection import cast
from burn_torch.ops.shapes import reshape
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Size, exact_quotient, size_hint

__all__ = ["HELD", "beside_rows", "columns_in_two_steps", "in_two_steps", "parts_held", "rows_reduced"]

ENOUGH_PROGRAMS: Final = 256
"""About two for each multiprocessor of a large device."""

LARGE: Final = 1 << 22
FOR_LARGE: Final = 4
"""The factor of programs for large reductions: each has one tile on its way, and two a multiprocessor are not
what memory can deliver."""

COLUMNS_TOGETHER: Final = 64
"""Columns that one program reduces side by side; see `configs.py`."""

LEAST_PART: Final = 256
"""Elements that a part holds at least: less is not worth the second step."""

LEAST_WHOLE: Final = 8192
"""Elements of something that is reduced in two steps: below, one program is done before another kernel has begun."""

HELD: Final = 4096
"""Elements of a part of a row: what a program holds at once, it sums without a register for each lane of each sum."""

FEWEST_ROWS: Final = 128
LONG_ROW: Final = 1 << 16
"""Elements of a row that one program takes so long for that, with few rows, a device waits for the last ones."""

MOST_PARTS: Final = 256
"""Programs that gather columns: two for each multiprocessor of a large device.  512 gain 3 %, and gather twice as much
(H200, torch 2.11, Triton 3.6, 2026-11-22)."""
MOST_GATHERED: Final = 1 << 19
"""Sums that all parts gather, at most: 2 MiB, little beside what is read, and the second step finds them in a cache."""

ROWS_OF_A_PART: Final = 16
"""Rows that a program gathers columns of at least: what it writes is then at most a sixteenth of what it reads."""


def rows_reduced(graph: Graph) -> frozenset[tuple[int, int]]:
    """(number, length) of rows that are reduced to their ends: over the last axes of something."""
    folds = [node for node in graph.nodes if node.call.op.law(Folds) is not None and node.call.attrs["dims"]]
    return frozenset(rows for node in folds if (rows := of_rows(node)) is not None)


def beside_rows(call: Call, rows: Collection[tuple[int, int]]) -> Graph | None:
    """A sum of columns in two steps, the first of whole rows, where rows of this size are reduced somewhere.

    A kernel that goes over the rows anyway can take the first step along (`columns.py`): what both read, it reads once.
    """
    x = call.specs[0]
    law = call.op.law(Folds)
    if law is None or law.kind != "sum" or not isinstance(x, TensorSpec) or not call.attrs["dims"]:
        return None
    dims = sorted(call.attrs["dims"])
    if dims != list(range(len(dims))) or len(dims) == x.ndim:
        return None
    kept = x.shape[len(dims) :]
    length = math.prod(kept)
    count = x.numel // max(length, 1)
    if (count, length) not in rows or not 1 < length <= LONGEST_GATHERED:
        return None
    most = min(MOST_PARTS, size_hint(count) // ROWS_OF_A_PART, MOST_GATHERED // size_hint(length))
    parts = next((n for n in range(most, 0, -1) if exact_quotient(count, n) is not None), 1)
    if parts < FEWEST_PARTS:
        return None
    return _split(call, (parts, count // parts, *kept), 1)


def columns_in_two_steps(call: Call) -> Graph | None:
    """As `in_two_steps`, of reductions over the first axes: inside of a norm rows stay whole, but for few long ones."""
    x = call.specs[0]
    if isinstance(x, TensorSpec) and x.ndim - 1 in call.attrs.get("dims", ()):
        length = math.prod(size_hint(x.shape[dim]) for dim in call.attrs["dims"])
        few = size_hint(x.numel) < FEWEST_ROWS * length
        return in_two_steps(call) if few and length > LONG_ROW else None
    return in_two_steps(call)


def in_two_steps(call: Call) -> Graph | None:
    """The reduction as parts and a reduction of these; None where it keeps a device busy as it is."""
    x = call.specs[0]
    if call.op.law(Folds) is None or not isinstance(x, TensorSpec) or not call.attrs["dims"]:
        return None
    if size_hint(x.numel) < LEAST_WHOLE:
        return None
    dims = tuple(sorted(call.attrs["dims"]))
    count = math.prod(size_hint(x.shape[dim]) for dim in dims)
    results = size_hint(x.numel) // max(count, 1)
    programs = results if x.ndim - 1 in dims else -(-results // COLUMNS_TOGETHER)
    axis = dims[0]
    enough = ENOUGH_PROGRAMS * (FOR_LARGE if size_hint(x.numel) >= LARGE else 1)
    parts = _parts(x.shape[axis], enough // max(programs, 1), count // LEAST_PART)
    if parts < 2:
        return None
    if x.ndim - 1 in dims and parts < (held := parts_held(x.shape, dims, HELD) or 0) <= HELD:
        parts = held
    apart = (*x.shape[:axis], parts, x.shape[axis] // parts, *x.shape[axis + 1 :])
    return _split(call, apart, *(dim + 1 for dim in dims), again=axis)


def _split(call: Call, apart: Sequence[int], *dims: int, again: int = 0) -> Graph:
    """The reduction over `dims` of the operand in another shape, then over the axis `again` of what that gives.

    Sums of a half type are kept in float32 between the steps: one rounding in the end, as in one step.
    """
    trace = Trace()
    x = call.tensor(0)
    source: Primitive = trace.input(x)
    half = x.dtype in (DType.F16, DType.BF16) and call.op.law(Folds) in (Folds("sum"), Folds("mean"), Folds("prod"))
    wide = cast(source, dtype=DType.F32) if half else source
    first = call.op(reshape(wide, shape=tuple(apart)), dims=dims)
    second = call.op(first, dims=(again,))
    result = reshape(second, shape=call.result.shape)
    return trace.graph([cast(result, dtype=x.dtype) if half else result])


def parts_held(shape: Sequence[int | Size], dims: Sequence[int], most: int) -> int | None:
    """In how many parts along the first of some axes, the fewest of up to `most` elements, or one of each; None of
    sizes that are symbols.
    """
    sizes = [size for dim in dims if not isinstance(size := shape[dim], Size)]
    if len(sizes) < len(dims):
        return None
    count = math.prod(sizes)
    return next((n for n in range(2, sizes[0] + 1) if sizes[0] % n == 0 and count // n <= most), sizes[0])


def _parts(size: int | Size, wanted: int, most: int) -> int:
    """The largest power of two that divides the axis and is neither more than wanted nor than worth it."""
    parts = 1
    while exact_quotient(size, 2 * parts) is not None and 2 * parts <= min(wanted, most):
        parts *= 2
    return parts
