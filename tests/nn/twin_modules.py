"""A layer and its torch twin with the same parameters in float64: outputs and all gradients side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from burn_torch import Device, Tensor
from burn_torch.module import Module, Param
from burn_torch.module.tree import rebuild

M = TypeVar("M", bound=Module)
Array = NDArray[Any]

CPU = Device.cpu()
TRAINING = CPU.autodiff()


def filled(module: M, values: Mapping[str, Array]) -> M:
    """The module with these arrays in the place of all its parameters, by path."""
    paths = {id(param): path for path, param in module.named_params()}
    assert set(paths.values()) == set(values), sorted(set(paths.values()) ^ set(values))
    for path, param in module.named_params():
        assert param.shape == values[path].shape, (path, param.shape, values[path].shape)
    device = next(iter(module.devices()))
    return rebuild(  # type: ignore[no-any-return]
        module,
        lambda leaf: Param(Tensor.from_data(values[paths[id(leaf)]], device), leaf.id) if id(leaf) in paths else leaf,
    )


def drawn(module: M, rng: np.random.Generator) -> M:
    """The module with normal float64 parameters."""
    return filled(module, {path: 0.5 * rng.standard_normal(p.shape) for path, p in module.named_params()})


def values_of(module: Module) -> dict[str, Array]:
    """All parameters by path."""
    return {path: param.val().into_data().array for path, param in module.named_params()}


def tensor(array: Array, *, device: Device = TRAINING) -> Tensor:
    """A tensor; of floats, one that asks for its gradient where the device has them."""
    leaf = Tensor.from_data(array, device)
    return leaf.require_grad() if leaf.dtype.is_float and device.is_autodiff() else leaf


def array(x: Tensor) -> Array:
    return x.into_data().array


def gradients(
    module: Module, outputs: Sequence[Tensor], upstream: Sequence[Array], inputs: Mapping[str, Tensor]
) -> dict[str, Array]:
    """Returns the gradients of sum(output * upstream): of each parameter by path, and of each input by name."""
    total = None
    for output, g in zip(outputs, upstream, strict=True):
        term = (output * Tensor.from_data(g, TRAINING)).sum()
        total = term if total is None else total + term
    assert total is not None
    grads = total.backward()
    leaves = {path: param.val() for path, param in module.named_params()} | dict(inputs)
    result = {}
    for name, leaf in leaves.items():
        gradient = leaf.grad(grads)
        assert gradient is not None, f"no gradient reached {name}"
        result[name] = gradient.into_data().array
    return result


def torch_gradients(
    outputs: Sequence[torch.Tensor], upstream: Sequence[Array], leaves: Mapping[str, torch.Tensor]
) -> dict[str, Array]:
    """The same of torch."""
    total = torch.stack([(y * torch.from_numpy(g)).sum() for y, g in zip(outputs, upstream, strict=True)]).sum()
    return dict(zip(leaves, (g.numpy() for g in torch.autograd.grad(total, list(leaves.values()))), strict=True))


def load_torch(module: torch.nn.Module, values: Mapping[str, Array]) -> None:
    """Copies arrays into all parameters of a float64 torch module."""
    parameters = dict(module.named_parameters())
    assert set(parameters) == set(values), sorted(set(parameters) ^ set(values))
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values[name])))


def assert_equal(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Equal names and, up to float64 rounding of sums of some hundred terms near 1, equal values."""
    assert set(actual) == set(expected), sorted(set(actual) ^ set(expected))
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-10, atol=1e-11, err_msg=name)
