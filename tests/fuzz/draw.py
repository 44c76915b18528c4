"""Draws programs over the whole table, from the rows' signatures and samples: a new row is drawn with no new code.

A step takes a row and operands from the values so far, which other steps bring to the shape, the element type and the
range that the row's samples have.  Every step is computed while it is drawn, eagerly on LibTorch: what raises there, or
grows beyond all bounds, is no part of the program.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from burn_torch import BurnTorchError, Device, DType, Tensor
from burn_torch.core.data import TensorData
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import REGISTRY, Op
from burn_torch.ops.samples import Sample, normalise
from tests.fuzz.layers import LAYERS, operands_of
from tests.fuzz.program import LAYER, Input, Number, Program, Ref, Step, compute

__all__ = ["draw_program", "drawable", "why_not_drawn"]

Array = NDArray[Any]

CPU: Final = Device.cpu(fused=False)
MOST_ELEMENTS: Final = 700
LARGEST_LAYER: Final = 3100
LARGEST: Final = 1e5
"""Values beyond are not drawn: their rounding would hide what is wrong."""

SHAPES: Final[tuple[tuple[int, ...], ...]] = (
    (3, 4), (3, 4), (3, 4), (4,), (1, 4), (3, 1), (2, 3, 4), (2, 1, 4), (), (1,), (1, 1),
    (4, 4), (5,), (2, 3), (7,), (2, 5, 3), (1, 3, 1), (0, 4), (3, 0), (0,), (2, 2, 3, 2), (17,), (9, 5),
)  # fmt: skip
FLOATS: Final = (DType.F64, DType.F32, DType.F16, DType.BF16)
INTEGERS: Final = (DType.I64, DType.I64, DType.I32, DType.I16, DType.I8, DType.U8)


ORDER_OF_TIES_IS_OPEN: Final = ("topk_with_indices", "median_with_indices")
"""Rows whose indices of equal elements are another leaf's choice."""


# -- which rows ------------------------------------------------------------------------------------------
def why_not_drawn(row: Op) -> str | None:
    """Why a row is in no program; None if it can be."""
    if "::" in row.name:
        return "a row of a user, or of the scheduler: it has no samples of its own"
    if row.collective is not None:
        return "needs other processes"
    if row.barrier:
        return "its shape depends on data, so no program of it can be compiled"
    if row.torch is None and row.numpy is None and row.decomposition is None:
        return "computes host numbers, no tensor"
    return None if normalise(row.samples) else "has no samples"


@functools.cache
def drawable() -> tuple[str, ...]:
    """The names of all rows that are drawn."""
    return tuple(name for name, row in sorted(REGISTRY.items()) if why_not_drawn(row) is None)


@functools.cache
def _free_rows() -> tuple[str, ...]:
    """Rows that take shapes other than their samples': element-wise ones, and those whose attributes can be drawn."""
    return tuple(
        name for name in drawable() if REGISTRY[name].pointwise is not None or _attributes_known(REGISTRY[name])
    )


def _attributes_known(row: Op) -> bool:
    kinds = [kind for _, kind in row.signature.inputs]
    one_tensor = kinds[:1] == ["tensor"] and all(kind == "number" for kind in kinds[1:])
    return one_tensor and bool(row.signature.attrs) and set(row.signature.attrs) <= set(_ATTRIBUTES)


@functools.cache
def _drawn_samples(name: str) -> tuple[tuple[Sample, tuple[Any, ...]], ...]:
    """Each sample of a row with one draw of it, for shapes, kinds and ranges."""
    generator = np.random.default_rng(7)
    return tuple((s, tuple(s.draw(generator))) for s in normalise(REGISTRY[name].samples))


@functools.cache
def _range_of(name: str, position: int) -> tuple[str, float, float]:
    """Kind ("f", "i", "b") and range of an operand, over all samples of an element-wise row."""
    arrays = [x[position] for _, x in _drawn_samples(name) if position < len(x) and isinstance(x[position], np.ndarray)]
    if not arrays:
        return "f", -2.0, 2.0
    kind = arrays[0].dtype.kind
    values = np.concatenate([x.astype(np.float64).ravel() for x in arrays])
    values = values[np.isfinite(values) & (np.abs(values) < LARGEST)]
    if not values.size:
        return kind, -2.0, 2.0
    return kind, float(values.min()), float(values.max())


