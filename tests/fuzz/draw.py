"""Draws programs over the whole table, from the rows' signatures and samples: a new row is drawn with no new code.

A step takes a row and operands from the values so far, which other steps bring to the shape, the element type and the
range that the row's samples have.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import numpy as np

from burn_torch import DType
from burn_torch.ops.op import REGISTRY
from tests.fuzz.attributes import ATTRIBUTES, attributes_known
from tests.fuzz.building import Array, Builder, Value
from tests.fuzz.layers import LAYERS, operands_of
from tests.fuzz.patterns import MAKERS
from tests.fuzz.program import LAYER, Program, Ref, Step
from tests.fuzz.rows import CONSTANTS, FLOATS, ROOT, broadcasts, drawable, drawn_samples, is_stream, placed, range_of

__all__ = ["Drawer", "draw_program"]

_COMMON: Final = (
    "add", "sub", "mul", "div", "maximum", "minimum", "mask_where", "exp", "tanh", "relu", "neg", "square", "sin",
    "remainder", "pow", "clamp", "greater", "sqrt", "hypot",
)  # fmt: skip
_COMMON_SHAPED: Final = (
    "sum", "mean", "sum", "amax", "prod", "reshape", "permute", "expand", "slice", "slice", "flip", "split", "softmax",
    "cumsum", "pad", "repeat", "var_mean", "max_with_indices", "sum_to_shape", "argmax", "logsumexp", "cast",
)  # fmt: skip


@functools.cache
def _free_rows() -> tuple[str, ...]:
    """Rows that take shapes other than their samples': element-wise ones, and those whose attributes can be drawn."""
    return tuple(
        name for name in drawable() if REGISTRY[name].pointwise is not None or attributes_known(REGISTRY[name])
    )


