"""Numbers at the edges of each type, and what every element-wise row makes of them beside the leaves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from burn_torch.backend import LibTorch, NdArray
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.fusion.bodies import Role, role_of
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.ops.op import REGISTRY
from burn_torch.ops.torch_types import TO_TORCH
from tests.fusion.checking import TOLERANCE, in_float64
from tests.fusion.programs import row, tensor, traced

__all__ = ["check_rows", "extremes"]

A_KERNEL = 8
"""Rows that one kernel computes, since compilers take their time."""

CANCEL = (
    *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
    *("gelu_backward", "gelu_approximate_backward", "mish_backward"),
)
"""Rows whose terms nearly cancel at some pairs: what is left has few digits in every implementation."""

LEFT_OUT = ("cast", "clone")


def extremes(dtype: DType) -> list[Any]:
    """Zeros of both signs, infinities, NaN, the least and the largest numbers, ties of rounding, widths of shifts."""
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        info = torch.finfo(TO_TORCH[dtype])
        sizes = [0.0, float("inf"), 1.0, 0.5, 1.5, 2.5, 7.0, 20.0, 100.0, 1 / 3, 0.999, info.tiny, info.max, info.eps]
        return [float("nan"), *sizes, *(-size for size in sizes)]
    whole = torch.iinfo(TO_TORCH[dtype])
    sizes = [0, 1, 2, 3, 7, 31, 32, 63, 64, whole.max, whole.max - 1, whole.min, whole.min + 1]
    return sorted({*sizes, *([-1, -2, -7] if whole.min else [200, 255])})


def check_rows(dtype: DType, run: Callable[[Graph, list[Any]], Sequence[torch.Tensor]], place: str = "cpu") -> int:
    """Compares kernels of each row at all pairs of extremes with the leaves; how many rows there are.

    run: computes a graph of tensors at `place`, given and returning tensors of the host.
    """
    cases = list(_cases(dtype))
    for begin in range(0, len(cases), A_KERNEL):
        some = cases[begin : begin + A_KERNEL]
        specs = [
            tensor(*spec.shape, dtype=spec.dtype, place=place) if isinstance(spec, TensorSpec) else spec
            for _, specs, _ in some
            for spec in specs
        ]
        inputs = [x for _, _, inputs in some for x in inputs]

        def together(*xs: Any, some: Any = tuple(some)) -> Any:
            waiting = iter(xs)
            return tuple(row(name)(*[next(waiting) for _ in specs]) for name, specs, _ in some)

        graph = traced(together, specs)
        for (name, specs, given), y in zip(some, run(graph, inputs), strict=True):
            alone = traced(lambda *xs, name=name: row(name)(*xs), specs)
            _check(name, y, _references(alone, given), given)
    return len(cases)


def _cases(dtype: DType) -> Iterator[tuple[str, list[Spec], list[Any]]]:
    for name, op in REGISTRY.items():
        if op.pointwise is None or name in LEFT_OUT or "::" in name:  # rows of other tests
            continue
        kinds = [kind for _, kind in op.signature.inputs]
        count = sum(kind != "number" for kind in kinds)
        columns = list(zip(*itertools.product(extremes(dtype), repeat=2), strict=True))
        columns += [tuple(reversed(columns[0][: len(columns[0]) // 2] * 3))[: len(columns[0])]] * (count - 2)
        waiting = iter([torch.tensor(column, dtype=TO_TORCH[dtype]) for column in columns])
        number = FLOAT_NUMBER if dtype.is_float else INT_NUMBER
        specs: list[Spec] = [number if kind == "number" else tensor(len(columns[0]), dtype=dtype) for kind in kinds]
        inputs = [(0.375 if dtype.is_float else 3) if kind == "number" else next(waiting) for kind in kinds]
        if name == "mask_where":
            specs[1], inputs[1] = tensor(len(columns[0]), dtype=DType.BOOL), inputs[1] > 0
        try:
            if role_of(op.bind(specs, {}))[0] != Role.COMPUTES:
                continue
            traced(lambda *xs, name=name: row(name)(*xs), specs)
        except BurnTorchError:  # this type is none of the row's
            continue
        if dtype.is_float or name not in ("div", "remainder", "fmod", "pow"):  # which no kernel computes of integers
            yield name, specs, inputs


def _references(graph: Graph, inputs: list[Any]) -> list[torch.Tensor]:
    """What the leaves say, and what float64 says: they differ where a result overflows on the way."""
    with np.errstate(all="ignore"):
        found = [interpret(graph, LibTorch(), inputs)[0], in_float64(graph, inputs)[0]]
        if not any(isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 for x in inputs):  # numpy has none
            arrays = [x.numpy() if isinstance(x, torch.Tensor) else x for x in inputs]
            found.append(torch.from_numpy(np.asarray(interpret(graph, NdArray(), arrays)[0])))
    return found


def _check(name: str, y: torch.Tensor, references: list[torch.Tensor], inputs: list[Any]) -> None:
    right = torch.zeros(y.shape, dtype=torch.bool)
    for z in references:
        if not y.is_floating_point():
            right |= y == z
            continue
        dtype = next(ours for ours, theirs in TO_TORCH.items() if theirs is y.dtype)
        exact, tiny = z.to(y.dtype).double(), torch.finfo(y.dtype).tiny
        size = exact.abs()
        if name in CANCEL:
            size = sum((x.double().abs() for x in inputs), size + 1.0)
        near = (y.double() - exact).abs() <= TOLERANCE[dtype] * size + 2 * tiny
        right |= near | (y.double() == exact) | (y.isnan() & exact.isnan())
    wrong = (~right).nonzero().flatten().tolist()
    at = [tuple(x[n].item() if isinstance(x, torch.Tensor) else x for x in inputs) for n in wrong[:3]]
    values = [[z[n].item() for z in (y, *references)] for n in wrong[:3]]
    assert not wrong, f"{name} of {y.dtype} at {at}: each first, then as the leaves and float64 say: {values}"
