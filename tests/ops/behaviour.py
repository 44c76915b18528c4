"""Defines what tests of single rows need: run a row on every leaf; check gradients where the table's samples do not
go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from burn_torch.backend.autodiff import Autodiff
from burn_torch.backend.libtorch import LibTorch
from burn_torch.backend.ndarray import NdArray
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.ops import Op, Value

Array = NDArray[Any]


class Where(NamedTuple):
    """A leaf and a place on it."""

    leaf: Any
    place: str

    def value(self, data: Any, dtype: DType | None = None) -> Value:
        """Data on this leaf."""
        primitive = self.leaf.from_data(TensorData.of(data, dtype), self.place)
        return Value(self.leaf, primitive, self.leaf.spec(primitive))

    def run(self, row: Op, *inputs: Any, **attrs: Any) -> Any:
        """The row on data (arrays and lists; numbers stay numbers): an array, or a tuple of them."""
        if "place" in row.signature.attrs:
            attrs["place"] = self.place
        fed = [x if isinstance(x, int | float | Value) else self.value(x) for x in inputs]
        outputs = row.run(self.leaf, Value, fed, attrs)
        return tuple(map(read, outputs)) if isinstance(outputs, tuple) else read(outputs)


def read(x: Value) -> Array:
    """The data of a value; its spec is the one that was promised."""
    backend: Any = x.backend
    data = backend.into_data(x.primitive)
    assert (data.shape, data.dtype) == (x.spec.shape, x.spec.dtype)
    return np.asarray(data.values)


_PLACES: Final = [
    pytest.param(Where(LibTorch(), "cpu"), id="LibTorch"),
    pytest.param(Where(LibTorch(), "cuda:0"), id="LibTorch-cuda", marks=pytest.mark.gpu),
    pytest.param(Where(NdArray(), "cpu"), id="NdArray"),
]

everywhere = pytest.mark.parametrize("where", _PLACES)
"""On both leaves, and on CUDA where there is one."""

on_host = pytest.mark.parametrize("where", [_PLACES[0], _PLACES[2]])
"""On both leaves, in host memory: where indices in the data are checked."""


def gradients(
    where: Where, row: Op, inputs: Sequence[Any], upstreams: Sequence[Array | None], **attrs: Any
) -> dict[int, Array]:
    """Gradients of sum(upstream * output), by position of the float inputs; absent where there is none."""
    stack = Autodiff(where.leaf)
    leaves, fed = _track_inputs(stack, where, inputs)
    slots = stack.backward(_roots(stack, where, row.run(stack, Value, fed, attrs), upstreams))
    return {i: where.leaf.into_data(slots[x.node.id]).values for i, x in leaves.items() if x.node.id in slots}


def check_gradients(where: Where, row: Op, *inputs: Any, **attrs: Any) -> None:
    """First and second gradients in float64 against central differences, with random upstream gradients.

    The row is smooth at the inputs: where it is not, tests state the numbers that they expect.
    """
    inputs = tuple(np.asarray(x, np.float64) if _is_float(x) else x for x in inputs)
    generator = np.random.default_rng(7)
    shapes = [y.shape if y.dtype.kind == "f" else None for y in _several(where.run(row, *inputs, **attrs))]
    upstreams = [None if shape is None else generator.normal(size=shape) for shape in shapes]

    def total(point: Sequence[Any]) -> float:
        outputs = _several(where.run(row, *point, **attrs))
        return float(sum(np.sum(y * u) for y, u in zip(outputs, upstreams, strict=True) if u is not None))

    grads = gradients(where, row, inputs, upstreams, **attrs)
    weights = {i: generator.normal(size=x.shape) for i, x in enumerate(inputs) if _is_float(x)}
    for i in weights:
        np.testing.assert_allclose(grads[i], _slopes(total, inputs, i), rtol=1e-6, atol=1e-7, err_msg=f"input {i}")

    def weighted(point: Sequence[Any]) -> float:
        first = gradients(where, row, point, upstreams, **attrs)
        return float(sum(np.sum(first[i] * w) for i, w in weights.items()))

    second = _second(where, row, inputs, upstreams, weights, attrs)
    for i, found_twice in second.items():
        expected = _slopes(weighted, inputs, i)
        np.testing.assert_allclose(found_twice, expected, rtol=1e-5, atol=1e-6, err_msg=f"second, input {i}")


def _second(
    where: Where,
    row: Op,
    inputs: Sequence[Any],
    upstreams: Sequence[Array | None],
    weights: dict[int, Array],
    attrs: dict[str, Any],
) -> dict[int, Array]:
    inner = Autodiff(where.leaf)
    outer = Autodiff(inner)
    low, fed = _track_inputs(inner, where, inputs)
    high = {i: outer.track(x, fed[i].spec) for i, x in low.items()}
    fed = [
        Value(outer, high.get(i, getattr(x, "primitive", None)), x.spec) if isinstance(x, Value) else x
        for i, x in enumerate(fed)
    ]
    slots = outer.backward(_roots(outer, where, row.run(outer, Value, fed, attrs), upstreams))
    roots = [
        (slots[x.node.id], where.value(weights[i]).primitive)
        for i, x in high.items()
        if x.node.id in slots and inner.is_tracked(slots[x.node.id])
    ]
    twice = inner.backward(roots) if roots else {}
    return {
        i: where.leaf.into_data(twice[x.node.id]).values if x.node.id in twice else np.zeros(fed[i].shape)
        for i, x in low.items()
    }


def _track_inputs(stack: Autodiff, where: Where, inputs: Sequence[Any]) -> tuple[dict[int, Any], list[Any]]:
    leaves: dict[int, Any] = {}
    fed: list[Any] = []
    for i, x in enumerate(inputs):
        if isinstance(x, int | float):
            fed.append(x)
            continue
        value = where.value(x)
        primitive = value.primitive
        if value.dtype.is_float:
            primitive = leaves[i] = stack.track(primitive, value.spec)
        fed.append(Value(stack, primitive, value.spec))
    return leaves, fed


def _roots(stack: Autodiff, where: Where, output: Any, upstreams: Sequence[Array | None]) -> list[tuple[Any, Any]]:
    outputs = output if isinstance(output, tuple) else (output,)
    return [
        (y.primitive, where.value(g, y.dtype).primitive)
        for y, g in zip(outputs, upstreams, strict=True)
        if g is not None and stack.is_tracked(y.primitive)
    ]


def _is_float(x: Any) -> bool:
    return not isinstance(x, int | float | bool) and np.asarray(x).dtype.kind == "f"


def _several(output: Any) -> tuple[Array, ...]:
    return output if isinstance(output, tuple) else (output,)


def _slopes(function: Callable[[Sequence[Any]], float], inputs: Sequence[Any], i: int, step: float = 1e-5) -> Array:
    slopes = np.zeros(inputs[i].shape)
    for place in np.ndindex(slopes.shape):
        for sign in (1, -1):
            moved = inputs[i].copy()
            moved[place] += sign * step
            slopes[place] += sign * function([*inputs[:i], moved, *inputs[i + 1 :]]) / (2 * step)
    return slopes


def one_message(*parts: str) -> str:
    """A pattern for `match=`: what, given, expected and mend, in that order, with anything between."""
    return r"(?s)" + r".*".join(parts)
