"""Makers of arithmetic that passes rewrite, leaves compute by another path, and narrow types overflow in."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from burn_torch import DType
from burn_torch.ops.op import REGISTRY
from tests.fuzz.attributes import ATTRIBUTES, attributes_known
from tests.fuzz.building import Builder, Value
from tests.fuzz.rows import CONSTANTS, broadcasts, drawable, drawn_samples

__all__ = ["ARITHMETIC"]

_OF_TWO: Final = (
    "add", "add", "sub", "sub", "mul", "mul", "div", "div", "pow", "pow", "maximum", "minimum", "remainder", "fmod",
    "greater", "equal", "lower_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
    "bitwise_right_shift",
)  # fmt: skip


def with_constants(d: Builder) -> bool:
    """Operations with 0, 1, -1, 2 on the left or the right: a literal, a run-time number, or a tensor full of it."""
    x = d.pick(lambda v: not v.dtype.is_bool)
    steps = 0
    for _ in range(d.random.randint(1, 3)):
        if x is None:
            break
        value = d.random.choice(CONSTANTS)
        if x.dtype.is_int or d.chance(0.1):
            value = int(value)
        operands = [x, _constant(d, value, x)]
        if d.chance(0.5):
            operands.reverse()
        y = d.one(d.random.choice(_OF_TWO), *operands)
        if y is not None:
            steps += 1
            x = y if not y.dtype.is_bool else x
    return steps > 0


def _constant(d: Builder, value: float | int, like: Value) -> Any:
    if d.chance(0.7):
        return d.number(value)
    shape = d.random.choice((like.shape, like.shape[1:], (), tuple(1 for _ in like.shape)))
    return d.one("full", d.number(value), shape=shape, dtype=like.dtype, place="cpu")


def repeated(d: Builder) -> bool:
    """A row of one operand, the same one or its partner behind it: views, casts, maxima that passes join or drop."""
    names = [name for name in drawable() if _of_one(name)]
    x = d.pick(lambda v: True)
    steps = 0
    name = d.random.choice(names if d.chance(0.5) else _PARTNERS)
    for _ in range(d.random.choice((2, 2, 3))):
        y = _apply_operation(d, name, x)
        if y is not None:
            x, steps = y, steps + 1
        if d.chance(0.2):
            name = d.random.choice(_PARTNERS)
    return steps > 1


def both_orders(d: Builder) -> bool:
    """A row of two operands, and the same row of them swapped: one is the other only where the row says so."""
    x = d.pick(lambda v: not v.dtype.is_bool)
    y = d.pick(lambda v: x is not None and v is not x and v.dtype is x.dtype and broadcasts(v.shape, x.shape))
    if x is None or y is None:
        return False
    name = d.random.choice(_OF_TWO)
    first, second = d.one(name, x, y), d.one(name, y, x)
    return first is not None and second is not None


_PARTNERS: Final = (
    "permute", "permute", "reshape", "reshape", "slice", "slice", "flip", "expand", "cast", "cast", "roll", "pad",
    "sum", "repeat", "neg", "abs", "sum_to_shape", "relu", "clone", "exp", "log", "square", "sqrt", "floor", "bool_not",
)  # fmt: skip


def _of_one(name: str) -> bool:
    row = REGISTRY[name]
    if attributes_known(row):
        return True
    inputs = row.signature.inputs
    return row.pointwise is not None and len(inputs) == 1 and not row.signature.attrs


def _apply_operation(d: Builder, name: str, x: Value | None) -> Value | None:
    if x is None:
        return None
    row = REGISTRY[name]
    sample, drawn = d.random.choice(drawn_samples(name))
    numbers = [d.number(n) if isinstance(n, int | float) else n for n in drawn[1:]]
    attrs = {n: ATTRIBUTES[n](d, x.tensor.spec, sample.attrs.get(n)) for n in row.signature.attrs}
    return None if None in attrs.values() else d.one(name, x, *numbers, **attrs)


_INTEGER_ROWS: Final = (
    "sum", "prod", "cumsum", "cumprod", "amax", "amin", "argmax", "argmin", "add", "sub", "mul",
    "neg", "abs", "square", "maximum", "minimum", "greater", "lower", "equal", "remainder", "fmod", "div", "sign",
    "relu", "clamp", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "cast", "cast", "sort_with_indices",
    "cummax", "any", "all", "mask_where", "sum_to_shape", "max_with_indices", "cat", "pad", "flip",
)  # fmt: skip
_GATHERING: Final = ("sum", "sum", "prod", "cumsum", "cumprod", "sum_to_shape")
_INTEGERS: Final = (DType.I64, DType.I64, DType.I32, DType.I8, DType.I16, DType.U8, DType.BOOL)


def integers_at_limits(d: Builder) -> bool:
    """Rows on integers at the ends of their type: what wraps around, what a sum is widened to, what a cast keeps."""
    dtype = d.random.choice(_INTEGERS)
    shape = d.random.choice(((5,), (3, 4), (2, 3, 4), (17,), (1, 7), (4, 1), (0, 3)))
    xs = [_at_limits(d, dtype, shape), _at_limits(d, dtype, d.random.choice((shape, shape[1:], (1,) * len(shape))))]
    steps = 0
    for step in range(d.random.randint(2, 4)):
        name = d.random.choice(_INTEGER_ROWS if step else _GATHERING)
        row = REGISTRY[name]
        x = d.random.choice(xs)
        if attributes_known(row):
            y = _apply_operation(d, name, x)
        else:
            kinds = row.signature.kinds(2)
            wanted = 1 if len(kinds) == 1 else 2
            y = d.one(name, *([x, d.random.choice(xs)][:wanted]))
        if y is not None:
            xs.append(y)
            steps += 1
    return steps > 0


def _at_limits(d: Builder, dtype: DType, shape: tuple[int, ...]) -> Value:
    if dtype is DType.BOOL:
        return d.fresh("b", shape)
    limits = np.iinfo(dtype.numpy)
    low, high = max(limits.min, -(1 << 40)), min(limits.max, 1 << 40)
    some = [low, low + 1, 0, 1, 2, 3, high // 2, high - 1, high, *((-1, -2) if low else ())]
    return d.add_input(d.numpy.choice(some, shape), dtype)


ARITHMETIC: Final = (
    with_constants, with_constants, repeated, repeated, both_orders, integers_at_limits, integers_at_limits,
)  # fmt: skip
