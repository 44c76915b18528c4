"""Activations: points that formulas miss, layouts, and what the launchers refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from burn_kernels import KernelArgumentError, KernelError, KernelShapeError, activation
from burn_kernels.launch import H200

X = torch.ones(4, 6)


def test_relu_at_zero_passes_no_gradient_and_keeps_nan() -> None:
    x = torch.tensor([-1.0, -0.0, 0.0, 2.0, torch.nan])
    dx = activation.backward(torch.full_like(x, 3.0), x, kind="relu")
    assert dx[:4].tolist() == [0.0, 0.0, 0.0, 3.0]
    assert activation.forward(x, kind="relu")[-1].isnan()


@pytest.mark.parametrize("kind", activation.KINDS)
def test_half_types_far_from_zero(kind: str) -> None:
    x = torch.tensor([-60000.0, -30.0, -12.0, 12.0, 30.0, 60000.0], dtype=torch.float16)
    y, dx = activation.forward(x, kind=kind), activation.backward(torch.ones_like(x), x, kind=kind)
    torch.testing.assert_close(y.double(), x.double().clamp(min=0), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(dx.double(), (x > 0).double(), atol=1e-3, rtol=0.0)


def test_the_result_lies_as_its_input() -> None:
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    y = activation.forward(x)
    assert y.stride() == x.stride()


def test_candidates_begin_with_the_default() -> None:
    for cols in (1, 49, 1024, 1 << 26):
        configs = activation.candidates(cols, 2, H200)
        assert activation.default(cols, 2, H200) == configs[0]
        assert len(set(configs)) == len(configs)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelArgumentError,
            r"activation: no such activation.*'mish'.*silu, gelu, gelu_tanh, relu.*gelu is the exact form",
            lambda: activation.forward(X, kind="mish"),
        ),
        (
            KernelShapeError,
            r"activation backward: dy has another shape.*dy \(6,\).*expected: dy \(4, 6\).*belong",
            lambda: activation.backward(torch.ones(6), X),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()
