"""A small net, a step that trains it, and comparisons bit for bit, for tests of `compile`."""

from __future__ import annotations

from typing import Any

import torch

import burn_torch
from burn_torch import Device, Module, Tensor
from burn_torch.nn import Dropout, DropoutConfig, Linear, LinearConfig
from burn_torch.optim import GradientsParams

CPU = Device.cpu()


TAPE = CPU.autodiff()


def bits(x: Tensor) -> torch.Tensor:
    return (x.no_grad() if x.device.is_autodiff() else x).into_torch()


def equal(x: Tensor, y: Tensor) -> bool:
    return torch.equal(bits(x), bits(y))


def vector(*values: float, device: Device = CPU) -> Tensor:
    return Tensor.from_data(list(values), device)


class Net(Module):
    first: Linear
    drop: Dropout
    second: Linear

    def forward(self, x: Tensor) -> Tensor:
        return self.second.forward(self.drop.forward(self.first.forward(x).relu()))


def net() -> Net:
    burn_torch.seed(3)
    return Net(LinearConfig(4, 8).init(TAPE), DropoutConfig(0.5).init(), LinearConfig(8, 2).init(TAPE))


def training_step(model: Net, optim: Any, x: Tensor, y: Tensor, lr: float) -> tuple[Net, Any, Tensor]:
    loss = ((model.forward(x) - y) ** 2).mean()
    grads = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, grads)
    return model, optim, loss.detach()


def batch() -> tuple[Tensor, Tensor]:
    burn_torch.seed(4)
    return (
        Tensor.random((6, 4), burn_torch.Distribution.Default, TAPE),
        Tensor.random((6, 2), burn_torch.Distribution.Default, TAPE),
    )
