"""Axes without elements, fused: what reductions with an identity, softmaxes and their gradients give of nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Tensor, compile, grad, nn
from burn_torch.tensor import activation


def cross_entropy(x: Tensor, dim: int) -> Tensor:
    targets = Tensor.zeros((x.shape[0],), x.device).int()
    return nn.CrossEntropyLossConfig().init(x.device).forward(x * 2.0, targets)


FUNCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "softmax": lambda x, dim: activation.softmax((x * 2.0).tanh() + 1.0, dim) * 3.0 - x,
    "log_softmax": lambda x, dim: activation.log_softmax((x * 2.0).tanh() + 1.0, dim) * 3.0 - x,
    "softmin": lambda x, dim: activation.softmin((x * 2.0).tanh() + 1.0, dim) * 3.0 - x,
    "quiet_softmax": lambda x, dim: activation.quiet_softmax((x * 2.0).tanh() + 1.0, dim) * 3.0 - x,
    "logsumexp": lambda x, dim: ((x * 2.0).tanh() + 1.0).logsumexp_dim(dim) * 3.0 - 1.0,
    "sum": lambda x, dim: ((x * 2.0).tanh() + 1.0).sum_dim(dim) * 3.0 - 1.0,
    "mean": lambda x, dim: ((x * 2.0).tanh() + 1.0).mean_dim(dim) * 3.0 - 1.0,
    "prod": lambda x, dim: ((x * 2.0).tanh() + 1.0).prod_dim(dim) * 3.0 - 1.0,
    "cat": lambda x, dim: Tensor.cat([x.tanh(), x * 2.0], dim).sum_dim(dim) - 1.0,
    "gradient": lambda x, dim: grad(lambda x: activation.softmax(x * 2.0, dim).square().sum())(x),
    "gradient of logsumexp": lambda x, dim: grad(lambda x: (x * 2.0).logsumexp_dim(dim).square().sum())(x),
}
SHAPES = [((0, 3), 0), ((0, 3), 1), ((3, 0), 1), ((0, 0), 0), ((2, 0, 3), 1), ((0,), 0)]


def check(function: Callable[[Tensor, int], Tensor], shape: tuple[int, ...], dim: int) -> None:
    def values(x: Any) -> Any:
        return x.into_data().values

    expected = values(function(Tensor.zeros(shape, Device.cpu(fused=False)), dim))
    fused = values(function(Tensor.zeros(shape, Device.cpu(fused=True)), dim))
    compiled = values(compile(lambda x: function(x, dim), fuse=True)(Tensor.zeros(shape, Device.cpu(fused=False))))
    for y in (fused, compiled):
        assert y.dtype == expected.dtype
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_empty_axes_give_what_they_give_unfused(name: str) -> None:
    for shape, dim in SHAPES:
        check(FUNCTIONS[name], shape, dim)


@pytest.mark.parametrize("shape", [(0, 3), (0, 0)])
def test_cross_entropy_of_no_rows(shape: tuple[int, int]) -> None:
    check(cross_entropy, shape, 1)
