"""Random valid Graphs with data for their inputs: what passes and executors are tested on.

    from tests.graph.random_graphs import Program, programs

    @settings(max_examples=50, deadline=None)
    @given(programs())
    def test_pass_changes_no_bit(program: Program) -> None:
        before = program.run(LibTorch())
        after = Program(my_pass(program.graph), program.data).run(LibTorch())
        assert_same_bits(before, after)

The graphs hold element-wise rows with broadcasting, numbers known at run time and host arithmetic on them, views of
views, reductions, products, rows with several outputs and with absent inputs, random rows with keys, optimizer rows;
nodes that are repeated, nodes that nothing reads; inputs that are outputs, outputs given twice, outputs that are None.
Data has NaN, infinities, -0.0 and axes of size 0 in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from burn_torch import ops
from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.base import Backend
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, NumberSpec, Shape, TensorSpec
from burn_torch.graph import Graph, Trace, interpret
from burn_torch.ops import Value

Input = TensorData | int | float

_MOST_ELEMENTS: Final = 200
_LITERALS: Final = (0.0, -0.0, 1.0, 0.5, -2.0, 1e-3, 3, -1, 0)
_SPECIAL: Final = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-40, 1.0)


@dataclass(frozen=True)
class Program:
    """A graph, and what to run it on: data for a tensor, a number for a NumberSpec."""

    graph: Graph
    data: tuple[Input, ...]

    def inputs(self, backend: Backend) -> list[Any]:
        """The inputs as new primitives of a backend: nobody else holds their memory."""
        return [
            backend.from_data(x, spec.place) if isinstance(spec, TensorSpec) and isinstance(x, TensorData) else x
            for (_, spec), x in zip(self.graph.inputs, self.data, strict=True)
        ]

    def run(self, backend: Backend) -> list[np.ndarray[Any, Any] | Input | None]:
        """Returns the outputs that the interpreter computes on the host."""
        return on_host(backend, interpret(self.graph, backend, self.inputs(backend)))


def on_host(backend: Backend, outputs: Sequence[Any]) -> list[Any]:
    """The outputs of a graph as arrays; numbers and None as they are."""
    return [
        x if x is None or isinstance(x, int | float) else np.asarray(backend.into_data(x).array).copy() for x in outputs
    ]


def assert_same_bits(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Fails unless outputs agree in type, shape and every bit; any NaN is equal to any other."""
    assert len(actual) == len(expected), f"{len(actual)} outputs, expected {len(expected)}"
    for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
        assert type(x) is type(y), f"output {i} is {x!r}, expected {y!r}"
        if not isinstance(x, np.ndarray):
            assert repr(x) == repr(y), f"output {i} is {x!r}, expected {y!r}"
            continue
        assert (x.dtype, x.shape) == (y.dtype, y.shape), f"output {i}: {x.dtype} {x.shape} is not {y.dtype} {y.shape}"
        np.testing.assert_array_equal(x, y, err_msg=f"output {i}")
        if x.dtype.kind == "f":
            number = ~np.isnan(x)
            np.testing.assert_array_equal(
                np.signbit(x[number]), np.signbit(y[number]), err_msg=f"output {i}: sign of 0"
            )


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    max_nodes: int = 14,
    exact: bool = False,
    special: bool = True,
    backward: bool = False,
    floats: Sequence[DType] = (DType.F32, DType.F64),
    place: str = "cpu",
) -> Program:
    """Programs of `max_nodes` / 3 to about `max_nodes` nodes.

    exact     only rows that give the same bits on every leaf
    special   NaN, infinities and -0.0 among the data
    backward  followed by the gradients of the float outputs for the float inputs, as `Autodiff` derives them
    floats    the float types; a graph may mix them by casts
    """
    builder = _Builder(draw, tuple(floats), place)
    for _ in range(draw(st.integers(1, 4))):
        builder.declare_tensor()
    for _ in range(draw(st.integers(0, 2))):
        builder.declare_number()
    makers = _EXACT if exact else _EXACT + _ROUNDED
    for maker in draw(st.lists(st.sampled_from(makers), min_size=max_nodes // 3, max_size=max_nodes)):
        maker(builder)
    graph = builder.graph()
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if backward:
        graph = differentiated(graph)
    return Program(graph, tuple(_data(rng, spec, special=special) for _, spec in graph.inputs))


def differentiated(graph: Graph) -> Graph:
    """The graph with gradients: an input more for each tracked output, an output more for each float input."""
    trace = Trace()
    tape = Autodiff.over(trace)
    values = [trace.input(spec) for _, spec in graph.inputs]
    tracked = [tape.track(v.primitive, v.spec) if _is_float(v.spec) else v.primitive for v in values]
    outputs = interpret(graph, tape, tracked)
    specs = graph.specs()
    roots = [
        (output, trace.input(specs[i]).primitive)
        for i, output in zip(graph.outputs, outputs, strict=True)
        if i is not None and tape.is_tracked(output)
    ]
    slots = tape.backward(roots) if roots else {}
    results: list[Value | None] = [
        None if i is None else Value(trace, tape.unwrapped(output), specs[i])
        for i, output in zip(graph.outputs, outputs, strict=True)
    ]
    for value, primitive in zip(values, tracked, strict=True):
        if tape.is_tracked(primitive):
            gradient = slots.get(primitive.node.id)
            results.append(None if gradient is None else Value(trace, gradient, value.spec))
    return trace.graph(results)


def _data(rng: np.random.Generator, spec: TensorSpec | NumberSpec, *, special: bool) -> Input:
    if isinstance(spec, NumberSpec):
        return float(rng.normal()) if spec.kind == "float" else int(rng.integers(-3, 4))
    if spec.dtype.is_float:
        array = rng.normal(size=spec.shape)
        if special and array.size:
            places = rng.random(spec.shape) < 0.15
            array[places] = rng.choice(_SPECIAL, size=int(places.sum()))
        return TensorData.of(np.asarray(array)).convert(spec.dtype)
    if spec.dtype.is_bool:
        return TensorData.of(np.asarray(rng.random(spec.shape) < 0.5))
    return TensorData.of(np.asarray(rng.integers(-4, 5, spec.shape, dtype=np.int64))).convert(spec.dtype)


def _kind(number: Value) -> str:
    spec: Any = number.spec
    assert isinstance(spec, NumberSpec)
    return spec.kind


def _is_float(spec: TensorSpec | NumberSpec) -> bool:
    return isinstance(spec, TensorSpec) and spec.dtype.is_float


# -- building ------------------------------------------------------------------------------------------------
class _Builder:
    """The values so far, and what makers draw from."""

    def __init__(self, draw: st.DrawFn, floats: tuple[DType, ...], place: str) -> None:
        self.draw = draw
        self.floats = floats
        self.place = place
        self.trace = Trace()
        self.tensors: list[Value] = []
        self.numbers: list[Value] = []
        self.makings: list[Callable[[], Any]] = []

    def declare_tensor(self) -> None:
        shape = self.draw(_shapes)
        dtype = self.draw(st.sampled_from((*self.floats, self.floats[0], self.floats[0], DType.I64, DType.BOOL)))
        self.tensors.append(self.trace.input(TensorSpec.of(shape, dtype, self.place)))

    def declare_number(self) -> None:
        self.numbers.append(self.trace.input(self.draw(st.sampled_from((FLOAT_NUMBER, INT_NUMBER)))))

    def choose(self, among: Sequence[Any]) -> Any:
        return among[self.draw(st.integers(0, len(among) - 1))]  # by number: a traced number has no hash

    def tensor(self, fits: Callable[[Value], bool] = lambda x: True) -> Value | None:
        """One of the tensors, later ones first; None where none fits."""
        fitting = [x for x in reversed(self.tensors) if fits(x)]
        return self.choose(fitting) if fitting else None

    def float(self, fits: Callable[[Value], bool] = lambda x: True) -> Value | None:
        return self.tensor(lambda x: x.dtype.is_float and fits(x))

    def number(self, *, whole: bool = False) -> Any:
        """A literal, or a number that is known at run time."""
        known = [n for n in self.numbers if not whole or _kind(n) == "int"]
        literals = [x for x in _LITERALS if not whole or isinstance(x, int)]
        return self.choose([*known, *literals])

    def make(self, row: Callable[..., Any], *inputs: Any, **attrs: Any) -> None:
        """Computes, and keeps what is not too large; a row without tensors computes on the trace."""

        def run() -> Any:
            if any(isinstance(x, Value) for x in inputs):
                return row(*inputs, **attrs)
            return row.run(self.trace, Value, inputs, attrs)  # type: ignore[attr-defined]  # rows are Ops

        self.makings.append(run)
        self.keep(run())

    def keep(self, outcome: Any) -> None:
        for y in outcome if isinstance(outcome, tuple) else (outcome,):
            if isinstance(y, Value):
                (self.numbers if y.is_number else self.tensors).append(y)

    def graph(self) -> Graph:
        pool: list[Value | None] = [*self.tensors, *self.numbers]
        latest: list[Value | None] = [*self.tensors[-2:]]
        chosen = self.draw(st.lists(st.integers(0, len(pool)), max_size=4))
        return self.trace.graph(latest + [[*pool, None][i] for i in chosen])


_shapes: Final = st.one_of(
    st.lists(st.integers(1, 4), max_size=3).map(tuple), st.lists(st.integers(0, 4), max_size=3).map(tuple)
)


def _broadcasts(a: Shape, b: Shape) -> bool:
    try:
        return math.prod(np.broadcast_shapes(a, b)) <= _MOST_ELEMENTS
    except ValueError:
        return False


# -- makers: each adds a node where its inputs can be had ------------------------------------------------------
def _elementwise(*rows: Any) -> Callable[[_Builder], None]:
    def maker(b: _Builder) -> None:
        x = b.float()
        if x is not None:
            b.make(b.choose(rows), x)

    return maker


def _binary(*rows: Any) -> Callable[[_Builder], None]:
    def maker(b: _Builder) -> None:
        x = b.tensor(lambda x: not x.dtype.is_bool)
        if x is None:
            return
        y = b.tensor(lambda y: y.dtype is x.dtype and _broadcasts(x.shape, y.shape))
        number = b.number(whole=not x.dtype.is_float)
        other = number if y is None else b.choose((y, number))  # none fits where x itself is too large to be joined
        pair = (x, other) if b.choose((True, True, False)) else (other, x)
        b.make(b.choose(rows), *pair)

    return maker


def _float_binary(*rows: Any) -> Callable[[_Builder], None]:
    def maker(b: _Builder) -> None:
        x = b.float()
        if x is not None:
            y = b.tensor(lambda y: y.dtype is x.dtype and _broadcasts(x.shape, y.shape))
            b.make(b.choose(rows), x, b.number() if y is None else b.choose((y, b.number())))

    return maker


def _logic(b: _Builder) -> None:
    mask = b.tensor(lambda x: x.dtype.is_bool)
    if mask is None:
        return
    other = b.tensor(lambda x: x.dtype.is_bool and _broadcasts(x.shape, mask.shape))
    if other is None or b.choose((True, False)):
        b.make(ops.bool_not, mask)
    else:
        b.make(b.choose((ops.bool_and, ops.bool_or, ops.bool_xor)), mask, other)


def _where(b: _Builder) -> None:
    mask = b.tensor(lambda x: x.dtype.is_bool)
    if mask is not None:
        x = b.float(lambda x: _broadcasts(x.shape, mask.shape))
        if x is not None:
            b.make(ops.mask_where, x, mask, b.number())


def _cast(b: _Builder) -> None:
    x = b.tensor()
    if x is not None:  # not from floats to integers: there NaN has no meaning
        b.make(ops.cast, x, dtype=b.choose(b.floats if x.dtype.is_float else (*b.floats, DType.I64)))


def _reshape(b: _Builder) -> None:
    x = b.tensor()
    if x is None:
        return
    numel = math.prod(x.shape)
    shapes: list[Shape] = [(numel,), (*x.shape, 1), (1, numel), x.shape]
    shapes += [(d, numel // d) for d in (2, 3, 4) if numel % d == 0]
    if x.ndim > 1:
        shapes.append((x.shape[0] * x.shape[1], *x.shape[2:]))
    b.make(ops.reshape, x, shape=b.choose(shapes))


def _permute(b: _Builder) -> None:
    x = b.tensor(lambda x: x.ndim > 0)
    if x is not None:
        b.make(ops.permute, x, axes=tuple(b.draw(st.permutations(range(x.ndim)))))


def _expand(b: _Builder) -> None:
    x = b.tensor(lambda x: math.prod(x.shape) <= _MOST_ELEMENTS // 9)
    if x is not None:
        widened = tuple(b.choose((1, 2, 3)) if size == 1 else size for size in x.shape)
        b.make(ops.expand, x, shape=(b.choose((1, 2)), *widened) if b.choose((True, False)) else widened)


def _slice(b: _Builder) -> None:
    x = b.tensor(lambda x: x.ndim > 0)
    if x is None:
        return
    ranges = []
    for size in x.shape:
        start = b.choose(range(size + 1))
        ranges.append((start, b.choose(range(start, size + 1)), b.choose((1, 1, 2, 3))))
    b.make(ops.slice, x, ranges=tuple(ranges))


def _split(b: _Builder) -> None:
    x = b.tensor(lambda x: x.ndim > 0)
    if x is not None:
        dim = b.choose(range(x.ndim))
        first = b.choose(range(x.shape[dim] + 1))
        b.make(ops.split, x, sizes=(first, x.shape[dim] - first), dim=dim)


def _move(b: _Builder) -> None:
    x = b.tensor(lambda x: x.ndim > 0)
    if x is None:
        return
    dim = b.choose(range(x.ndim))
    if b.choose((True, False)):
        b.make(ops.flip, x, axes=(dim,))
        return
    other = b.tensor(lambda y: y.dtype is x.dtype and y.shape[:dim] == x.shape[:dim] and
                     y.shape[dim + 1 :] == x.shape[dim + 1 :] and y.ndim == x.ndim)  # fmt: skip
    if math.prod(x.shape) <= _MOST_ELEMENTS // 2:
        b.make(ops.cat, x, other, dim=dim)


def _select(b: _Builder) -> None:
    x = b.tensor(lambda x: x.ndim > 0 and math.prod(x.shape) <= _MOST_ELEMENTS)
    if x is None:
        return
    dim = b.choose(range(x.ndim))
    indices = ops.arange.run(b.trace, Value, (0, 1), {"length": x.shape[dim], "dtype": DType.I64, "place": b.place})
    b.make(ops.select, x, indices, dim=dim)


def _extremes(*rows: Any) -> Callable[[_Builder], None]:
    def maker(b: _Builder) -> None:
        x = b.float(lambda x: x.ndim > 0 and 0 not in x.shape)
        if x is not None:
            dim, row = b.choose(range(x.ndim)), b.choose(rows)
            b.make(row, x, **({"dims": (dim,)} if row in (ops.amax, ops.amin) else {"dim": dim}))

    return maker


def _reduce(b: _Builder) -> None:
    x = b.float(lambda x: x.ndim > 0)
    if x is None:
        return
    dims = tuple(sorted(b.draw(st.sets(st.sampled_from(range(x.ndim)), min_size=1))))
    row = b.choose((ops.sum, ops.mean, ops.logsumexp, ops.var_mean))
    if 0 not in x.shape or row is ops.sum:
        b.make(row, x, dims=dims, **({"correction": 0} if row is ops.var_mean else {}))


def _normalise(b: _Builder) -> None:
    x = b.float(lambda x: x.ndim > 0 and 0 not in x.shape)
    if x is None:
        return
    gamma = b.tensor(lambda y: y.dtype is x.dtype and y.shape == x.shape[-1:])
    if b.choose((True, False)):
        b.make(ops.layer_norm, x, b.choose((gamma, None)), None, 1e-5)
    else:
        b.make(b.choose((ops.softmax, ops.log_softmax)), x, dim=x.ndim - 1)


def _product(b: _Builder) -> None:
    x = b.float(lambda x: x.ndim == 2)
    if x is None:
        return
    b.make(ops.matmul, x, x if x.shape[0] == x.shape[1] else ops.permute(x, axes=(1, 0)))
    weight = b.float(lambda y: y.ndim == 2 and y.dtype is x.dtype and y.shape[0] == x.shape[1])
    if weight is not None:
        b.make(ops.linear, x, weight, b.float(lambda y: y.dtype is x.dtype and y.shape == weight.shape[1:]))


def _host_number(b: _Builder) -> None:
    if b.numbers:
        row = b.choose((ops.add, ops.sub, ops.maximum, ops.minimum))  # no products: whole numbers would leave 64 bits
        b.make(row, b.choose(b.numbers), b.number())


def _create_full(b: _Builder) -> None:
    shape, dtype = b.draw(_shapes), b.choose(b.floats)
    b.make(ops.full, b.number(), shape=shape, dtype=dtype, place=b.place)


def _draw_random(b: _Builder) -> None:
    key, stream = b.number(whole=True), b.choose((0, 7, 2**64 - 1))
    shape = b.draw(_shapes)
    b.make(ops.bernoulli, 0.5, key, stream, shape=shape, dtype=DType.BOOL, place=b.place)
    b.make(ops.uniform, 0.0, 1.0, key, stream, shape=shape, dtype=b.choose(b.floats), place=b.place)
    x = b.float()
    if x is not None:
        b.make(ops.dropout, x, 0.5, key, stream)


def _update_weight(b: _Builder) -> None:
    p = b.float()
    if p is not None:
        g = b.float(lambda x: x.spec is p.spec)
        if b.choose((True, False)):
            b.make(ops.sgd_update, b.choose((0.1, *(n for n in b.numbers if _kind(n) == "float"))), 0.0, p, g)
        elif b.choose((True, False)):
            b.make(ops.lion_update, 0.1, 0.9, 0.99, 0.1, p, g, g)
        else:
            momentum = {"nesterov": b.choose((True, False))}
            b.make(ops.momentum_update, 0.1, 0.0, 0.9, 1.0, p, g, g, **momentum)


def _again(b: _Builder) -> None:
    if b.makings:
        b.keep(b.choose(b.makings)())


_ARITHMETIC = _binary(ops.add, ops.sub, ops.mul)
_EXACT: Final[tuple[Callable[[_Builder], None], ...]] = (
    _elementwise(ops.neg, ops.abs, ops.floor, ops.square, ops.is_nan),
    _ARITHMETIC,
    _ARITHMETIC,
    _binary(ops.lower, ops.greater_equal, ops.equal, ops.not_equal),
    _float_binary(ops.div),
    _logic,
    _where,
    _cast,
    _reshape,
    _permute,
    _expand,
    _slice,
    _split,
    _move,
    _select,
    _extremes(ops.argmax, ops.max_with_indices),
    _host_number,
    _create_full,
    _draw_random,
    _again,
)
"""Rows of one rounding or none, which every leaf computes to the same bits."""

_ROUNDED: Final[tuple[Callable[[_Builder], None], ...]] = (
    _elementwise(
        ops.relu, ops.exp, ops.log, ops.sqrt, ops.tanh, ops.sigmoid, ops.gelu, ops.sin, ops.recip, ops.erf, ops.silu
    ),
    _binary(ops.maximum, ops.minimum),  # of 0.0 and -0.0 leaves give either, as relu does
    _extremes(ops.amax, ops.amin),
    _float_binary(ops.div, ops.atan2, ops.pow),
    _reduce,
    _normalise,
    _product,
    _update_weight,
)
