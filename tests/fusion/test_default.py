"""Devices that fuse by default: decided in one place, with a way out."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
import torch

from burn_torch import Device, DeviceError, Tensor
from burn_torch.backend import LibTorch
from burn_torch.backend.lazy import default, fused_by_default


@pytest.fixture(autouse=True)
def nobody_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(default.VARIABLE, raising=False)


@pytest.mark.parametrize("on_cuda", [False, True])
def test_the_constant_decides_for_cuda_devices_alone(on_cuda: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "ON_CUDA", on_cuda)
    assert fused_by_default("cuda:1") is on_cuda
    assert not fused_by_default("cpu")
    assert not fused_by_default("mps")


@pytest.mark.parametrize(
    ("word", "cuda", "cpu"), [("0", False, False), ("1", True, False), ("all", True, True), (" ALL ", True, True)]
)
@pytest.mark.parametrize("on_cuda", [False, True])
def test_a_variable_decides_for_a_process(
    word: str, cuda: bool, cpu: bool, on_cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default, "ON_CUDA", on_cuda)
    monkeypatch.setenv(default.VARIABLE, word)
    assert fused_by_default("cuda:0") is cuda
    assert fused_by_default("cpu") is cpu
    assert Device.cpu().is_fused() is cpu
    assert Device.parse("cpu").is_fused() is cpu
    assert Device.enumerate()[0].is_fused() is cpu


def test_an_unknown_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(default.VARIABLE, "yes")
    with pytest.raises(DeviceError, match=r"(?s)BURN_TORCH_FUSION=yes.*0 for none.*unset BURN_TORCH_FUSION"):
        Device.cpu()


def test_who_says_it_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Device.cpu(fused=True) is Device.cpu().fused()
    monkeypatch.setenv(default.VARIABLE, "all")
    assert Device.cpu() is Device.cpu(fused=True)
    assert not Device.cpu(fused=False).is_fused()
    assert not Device.libtorch().is_fused(), "Burn's name for torch alone"
    assert not Device.ndarray().is_fused()
    assert not Device(LibTorch(), "cpu").is_fused()
    plain, fused = Device.cpu(fused=False).autodiff(), Device.cpu().autodiff()
    assert pickle.loads(pickle.dumps(plain)) is plain
    assert pickle.loads(pickle.dumps(fused)) is fused
    x = Tensor.from_floats([1.0, 2.0], Device.cpu())
    assert ((x * 2.0).sum().item(), x.device.inner()) == (6.0, Device.cpu(fused=False))


def test_a_process_begins_with_the_default_of_the_constant() -> None:
    """The one place: nothing else changes where it does."""
    code = (
        "from burn_torch.backend.lazy import default\n"
        "assert default.fused_by_default('cuda:0') is default.ON_CUDA\n"
        "from burn_torch import Device\n"
        "assert not Device.cpu().is_fused()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != default.VARIABLE}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("on_cuda", [False, True])
def test_cuda_devices(on_cuda: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "ON_CUDA", on_cuda)
    assert Device.cuda(0).is_fused() is on_cuda
    assert Device.cuda(0, fused=True).is_fused()
    assert not Device.cuda(0, fused=False).is_fused()
    assert not Device.libtorch_cuda(0).is_fused()
