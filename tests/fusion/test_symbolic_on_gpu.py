"""Kernels of symbolic sizes on a GPU: values at ever new lengths, how many are compiled, and tiles that are tuned."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import autotune  # after the check for triton
from burn_torch import Device, Tensor, compile
from burn_torch.backend.lazy import fusion_of
from burn_torch.backend.lazy.stream import Stream
from burn_torch.backend.libtorch.generated import kernel_files
from burn_torch.tensor import activation

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

LENGTHS = (0, 1, 2, 3, 5, 16, 17, 31, 33, 64, 127, 128, 129, 1000, 4096, 5003)


@pytest.fixture
def device() -> Device:
    fused = Device.cuda(0).fused().autodiff()
    fusion = fusion_of(fused.backend)
    assert fusion is not None
    stream = fusion.stream("cuda:0")
    stream.flush()
    stream.history.clear()
    fusion.replan()
    fusion.planner._recent.clear()
    return fused


def stream_of(device: Device) -> Stream:
    fusion = fusion_of(device.backend)
    assert fusion is not None
    return fusion.stream("cuda:0")


def block(x: Any) -> Any:
    return activation.softmax((x * 2.0 + 1.0).tanh() * x, 1) * 3.0


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax((x * 2 + 1).tanh() * x, 1) * 3


@pytest.mark.parametrize("along", ["rows", "columns"])
def test_values_and_gradients_at_ever_new_lengths(device: Device, along: str) -> None:
    before = set(kernel_files._modules)
    torch.manual_seed(0)
    for length in LENGTHS:
        if length == 0 and along == "columns":
            continue
        data = torch.randn((length, 96) if along == "rows" else (7, length), device="cuda")
        upstream = torch.randn_like(data)
        x = Tensor.from_torch(data, device).require_grad()
        y = block(x)
        gradient = x.grad((y * Tensor.from_torch(upstream, device)).sum().backward())
        assert gradient is not None
        exact = data.double().requires_grad_()
        wanted = reference(exact)
        (slope,) = torch.autograd.grad((wanted * upstream.double()).sum(), exact)
        torch.testing.assert_close(y.inner().into_torch().double(), wanted, rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(gradient.into_torch().double(), slope, rtol=5e-5, atol=5e-5)
    assert all(ready.fused for ready in stream_of(device).history)
    assert len(set(kernel_files._modules) - before) <= 12


def test_tiles_are_tuned_by_powers_of_two_and_fit_every_length(device: Device) -> None:
    """Tiles that were chosen for one length of a bucket run all others of it."""
    torch.manual_seed(0)
    with autotune.using("on"):
        for _ in range(3):
            for length in (33, 40, 50, 63, 64, 65, 100):
                data = torch.randn(513, length, device="cuda")
                y = block(Tensor.from_torch(data, device.inner())).into_torch()
                torch.testing.assert_close(y, reference(data), rtol=2e-5, atol=2e-5)


def test_compiled_steps_share_kernels_between_shapes(device: Device) -> None:
    step = compile(lambda x: block(x).mean(), fuse=True, numerics="fast")
    kernels: list[int] = []
    torch.manual_seed(0)
    for length in (64, 96, 100, 128, 200):
        data = torch.randn(length, 96, device="cuda")
        for _ in range(3):  # warmed up, recorded, replayed
            loss = step(Tensor.from_torch(data, Device.cuda(0)))
        torch.testing.assert_close(loss.into_torch()[0].double(), reference(data.double()).mean(), rtol=2e-5, atol=2e-5)
        kernels.append(len(kernel_files._modules))
    assert kernels[2:] == [kernels[1]] * 3