class Drawer(Builder):
    """Draws the steps of a program."""

    def elementwise(self, name: str) -> bool:
        """An element-wise row on values that broadcast."""
        row = REGISTRY[name]
        sample, drawn = self.random.choice(drawn_samples(name))
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
        arrays = [i for i, x in enumerate(drawn) if isinstance(x, np.ndarray)]
        number_at = self.random.choice(arrays) if len(arrays) > 1 and self.chance(0.35) else None
        for position, ((_, kind), x) in enumerate(zip(kinds, drawn, strict=True)):
            if x is None or not isinstance(x, np.ndarray):
                operands.append(self.number(x) if isinstance(x, int | float) else x)
                continue
            array_kind, low, high = range_of(name, position)
            if kind.endswith("operand") and array_kind != "b" and position == number_at:
                operands.append(self.number(self._value_in(low, high, whole=whole or array_kind == "i")))
                continue
            operand = self._operand(name, array_kind, low, high, shape, floats, whole)
            if operand is None:
                return False
            operands.append(operand)
            shape = operand.shape if shape is None else tuple(np.broadcast_shapes(shape, operand.shape))
        return self.emit(name, *operands, **attrs) is not None

    def _value_in(self, low: float, high: float, *, whole: bool) -> float | int:
        constants = [value for value in CONSTANTS if low <= value <= high]
        value = self.random.choice(constants) if constants and self.chance(0.4) else self.random.uniform(low, high)
        return int(value) if whole else round(value, 3)

    def _operand(
        self, name: str, kind: str, low: float, high: float, shape: tuple[int, ...] | None, floats: DType, whole: bool
    ) -> Value | None:
        if kind == "f" and whole:
            kind = "i"
            low, high = math.floor(low) - 1.0, math.ceil(high) + 1.0
        if self.chance(0.85):
            fits = {"f": lambda v: v.dtype.is_float, "i": lambda v: v.dtype.is_int, "b": lambda v: v.dtype.is_bool}[
                kind
            ]
            x = self.pick(lambda v: fits(v) and (shape is None or broadcasts(v.shape, shape)))
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
            else self.random.choice((shape, shape, shape[1:], self._some_axes(shape)))
        )
        value = self.fresh(kind, target, low, high)
        return self.in_dtype(value, floats) if kind == "f" else value

    def _some_axes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with 1 for some or all of its sizes."""
        every = self.chance(0.4)
        return tuple(1 if every or self.chance(0.5) else n for n in shape)

    def _mask(self, shape: tuple[int, ...] | None) -> Value | None:
        x = self.pick(lambda v: not v.dtype.is_bool and (shape is None or broadcasts(v.shape, shape)))
        if x is None:
            return None
        row = self.random.choice(("greater", "lower", "greater_equal", "lower_equal"))
        return self.one(row, x, 0.1 if x.dtype.is_float else 0)

    def shaped(self, name: str) -> bool:
        """A row of one tensor whose attributes follow from the tensor's shape."""
        row = REGISTRY[name]
        sample, drawn = self.random.choice(drawn_samples(name))
        kind, low, high = range_of(name, 0)
        x = self._operand(name, kind, low, high, None, self.float, kind == "f" and self.chance(0.1))
        if x is None:
            return False
        numbers = [self.number(n) if isinstance(n, int | float) else n for n in drawn[1:]]
        for _ in range(4):
            attrs = {n: ATTRIBUTES[n](self, x.tensor.spec, sample.attrs.get(n)) for n in row.signature.attrs}
            if None not in attrs.values() and self.emit(name, x, *numbers, **attrs) is not None:
                return True
        return False

    def sampled(self, name: str) -> bool:
        """A row at a sample's shapes and attributes, on values brought into them."""
        sample, drawn = self.random.choice(drawn_samples(name))
        if self.chance(0.7):
            drawn = tuple(sample.draw(self.numpy))
        operands: list[Any] = []
        for x in drawn:
            if not isinstance(x, np.ndarray):
                operands.append(self.number(x) if isinstance(x, int | float) and not is_stream(x) else x)
                continue
            kind = x.dtype.kind
            operand: Value | None = None
            if kind == "f" and self.scale != 1.0:
                x = x.astype(np.float64) * self.scale
            elif kind == "f" and x.size and np.isfinite(x).all() and self.chance(0.7):
                low, high = float(x.min()), float(x.max())
                if high - low < 0.2:
                    low, high = low - 0.2 * (low < 0), high + 0.2
                same = self.pick(lambda v, s=x.shape: v.dtype.is_float and v.shape == s) if self.chance(0.6) else None
                source = same or self.pick(lambda v: v.dtype.is_float)
                operand = self.in_range(self.in_shape(self.in_dtype(source, self.float), x.shape), low, high)
            if operand is None:
                operand = self.add_input(x, self._dtype_of(x))
            operands.append(operand)
        attrs = placed(sample.attrs)
        if name == "attention_backward":  # y and lse are those of its scores: exp(score - lse) of others has no bound
            forward = {key: value for key, value in attrs.items() if key in ("causal", "offset")}
            results = self.emit("attention", *operands[1:4], *operands[6:10], **forward)
            if results is None:
                return False
            operands[4:6] = results
        return self.emit(name, *operands, **attrs) is not None

    def layer(self, name: str) -> bool:
        """A layer with parameters of its own, on values brought into what it takes."""
        parameters, constants, inputs = operands_of(name, self.numpy)
        operands: list[Any] = [self.add_input(x, self.float) for x in parameters]
        operands += [self.add_input(x, self._dtype_of(x), may_want_grad=False) for x in constants]
        for x in inputs:
            operand = None
            if x.dtype.kind == "f":
                source = self.in_dtype(self.pick(lambda v: v.dtype.is_float), self.float)
                x = x.astype(np.float64) * self.scale
                low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 1.0)
                operand = self.in_range(self.in_shape(source, x.shape), low, high) if self.scale == 1.0 else None
            operands.append(operand or self.add_input(x, self._dtype_of(x)))
        return self.emit(LAYER + name, *operands) is not None

    def _dtype_of(self, x: Array) -> DType:
        return {"f": self.float, "b": DType.BOOL}.get(x.dtype.kind, DType.I64)

    # -- the whole -----------------------------------------------------------------------------------
    def program(self, picks: int) -> Program:
        if self.chance(0.22):
            return self.alone()
        for _ in range(self.random.choice((1, 1, 2, 2, 3))):
            self.fresh(self.random.choices("fib", (8, 1, 1))[0], self.some_shape(), -2.0, 2.0)
        steps = attempts = 0
        while steps < picks and attempts < 3 * picks:
            attempts += 1
            steps += self.step()
        return self.finished()

    def alone(self) -> Program:
        """One row or layer, in any float type, on small or large numbers."""
        self.float = self.random.choices(FLOATS, (2, 3, 4, 1))[0]
        root = ROOT[self.float]
        self.scale = self.random.choice((1.0, 0.01, 30.0, 300.0, root, root))
        self.fresh("f", self.some_shape())
        for _ in range(8):
            name = self.random.choice(drawable() if self.chance(0.35) else LAYERS)
            if self.layer(name) if name in LAYERS else self.sampled(name):
                break
        return self.finished()

    def step(self) -> bool:
        sort = self.random.random()
        if sort < 0.27:
            name = self.random.choice(_free_rows())
            return self.elementwise(name) if REGISTRY[name].pointwise is not None else self.shaped(name)
        if sort < 0.41:
            return self.elementwise(self.random.choice(_COMMON))
        if sort < 0.56:
            return self.shaped(self.random.choice(_COMMON_SHAPED))
        if sort < 0.59:
            return self.layer(self.random.choice(LAYERS))
        if sort < 0.81:
            return self.sampled(self.random.choice(drawable()))
        return self.random.choice(MAKERS)(self)

    def finished(self) -> Program:
        inputs = [v for v in self.values if v.from_input is not None]
        places = {id(v): i for i, v in enumerate(inputs)}
        count = len(inputs)
        steps: list[Step] = []
        read: set[int] = set()
        dtypes: dict[int, DType] = {}
        for name, operands, attrs, results in self.steps:
            references = tuple(Ref(places[id(x)]) if isinstance(x, Value) else x for x in operands)
            read.update(x.at for x in references if isinstance(x, Ref))
            steps.append(Step(name, references, attrs, len(results)))
            for v in results:
                if v is not None:
                    places[id(v)] = count
                    if id(v) not in self.hidden:
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
