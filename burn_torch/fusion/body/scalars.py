"""Functions of scores: a Graph of scalars, of one score and the numbers of its batch entry, head, query and key.

    score(s, b, h, q, k, *captured) -> (changed, slope)          seen(b, h, q, k, *captured) -> (truth,)

A function is traced with tensors without axes: one score, and the numbers of its batch entry, head, query and key, i32.
What it captures are whole tensors, which it reads at indices.  So nothing in the Graph depends on sizes but the strides
of what it captures, and one kernel serves all lengths.  `walk` hands each operation to an `Algebra`, which computes on
tensors, or writes texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape
from burn_torch.fusion.body.loops import tensor
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.graph.ir import Graph, Literal, Node
from burn_torch.ops.creation import full
from burn_torch.ops.indexing import gather_nd, select
from burn_torch.ops.op import Call
from burn_torch.ops.shapes import expand, reshape
from burn_torch.ops.slicing import cat

__all__ = ["INDEX", "Algebra", "is_scalar_operation", "walk"]

T = TypeVar("T")

INDEX = DType.I32
"""The type of the numbers of a batch entry, a head, a query and a key."""


class Algebra(Protocol[T]):
    """Computes what `walk` meets: on tensors, or as texts."""

    def compute(self, node: Node, operands: Sequence[T | Literal | None]) -> T:
        """An element-wise operation."""

    def lookup(self, captured: int, index: Sequence[T | int]) -> T:
        """The element of a captured tensor at an index, one number for each axis."""


@final
@dataclass(frozen=True)
class _Captured(Generic[T]):
    """A captured tensor that is read at `fixed` indices of some axes; `axes` of it are left, None is an axis of 1."""

    number: int
    fixed: tuple[tuple[int, T], ...]
    axes: tuple[int | None, ...]
    shape: Shape


_Cell = list[T] | _Captured[T]
"""Scalars in the order of a tensor's elements, few as they are; or a captured tensor."""


def is_scalar_operation(call: Call) -> bool:
    """Tells if a function of scores may hold this operation."""
    return call.op.pointwise is not None or call.op in (full, reshape, expand, cat, select, gather_nd)


def walk(graph: Graph, scalars: Sequence[T], algebra: Algebra[T]) -> list[T | None]:
    """The outputs of a function of scores.  scalars: the first inputs; the others are captured tensors.

    Raises: Unfusible for an operation that is not element by element, and for captured tensors that are read whole.
    """
    cells: dict[int, _Cell[T]] = {}
    for n, (i, spec) in enumerate(graph.inputs):
        if n < len(scalars):
            cells[i] = [scalars[n]]
        else:
            shape = tensor(spec).shape
            cells[i] = _Captured(n - len(scalars), (), tuple(range(len(shape))), shape)

    def scalars_of(cell: _Cell[T]) -> list[T]:
        if not isinstance(cell, _Captured):
            return cell
        left = [axis for axis in cell.axes if axis is not None]
        if math.prod(cell.shape[axis] for axis in left) != 1:
            raise Unfusible(Reason.SHAPE, f"a tensor {cell.shape} that is not read at an index of each axis")
        known = dict(cell.fixed)
        return [algebra.lookup(cell.number, [known.get(axis, 0) for axis in range(len(cell.shape))])]

    for node in graph.nodes:
        (out,) = node.outputs
        assert out is not None, "functions of scores hold rows of one result"
        cells[out] = _apply(node, cells, algebra, scalars_of)
    results = [None if i is None else scalars_of(cells[i]) for i in graph.outputs]
    return [None if cell is None else cell[0] for cell in results]


class _Reader(Protocol[T]):
    def __call__(self, cell: _Cell[T]) -> list[T]: ...


def _apply(node: Node, cells: dict[int, _Cell[T]], algebra: Algebra[T], scalars_of: _Reader[T]) -> _Cell[T]:
    call, spec = node.call, tensor(node.call.result)
    if call.op in (select, gather_nd):
        return _read(node, cells, scalars_of)
    if call.op in (reshape, expand):
        cell = cells[node.read(0)]
        if isinstance(cell, _Captured) and call.op is reshape:
            return _reshape_captured(cell, spec.shape)
        values = scalars_of(cell)
        return values if len(values) == spec.numel else values * spec.numel
    if call.op is cat:
        return [x for i in node.inputs for x in scalars_of(cells[cast(int, i)])]
    if call.op.pointwise is None and call.op is not full:
        raise Unfusible(Reason.UNSUPPORTED, f"{call.op.name} of the numbers of one score")
    operands = [scalars_of(cells[i]) if isinstance(i, int) else [i] for i in node.inputs]
    if spec.numel > 64:
        raise Unfusible(Reason.SHAPE, f"a value of shape {spec.shape}")
    return [algebra.compute(node, [x[n % len(x)] for x in operands]) for n in range(spec.numel)]


def _reshape_captured(cell: _Captured[T], shape: Shape) -> _Captured[T]:
    """Axes of 1 come and go."""
    left = [axis for axis in cell.axes if axis is not None and cell.shape[axis] != 1]
    if [cell.shape[axis] for axis in left] != [size for size in shape if size != 1]:
        raise Unfusible(Reason.SHAPE, f"a reshape of a captured tensor {cell.shape} to {shape}")
    rest = iter(left)
    return _Captured(cell.number, cell.fixed, tuple(next(rest) if size != 1 else None for size in shape), cell.shape)


def _read(node: Node, cells: dict[int, _Cell[T]], scalars_of: _Reader[T]) -> _Cell[T]:
    cell, index = cells[node.read(0)], scalars_of(cells[node.read(1)])
    if not isinstance(cell, _Captured):
        raise Unfusible(Reason.UNSUPPORTED, "an index of a value that was computed")
    if node.call.op is select:
        dim = node.call.attrs["dim"]
        if len(index) != 1 or cell.axes[dim] is None:
            raise Unfusible(Reason.SHAPE, f"{len(index)} indices of one axis")
        axes, kept = [dim], (*cell.axes[:dim], None, *cell.axes[dim + 1 :])
    else:
        axes, kept = list(range(len(index))), cell.axes[len(index) :]
        if tensor(node.call.specs[1]).numel != tensor(node.call.specs[1]).shape[-1]:
            raise Unfusible(Reason.SHAPE, "more than one index at once")
    fixed = [(cell.axes[at], value) for at, value in zip(axes, index, strict=True)]
    read = tuple((axis, value) for axis, value in fixed if axis is not None)
    return _Captured(cell.number, (*cell.fixed, *read), kept, cell.shape)
