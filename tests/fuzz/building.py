"""The values of a program that is being drawn, and the steps that bring them to a shape, a type and a range.

Every step is computed while it is drawn, eagerly on LibTorch: what raises there, or grows beyond all bounds, is no part
of the program.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from burn_torch import BurnTorchError, Device, DType, Tensor
from burn_torch.core.data import TensorData
from tests.fuzz.matrices import SIGNED, SYMMETRIC, is_well_posed
from tests.fuzz.program import LAYER, Input, Number, compute
from tests.fuzz.rows import FLOATS, INTEGERS, LARGE, LARGEST, ORDER_OF_TIES_IS_OPEN, SHAPES, expands

__all__ = ["CPU", "Array", "Builder", "Value"]

Array = NDArray[Any]

CPU: Final = Device.cpu(fused=False)
MOST_ELEMENTS: Final = 700
LARGEST_LAYER: Final = 3100


def _has_ties(x: Any) -> bool:
    if x is None:
        return True
    values = x.tensor.into_torch()
    return bool(values.isnan().any()) or values.unique().numel() < x.tensor.spec.numel


def _jumps_often(a: Any, b: Any) -> bool:
    """Returns whether a remainder jumps within a step of a difference: its quotient is large."""
    a, b = (x.into_torch().double() if isinstance(x, Tensor) else torch.tensor(float(x)) for x in (a, b))
    return bool((a.abs() > 20 * b.square()).any())


class Value:
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
            x = x.double() if x.is_floating_point() else x.long()
            low, high = x.aminmax() if x.numel() else (0, 0)
            self.bounds = (float(low), float(high))
        return self.bounds


class Builder:
    """The program so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        self.values: list[Value] = []
        self.steps: list[tuple[str, tuple[Any, ...], dict[str, Any], list[Value | None]]] = []
        self.numbers: list[float | int] = []
        self.rows: set[str] = set()
        self.float = self.random.choices(FLOATS, (75, 17, 4, 4))[0]
        self.wild = self.random.random() < 0.03
        """Says whether values may be infinite, NaN or large."""
        self.hidden: set[int] = set()
        """The `id` of values that are no result of the program, and that no later step reads."""
        self.scale = 1.0
        """The scale of the values that layers read."""

    # -- values ---------------------------------------------------------------------------------
    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def some_shape(self) -> tuple[int, ...]:
        return self.random.choice(SHAPES)

    def add_input(self, data: Array, dtype: DType, *, may_want_grad: bool = True) -> Value:
        if dtype.is_float:
            data = np.asarray(TensorData.of(np.asarray(data, np.float64)).convert(dtype).values, np.float64)
        elif dtype.is_int:
            data = np.asarray(data).astype(np.int64)
        x = Input(data, dtype, wants_grad=may_want_grad and dtype.is_float and self.chance(0.8))
        value = Value(x.tensor(CPU), x)
        self.values.append(value)
        return value

    def fresh(self, kind: str, shape: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> Value:
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
            data = np.where(where, self.numpy.choice([np.nan, np.inf, -np.inf, -0.0, LARGE[self.float]], shape), data)
        return self.add_input(data, self.float)

    def pick(self, fits: Callable[[Value], bool]) -> Value | None:
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
    def emit(self, name: str, *operands: Any, **attrs: Any) -> list[Value | None] | None:
        """Adds a step and computes it; None where it raises, or its result is too large."""
        if name in SYMMETRIC:
            operands = (self._symmetric(operands[0]), *operands[1:])
        arguments = [
            x.tensor if isinstance(x, Value) else self.numbers[x.at] if isinstance(x, Number) else x for x in operands
        ]
        try:
            output: Any = compute(name, arguments, attrs, self.values[0].tensor)
        except (BurnTorchError, ZeroDivisionError):
            return None
        results = list(output) if isinstance(output, tuple) else [output]
        values = [None if y is None else Value(y, None) for y in results]
        if name in ORDER_OF_TIES_IS_OPEN and isinstance(operands[0], Value) and _has_ties(operands[0]):
            return None
        if not is_well_posed(name, [x.tensor for x in operands if isinstance(x, Value)]):
            return None
        if name == "remainder" and _jumps_often(*arguments[:2]):
            return None
        for v in values:
            if v is not None and not self._small(v, LARGEST_LAYER if name.startswith(LAYER) else MOST_ELEMENTS):
                return None
        signed = SIGNED.get(name, ())
        self.hidden.update(id(values[i]) for i in signed)
        self.values += [v for v in values if v is not None and id(v) not in self.hidden]
        self.steps.append((name, operands, attrs, values))
        self.rows.add(name)
        return [self.one("square", v) if i in signed else v for i, v in enumerate(values)]

    def _symmetric(self, x: Any) -> Any:
        """The mean of a value and its transpose; the value where it has none."""
        if not isinstance(x, Value) or len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
            return x
        axes = list(range(len(x.shape)))
        axes[-2:] = axes[:-3:-1]
        turned = self.one("permute", x, axes=tuple(axes))
        total = self.one("add", x, turned) if turned else None
        return self.one("mul", total, 0.5) if total else x

    def _small(self, value: Value, most: int) -> bool:
        if value.tensor.spec.numel > most:
            return False
        if self.wild or not value.dtype.is_float:
            return True
        low, high = value.range()
        return max(abs(low), abs(high)) < LARGEST

    def one(self, name: str, *operands: Any, **attrs: Any) -> Value | None:
        outputs = self.emit(name, *operands, **attrs)
        return outputs[0] if outputs else None

    # -- bringing values into a form -------------------------------------------------------------
    def in_dtype(self, x: Value | None, dtype: DType) -> Value | None:
        return x if x is None or x.dtype is dtype else self.one("cast", x, dtype=dtype)

    def in_range(self, x: Value | None, low: float, high: float) -> Value | None:
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
            return self._scale_to(self.one("sigmoid", x), high - low, low)
        if way == "softsign":
            size = self.one("abs", x)
            size = self.one("add", size, 1.0) if size else None
            x = self.one("div", x, size) if size else None
            return self._scale_to(x, half, middle)
        return self._scale_to(self.one(way, x), half, middle)

    def _scale_to(self, x: Value | None, factor: float, shift: float) -> Value | None:
        x = self.one("mul", x, round(factor, 4)) if x else None
        return self.one("add", x, round(shift, 4)) if x else None

    def in_shape(self, x: Value | None, shape: tuple[int, ...]) -> Value | None:
        """The value's elements in another shape, some of them left out or repeated; None where it has none."""
        if x is None or x.shape == shape:
            return x
        wanted, have = math.prod(shape), math.prod(x.shape)
        if wanted == 0 or have == 0:
            return None
        if expands(x.shape, shape) and self.chance(0.7):
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

    def elementwise_of(self, x: Value | None) -> Value | None:
        """A differentiable function of one value, of its shape."""
        if x is None:
            return None
        row = self.random.choice(("tanh", "sin", "mul", "add", "neg", "sigmoid"))
        return self.one(row, x, round(self.random.uniform(-2, 2), 3)) if row in ("mul", "add") else self.one(row, x)
