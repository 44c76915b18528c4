"""The ten blocks in generated kernels: what unfused execution gives, in as many launches as are explained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import burn_kernels.launch  # after the check for triton
import burn_torch
from burn_torch import Device, Tensor, compile
from burn_torch.module import GradientsParams, Module
from burn_torch.optim import Optimizer
from tests.fusion.blocks import BLOCKS, TINY

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked


def leaves(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a step's results, in their order."""
    if isinstance(value, Tensor):
        yield (value.inner() if value.device.is_autodiff() else value).into_torch()
    elif isinstance(value, Module):
        for _, param in value.named_params():
            yield from leaves(param.val())
    elif isinstance(value, GradientsParams):
        yield from (y for _, x in value.items() for y in leaves(x))
    elif isinstance(value, Optimizer):
        for _, slots in value.to_record().states.values():
            yield from (y for _, x in sorted(slots.items()) for y in leaves(x))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from leaves(part)


def result(name: str, *, fuse: bool) -> tuple[list[torch.Tensor], Any]:
    burn_torch.seed(3)
    arguments = BLOCKS[name].make(Device.cpu().autodiff(), TINY)
    step = compile(BLOCKS[name].step, fuse=fuse)
    burn_torch.seed(4)
    return list(leaves(step(*arguments))), step.explain(*arguments)


QUICK = ("transformer, pre-norm", "LSTM cell", "GAN discriminator", "loss and optimizer")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BLOCKS]
)
def test_fused_is_unfused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []
    launch = burn_kernels.launch.launch

    def counted(function: Any, *rest: Any, **options: Any) -> Any:
        launched.append(function.fn.__name__)
        return launch(function, *rest, **options)

    monkeypatch.setattr(burn_kernels.launch, "launch", counted)
    actual, explained = result(name, fuse=True)
    names = sorted(kernel.name for kernel in explained.fusion.kernels if kernel.generated)
    assert names
    assert len(launched) == len(names), "a kernel in place has a name of its own"
    wanted, _ = result(name, fuse=False)
    assert len(actual) == len(wanted) > 1
    for y, z in zip(actual, wanted, strict=True):
        torch.testing.assert_close(y, z, rtol=2e-4, atol=2e-4 * max(1.0, float(z.abs().max())))
