"""Runs one row on values of both leaves; what the tests of convolution, pooling and resampling share."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from burn_torch.backend.autodiff import Autodiff
from burn_torch.backend.libtorch import LibTorch
from burn_torch.backend.ndarray import NdArray
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.ops import REGISTRY, Value

Array = NDArray[Any]

LEAVES: Final[tuple[Any, ...]] = (LibTorch(), NdArray())


def value(backend: Any, x: Array) -> Value:
    """A value with a copy of host data."""
    primitive = backend.from_data(TensorData(np.array(x, order="C"), DType.from_numpy(x.dtype)), "cpu")
    return Value(backend, primitive, backend.spec(primitive))


def host(x: Value) -> Array:
    """The data of a value."""
    return x.backend.into_data(x.primitive).array  # type: ignore[attr-defined,no-any-return]  # a Backend here


def run(leaf: Any, name: str, *inputs: Array | None, **attrs: Any) -> list[Array]:
    """The outputs of a row."""
    output = REGISTRY[name](*[None if x is None else value(leaf, x) for x in inputs], **attrs)
    return [host(y) for y in (output if isinstance(output, tuple) else (output,))]


def gradients(leaf: Any, name: str, *inputs: Array | None, g: Array, **attrs: Any) -> list[Array | None]:
    """The gradients of sum(g * first output) with respect to the inputs."""
    stack = Autodiff(leaf)
    fed: list[Value | None] = []
    for x in inputs:
        if x is None:
            fed.append(None)
            continue
        tensor = value(leaf, x)
        fed.append(Value(stack, stack.track(tensor.primitive, tensor.spec), tensor.spec))
    y = REGISTRY[name](*fed, **attrs)
    first = y[0] if isinstance(y, tuple) else y
    slots = stack.backward([(first.primitive, value(leaf, g).primitive)])
    return [
        None if x is None or x.primitive.node.id not in slots else leaf.into_data(slots[x.primitive.node.id]).array
        for x in fed
    ]


def by_torch(function: Any, *inputs: Array | None, g: Array | None = None) -> tuple[Array, list[Array | None]]:
    """The result of a torch function, and its gradients through torch's own tape."""
    tensors = [None if x is None else torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    y = function(*tensors)
    if g is None:
        return y.detach().numpy(), []
    wanted = [x for x in tensors if x is not None]
    grads = iter(torch.autograd.grad(y, wanted, torch.from_numpy(g)))
    return y.detach().numpy(), [None if x is None else next(grads).numpy() for x in tensors]


def assert_close(actual: Array, expected: Array, what: str = "") -> None:
    """Equal in float64 up to the order of sums."""
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-11, err_msg=what)
