"""Random programs: fused and unfused against float64, forward and gradients.

Sizes 0, 1, ragged and large; views, broadcasts, reductions, joined and padded values; floats, half types, integers and
booleans side by side.  Every program runs as it is planned, in place where that is legal, and leaves its inputs alone.
BURN_TORCH_SLOW=1 takes 300 of each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.verifier import verify
from tests.fusion.checking import in_float64, made
from tests.fusion.programs import row, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked

SLOW = os.environ.get("BURN_TORCH_SLOW") == "1"
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller program is not worth the minutes it takes to find

UNARY = ["tanh", "sigmoid", "relu", "neg", "abs", "square", "sin", "gelu", "silu"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]
REDUCTIONS = ["sum", "mean", "amax", "amin"]
KINDS = [
    "unary", "binary", "number", "reduce", "normalise", "softmax", "permute", "reshape", "slice", "flip", "expand",
    "cat", "pad", "cast", "where", "columns",
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
    return inputs, draw(st.lists(step, min_size=1, max_size=10))


def cooked(steps: Sequence[tuple[str, int, int, int]], inputs: Sequence[Any], *, casts: bool = True) -> tuple[Any, ...]:
    """What the steps make of the inputs: the last two values, cut short where they would be large."""
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


def largest(values: Sequence[torch.Tensor]) -> float:
    return max([float(y.double().abs().max()) for y in values if y.numel()], default=1.0)


def specs_of(inputs: Sequence[tuple[tuple[int, ...], DType]]) -> list[Any]:
    return [tensor(*shape, dtype=dtype) for shape, dtype in inputs]


@settings(max_examples=300 if SLOW else 50, deadline=None, phases=PHASES)
@given(recipes(), st.integers(0, 2**32 - 1))
def test_forward(recipe: Recipe, number: int) -> None:
    inputs, steps = recipe
    specs = specs_of(inputs)
    graph = traced(lambda *xs: cooked(steps, xs), specs)
    given_ = made(specs, np.random.default_rng(number))
    before = [x.clone() for x in given_]
    planned = plan_of(graph)
    verify(planned.graph)
    exact = in_float64(graph, given_)
    found = LibTorch().program(planned.graph).run(*given_)
    unfused = interpret(graph, LibTorch(), before)
    for given_to, kept in zip(given_, before, strict=True):
        assert torch.equal(given_to, kept), "an input was written to"
    types = {spec.dtype for spec in graph.specs().values() if isinstance(spec, TensorSpec)}
    judged(found, unfused, exact, max(STEP[dtype] for dtype in types if dtype in STEP) if types & set(STEP) else 0.0)


STEP = {DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
"""Between 1 and the next number."""


def judged(
    found: Sequence[torch.Tensor], unfused: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], step: float
) -> None:
    """Errors of at most twice those of unfused execution, and of what a few roundings give; integers are equal.

    step: of the coarsest type on the way.  Sums in another order differ by more roundings in float32 than there are in
    half types, which kernels round less often than unfused execution does.
    """
    few = 64 if step == STEP[DType.F32] else 4
    scale = max(largest(exact), largest(unfused), 1.0)
    for y, plain, z in zip(found, unfused, exact, strict=True):
        assert y.dtype is plain.dtype
        assert y.shape == z.shape
        if not y.is_floating_point():
            assert torch.equal(y, plain)
            continue
        assert torch.equal(y.isnan(), plain.isnan())
        error, allowed = (errors(x, z) for x in (y, plain))
        assert error <= 2 * allowed + few * step * scale, (error, allowed, few * step * scale)


def errors(y: torch.Tensor, z: torch.Tensor) -> float:
    return float((y.double() - z.double()).nan_to_num(0.0, 0.0, 0.0).abs().max()) if y.numel() else 0.0


@settings(max_examples=300 if SLOW else 15, deadline=None, phases=PHASES)
@given(recipes([DType.F32]), st.integers(0, 2**32 - 1))
def test_gradients(recipe: Recipe, number: int) -> None:
    from burn_torch import Device, Tensor, compile, vjp

    inputs, steps = recipe
    plain = Device.cpu()
    given_ = made(specs_of(inputs), np.random.default_rng(number))

    def pulled(*xs: Tensor) -> Any:
        ys, pull = vjp(lambda *values: cooked(steps, values, casts=False), *xs)
        return pull(tuple(y * 0.5 + 1.0 for y in ys))

    def on_plain(inputs_: Sequence[torch.Tensor]) -> list[Tensor]:
        return [Tensor.from_torch(x, plain) for x in inputs_]

    exact = [g.into_torch() for g in pulled(*on_plain([x.double() for x in given_]))]
    unfused = [g.into_torch() for g in pulled(*on_plain(given_))]
    fused = [g.into_torch() for g in compile(pulled, fuse=True)(*on_plain(given_))]
    judged(fused, unfused, exact, STEP[DType.F32])
