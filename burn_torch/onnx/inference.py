"""Shapes and element types of every value of a plan, found by running it over a trace: the table's own rules, no data.

Sizes that vary are tried with two numbers each; what changes with them is named after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from burn_torch.backend import LibTorch
from burn_torch.backend.tracing import Session
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError
from burn_torch.core.spec import TensorSpec
from burn_torch.onnx.imported import run_step
from burn_torch.onnx.ir import split_multiple
from burn_torch.onnx.plan import Plan
from burn_torch.tensor import Tensor

__all__ = ["Known", "inferred"]

_TRIED: Final = ((2, 3), (32, 64), (1, 2), (8, 16))
"""Pairs of sizes for axes that vary, until one runs: some models take multiples of 32 only."""


@dataclass(frozen=True)
class Known:
    """Holds what is known of a value: sizes are numbers, names, or "?"; `on_host` where it is an array, not a
    tensor.
    """

    shape: tuple[int | str, ...]
    dtype: DType
    on_host: bool

    def __str__(self) -> str:
        sizes = ", ".join(str(size) for size in self.shape)
        return f"({sizes}{',' if len(self.shape) == 1 else ''}) {self.dtype.name}"


Found = dict[str, tuple[tuple[int, ...], DType, bool]]


def inferred(plan: Plan) -> dict[str, Known]:
    """Returns what is known of each value by name; those after a shape that depends on data are left out."""
    symbols: dict[str, int] = {}
    for i, info in enumerate(plan.inputs):
        for j, size in enumerate(info.shape or ()):
            if not isinstance(size, int):
                symbols[size or f"d{i}_{j}"] = len(symbols)
    count = len(plan.input_names) + sum(1 for step in plan.steps for name in step.outputs if name)
    best: tuple[Found, Found] = ({}, {})
    for low, high in _TRIED:
        one = _trace(plan, dict.fromkeys(symbols, low))
        if len(one) > len(best[0]):
            best = (one, _trace(plan, dict.fromkeys(symbols, high)) if symbols else one)
        if len(one) == count or not symbols:
            break
    first, second = best
    low_high = next((pair for pair in _TRIED if _has_size(first, plan, pair[0])), _TRIED[0])
    return {name: _known_shape(first[name], second.get(name), symbols, low_high) for name in first}


def _has_size(shapes: Found, plan: Plan, low: int) -> bool:
    for info, name in zip(plan.inputs, plan.input_names, strict=True):
        for size, real in zip(info.shape or (), shapes[name][0] if name in shapes else (), strict=False):
            if not isinstance(size, int):
                return real == low
    return False


def _known_shape(
    one: tuple[tuple[int, ...], DType, bool],
    two: tuple[tuple[int, ...], DType, bool] | None,
    symbols: Mapping[str, int],
    pair: tuple[int, int],
) -> Known:
    shape, dtype, on_host = one
    if two is None or len(two[0]) != len(shape):
        other: tuple[int, ...] = (-1,) * len(shape)
    else:
        other = two[0]
    names = [name for name in symbols if name.isidentifier()]
    sizes: list[int | str] = []
    for a, b in zip(shape, other, strict=True):
        if a == b:
            sizes.append(a)
        else:
            sizes.append(names[0] if len(symbols) == len(names) == 1 and (a, b) == pair else "?")
    return Known(tuple(sizes), dtype, on_host)


def _trace(plan: Plan, sizes: Mapping[str, int]) -> Found:
    """Specs of the values, as far as the trace gets."""
    session = Session(LibTorch())
    shapes: Found = {}

    def tensor(shape: tuple[int, ...], dtype: DType) -> Tensor:
        spec = TensorSpec.of(shape, dtype, "cpu")
        return Tensor(session.leaf, session.input(spec, None).primitive, spec)

    def note(name: str, value: object) -> None:
        if isinstance(value, Tensor):
            spec: TensorSpec | None = value.spec
            if spec is not None:
                shapes[name] = (spec.shape, spec.dtype, False)
        elif isinstance(value, np.ndarray):
            shapes[name] = (tuple(value.shape), DType.from_numpy(value.dtype), True)

    with session.opened():
        env: dict[str, Any] = {}
        for i, (info, name) in enumerate(zip(plan.inputs, plan.input_names, strict=True)):
            if info.shape is None or info.dtype is None or info.kind != "tensor":
                return shapes
            shape = tuple(
                size if isinstance(size, int) else sizes[size or f"d{i}_{j}"] * split_multiple(size or "")[0]
                for j, size in enumerate(info.shape)
            )
            env[name] = tensor(shape, info.dtype)
            note(name, env[name])
        fields = {name: tensor(data.shape, data.dtype) for name, data in plan.weights.items()}
        for step in plan.steps:
            try:
                run_step(step, env, fields, device=tensor((), DType.F32).device)
            except BurnTorchError:
                return shapes  # data decides from here on
            for output in step.outputs:
                if output is not None:
                    note(output, env[output])
    return shapes
