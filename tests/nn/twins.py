"""A layer beside its torch twin in float64: the same weights, the same input, a random upstream gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.module import Param
from burn_torch.module.running_state import RunningState
from burn_torch.module.tree import rebuild
from burn_torch.tensor import Device, Tensor

AD = Device.cpu().autodiff()
CPU = Device.cpu()

Array = np.ndarray


def double(module: Any) -> Any:
    """The module with parameters, states and constants of float64."""

    def wide(tensor: Tensor) -> Tensor:
        return ops.cast(tensor.detach(), dtype=DType.F64) if tensor.dtype.is_float else tensor

    def change(leaf: Any) -> Any:
        if isinstance(leaf, Param):
            return leaf.with_value(wide(leaf.val()))
        return leaf.with_value(wide(leaf.value())) if isinstance(leaf, RunningState) else wide(leaf)

    return rebuild(module, change)


def tensor(array: Any, device: Device = AD) -> Tensor:
    return Tensor.from_data(np.asarray(array), device)


def array(x: Tensor) -> Array:
    return np.asarray(x.into_data())


def with_arrays(module: Any, arrays: Mapping[str, Array]) -> Any:
    """The module with other values, by path: {"weight": array}."""
    by_id = {param.id: arrays[path] for path, param in module.named_params() if path in arrays}
    assert len(by_id) == len(arrays), f"{sorted(arrays)} are not all among {[p for p, _ in module.named_params()]}"
    return module.map_params(lambda p: p.with_value(tensor(by_id[p.id], p.device)) if p.id in by_id else p)


def close(ours: Any, theirs: Any, tolerance: float = 1e-10) -> None:
    """Both agree to `tolerance` of the largest element: float64 sums in another order differ by about 1e-14."""
    ours = array(ours) if isinstance(ours, Tensor) else np.asarray(ours)
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
    assert ours.shape == theirs.shape, f"{ours.shape} and {theirs.shape}"
    scale = max(1.0, float(np.abs(theirs).max(initial=0.0)))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)


def gradients(output: Tensor, upstream: Array) -> Any:
    return ops.sum(output * tensor(upstream), dims=tuple(range(output.ndim))).backward()


def same(value: Array) -> Array:
    return value


def swapped(value: Array) -> Array:
    """Between (d_in, d_out) and (d_out, d_in)."""
    return np.ascontiguousarray(np.swapaxes(value, 0, 1))


def compare(
    rng: np.random.Generator,
    layer: Any,
    twin: Callable[..., torch.Tensor],
    *inputs: Any,
    params: Mapping[str, tuple[torch.Tensor, Callable[[Array], Array]]] | None = None,
    forward: Callable[..., Tensor] | None = None,
    tolerance: float = 1e-10,
) -> Any:
    """Output and all gradients of `layer` are those of `twin`; returns the layer with the twin's weights.

    `params` names, for each parameter of the layer, the twin's tensor and how an array of ours becomes one of theirs
    (its own inverse).
    """
    params = params or {}
    arrays = {path: change(value.detach().numpy()) for path, (value, change) in params.items()}
    layer = with_arrays(double(layer), arrays)
    assert {path for path, _ in layer.named_params()} == set(params), "a parameter is compared with nothing"
    call = layer.forward if forward is None else partial(forward, layer)
    ours = [tensor(x).require_grad() if np.issubdtype(np.asarray(x).dtype, np.floating) else tensor(x) for x in inputs]
    theirs = [torch.from_numpy(np.array(x)) for x in inputs]
    for x in theirs:
        if x.is_floating_point():
            x.requires_grad_()
    y, want = call(*ours), twin(*theirs)
    close(y, want, tolerance)
    upstream = rng.standard_normal(want.shape)
    grads = gradients(y, upstream)
    leaves = [x for x in theirs if x.requires_grad] + [value for value, _ in params.values()]
    expected: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        want, leaves, torch.from_numpy(upstream), allow_unused=True
    )
    mine = [x.grad(grads) for x in ours if x.is_require_grad()]
    mine += [dict(layer.named_params())[path].val().grad(grads) for path in params]
    changes = [same] * (len(leaves) - len(params)) + [change for _, change in params.values()]
    for got, grad, change in zip(mine, expected, changes, strict=True):
        if grad is None:
            assert got is None or not array(got).any()
        else:
            assert got is not None
            close(change(array(got)), grad, tolerance)
    return layer
