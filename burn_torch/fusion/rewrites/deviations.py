"""Sums and squared deviations of rows that no program holds, in one pass over them instead of two.

sum of (x - b)^2, b the same for all of a row: of each part of the row what its own mean is off, and how far that lies

    sum over a part of (x - b)^2  =  sum over it of (x - mean of the part)^2  +  count * (mean of the part - b)^2

Every part is held by a program, which therefore reads it once for both of its sums; b, mostly the mean of all, comes
after.  No digit is lost that two passes keep: each part is centred on its own mean before it is squared (Chan, Golub,
LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances", equation 2.1).  A mean is
rounded, so what is left over, the sum of x - mean, counts twice its distance to b; of half types it is nothing beside
what rounded x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.needs import LONGEST_ROW
from burn_torch.fusion.rewrites.properties import formula
from burn_torch.fusion.rewrites.splitting import HELD, parts_held
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.graph.view import GraphView
from burn_torch.ops.laws import Converts, Folds
from burn_torch.ops.op import Call
from burn_torch.ops.reductions import sum as sum_over
from burn_torch.ops.selection import cast
from burn_torch.ops.shapes import reshape
from burn_torch.ops.value import Primitive

__all__ = ["Deviations", "deviations"]

HELD_OF_COLUMNS: Final = 256
"""Elements of a part of columns, which lie apart in memory: a program holds 32 of these or more."""

SHORTEST: Final = 64
"""Elements of a part: of shorter ones the sums are as much as a hundredth of what is read."""


@final
@dataclass(frozen=True)
class Deviations:
    """A sum of squared deviations of `x` from `b`, values of a graph, whose axis `dims[0]` is cut into parts.

    total  position of the sum of x over the same axes
    half   x is a half type, if a wider one by now
    """

    total: int
    x: int
    b: int
    half: bool
    apart: tuple[int, ...]

    def sum_in_parts(self, call: Call) -> Graph:
        """The sum of x over the axes of a reduction, first over each part."""
        trace = Trace()
        x = call.tensor(0)
        source: Primitive = trace.input(x)
        return self._finish_sum(trace, call, [self._sum(call, self._parts(source))])

    def sum_of(self, call: Call, x: TensorSpec, b: TensorSpec) -> Graph:
        """The sum of squares, of x, b and the sums of x over the parts, which `sum_in_parts` makes."""
        trace = Trace()
        dims = tuple(sorted(call.attrs["dims"]))
        source: Primitive = trace.input(x)
        near: Any = trace.input(b)
        parts = self._parts(source)
        shape = tuple(1 if axis - 1 in dims else size for axis, size in enumerate(self.apart))
        sums: Any = trace.input(TensorSpec.of(shape, parts.spec.dtype, x.place))
        count = math.prod(self.apart[dim + 1] for dim in dims)
        means = sums * (1.0 / count)
        off = parts - means
        lined = (1,) * (x.ndim - b.ndim) + b.shape
        at = cast(near, dtype=parts.spec.dtype) if near.spec.dtype is not parts.spec.dtype else near
        far = means - reshape(at, shape=(*lined[: dims[0]], 1, *lined[dims[0] :]))
        terms = [self._sum(call, off * off), far * far * float(count)]
        return self._finish_sum(trace, call, terms if self.half else [*terms, self._sum(call, off) * far * 2.0])

    def _parts(self, x: Primitive) -> Any:
        half = x.spec.dtype in (DType.F16, DType.BF16)
        return reshape(cast(x, dtype=DType.F32) if half else x, shape=self.apart)

    def _sum(self, call: Call, x: object) -> Any:
        return sum_over(x, dims=tuple(axis + 1 for axis in sorted(call.attrs["dims"])))

    def _finish_sum(self, trace: Trace, call: Call, terms: Sequence[Primitive]) -> Graph:
        """The sum over the parts of the terms, as the reduction has it."""
        axis = min(call.attrs["dims"])
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        total = sum_over(total, dims=(axis,))
        law = call.op.law(Folds)
        assert law is not None
        x = call.tensor(0)
        if law.kind == "mean":
            total = total * (1.0 / math.prod(x.shape[dim] for dim in call.attrs["dims"]))
        total = reshape(total, shape=call.result.shape)
        return trace.graph([cast(total, dtype=x.dtype) if total.spec.dtype is not x.dtype else total])


def deviations(graph: Graph, long: Callable[[int, Call], bool]) -> dict[int, Deviations]:
    """By the positions of sums of squared deviations, those that can be summed along with what they deviate from.

    long  whether the reduction at a position keeps no whole row in a program
    """
    view = GraphView(graph)
    specs = view.specs
    sums: dict[tuple[Any, tuple[int, ...]], int] = {}
    by_node: dict[int, Deviations] = {}
    for n, node in enumerate(graph.nodes):
        law = node.call.op.law(Folds)
        if law is None or law.kind not in ("sum", "mean") or not node.call.attrs["dims"]:
            continue
        dims = tuple(sorted(node.call.attrs["dims"]))
        (source,) = (i for i in node.inputs if isinstance(i, int))
        pair = _deviation(view, source, dims)
        if pair is not None and (total := sums.get((pair[0], dims))) is not None:
            apart = _apart(specs[pair[0]], dims) if long(n, node.call) else None
            if apart is not None:
                by_node[n] = Deviations(total, *pair, _is_half(view, pair[0]), apart)
        sums.setdefault((source, dims), n)
    return by_node


def _deviation(view: GraphView, value: int, dims: Sequence[int]) -> tuple[int, int] | None:
    """x and b, where a value is the square of x - b and b is the same along these axes."""
    node = view.made_by(value)
    if node is None:
        return None
    root = node.inputs[0] if node.inputs else None
    under = view.made_by(root) if formula(node) == f"(%{root} * %{root})" else None
    if under is None or len(under.inputs) != 2:
        return None
    x, b = under.inputs
    if not isinstance(x, int) or not isinstance(b, int) or formula(under) != f"(%{x} - %{b})":
        return None
    whole, same = view.specs[x], view.specs[b]
    if not isinstance(whole, TensorSpec) or not isinstance(same, TensorSpec) or whole.shape != under.call.result.shape:
        return None
    lined = (1,) * (whole.ndim - same.ndim) + same.shape
    return (x, b) if all(lined[dim] == 1 for dim in dims) and whole.dtype.is_float else None


def _is_half(view: GraphView, x: int) -> bool:
    """Asks whether a value is of a half type, or was converted from one."""
    maker = view.made_by(x)
    origin = maker.call.specs[0] if maker is not None and maker.call.op.law(Converts) is not None else view.specs[x]
    return isinstance(origin, TensorSpec) and origin.dtype in (DType.F16, DType.BF16)


def _apart(x: object, dims: Sequence[int]) -> tuple[int, ...] | None:
    """The shape of x with parts that a program holds along the first of these axes; None where there are none."""
    if not isinstance(x, TensorSpec):
        return None
    axis, along = dims[0], x.ndim - 1 in dims
    parts = parts_held(x.shape, dims, HELD if along else HELD_OF_COLUMNS)
    if parts is None:
        return None
    held = math.prod(x.shape[dim] for dim in dims) // parts
    if not SHORTEST <= held <= (LONGEST_ROW if along else HELD_OF_COLUMNS):
        return None
    return (*x.shape[:axis], parts, x.shape[axis] // parts, *x.shape[axis + 1 :])
