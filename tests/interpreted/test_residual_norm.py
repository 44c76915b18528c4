"""Residual add and norm in the interpreter: every config; the mask is that of dropout, aligned or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import dropout, residual_norm  # after the check for triton
from burn_kernels.launch import H200
from burn_kernels.spec import Draw

DROP: dict[str, Any] = {"prob": 0.3, "key": 2**63 - 9, "stream": 2**40 + 1}


def close(actual: Any, expected: Any, config: object) -> None:
    # float32 sums in another order, of values of order 1 to 10
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{config}\n{text}")


@pytest.mark.parametrize("cols", [49, 1004, pytest.param(20_000, marks=pytest.mark.slow)])
def test_every_candidate(cols: int) -> None:
    draw = Draw(cols)
    x, residual, dy, ds = (draw.normal(5, cols).float() for _ in range(4))
    w, b = draw.normal(cols).float(), draw.normal(cols).float()
    exact = residual_norm.layer_norm_reference(x, residual, w, b, **DROP)
    for config in residual_norm.candidates(cols, 4, H200):
        close(residual_norm.layer_norm(x, residual, w, b, **DROP, config=config), exact, config)
    _, s, mean, rstd = exact
    expected = residual_norm.layer_norm_reference_backward(dy, ds, s, w, mean, rstd, **DROP)
    for backward in residual_norm.backward_candidates(cols, 4, H200):
        grads = residual_norm.layer_norm_backward(dy, ds, s, w, mean, rstd, **DROP, config=backward)
        close(grads, expected, backward)
    no_use = residual_norm.rms_norm_backward(dy, None, s, w, rstd)
    close(no_use, residual_norm.rms_norm_reference_backward(dy, None, s, w, rstd), "default")


@pytest.mark.parametrize("cols", [5, 8, 33, 20_000, 16_401])
def test_the_mask_is_that_of_dropout(cols: int) -> None:
    x = torch.ones(3, cols)
    _, s, _ = residual_norm.rms_norm(x, torch.zeros_like(x), None, **DROP)
    assert torch.equal(s, dropout.mask(DROP["prob"], DROP["key"], DROP["stream"], like=x))
    rstd = torch.ones(3, 1)
    dx, dr, _ = residual_norm.rms_norm_backward(torch.zeros_like(x), x, x, None, rstd, **DROP)
    assert torch.equal(dx, s)
    assert torch.equal(dr, x)


def test_a_key_that_lies_on_the_device() -> None:
    x = torch.ones(3, 33)
    zero = torch.zeros_like(x)
    key, stream = torch.tensor(5), torch.tensor(6)
    _, s, rstd = residual_norm.rms_norm(x, zero, None, prob=0.3, key=key, stream=stream)
    assert torch.equal(s, dropout.mask(0.3, 5, 6, like=x))
    dx, _, _ = residual_norm.rms_norm_backward(zero, x, x, None, rstd, prob=0.3, key=key, stream=6)
    assert torch.equal(dx, s)


def test_layer_norm_keeps_its_digits_far_from_zero() -> None:
    # mean 1000, deviation 1, in a wide row: a sum of squares would leave nothing of the variance
    draw = Draw(7)
    x, residual = draw.normal(2, 20_000).float(), torch.full((2, 20_000), 1000.0)
    _, s, mean, rstd = residual_norm.layer_norm(x, residual, None, None)
    exact = residual_norm.layer_norm_reference(x.double(), residual.double(), None, None)
    torch.testing.assert_close(mean.double(), exact[2], rtol=1e-6, atol=0.0)
    torch.testing.assert_close(rstd.double(), s.double().var(1, correction=0, keepdim=True).rsqrt(), rtol=1e-5, atol=0)
