"""Runs a row and its PyTorch twin on the same float64 data and compares values and gradients.

Upstream gradients are random.  What may differ is 64 roundings of the largest number in sight, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.backend.ndarray.leaf import NdArray
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.ops import REGISTRY, Value

Array = NDArray[Any]

LEAVES: Final = [LibTorch(), NdArray()]


def values(leaf: Any, inputs: Sequence[Any], dtype: DType | None = None) -> list[Any]:
    """Arrays as values on a leaf (floats converted to dtype); numbers and None as they are."""
    operands: list[Any] = []
    for x in inputs:
        if isinstance(x, np.ndarray):
            data = TensorData.of(x)
            if dtype is not None and data.dtype.is_float:
                data = data.convert(dtype)
            primitive = leaf.from_data(data, "cpu")
            x = Value(leaf, primitive, leaf.spec(primitive))
        operands.append(x)
    return operands


def read(value: Value) -> Array:
    """The data of a value as an array; bfloat16 as float32."""
    backend: Any = value.backend
    return np.asarray(backend.into_data(value.primitive).values)


def run(leaf: Any, name: str, *inputs: Any, dtype: DType | None = None, **attrs: Any) -> Any:
    """One array, or a list of them: what the row computes."""
    outputs = REGISTRY[name](*values(leaf, inputs, dtype), **attrs)
    return [None if y is None else read(y) for y in outputs] if isinstance(outputs, tuple) else read(outputs)


def gradients(
    leaf: Any, name: str, inputs: Sequence[Any], upstream: Sequence[Array | None], attrs: dict[str, Any]
) -> list[Array | None]:
    """The gradient of each float array among the inputs, None where there is none."""
    tape = Autodiff(leaf)
    tracked = [
        Value(tape, tape.track(x.primitive, x.spec), x.spec) if isinstance(x, Value) and x.dtype.is_float else x
        for x in values(leaf, inputs)
    ]
    output = REGISTRY[name](*tracked, **attrs)
    outputs = output if isinstance(output, tuple) else (output,)
    roots = [
        (y.primitive, values(leaf, [g])[0].primitive)
        for y, g in zip(outputs, upstream, strict=True)
        if g is not None and tape.is_tracked(y.primitive)
    ]
    slots = tape.backward(roots)
    return [
        np.asarray(leaf.into_data(slots[x.primitive.node.id]).values) if x.primitive.node.id in slots else None
        for x in tracked
        if isinstance(x, Value) and x.dtype.is_float
    ]


def close(what: str, actual: Array | None, expected: Array) -> None:
    """Equal but for 64 roundings of the largest finite number; NaN and infinities at the same places."""
    actual = np.zeros_like(expected) if actual is None else actual
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(actual, expected, rtol=64 * 2.0**-52, atol=64 * 2.0**-52 * scale, err_msg=what)


def compare(
    generator: np.random.Generator,
    name: str,
    twin: Callable[..., Any],
    *inputs: Any,
    differentiate: bool = True,
    **attrs: Any,
) -> None:
    """The row on both leaves against `twin(*inputs)`, which takes torch tensors, numbers and None.

    The twin gives one output for each of the row's first outputs; gradients start at those.
    """
    references = [torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x for x in inputs]
    wanted = [x.requires_grad_() for x in references if isinstance(x, torch.Tensor) and x.is_floating_point()]
    output = twin(*references)
    outputs = output if isinstance(output, tuple) else (output,)
    upstream = [generator.standard_normal(tuple(y.shape)) for y in outputs]
    expected: list[Any] = []
    if differentiate:
        expected = list(
            torch.autograd.grad(outputs, wanted, [torch.from_numpy(g) for g in upstream], allow_unused=True)
        )
    for leaf in LEAVES:
        outputs_of_row = run(leaf, name, *inputs, **attrs)
        outputs_of_row = outputs_of_row if isinstance(outputs_of_row, list) else [outputs_of_row]
        for i, y in enumerate(outputs):
            close(f"{leaf} {name}: output {i}", outputs_of_row[i], y.detach().numpy())
        if differentiate:
            starts = [*upstream, *[None] * (len(outputs_of_row) - len(upstream))]
            for i, (g, e) in enumerate(zip(gradients(leaf, name, inputs, starts, attrs), expected, strict=True)):
                close(f"{leaf} {name}: gradient {i}", g, np.zeros(wanted[i].shape) if e is None else e.numpy())