def _has_ties(x: Any) -> bool:
    return x is None or x.tensor.into_torch().unique().numel() < x.tensor.spec.numel


# -- the drawer -------------------------------------------------------------------------------------------
class _Value:
    """A value of the program that is being drawn: the tensor, and which step or input it is a result of."""

    __slots__ = ("bounds", "from_input", "place", "tensor")

    def __init__(self, tensor: Tensor, from_input: Input | None) -> None:
        self.tensor = tensor
        self.from_input = from_input
        self.place = -1
        self.bounds: tuple[float, float] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    def range(self) -> tuple[float, float]:
        """Smallest and largest element; NaN if there is one; (0, 0) of nothing."""
        if self.bounds is None:
            x = self.tensor.into_torch()
            if not x.numel():
                self.bounds = (0.0, 0.0)
            else:
                low, high = (x.to(dtype=_wide(x)).aminmax()) if x.numel() else (0, 0)
                self.bounds = (float(low), float(high))
        return self.bounds


def _wide(x: Any) -> Any:
    import torch

    return torch.float64 if x.is_floating_point() else torch.int64


class Drawer:
    """The program so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        self.values: list[_Value] = []
        self.steps: list[tuple[str, tuple[Any, ...], dict[str, Any], list[_Value | None]]] = []
        self.numbers: list[float | int] = []
        self.rows: set[str] = set()
        self.float = self.random.choices(FLOATS, (75, 17, 4, 4))[0]
        self.wild = self.random.random() < 0.03
        """Whether values may be infinite, NaN or large."""
        self.scale = 1.0
        """Of what layers read."""

    # -- values ---------------------------------------------------------------------------------
    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def some_shape(self) -> tuple[int, ...]:
        return self.random.choice(SHAPES)

    def add_input(self, data: Array, dtype: DType, *, may_want_grad: bool = True) -> _Value:
        if dtype.is_float:
            data = np.asarray(TensorData.of(np.asarray(data, np.float64)).convert(dtype).values, np.float64)
        elif dtype.is_int:
            data = np.asarray(data).astype(np.int64)
        x = Input(data, dtype, wants_grad=may_want_grad and dtype.is_float and self.chance(0.8))
        value = _Value(x.tensor(CPU), x)
        self.values.append(value)
        return value

    def fresh(self, kind: str, shape: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> _Value:
        """A new input with elements of a range."""
        if kind == "b":
            return self.add_input(self.numpy.random(shape) < 0.5, DType.BOOL)
        if kind == "i":
            dtype = self.random.choice(INTEGERS)
            if dtype.kind == "uint":
                low, high = max(low, 0.0), max(high, 1.0)
            return self.add_input(self.numpy.integers(math.ceil(low), math.floor(high) + 1, shape), dtype)
        data = self.numpy.uniform(low, high, shape)
        if self.chance(0.3) and math.ceil(low * 4) <= math.floor(high * 4):
            data = np.clip(np.round(data * 4), math.ceil(low * 4), math.floor(high * 4)) / 4  # ties, and exact numbers
        if self.wild and data.size:
            where = self.numpy.random(shape) < 0.2
            data = np.where(where, self.numpy.choice([np.nan, np.inf, -np.inf, -0.0, 1e30], shape), data)
        return self.add_input(data, self.float)

    def pick(self, fits: Callable[[_Value], bool]) -> _Value | None:
        """One of the values, later ones more often."""
        fitting = [v for v in self.values if fits(v)]
        if not fitting:
            return None
        return fitting[max(self.random.randrange(len(fitting)), self.random.randrange(len(fitting)))]

    def number(self, value: float | int) -> Any:
        """A literal, or a number known at run time."""
        if isinstance(value, bool) or self.chance(0.6):
            return value
        self.numbers.append(value)
        return Number(len(self.numbers) - 1)

    # -- steps ----------------------------------------------------------------------------------
    def emit(self, name: str, *operands: Any, **attrs: Any) -> list[_Value | None] | None:
        """Adds a step and computes it; None where it raises, or its result is too large."""
        given = [
            x.tensor if isinstance(x, _Value) else self.numbers[x.at] if isinstance(x, Number) else x for x in operands
        ]
        try:
            made: Any = compute(name, given, attrs, self.values[0].tensor)
        except (BurnTorchError, ZeroDivisionError):
            return None
        results = list(made) if isinstance(made, tuple) else [made]
        values = [None if y is None else _Value(y, None) for y in results]
        if name in ORDER_OF_TIES_IS_OPEN and _has_ties(values[0]):
            return None
        for v in values:
            if v is not None and not self._small(v, LARGEST_LAYER if name.startswith(LAYER) else MOST_ELEMENTS):
                return None
        self.values += [v for v in values if v is not None]
        self.steps.append((name, operands, attrs, values))
        self.rows.add(name)
        return values

    def _small(self, value: _Value, most: int) -> bool:
        if value.tensor.spec.numel > most:
            return False
        if self.wild or not value.dtype.is_float:
            return True
        low, high = value.range()
        return max(abs(low), abs(high)) < LARGEST

    def one(self, name: str, *operands: Any, **attrs: Any) -> _Value | None:
        made = self.emit(name, *operands, **attrs)
        return made[0] if made else None

    # -- bringing values into a form -------------------------------------------------------------
    def in_dtype(self, x: _Value | None, dtype: DType) -> _Value | None:
        return x if x is None or x.dtype is dtype else self.one("cast", x, dtype=dtype)

    def in_range(self, x: _Value | None, low: float, high: float) -> _Value | None:
        """The value, or a function of it with elements from low to high."""
        if x is None or not x.tensor.spec.numel:
            return x
        least, most = x.range()
        if (low <= least and most <= high) or self.wild:
            return x
        way = self.random.choice(("sigmoid", "sin", "clamp", "tanh", "softsign"))
        low, high = low + (high - low) * 0.01, high - (high - low) * 0.01
        if way == "clamp":
            return self.one("clamp", x, low, high)
        middle, half = (low + high) / 2, (high - low) / 2
        if way == "sigmoid":
            return self._scaled(self.one("sigmoid", x), high - low, low)
        if way == "softsign":
            size = self.one("abs", x)
            size = self.one("add", size, 1.0) if size else None
            x = self.one("div", x, size) if size else None
            return self._scaled(x, half, middle)
        return self._scaled(self.one(way, x), half, middle)

    def _scaled(self, x: _Value | None, factor: float, shift: float) -> _Value | None:
        x = self.one("mul", x, round(factor, 4)) if x else None
        return self.one("add", x, round(shift, 4)) if x else None

    def in_shape(self, x: _Value | None, shape: tuple[int, ...]) -> _Value | None:
        """The value's elements in another shape, some of them left out or repeated; None where it has none."""
        if x is None or x.shape == shape:
            return x
        wanted, have = math.prod(shape), math.prod(x.shape)
        if wanted == 0 or have == 0:
            return None
        if _expands(x.shape, shape) and self.chance(0.7):
            return self.one("expand", x, shape=shape)
        if have != wanted:
            x = x if len(x.shape) == 1 else self.one("reshape", x, shape=(have,))
            if x and have < wanted:
                x = self.one("repeat", x, times=(-(-wanted // have),))
                have *= -(-wanted // have)
            if x and have > wanted:
                step = self.random.randint(1, max(1, have // wanted))
                start = self.random.randint(0, have - (wanted - 1) * step - 1)
                x = self.one("slice", x, ranges=((start, start + (wanted - 1) * step + 1, step),))
        return x if x is None or x.shape == shape else self.one("reshape", x, shape=shape)

    # -- kinds of steps -----------------------------------------------------------------------------
    def elementwise(self, name: str) -> bool:
        """An element-wise row on values that broadcast."""
        row = REGISTRY[name]
        sample, drawn = self.random.choice(_drawn_samples(name))
        attrs = dict(sample.attrs)
        if "dtype" in attrs:
            attrs["dtype"] = self.random.choice((DType.F64, DType.F32, self.float, DType.I64, DType.I32, DType.BOOL))
        kinds = row.signature.kinds(len(drawn))
        floats = self.float
        first = self.pick(lambda v: v.dtype.is_float)
        if first is not None and self.chance(0.3):
            floats = first.dtype
        whole = self.chance(0.1)
        shape: tuple[int, ...] | None = None
        operands: list[Any] = []
        for position, ((_, kind), x) in enumerate(zip(kinds, drawn, strict=True)):
            if x is None or not isinstance(x, np.ndarray):
                operands.append(self.number(x) if isinstance(x, int | float) else x)
                continue
            array_kind, low, high = _range_of(name, position)
            if kind.endswith("operand") and array_kind != "b" and shape is not None and self.chance(0.3):
                value = self.random.uniform(low, high)
                operands.append(self.number(int(value) if whole or array_kind == "i" else round(value, 3)))
                continue
            made = self._operand(name, array_kind, low, high, shape, floats, whole)
            if made is None:
                return False
            operands.append(made)
            shape = made.shape if shape is None else tuple(np.broadcast_shapes(shape, made.shape))
        return self.emit(name, *operands, **attrs) is not None

    def _operand(
        self, name: str, kind: str, low: float, high: float, shape: tuple[int, ...] | None, floats: DType, whole: bool
    ) -> _Value | None:
        if kind == "f" and whole:
            kind = "i"
            low, high = math.floor(low) - 1.0, math.ceil(high) + 1.0
        if self.chance(0.85):
            fits = {"f": lambda v: v.dtype.is_float, "i": lambda v: v.dtype.is_int, "b": lambda v: v.dtype.is_bool}[
                kind
            ]
            x = self.pick(lambda v: fits(v) and (shape is None or _broadcasts(v.shape, shape)))
            if x is None and kind == "b":
                x = self._mask(shape)
            if x is None and shape is not None:
                x = self.in_shape(self.pick(fits), shape)
            if kind == "f":
                x = self.in_range(self.in_dtype(x, floats), low, high)
            if x is not None:
                return x
        target = (
            self.some_shape()
            if shape is None
            else self.random.choice((shape, shape, shape[1:], tuple(1 for _ in shape)))
        )
        value = self.fresh(kind, target, low, high)
        return self.in_dtype(value, floats) if kind == "f" else value

    def _mask(self, shape: tuple[int, ...] | None) -> _Value | None:
        x = self.pick(lambda v: not v.dtype.is_bool and (shape is None or _broadcasts(v.shape, shape)))
        if x is None:
            return None
        row = self.random.choice(("greater", "lower", "greater_equal", "lower_equal"))
        return self.one(row, x, 0.1 if x.dtype.is_float else 0)

    def shaped(self, name: str) -> bool:
        """A row of one tensor whose attributes follow from the tensor's shape."""
        row = REGISTRY[name]
        sample, drawn = self.random.choice(_drawn_samples(name))
        kind, low, high = _range_of(name, 0)
        x = self._operand(name, kind, low, high, None, self.float, kind == "f" and self.chance(0.1))
        if x is None:
            return False
        numbers = [self.number(n) if isinstance(n, int | float) else n for n in drawn[1:]]
        for _ in range(4):
            attrs = {n: _ATTRIBUTES[n](self, x.tensor.spec, sample.attrs.get(n)) for n in row.signature.attrs}
            if None not in attrs.values() and self.emit(name, x, *numbers, **attrs) is not None:
                return True
        return False

    def sampled(self, name: str) -> bool:
        """A row at a sample's shapes and attributes, on values brought into them."""
        sample, drawn = self.random.choice(_drawn_samples(name))
        if self.chance(0.7):
            drawn = tuple(sample.draw(self.numpy))
        operands: list[Any] = []
        for x in drawn:
            if not isinstance(x, np.ndarray):
                operands.append(self.number(x) if isinstance(x, int | float) and not _is_stream(x) else x)
                continue
            kind = x.dtype.kind
            made: _Value | None = None
            if kind == "f" and x.size and np.isfinite(x).all() and self.chance(0.7):
                low, high = float(x.min()), float(x.max())
                if high - low < 0.2:
                    low, high = low - 0.2 * (low < 0), high + 0.2
                same = self.pick(lambda v, s=x.shape: v.dtype.is_float and v.shape == s) if self.chance(0.6) else None
                source = same or self.pick(lambda v: v.dtype.is_float)
                made = self.in_range(self.in_shape(self.in_dtype(source, self.float), x.shape), low, high)
            if made is None:
                made = self.add_input(x, self._dtype_of(x))
            operands.append(made)
        return self.emit(name, *operands, **_placed(sample.attrs)) is not None

    def layer(self, name: str) -> bool:
        """A layer with parameters of its own, on values brought into what it takes."""
        parameters, constants, inputs = operands_of(name, self.numpy)
        operands: list[Any] = [self.add_input(x, self.float) for x in parameters]
        operands += [self.add_input(x, self._dtype_of(x), may_want_grad=False) for x in constants]
        for x in inputs:
            made = None
            if x.dtype.kind == "f":
                source = self.in_dtype(self.pick(lambda v: v.dtype.is_float), self.float)
                x = x * self.scale
                low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 1.0)
                made = self.in_range(self.in_shape(source, x.shape), low, high) if self.scale == 1.0 else None
            operands.append(made or self.add_input(x, self._dtype_of(x)))
        return self.emit(LAYER + name, *operands) is not None

    def _dtype_of(self, x: Array) -> DType:
        return {"f": self.float, "b": DType.BOOL}.get(x.dtype.kind, DType.I64)

    # -- the whole -----------------------------------------------------------------------------------
    def program(self, picks: int) -> Program:
        if self.chance(0.1):
            return self.alone()
        for _ in range(self.random.choice((1, 1, 2, 2, 3))):
            self.fresh(self.random.choices("fib", (8, 1, 1))[0], self.some_shape(), -2.0, 2.0)
        made = attempts = 0
        while made < picks and attempts < 3 * picks:
            attempts += 1
            made += self.step()
        return self.finished()

    def alone(self) -> Program:
        """One row or layer, in any float type, on small or large numbers."""
        self.float = self.random.choices(FLOATS, (2, 3, 4, 1))[0]
        self.scale = self.random.choice((1.0, 0.01, 30.0, 300.0))
        self.fresh("f", self.some_shape())
        for _ in range(8):
            name = self.random.choice((*LAYERS, *drawable()) if self.chance(0.5) else LAYERS)
            if self.layer(name) if name in LAYERS else self.sampled(name):
                break
        return self.finished()

    def step(self) -> bool:
        sort = self.random.random()
        if sort < 0.30:
            name = self.random.choice(_free_rows())
            return self.elementwise(name) if REGISTRY[name].pointwise is not None else self.shaped(name)
        if sort < 0.45:
            return self.elementwise(self.random.choice(_COMMON))
        if sort < 0.62:
            return self.shaped(self.random.choice(_COMMON_SHAPED))
        if sort < 0.65:
            return self.layer(self.random.choice(LAYERS))
        if sort < 0.90:
            return self.sampled(self.random.choice(drawable()))
        return self.random.choice(_MAKERS)(self)

    def finished(self) -> Program:
        inputs = [v for v in self.values if v.from_input is not None]
        places = {id(v): i for i, v in enumerate(inputs)}
        count = len(inputs)
        steps: list[Step] = []
        read: set[int] = set()
        dtypes: dict[int, DType] = {}
        for name, operands, attrs, results in self.steps:
            given = tuple(Ref(places[id(x)]) if isinstance(x, _Value) else x for x in operands)
            read.update(x.at for x in given if isinstance(x, Ref))
            steps.append(Step(name, given, attrs, len(results)))
            for v in results:
                if v is not None:
                    places[id(v)] = count
                    dtypes[count] = v.dtype
                count += 1
        leaves = [i for i in dtypes if i not in read]
        outputs = [i for i in leaves if self.chance(0.85)] + [i for i in dtypes if i in read and self.chance(0.12)]
        if not outputs:
            outputs = leaves[-1:] or [0]
        self.random.shuffle(outputs)
        outputs = outputs[:6]
        whole = Program(
            tuple(v.from_input for v in inputs if v.from_input is not None),
            tuple(self.numbers),
            tuple(steps),
            tuple(outputs),
        )
        return whole.pruned()


def draw_program(seed: int) -> Program:
    """The program of a seed, of 1 to about 25 steps."""
    drawer = Drawer(seed)
    return drawer.program(drawer.random.choice((2, 3, 4, 5, 6, 8)))


# -- makers of patterns that samples do not have ---------------------------------------------------------------
def _detached(d: Drawer) -> bool:
    x = d.pick(lambda v: v.dtype.is_float)
    return x is not None and d.emit("detach", x) is not None


def _straight_through(d: Drawer) -> bool:
    x = d.pick(lambda v: v.dtype.is_float)
    rounded = d.one(d.random.choice(("round", "sign", "floor")), x) if x else None
    change = d.one("sub", rounded, x) if rounded else None
    change = d.one("detach", change) if change else None
    return change is not None and d.emit("add", x, change) is not None


def _product(d: Drawer) -> bool:
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) >= 2)
    if x is None:
        return False
    axes = list(range(len(x.shape)))
    axes[-2:] = axes[:-3:-1]
    y = d.one("permute", x, axes=tuple(axes))
    if y is None:
        return False
    if d.chance(0.5):
        y = d.elementwise_of(y) or y
    return d.emit("matmul", *((x, y) if d.chance(0.5) else (y, x))) is not None


def _updated_part(d: Drawer) -> bool:
    """A part is read, changed and written back: in place, where a program may."""
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) > 0 and v.tensor.spec.numel > 0)
    if x is None:
        return False
    ranges = _ranges(d, x.tensor.spec, None)
    part = d.one("slice", x, ranges=ranges)
    part = d.elementwise_of(part) if part else None
    return part is not None and d.emit("slice_assign", x, part, ranges=ranges) is not None


def _over_expanded(d: Drawer) -> bool:
    """Writes to a part of a value whose elements share memory."""
    x = d.pick(lambda v: v.dtype.is_float and 0 < v.tensor.spec.numel <= 40)
    wide = d.one("expand", x, shape=(3, *x.shape)) if x else None
    if wide is None:
        return False
    ranges = ((0, 1, 1), *((0, n, 1) for n in x.shape)) if x else ()
    part = d.elementwise_of(d.one("slice", wide, ranges=ranges))
    return part is not None and d.emit("slice_assign", wide, part, ranges=ranges) is not None


def _windowed(d: Drawer) -> bool:
    """Values through indices that another value gives."""
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) > 0 and 0 not in v.shape)
    if x is None:
        return False
    dim = d.random.randrange(len(x.shape))
    order = d.emit("sort_with_indices", x, dim=dim, descending=d.chance(0.5))
    if not order or order[1] is None:
        return False
    return d.emit("gather", d.elementwise_of(x) or x, order[1], dim=dim) is not None


