"""Activations in the interpreter: every config, edges of float16, layouts."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import activation  # after the check for triton
from burn_kernels.launch import H200
from burn_kernels.spec import Draw

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")


@pytest.mark.parametrize("kind", activation.KINDS)
def test_every_candidate(kind: str) -> None:
    draw = Draw(3)
    x, dy = draw.normal(3, 1003, std=3.0).float(), draw.normal(3, 1003).float()
    y, dx = activation.reference(x, kind=kind), activation.reference_backward(dy, x, kind=kind)
    for config in activation.candidates(x.numel(), 4, H200):
        torch.testing.assert_close(activation.forward(x, kind=kind, config=config), y)
        torch.testing.assert_close(activation.backward(dy, x, kind=kind, config=config), dx)


@pytest.mark.parametrize("kind", activation.KINDS)
def test_every_number_of_float16(kind: str) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    x = x[x.isfinite()]
    exact = activation.reference(x.double(), kind=kind)
    slope = activation.reference_backward(torch.ones_like(x).double(), x.double(), kind=kind)
    y = activation.forward(x, kind=kind).double()
    dx = activation.backward(torch.ones_like(x), x, kind=kind).double()
    # half a unit of the result, 5e-5 of it (prims.normal_cdf_fast), and where Phi is small 1e-8 of x to 6
    assert ((y - exact).abs() <= exact.abs() * (2**-11 + 6e-5) + 1e-7).all()
    # the slope is a sum of terms to 1.2, each with such an error
    assert ((dx - slope).abs() <= slope.abs() * 2**-11 + 1e-4).all()


@pytest.mark.parametrize("kind", activation.KINDS)
def test_layouts(kind: str) -> None:
    draw = Draw(5)
    last = draw.normal(2, 3, 4, 5).float().contiguous(memory_format=torch.channels_last)
    dy = draw.normal(2, 3, 4, 5).float()
    assert activation.forward(last, kind=kind).stride() == last.stride()
    for upstream in (dy, dy.contiguous(memory_format=torch.channels_last), dy[:1].expand(2, 3, 4, 5)):
        grad = activation.backward(upstream, last, kind=kind)
        torch.testing.assert_close(grad, activation.reference_backward(upstream, last, kind=kind))
