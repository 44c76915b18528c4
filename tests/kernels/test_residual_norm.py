"""Residual add and norm: agreement with the kernels it joins, and what the launchers refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from burn_kernels import (
    KernelArgumentError,
    KernelDTypeError,
    KernelError,
    KernelShapeError,
    dropout,
    norm,
    residual_norm,
)
from burn_kernels.launch import H200
from burn_kernels.spec import Draw

X, W = torch.ones(4, 6), torch.ones(6)
ONES = torch.ones(4, 1)


def test_it_is_dropout_add_and_norm() -> None:
    draw = Draw(1)
    x, residual, w, b = draw.normal(5, 8), draw.normal(5, 8), draw.normal(8), draw.normal(8)
    y, s, mean, rstd = residual_norm.layer_norm(x, residual, w, b, prob=0.4, key=3, stream=4)
    assert torch.equal(s, dropout.forward(x, 0.4, 3, 4) + residual)
    for actual, expected in zip((y, mean, rstd), norm.layer_norm(s, w, b), strict=True):
        assert torch.equal(actual, expected)


def test_without_dropout_one_tensor_is_both_gradients() -> None:
    draw = Draw(2)
    dy, ds, s, w, rstd = draw.normal(5, 8), draw.normal(5, 8), draw.normal(5, 8), draw.normal(8), draw.normal(5, 1)
    dx, dr, _ = residual_norm.rms_norm_backward(dy, ds, s, w, rstd)
    assert dx is dr
    dropped, whole, _ = residual_norm.rms_norm_backward(dy, ds, s, w, rstd, prob=0.5, key=1, stream=2)
    assert torch.equal(whole, dr)
    assert torch.equal(dropped, dr * dropout.mask(0.5, 1, 2, like=dr))


def test_a_sum_that_has_no_other_use() -> None:
    draw = Draw(3)
    dy, s, w, rstd = draw.normal(5, 8), draw.normal(5, 8), draw.normal(8), draw.normal(5, 1)
    grads = residual_norm.rms_norm_backward(dy, None, s, w, rstd)
    expected = residual_norm.rms_norm_backward(dy, torch.zeros_like(dy), s, w, rstd)
    for one, other in zip(grads, expected, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


def test_candidates_begin_with_the_default() -> None:
    for cols in (1, 49, 1024, 5120, 8192, 16_384, 32_768, 50_257):
        for itemsize in (2, 4):
            configs = residual_norm.candidates(cols, itemsize, H200)
            assert residual_norm.default(cols, itemsize, H200) == configs[0]
            assert len(set(configs)) == len(configs)
            back = residual_norm.backward_candidates(cols, itemsize, H200)
            assert residual_norm.backward_default(cols, itemsize, H200) == back[0]
            assert len(set(back)) == len(back)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"residual_layer_norm: residual and w have another.*expected: residual \(4, 6\), w \(6,\).*belong",
            lambda: residual_norm.layer_norm(X, torch.ones(4, 5), torch.ones(5), W),
        ),
        (
            KernelShapeError,
            r"residual_rms_norm backward: ds has another shape.*ds \(6,\).*expected: ds \(4, 6\).*belong",
            lambda: residual_norm.rms_norm_backward(X, W, X, W, ONES),
        ),
        (
            KernelDTypeError,
            r"residual_rms_norm: the element types.*residual \(4, 6\) float16.*one float type for x, residual, w.*cast",
            lambda: residual_norm.rms_norm(X, X.half(), W),
        ),
        (
            KernelArgumentError,
            r"residual_layer_norm backward: the probability.*prob -0.5.*from 0 to 1.*share",
            lambda: residual_norm.layer_norm_backward(X, X, X, W, ONES, ONES, prob=-0.5),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()