def _at_edges(d: Drawer) -> bool:
    """An element-wise row at infinities, NaN, zeros of both signs and large numbers, and another row behind it."""
    name = d.random.choice([name for name in _free_rows() if REGISTRY[name].pointwise is not None])
    shape = d.some_shape()
    operands: list[Any] = []
    for x in d.random.choice(_drawn_samples(name))[1]:
        if not isinstance(x, np.ndarray):
            operands.append(x)
            continue
        if x.dtype.kind != "f":
            operands.append(d.fresh(x.dtype.kind, shape))
            continue
        edges = d.numpy.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e9, 45.0, 1e-30], shape)
        operands.append(
            d.add_input(np.where(d.numpy.random(shape) < 0.5, edges, d.numpy.uniform(-3, 3, shape)), d.float)
        )
    d.wild = True
    return d.elementwise_of(d.one(name, *operands)) is not None


def _turned(d: Drawer) -> bool:
    """What a library computes, read where it lies and turned: it may not be written over."""
    x = d.pick(lambda v: v.dtype is d.float and len(v.shape) == 2 and 0 < v.tensor.spec.numel <= 64)
    y = d.one("permute", x, axes=(1, 0)) if x else None
    square = d.one("matmul", x, y) if x and y else None
    turned = d.one("flip", square, axes=(d.random.randrange(2),)) if square else None
    return (
        turned is not None and d.emit(d.random.choice(("add", "mul", "sub")), d.elementwise_of(turned), 0.5) is not None
    )


