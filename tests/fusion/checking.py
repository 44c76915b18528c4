"""References of generated kernels, and random programs to make kernels of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from burn_torch.backend import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import INT_NUMBER, Spec, TensorSpec
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.ops.torch_types import TO_TORCH
from tests.fusion.programs import row

TOLERANCE = {DType.F32: 2e-5, DType.F64: 1e-12, DType.BF16: 1.6e-2, DType.F16: 2e-3}


def made(specs: Sequence[Spec], seed: np.random.Generator, scale: float = 1.0, number: int = 3) -> list[Any]:
    inputs: list[Any] = []
    for spec in specs:
        if isinstance(spec, TensorSpec):
            x = torch.from_numpy(np.asarray(seed.standard_normal(spec.shape) * scale))
            inputs.append(
                (x > 0) if spec.dtype.is_bool else (x * (1 if spec.dtype.is_float else 4)).to(TO_TORCH[spec.dtype])
            )
        else:
            inputs.append(number if spec is INT_NUMBER else 0.375)
    return inputs


def in_float64(graph: Graph, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Runs a graph in double precision: the same operations on wider inputs."""
    from burn_torch.graph.trace import Trace

    trace = Trace()
    wide = [
        spec.with_dtype(DType.F64) if isinstance(spec, TensorSpec) and spec.dtype.is_float else spec
        for _, spec in graph.inputs
    ]
    values: dict[int, Any] = {i: trace.input(spec) for (i, _), spec in zip(graph.inputs, wide, strict=True)}
    for node in graph.nodes:
        attrs = {
            name: DType.F64 if name == "dtype" and value.is_float else value for name, value in node.call.attrs.items()
        }
        given_ = [values[i] if isinstance(i, int) else None if i is None else i.value for i in node.inputs]
        results = (
            node.call.op(*given_, **attrs)
            if any(hasattr(x, "spec") for x in given_)
            else node.call.op.run(trace, type(next(iter(values.values()))), given_, attrs)
        )
        for i, value in zip(node.outputs, results if node.call.multiple else (results,), strict=True):
            if i is not None:
                values[i] = value
    widened = trace.graph([values[i] for i in graph.outputs if i is not None])
    given_ = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    return interpret(widened, LibTorch(), given_)


def agree(actual: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], factor: float = 1.0) -> None:
    for y, z in zip(actual, exact, strict=True):
        assert y.shape == z.shape
        if not y.is_floating_point():
            assert torch.equal(y, z.to(y.dtype))
            continue
        dtype = next(ours for ours, theirs in TO_TORCH.items() if theirs is y.dtype)
        size = TOLERANCE[dtype] * factor
        torch.testing.assert_close(y.double(), z.double(), rtol=size, atol=size, equal_nan=True)


# -- random programs ---------------------------------------------------------------------------------
UNARY = ["tanh", "sigmoid", "relu", "neg", "abs", "square", "sin", "gelu", "silu"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]
SHAPES = [(3, 4), (4,), (3, 1), (1, 4), (3, 4, 1), (1,), (2, 3, 4), ()]


LARGE = [(129, 257), (257,), (129, 1), (1, 257), (3, 43, 257), (1,), (4096, 5), (8, 1030), ()]
"""Ragged sizes that fill more than one program of a GPU."""
KINDS = ["unary", "binary", "number", "reduce", "normalise", "permute", "reshape", "slice", "expand"]
MOST = 4096

Step = tuple[str, int, int, int]
"""A kind, which operand, which other, and a choice."""


def drawn(seed: np.random.Generator) -> tuple[list[tuple[int, ...]], list[Step]]:
    """Large shapes of inputs, and steps, where nothing but numpy draws them."""
    shapes = [LARGE[int(n)] for n in seed.integers(0, len(LARGE), int(seed.integers(1, 4)))]
    steps: list[Step] = []
    for _ in range(int(seed.integers(2, 10))):
        a, b, choice = (int(n) for n in seed.integers(0, (10, 10, 100)))
        steps.append((KINDS[int(seed.integers(len(KINDS)))], a, b, choice))
    return shapes, steps


def cooked(steps: Sequence[Step], inputs: Sequence[Any], most: int = MOST) -> tuple[Any, ...]:
    """The last two values of the steps, applied to the inputs, none of more than so many elements."""
    values = list(inputs)
    for kind, a, b, choice in steps:
        x, y = values[a % len(values)], values[b % len(values)]
        if kind == "unary":
            z = row(UNARY[choice % len(UNARY)])(x)
        elif kind == "binary" and fits(x.shape, y.shape):
            z = row(BINARY[choice % len(BINARY)])(x, y)
        elif kind == "number":
            z = x * 0.75 + float(choice % 5)
        elif kind == "reduce" and x.ndim:
            z = row(("sum", "mean", "amax", "amin")[choice % 4])(x, dims=(choice % x.ndim,))
        elif kind == "normalise" and x.ndim:
            z = x - row("mean")(x, dims=(choice % x.ndim,))
        elif kind == "permute":
            z = row("permute")(x, axes=tuple(reversed(range(x.ndim))))
        elif kind == "reshape":
            z = row("reshape")(x, shape=(x.spec.numel,))
        elif kind == "slice" and x.ndim and x.shape[0] > 1:
            ranges = ((0, x.shape[0], 2), *((0, size, 1) for size in x.shape[1:]))
            z = row("slice")(x, ranges=ranges)
        elif kind == "expand":
            z = row("expand")(x, shape=(2, *x.shape))
        else:
            continue
        if z.spec.numel <= most:
            values.append(z)
    return tuple(values[len(inputs) :][-2:])


def fits(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))
