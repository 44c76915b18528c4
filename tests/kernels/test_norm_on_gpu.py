"""Norm backwards on a GPU: every config that may be chosen, few rows and many, rows that begin anywhere."""

from __future__ import annotations

import pytest
import torch

from burn_kernels import norm
from burn_kernels.launch import machine_of

pytestmark = pytest.mark.gpu

HALVES = [torch.float16, torch.bfloat16]


def near(actual: torch.Tensor | None, plain: torch.Tensor | None, exact: torch.Tensor | None) -> bool:
    """Asks whether `actual` is no further from `exact` than 1.1 times what float32 arithmetic is."""
    assert actual is not None
    assert plain is not None
    assert exact is not None
    return bool((actual.double() - exact).norm() <= 1.1 * (plain.double() - exact).norm() + 1e-12)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("rows", "cols"), [(1, 4096), (7, 5120), (300, 16384), (140, 32768), (140, 11008)])
@pytest.mark.parametrize("middle", [0.0, 1.0], ids=["around zero", "far from zero"])
def test_every_config_that_may_be_chosen(rows: int, cols: int, dtype: torch.dtype, middle: float) -> None:
    away = middle * (900.0 if dtype == torch.float16 else 60.0)
    x = (torch.randn(rows, cols, device="cuda") * max(1.0, away / 60) + away).to(dtype)
    dy, w = torch.randn(rows, cols, device="cuda").to(dtype), torch.randn(cols, device="cuda").to(dtype)
    _, mean, rstd = norm.layer_norm_reference(x.double(), w.double(), None)
    saved = mean.float(), rstd.float()
    exact = norm.layer_norm_reference_backward(dy.double(), x.double(), w.double(), mean, rstd)
    plain = norm.layer_norm_reference_backward(dy, x, w, *saved)
    for config in (None, *norm.backward_candidates(cols, x.element_size(), machine_of(x))):
        first, again = (norm.layer_norm_backward(dy, x, w, *saved, config=config) for _ in range(2))
        for grad, twin, other, right in zip(first, again, plain, exact, strict=True):
            assert near(grad, other, right), config
            assert grad is not None
            assert twin is not None
            assert torch.equal(grad, twin), config


@pytest.mark.parametrize("begin", [1, 2, 8])
def test_rows_that_begin_anywhere(begin: int) -> None:
    """16384 of 16400 columns: by several programs a row, which take words of two numbers."""
    wide_x, wide_dy = (torch.randn(40, 16_400, device="cuda").bfloat16() for _ in range(2))
    x, dy = wide_x[:, begin : begin + 16_384], wide_dy[:, begin : begin + 16_384]
    w = torch.randn(16_400, device="cuda").bfloat16()[begin : begin + 16_384]
    _, mean, rstd = norm.layer_norm_reference(x, w, None)
    grads = norm.layer_norm_backward(dy, x, w, mean, rstd)
    plain = norm.layer_norm_reference_backward(dy, x, w, mean, rstd)
    exact = norm.layer_norm_reference_backward(dy.double(), x.double(), w.double(), mean.double(), rstd.double())
    assert all(near(*three) for three in zip(grads, plain, exact, strict=True))