def _normalised(d: Drawer) -> bool:
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) > 0 and v.tensor.spec.numel > 0)
    if x is None:
        return False
    dims = _dims(d, x.tensor.spec, None)
    mean = d.one(d.random.choice(("mean", "amax", "sum", "logsumexp")), x, dims=dims)
    return mean is not None and d.emit(d.random.choice(("sub", "mul", "maximum")), x, mean) is not None


def _several_results(d: Drawer) -> bool:
    """Only a later result of a row is read on."""
    x = d.pick(lambda v: v.dtype.is_float and len(v.shape) > 0 and 0 not in v.shape)
    if x is None:
        return False
    dim = d.random.randrange(len(x.shape))
    made = (
        d.emit("var_mean", x, dims=(dim,), correction=0)
        if d.chance(0.5)
        else d.emit("split", x, sizes=_sizes(d, x, dim), dim=dim)
    )
    last = made[-1] if made else None
    return last is not None and d.elementwise_of(last) is not None


def _drawn_random(d: Drawer) -> bool:
    """Two draws of one key and shape, and of another one: equal and unequal."""
    name = d.random.choice(("uniform", "normal", "bernoulli", "dropout_mask"))
    shape = d.some_shape()
    key, stream = d.random.randrange(2**40), d.random.randrange(4)
    numbers = {"uniform": (-1.0, 1.0), "normal": (0.0, 1.0), "bernoulli": (0.4,), "dropout_mask": (0.3,)}[name]
    dtype = DType.BOOL if name == "bernoulli" else d.float
    sample = _drawn_samples(name)[0][0].attrs
    attrs = (
        {**_placed(sample), "shape": shape, "dtype": dtype, "start": 0}
        if "start" in sample
        else {**_placed(sample), "shape": shape, "dtype": dtype}
    )
    d.emit(name, *numbers, key, d.number(stream), **attrs)
    return d.emit(name, *numbers, d.number(key), stream + d.random.randrange(2), **attrs) is not None


