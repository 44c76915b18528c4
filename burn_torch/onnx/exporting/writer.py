"""The ONNX graph that is written: nodes, constants, sizes that are worked out when it runs.

A `Wire` is a value of it: a name that knows its element type, and its shape where a row of ours made it.  The nodes of
a row are written with `Writer.node`; operators and element types that the opset lacks are faults, except that half
types are computed in f32 where an operator takes no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final, overload

import numpy as np

from burn_torch.core.annotations import Measured
from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.graph.origin import Origin
from burn_torch.onnx.exporting.sizes import Length, Shape, Size, Symbol, formula, product
from burn_torch.onnx.exporting.unification import Kind, Part, Step, Varying
from burn_torch.onnx.operators.axes import ONNX_DTYPES, ONNX_NAMES

__all__ = ["Body", "Cannot", "Node", "Number", "Wire", "Writer", "all_nodes", "onnx_dtype"]

Number: TypeAlias = Measured | Size | Varying
"""A number that a row reads, known now or when the graph runs."""

_CODES: Final = {dtype: code for code, dtype in ONNX_DTYPES.items()}
_TYPE_NAMES: Final = {dtype: f"tensor({ONNX_NAMES[code].lower()})" for dtype, code in _CODES.items()}
_DTYPES: Final = {name: dtype for dtype, name in _TYPE_NAMES.items()}
_HALF: Final = (DType.F16, DType.BF16)


def onnx_dtype(dtype: DType) -> int:
    """The TensorProto.DataType of an element type."""
    return _CODES[dtype]


class Cannot(Exception):
    """Holds what keeps a row from being written; `export` collects these."""


@final
class Wire(str):
    """The name of a value, its element type, and its shape where it is known."""

    dtype: DType
    known: Shape | None

    @checked
    def __new__(cls, name: str, dtype: DType, shape: Shape | None = None) -> Wire:
        """The name as a wire."""
        wire = str.__new__(cls, name)
        wire.dtype, wire.known = dtype, shape
        return wire

    @property
    def shape(self) -> Shape:
        """The shape of a value that a row made."""
        assert self.known is not None, self
        return self.known

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)


class Node(NamedTuple):
    """One node as it will be written."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    @property
    def bodies(self) -> list[Body]:
        """The graphs within it."""
        return [value for value in self.attributes.values() if isinstance(value, Body)]

    @property
    def reads(self) -> set[str]:
        """All values that it reads, those that only its graphs read too."""
        names = set(self.inputs)
        for body in self.bodies:
            inside = set(map(str, body.outputs)).union(*(node.reads for node in body.nodes))
            own = {name for node in body.nodes for name in node.outputs}
            names |= inside - own - set(map(str, body.inputs))
        return names

    def renamed(self, names: Mapping[str, str]) -> Node:
        """The same with other names for values."""

        def other(body: Body) -> Body:
            nodes = tuple(node.renamed(names) for node in body.nodes)
            outputs = tuple(Wire(names.get(y, y), y.dtype, y.known) for y in body.outputs)
            return Body(body.name, body.inputs, nodes, outputs)

        attributes = {key: other(x) if isinstance(x, Body) else x for key, x in self.attributes.items()}
        inputs, outputs = (tuple(names.get(x, x) for x in each) for each in (self.inputs, self.outputs))
        return Node(self.op, self.name, inputs, outputs, attributes)


class Body(NamedTuple):
    """A graph within a node: it reads values from outside too."""

    name: str
    inputs: tuple[Wire, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Wire, ...]


def all_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes, and those of the graphs within them."""
    for node in nodes:
        yield node
        for body in node.bodies:
            yield from all_nodes(body.nodes)


class _Signature(NamedTuple):
    """Holds what an opset says of an operator: per input and output the letter of its type, per letter the types."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: dict[str, frozenset[str]]
    attributes: frozenset[str]


