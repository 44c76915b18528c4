"""Random programs: sizes 0, 1, ragged and large; views, broadcasts, reductions, joins and pads; mixed types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from burn_torch.core.dtype import DType
from tests.fusion.programs import row, tensor

__all__ = ["DTYPES", "Recipe", "cooked", "recipes", "specs_of"]

UNARY = ["tanh", "sigmoid", "relu", "neg", "abs", "square", "sin", "gelu", "silu"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]
REDUCTIONS = ["sum", "mean", "amax", "amin"]
KINDS = [
    "unary", "binary", "number", "reduce", "normalise", "softmax", "permute", "reshape", "slice", "flip", "expand",
    "cat", "pad", "cast", "where", "columns", "library",
]  # fmt: skip

SHAPES = [
    (3, 4), (4,), (3, 1), (1, 4), (3, 4, 1), (1,), (2, 3, 4), (),  # broadcast against each other
    (0, 4), (3, 0), (0,),  # nothing in them
    (7, 13), (13,), (7, 1), (5, 7, 3),  # ragged
    (1, 1031), (1100, 3), (2, 2048), (1024, 5),  # long rows, long columns, two steps
]  # fmt: skip
DTYPES = [DType.F32, DType.F32, DType.BF16, DType.F16, DType.I32, DType.I64, DType.BOOL]
MOST_ELEMENTS = 8192

Recipe = tuple[list[tuple[tuple[int, ...], DType]], list[tuple[str, int, int, int]]]


@st.composite
def recipes(draw: st.DrawFn, dtypes: Sequence[DType] = DTYPES) -> Recipe:
    """Shapes and types of inputs, and steps: (kind, which operand, which other, a choice)."""
    inputs = draw(st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(dtypes)), min_size=1, max_size=3))
    step = st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99))
    return inputs, draw(st.lists(step, min_size=3, max_size=12))


def cooked(steps: Sequence[tuple[str, int, int, int]], inputs: Sequence[Any], *, casts: bool = True) -> tuple[Any, ...]:
    """Applies the steps to the inputs and returns the last two values, cut short where they would be large."""
    values = list(inputs)
    for kind, a, b, choice in steps:
        x, y = values[a % len(values)], values[b % len(values)]
        z = one_step(kind, x, y, choice, inputs, casts)
        if z is not None and z.spec.numel <= MOST_ELEMENTS:
            values.append(z)
    return tuple(values[len(inputs) :][-2:]) or (twice(inputs[0]),)


def twice(x: Any) -> Any:
    return row("bool_not")(x) if x.spec.dtype.is_bool else x + x


def one_step(kind: str, x: Any, y: Any, choice: int, inputs: Sequence[Any], casts: bool) -> Any:
    """The result of a step; None where it does not fit its operands."""
    dtype = x.spec.dtype
    if kind == "cast" and casts:
        wanted = (DType.F32, DType.BF16, DType.F16)[choice % 3]  # never to integers: a rounded value may fall elsewhere
        return row("cast")(x, dtype=wanted) if wanted is not dtype else None
    if kind in ("permute", "reshape", "slice", "flip", "expand", "cat", "pad"):
        return moved(kind, x, y, choice)
    if kind == "where" and inputs[0].shape == x.shape and y.shape == x.shape and y.spec.dtype is dtype:
        return row("mask_where")(x, mask_of(inputs[0]), y)
    if dtype.is_bool:
        return row("bool_not")(x) if kind == "unary" else None
    if kind == "binary" and y.spec.dtype is dtype and fits(x.shape, y.shape):
        return row(BINARY[choice % len(BINARY)])(x, y)
    if kind == "number":
        return x * (0.75 if dtype.is_float else 3) + (float(choice % 5) if dtype.is_float else choice % 5)
    if kind == "reduce" and x.ndim:
        return reduced(x, choice)
    if not dtype.is_float:
        return row(("neg", "abs")[choice % 2])(x) if kind == "unary" else None
    if kind == "unary":
        return row(UNARY[choice % len(UNARY)])(x)
    if kind == "normalise" and x.ndim and x.spec.numel:
        return x - row("mean")(x, dims=(choice % x.ndim,))
    if kind == "softmax" and x.ndim and x.spec.numel:
        return row("softmax")(x, dim=choice % x.ndim)
    if kind == "library" and x.ndim == 2 and x.spec.numel and max(x.shape) <= 64:
        return row("matmul")(x, row("permute")(x, axes=(1, 0))) * 0.125
    if kind == "columns" and x.ndim > 1 and x.spec.numel:  # beside a reduction of the rows of the same value
        h = x - row("mean")(x, dims=(x.ndim - 1,))
        return row("sum")(h, dims=tuple(range(x.ndim - 1)))
    return None


def mask_of(x: Any) -> Any:
    # of an input, whose bits are the same in every precision
    if x.spec.dtype.is_bool:
        return x
    return row("greater")(x, 0.25 if x.spec.dtype.is_float else 0)


def reduced(x: Any, choice: int) -> Any:
    name = REDUCTIONS[choice % 4]
    dims = (choice % x.ndim,) if choice % 3 else tuple(range(x.ndim))
    if name == "mean" and not x.spec.dtype.is_float:
        name = "sum"
    if name != "sum" and any(x.shape[dim] == 0 for dim in dims):
        name = "sum"  # an extreme of nothing is an error
    return row(name)(x, dims=dims)


def moved(kind: str, x: Any, y: Any, choice: int) -> Any:
    axis = choice % max(x.ndim, 1)
    if kind == "permute":
        return row("permute")(x, axes=tuple(reversed(range(x.ndim))))
    if kind == "reshape":
        return row("reshape")(x, shape=(x.spec.numel,))
    if kind == "expand":
        return row("expand")(x, shape=(2, *x.shape))
    if not x.ndim:
        return None
    if kind == "slice" and x.shape[axis] > 1:
        ranges = [(0, size, 1) for size in x.shape]
        ranges[axis] = ((0, x.shape[axis], 2), (1, x.shape[axis], 1), (0, x.shape[axis] - 1, 1))[choice % 3]
        return row("slice")(x, ranges=tuple(ranges))
    if kind == "flip":
        return row("flip")(x, axes=(axis,))
    if kind == "pad" and not x.spec.dtype.is_bool:
        padding = [(0, 0)] * x.ndim
        padding[axis] = ((1, 0), (0, 2), (2, 1))[choice % 3]
        return row("pad")(x, 0.5 if x.spec.dtype.is_float else 1, padding=tuple(padding), mode="constant")
    if kind == "cat":
        same = y.ndim == x.ndim and y.spec.dtype is x.spec.dtype
        fitting = same and all(m == n for i, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if i != axis)
        return row("cat")(x, y if fitting else x, dim=axis)
    return None


def fits(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))


def specs_of(inputs: Sequence[tuple[tuple[int, ...], DType]]) -> list[Any]:
    return [tensor(*shape, dtype=dtype) for shape, dtype in inputs]