_MAKERS: Final = (
    _detached, _straight_through, _product, _updated_part, _over_expanded, _windowed, _normalised, _several_results,
    _drawn_random, _at_edges, _turned,
)  # fmt: skip
_COMMON: Final = (
    "add", "sub", "mul", "div", "maximum", "minimum", "mask_where", "exp", "tanh", "relu", "neg", "square", "sin",
    "remainder", "pow", "clamp", "greater", "sqrt", "hypot",
)  # fmt: skip
_COMMON_SHAPED: Final = (
    "sum", "mean", "sum", "amax", "prod", "reshape", "permute", "expand", "slice", "slice", "flip", "split", "softmax",
    "cumsum", "pad", "repeat", "var_mean", "max_with_indices", "sum_to_shape", "argmax", "logsumexp", "cast",
)  # fmt: skip


def _elementwise_of(self: Drawer, x: _Value | None) -> _Value | None:
    """A differentiable function of one value, of its shape."""
    if x is None:
        return None
    row = self.random.choice(("tanh", "sin", "mul", "add", "neg", "sigmoid"))
    return self.one(row, x, round(self.random.uniform(-2, 2), 3)) if row in ("mul", "add") else self.one(row, x)


Drawer.elementwise_of = _elementwise_of  # type: ignore[attr-defined]