@lru_cache(maxsize=1024)
def _signature(op: str, opset: int) -> _Signature | None:
    from onnx import defs

    if not defs.has(op, max_inclusive_version=opset):
        return None
    schema = defs.get_schema(op, opset)
    types = {rule.type_param_str: frozenset(rule.allowed_type_strs) for rule in schema.type_constraints}
    return _Signature(
        tuple(part.type_str for part in schema.inputs),
        tuple(part.type_str for part in schema.outputs),
        types,
        frozenset(schema.attributes),
    )


def _first_opset(op: str) -> int:
    from onnx import defs

    versions = [s.since_version for s in defs.get_all_schemas_with_history() if s.name == op and s.domain == ""]
    return min(versions)


@final
class Writer:
    """Collects the nodes of one ONNX graph.

    opset     what the operators mean
    symbols   the dynamic axes
    """

    def __init__(self, opset: int, symbols: Sequence[Symbol] = ()) -> None:
        self.opset: Final = opset
        self.symbols: Final = tuple(symbols)
        self.nodes: Final[list[Node]] = []
        self.constants: Final[dict[str, TensorData]] = {}
        self.origin: Origin | None = None
        """Says where what is written now comes from; names begin with the path of its module."""
        self.results: Sequence[Kind] = ()
        """Holds what the row that is written now makes."""
        self.write_steps: Callable[[Sequence[Step], dict[int, Any]], None] = _no_steps
        """Writes steps of a body, given its values by id."""
        self._names: Final[dict[str, int]] = {}
        self._interned: Final[dict[object, Wire]] = {}
        self._lengths: dict[Size, Wire] = {}
        self._axes: dict[Size, tuple[Wire, int]] = {}

    # -- names -----------------------------------------------------------------------------------------
    def unique(self, wish: str) -> str:
        """A name that nothing has yet, as close to the wish as may be."""
        count = self._names.get(wish)
        if count is None:
            self._names[wish] = 1
            return wish
        self._names[wish] = count + 1
        return self.unique(f"{wish}_{count + 1}")

    def met(self, wire: Wire) -> Wire:
        """Notes the axes of a value: sizes that no formula gives are read off them when the graph runs."""
        for axis, size in enumerate(wire.shape):
            if isinstance(size, Size):
                self._axes.setdefault(size, (wire, axis))
        return wire

    # -- nodes -----------------------------------------------------------------------------------------
    @overload
    def node(self, op: str, *inputs: Wire | None, outputs: Literal[1] = 1, **attributes: Any) -> Wire: ...

    @overload
    def node(self, op: str, *inputs: Wire | None, outputs: int, **attributes: Any) -> tuple[Wire, ...]: ...

    def node(self, op: str, *inputs: Wire | None, outputs: int = 1, **attributes: Any) -> Any:
        """Writes a node; its outputs.  Attributes that are None are left out.

        Raises: Cannot where the opset has no such operator, or it takes no such element type.
        """
        signature = _signature(op, self.opset)
        if signature is None:
            raise Cannot(f"{op} needs opset {_first_opset(op)}")
        present = {name: value for name, value in attributes.items() if value is not None}
        unknown = [name for name in present if name not in signature.attributes]
        if unknown:
            raise Cannot(f"{op} of opset {self.opset} has no {', '.join(unknown)}")
        letters = _letters(signature.inputs, len(inputs))
        bound: dict[str, DType] = {}
        wider: set[str] = set()
        for letter, x in zip(letters, inputs, strict=True):
            if x is None:
                continue
            bound.setdefault(letter, x.dtype)
            if _TYPE_NAMES[x.dtype] not in signature.types.get(letter, frozenset({letter})):
                if x.dtype not in _HALF or "tensor(float)" not in signature.types.get(letter, ()):
                    raise Cannot(f"{op} of opset {self.opset} takes no {x.dtype}")
                wider.add(letter)
        read = [
            x if x is None or letter not in wider else self.cast(x, DType.F32)
            for letter, x in zip(letters, inputs, strict=True)
        ]
        while read and read[-1] is None:
            read.pop()
        wires = self._append(op, read, outputs, present, signature, {**bound, **dict.fromkeys(wider, DType.F32)})
        wires = [
            self.cast(y, bound[letter]) if letter in wider else y
            for y, letter in zip(wires, _letters(signature.outputs, outputs), strict=True)
        ]
        return wires[0] if outputs == 1 else tuple(wires)

    def _append(
        self,
        op: str,
        inputs: Sequence[Wire | None],
        outputs: int,
        attributes: dict[str, Any],
        signature: _Signature,
        bound: dict[str, DType],
    ) -> list[Wire]:
        path = "" if self.origin is None else self.origin.path
        name = self.unique(f"{path}.{op}" if path else op)
        names = [name if i == 0 else self.unique(f"{name}.{i}") for i in range(outputs)]
        letters = _letters(signature.outputs, outputs)
        to = ONNX_DTYPES.get(attributes.get("to", attributes.get("dtype", 0)))
        wires = [
            Wire(each, bound.get(letter) or _only(signature, letter) or to or DType.F32)
            for each, letter in zip(names, letters, strict=True)
        ]
        self.nodes.append(Node(op, name, tuple("" if x is None else str(x) for x in inputs), tuple(names), attributes))
        return wires

    def body(
        self,
        part: Part,
        given: Sequence[Wire | Number | None],
        before: Sequence[Wire] = (),
        finish: Callable[[list[Wire]], list[Wire]] = list,
    ) -> Body:
        """Writes a graph within the node that is written next.

        given   for each input of the part a value from outside, None where it becomes an input of the graph
        before  inputs of the graph that the part does not read
        finish  makes the outputs of what the part gives, with nodes inside the graph
        """
        lengths, axes, mark = dict(self._lengths), dict(self._axes), len(self.nodes)
        origin, results = self.origin, self.results
        inputs, values = list(before), dict[int, Any]()
        for (ident, kind), x in zip(part.inputs, given, strict=True):
            if x is not None:
                values[ident] = x
                continue
            assert kind is not None, "an input of a body is a tensor"
            inputs.append(self.met(Wire(self.unique("item"), kind.dtype, kind.shape)))
            values[ident] = inputs[-1]
        self.write_steps(part.steps, values)
        self.origin, self.results = None, results
        lost = [i for i in part.outputs if i not in values]
        if lost:
            raise Cannot("its body holds what cannot be written")
        outputs: list[Wire] = []
        for y in finish([values[i] for i in part.outputs]):
            names = {name for node in self.nodes[mark:] for name in node.outputs}
            own = str(y) in names and y not in outputs
            outputs.append(y if own else Wire(self.node("Identity", y), y.dtype, y.known))
        nodes = tuple(self.nodes[mark:])
        del self.nodes[mark:]
        self._lengths, self._axes, self.origin = lengths, axes, origin  # what is worked out inside stays inside
        return Body(self.unique("body"), tuple(inputs), nodes, tuple(outputs))

    # -- constants --------------------------------------------------------------------------------------
    def array(self, values: Any, dtype: DType, wish: str = "constant") -> Wire:
        """A constant of the model; equal small ones are one."""
        data = TensorData.of(np.asarray(values), dtype)
        key = (dtype, data.shape, data.array.tobytes()) if data.num_elements <= 1024 else None
        wire = self._interned.get(key) if key else None
        if wire is None:
            wire = Wire(self.unique(wish), dtype, data.shape)
            self.constants[str(wire)] = data
            if key:
                self._interned[key] = wire
        return wire

    def ints(self, sizes: Sequence[Length]) -> Wire:
        """A vector of int64: a constant, or put together when the graph runs."""
        if not any(isinstance(size, Size) for size in sizes):
            return self.array(np.array(sizes, np.int64), DType.I64)
        parts: list[Wire] = []
        fixed: list[int] = []
        for size in sizes:
            if isinstance(size, Size):
                parts += [self.ints(fixed)] if fixed else []
                parts.append(self.length(size))
                fixed = []
            else:
                fixed.append(size)
        parts += [self.ints(fixed)] if fixed else []
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    def length(self, size: Length) -> Wire:
        """A size as a vector of one int64.  Raises: Cannot where nothing tells it when the graph runs."""
        if not isinstance(size, Size):
            return self.ints([size])
        wire = self._lengths.get(size)
        if wire is None:
            before, self.origin = self.origin, None
            wire = self._lengths[size] = self._worked_out(size)
            self.origin = before
        return wire

    def _worked_out(self, size: Size) -> Wire:
        for symbol in self.symbols:
            if symbol.size * symbol.factor == size:
                return self._axis(symbol.source, symbol.axis)
            if symbol.size == size:
                return self.node("Div", self.length(size * symbol.factor), self.ints([symbol.factor]))
        known = formula(size, self.symbols)
        if known is not None:
            total: Wire | None = None
            for factor, chosen in known.terms:
                term = self.length(self.symbols[chosen[0]].size)
                for i in chosen[1:]:
                    term = self.node("Mul", term, self.length(self.symbols[i].size))
                if factor != 1:
                    term = self.node("Mul", term, self.ints([factor]))
                total = term if total is None else self.node("Add", total, term)
            assert total is not None
            return self.node("Add", total, self.ints([known.constant])) if known.constant else total
        if size in self._axes:
            return self._axis(*self._axes[size])
        raise Cannot(f"a size that is {size} in the traces, and no formula of the dynamic axes")

    def _axis(self, wire: Wire, axis: int) -> Wire:
        return self.node("Gather", self.node("Shape", wire), self.ints([axis]), axis=0)

    def number(self, number: Number, dtype: DType) -> Wire:
        """A number as a tensor without axes.  Raises: Cannot for one that no formula gives."""
        if isinstance(number, Size):
            return self.cast(self.node("Squeeze", self.length(number), self.ints([0])), dtype)
        if isinstance(number, Varying):
            return self._varying(number, dtype)
        if dtype.is_int and isinstance(number, int) and not isinstance(number, bool):
            return self.array(np.array(number, dtype.numpy), dtype)
        return self.array(np.array(number, np.float64), dtype)

    def _varying(self, number: Varying, dtype: DType) -> Wire:
        for power in (-1, 2, -2):
            values = [x**power if x else math.nan for x in number.values]
            whole = [round(x) if math.isfinite(x) else 0 for x in values]
            # numbers that the host worked out in f32 are off by 6e-8; whole numbers below 10^6 differ by more than 1e-6
            if all(w > 0 and abs(x - w) <= 4e-7 * w for x, w in zip(values, whole, strict=True)):
                y = self.number(Size(tuple(whole)), dtype)
                y = self.node("Sqrt", y) if abs(power) == 2 else y
                return self.node("Reciprocal", y) if power < 0 else y
        raise Cannot(f"a number that is {number} in the traces, and no formula of the dynamic axes")

    # -- what many rows need ------------------------------------------------------------------------------
    def operand(self, x: Wire | Number, dtype: DType) -> Wire:
        """A tensor as it is, a number as a constant of an element type."""
        return x if isinstance(x, Wire) else self.number(x, dtype)

    def cast(self, x: Wire, dtype: DType) -> Wire:
        """x in another element type."""
        if x.dtype is dtype:
            return x
        wire = self.node("Cast", x, to=onnx_dtype(dtype))
        return Wire(wire, dtype, x.known)

    def fixed(self, length: Length, what: str) -> int:
        """A size that must be known now.  Raises: Cannot for one that depends on a dynamic axis."""
        if isinstance(length, Size):
            raise Cannot(f"{what} depends on a dynamic axis")
        return length

    def fixed_number(self, number: Number | Wire, what: str) -> float:
        """A number that must be known now.  Raises: Cannot for one that depends on a dynamic axis, or is a tensor."""
        if isinstance(number, int | float):
            return float(number)
        raise Cannot(f"{what} " + ("is a tensor" if isinstance(number, Wire) else "depends on a dynamic axis"))

    def reshape(self, x: Wire, shape: Shape) -> Wire:
        """x under another shape; `x.shape` is known."""
        if x.shape == shape:
            return x
        if 0 in shape or 0 in x.shape:  # a 0 would stand for the size of x, and -1 for nothing
            if self.opset >= 14:
                return Wire(self.node("Reshape", x, self.ints(shape), allowzero=1), x.dtype, shape)
            return Wire(self.node("Expand", self.number(0, x.dtype), self.ints(shape)), x.dtype, shape)
        varying = [i for i, size in enumerate(shape) if isinstance(size, Size)]
        wanted: list[Length] = list(shape)
        if len(varying) > 1:
            for i in varying:
                if i < x.ndim and x.shape[i] == shape[i]:
                    wanted[i] = 0
            varying = [i for i in varying if wanted[i] != 0]
        if varying:
            wanted[varying[-1]] = -1
        return Wire(self.node("Reshape", x, self.ints(wanted)), x.dtype, shape)

    def permute(self, x: Wire, axes: Sequence[int]) -> Wire:
        """x with its axes in another order."""
        if tuple(axes) == tuple(range(len(axes))):
            return x
        wire = self.node("Transpose", x, perm=list(axes))
        return Wire(wire, x.dtype, tuple(x.shape[i] for i in axes))

    def expand(self, x: Wire, shape: Shape) -> Wire:
        """x broadcast to a shape; `x.shape` is known."""
        own = (1,) * (len(shape) - x.ndim) + x.shape
        if x.shape == shape:
            return x
        wanted = [1 if a == b else b for a, b in zip(own, shape, strict=True)]
        return Wire(self.node("Expand", x, self.ints(wanted)), x.dtype, shape)

    def unsqueeze(self, x: Wire, axes: Sequence[int]) -> Wire:
        """x with axes of size 1 inserted at these places of the result."""
        return self.node("Unsqueeze", x, self.ints(list(axes))) if axes else x

    def reduce(self, op: str, x: Wire, dims: Sequence[int]) -> Wire:
        """A reduction over axes, which stay with size 1."""
        if not dims:
            return x
        if op == "ReduceSum" or self.opset >= 18:
            return self.node(op, x, self.ints(list(dims)), keepdims=1)
        return self.node(op, x, axes=list(dims), keepdims=1)

    def cut(self, x: Wire, axis: int, start: int, end: Length, step: int = 1) -> Wire:
        """The elements from start, below end, every step-th along one axis; both may count from the end."""
        return self.node("Slice", x, self.ints([start]), self.ints([end]), self.ints([axis]), self.ints([step]))

    def range(self, length: Length) -> Wire:
        """0, 1, ... below a length, int64."""
        if not isinstance(length, Size) and length <= 4096:
            return self.array(np.arange(length), DType.I64)
        end = self.number(length, DType.I64)
        return Wire(self.node("Range", self.number(0, DType.I64), end, self.number(1, DType.I64)), DType.I64, (length,))

    def count(self, x: Wire, dims: Sequence[int]) -> Length:
        """How many elements lie along axes."""
        return product(x.shape[i] for i in dims)


def _no_steps(steps: Sequence[Step], values: dict[int, Any]) -> None:
    raise AssertionError("assembly says how steps are written")


def _only(signature: _Signature, letter: str) -> DType | None:
    """The element type of an output that can have one only."""
    types = signature.types.get(letter, frozenset({letter}))
    return _DTYPES.get(next(iter(types))) if len(types) == 1 else None


def _letters(declared: Sequence[str], count: int) -> list[str]:
    """The letters of `count` inputs or outputs; the last one is that of all further ones."""
    return [declared[min(i, len(declared) - 1)] for i in range(count)]
