"""Constants: arithmetic on known numbers, and on tensors whose elements are all one known number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from burn_torch.core.dtype import DType, rounded_to
from burn_torch.core.spec import BOOL_NUMBER, FLOAT_NUMBER, INT_NUMBER, NUMBER_SPECS, NumberSpec, TensorSpec
from burn_torch.graph.ir import Graph, Input, Node
from burn_torch.graph.ir import Literal as Known
from burn_torch.graph.passes.layout import CONTIGUOUS
from burn_torch.graph.passes.rewrite import Numerics, Rewriting
from burn_torch.ops.creation import full
from burn_torch.ops.laws import Converts, Fill, Moves, OfEqual, OnHost, Select, Uniform
from burn_torch.ops.op import Call

__all__ = ["fold_constants", "held_by"]

Number = float | int | bool

_SMALLEST: Final = {DType.F32: float(np.finfo(np.float32).tiny), DType.F64: float(np.finfo(np.float64).tiny)}


def fold_constants(graph: Graph, numerics: Numerics = "eager") -> Graph:
    """Computes what depends on no input.

    Numbers: on the host in double, as an executor would.  Tensors: those whose elements are all one number that is
    written in the graph.  A row that takes such a number instead of the tensor with the same bits gets it; what is
    computed of them alone becomes one tensor full of the result.
    """
    new = Rewriting(graph)
    pass_ = _Folding(new, exact=numerics == "eager")
    for node in graph.nodes:
        inputs = new.renamed(node)
        if node.call.is_number:
            pass_.number(node, inputs)
        elif node.call.multiple or not isinstance(node.call.result, TensorSpec):
            new.keep(node, inputs)
        else:
            pass_.tensor(node, inputs)
    return new.done()


@final
@dataclass(frozen=True, slots=True)
class _Same:
    """All elements are `value`, as the element type holds it.  flat: one element in memory, whatever the shape."""

    value: Number
    flat: bool


@final
class _Folding:
    def __init__(self, new: Rewriting, *, exact: bool) -> None:
        self.new: Final = new
        self.exact: Final = exact
        self.same: Final[dict[int, _Same]] = {}

    def number(self, node: Node, inputs: tuple[Input, ...]) -> None:
        """Evaluates arithmetic on literals; the node stays for outputs of the graph, which cannot be literals."""
        kept = self.new.keep(node, inputs)
        values = [i.value for i in inputs if isinstance(i, Known)]
        if len(values) < len(inputs):
            return
        assert kept.call.op.scalar is not None
        try:
            value = kept.call.op.scalar(*values)
        except (ArithmeticError, ValueError):
            return  # it raises when the program runs, as eager execution does
        if NUMBER_SPECS.get(type(value)) is kept.call.result:
            self.new.rename(node.outputs[0], Known(value))

    def tensor(self, node: Node, inputs: tuple[Input, ...]) -> None:
        """One node with one tensor for its result."""
        call, op = node.call, node.call.op
        result: TensorSpec = call.result
        if op.law(Fill) is not None:
            self._fill(node, inputs)
            return
        if not self.same or not any(i in self.same for i in inputs if i.__class__ is int):
            self.new.keep(node, inputs)
            return
        value = self._value(node, inputs)
        if value is not None and self._as_full(node, inputs, value):
            return
        if self._select(node, inputs):
            return
        kept = self._with_numbers(node, inputs)
        if value is not None and node.outputs[0] is not None and kept.call.result is result:
            self.same[node.outputs[0]] = value

    # -- what is known -------------------------------------------------------------------
    def _fill(self, node: Node, inputs: tuple[Input, ...]) -> None:
        law = node.call.op.law(Fill)
        assert law is not None
        self.new.keep(node, inputs)
        number, spec = inputs[law.at], node.call.result
        if isinstance(number, Known):
            value = held_by(spec.dtype, number.value)
            if value is not None and node.outputs[0] is not None:
                self.same[node.outputs[0]] = _Same(value, flat=spec.numel <= 1)

    def _value(self, node: Node, inputs: tuple[Input, ...]) -> _Same | None:
        """Returns the one known number that all elements of the result are; None if there is none."""
        call, op, result = node.call, node.call.op, node.call.result
        first = self.same.get(inputs[0]) if isinstance(inputs[0], int) else None
        if first is not None and op.law(Moves) is not None and not call.multiple:
            flat = result.numel <= 1 or (first.flat and op.view and op.packed != "input")
            return _Same(first.value, flat)
        if first is not None and op.law(Converts) is not None:
            value = _convert(first.value, call.specs[0], result.dtype)
            return None if value is None else _Same(value, result.numel <= 1)
        equal = op.law(OfEqual)
        if first is not None and equal is not None and not self.exact and result.dtype.is_float:
            x = call.tensor(0)
            value = rounded_to(result.dtype, equal.reduce(float(first.value), x.numel // max(result.numel, 1)))
            return None if not x.numel else _Same(value, result.numel <= 1)
        if op.law(OnHost) is not None and op.scalar is not None and result.dtype in (DType.F32, DType.F64):
            values = [self._held_number(i, result.dtype) for i in inputs]
            if None not in values:
                return self._compute(call, op.scalar(*values))
        return None

    def _compute(self, call: Call, value: float) -> _Same | None:
        result: TensorSpec = call.result
        law = call.op.law(OnHost)
        assert law is not None
        if self.exact and law.on_cpu and result.place != "cpu":
            return None
        rounded = rounded_to(result.dtype, value)
        # below the normal numbers a quotient rounded to double and then to single may be rounded twice
        if abs(rounded) < _SMALLEST[result.dtype] and rounded != value:
            return None
        return _Same(rounded, result.numel <= 1)

    def _held_number(self, i: Input, dtype: DType) -> Number | None:
        if isinstance(i, Known):
            return held_by(dtype, i.value)
        same = self.same.get(i) if isinstance(i, int) else None
        return None if same is None else same.value

    # -- what is written -----------------------------------------------------------------
    def _as_full(self, node: Node, inputs: tuple[Input, ...], same: _Same) -> bool:
        """Writes the result as one tensor full of the number, if that takes no more memory and lies as before."""
        call, result = node.call, node.call.result
        moves = call.op.law(Moves)
        if moves is not None:
            x = call.tensor(0)
            contiguous = moves.tight and self.new.layouts.of(inputs[0]) == CONTIGUOUS
            if x.numel != result.numel or (self.exact and not contiguous):
                return False
        elif self.exact and not all(self._lies_plainly(i) for i in inputs):
            return False
        attrs = {"shape": result.shape, "dtype": result.dtype, "place": result.place}
        literal = Known(same.value)
        kept = Node(full.bind([NUMBER_SPECS[type(same.value)]], attrs), (literal,), node.outputs, node.origin)
        self.new.keep(node, (literal,), kept.call)
        assert node.outputs[0] is not None
        self.same[node.outputs[0]] = _Same(same.value, result.numel <= 1)
        return True

    def _lies_plainly(self, i: Input) -> bool:
        same = self.same.get(i) if isinstance(i, int) else None
        return same is None or same.flat or self.new.layouts.of(i) == CONTIGUOUS

    def _select(self, node: Node, inputs: tuple[Input, ...]) -> bool:
        """A choice by a mask that is all true or all false is one of the two sides."""
        law, result = node.call.op.law(Select), node.call.result
        mask = inputs[law.mask] if law is not None else None
        if law is None or not isinstance(mask, int) or mask not in self.same:
            return False
        side = inputs[law.true] if self.same[mask].value else inputs[law.false]
        if self.new.spec(side) is not result:
            return False
        if self.exact and not (
            self._lies_plainly(mask)
            and self.new.layouts.of(side) == CONTIGUOUS
            and self.new.layouts.is_its_own_copy(side, result)
        ):
            return False
        self.new.rename(node.outputs[0], side)
        return True

    def _with_numbers(self, node: Node, inputs: tuple[Input, ...]) -> Node:
        """Gives a row the number instead of a tensor full of it, where that changes no bit."""
        call, law = node.call, node.call.op.law(Uniform)
        if law is not None and len(inputs) == 2:
            for at in law.at:
                i, other = inputs[at], call.specs[1 - at]
                same = self.same.get(i) if isinstance(i, int) else None
                # memory of its own would have a say in how the result lies
                if (
                    same is None
                    or (self.exact and not same.flat)
                    or not isinstance(other, TensorSpec)
                    or other.shape != call.result.shape
                ):
                    continue
                specs: list[Any] = list(call.specs)
                specs[at] = _number_of(other.dtype)
                bound = call.op.bind(specs, call.attrs)
                if bound.result is call.result:
                    literal = Known(same.value)
                    return self.new.keep(node, (inputs[0], literal) if at else (literal, inputs[1]), bound)
        return self.new.keep(node, inputs)


# -- numbers of element types ------------------------------------------------------------------------
def held_by(dtype: DType, value: Number) -> Number | None:
    """The number that an element of this type is when it is made of `value`; None where leaves may differ.

    >>> held_by(DType.F32, 0.1), held_by(DType.I8, 300), held_by(DType.F16, 0.1), held_by(DType.F16, 0.5)
    (0.10000000149011612, None, None, 0.5)
    """
    if dtype.is_bool:
        return bool(value) if value in (0, 1) else None
    if dtype.is_int:
        least, most = dtype.limits
        return int(value) if not isinstance(value, float) and least <= value <= most else None
    if isinstance(value, int) and abs(value) > 1 << 24:
        return None
    rounded = rounded_to(dtype, float(value))
    if math.isinf(rounded) and not math.isinf(value):
        return None
    # halves are rounded once or twice, by way of float32 or not: exact ones only
    wide = dtype in (DType.F32, DType.F64)
    return rounded if wide or rounded == value or math.isnan(rounded) else None


def _convert(value: Number, start: Any, end: DType) -> Number | None:
    if end.is_int and isinstance(value, float):
        return None  # out of range it is not defined
    if end.is_bool:
        return value != 0
    if start.dtype.is_float and end.is_float:
        rounded = rounded_to(end, float(value))
        half = end in (DType.F16, DType.BF16) and start.dtype is DType.F64
        return rounded if not half or rounded == value or math.isnan(rounded) else None
    return held_by(end, value)


def _number_of(dtype: DType) -> NumberSpec:
    if dtype.is_bool:
        return BOOL_NUMBER
    return FLOAT_NUMBER if dtype.is_float else INT_NUMBER