# -- attributes ------------------------------------------------------------------------------------------------
def _dim(d: Drawer, x: TensorSpec, _: Any) -> int | None:
    return d.random.randrange(x.ndim) if x.ndim else None


def _dims(d: Drawer, x: TensorSpec, _: Any) -> tuple[int, ...]:
    if not x.ndim or d.chance(0.2):
        return tuple(range(x.ndim))
    return tuple(sorted(d.random.sample(range(x.ndim), d.random.randint(1, x.ndim))))


def _axes(d: Drawer, x: TensorSpec, _: Any) -> tuple[int, ...]:
    count = x.ndim if d.chance(0.6) else d.random.randint(0, x.ndim)
    return tuple(d.random.sample(range(x.ndim), count))


def _shape(d: Drawer, x: TensorSpec, _: Any) -> tuple[int, ...]:
    shape, numel = x.shape, x.numel
    ways: list[tuple[int, ...]] = [(numel,), (1, *shape), (*shape, 1), (2, *shape), shape[1:], (1,) * len(shape)]
    ways.append(tuple(3 if n == 1 else n for n in shape))
    ways.append(tuple(1 if d.chance(0.5) else n for n in shape))
    ways += [(n, numel // n) for n in (2, 3, 4, 5) if numel and numel % n == 0]
    ways.append(shape[::-1])
    return d.random.choice(ways)


def _ranges(d: Drawer, x: TensorSpec, _: Any) -> tuple[tuple[int, int, int], ...]:
    made = []
    for size in x.shape:
        start = d.random.randint(0, size) if d.chance(0.5) else 0
        stop = d.random.randint(start, size) if d.chance(0.6) else size
        made.append((start, stop, d.random.choice((1, 1, 1, 2, 3))))
    return tuple(made)


def _sizes(d: Drawer, x: Any, dim: int) -> tuple[int, ...]:
    size = x.shape[dim]
    first = d.random.randint(0, size)
    return (first, size - first)


def _padding(d: Drawer, x: TensorSpec, _: Any) -> tuple[tuple[int, int], ...]:
    return tuple((d.random.choice((0, 0, 1, 2)), d.random.choice((0, 0, 1, 3))) for _ in x.shape)


def _times(d: Drawer, x: TensorSpec, _: Any) -> tuple[int, ...]:
    return tuple(d.random.choice((1, 1, 2, 3)) for _ in x.shape)


def _split_sizes(d: Drawer, x: TensorSpec, _: Any) -> tuple[int, ...] | None:
    return _sizes(d, x, d.random.randrange(x.ndim)) if x.ndim else None


_ATTRIBUTES: Final[dict[str, Callable[[Drawer, TensorSpec, Any], Any]]] = {
    "dim": _dim,
    "dims": _dims,
    "axes": _axes,
    "shape": _shape,
    "ranges": _ranges,
    "sizes": _split_sizes,
    "padding": _padding,
    "times": _times,
    "mode": lambda d, x, sample: sample,
    "dtype": lambda d, x, sample: d.random.choice((DType.F64, DType.F32, d.float, DType.I64)),
    "shifts": lambda d, x, sample: tuple(d.random.randint(-3, 3) for _ in x.shape),
    "diagonal": lambda d, x, sample: d.random.randint(-2, 2),
    "correction": lambda d, x, sample: d.random.randint(0, 1),
    "k": lambda d, x, sample: d.random.randint(1, max(1, min(x.shape, default=1))),
    "descending": lambda d, x, sample: d.chance(0.5),
    "largest": lambda d, x, sample: d.chance(0.5),
}
"""How an attribute of a name is drawn for a tensor; a row with others keeps to its samples."""


def _placed(attrs: dict[str, Any]) -> dict[str, Any]:
    return {**attrs, "place": "cpu"} if "place" in attrs else dict(attrs)


def _is_stream(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and abs(x) > 1 << 53


def _broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def _expands(a: Sequence[int], b: Sequence[int]) -> bool:
    return len(a) <= len(b) and all(m in (n, 1) for m, n in zip(reversed(a), reversed(b), strict=False))
