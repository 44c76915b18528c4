"""Defines what tests of transforms share: functions written for burn_torch and for torch, random float64 data,
comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from burn_torch import Device, Tensor, nn
from burn_torch.module import Module, Param
from burn_torch.module.tree import rebuild
from burn_torch.tensor.activation import softmax

Array = NDArray[Any]

CPU = Device.cpu()
TAPE = CPU.autodiff()


def tensor(data: Any, device: Device = CPU) -> Tensor:
    return Tensor.from_data(np.asarray(data), device)


def array(x: Tensor) -> Array:
    return np.asarray(x.into_data().values)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape)


@dataclass(frozen=True)
class Case:
    """A scalar function of two arrays that broadcast, twice differentiable where the data are normal."""

    name: str
    ours: Callable[[Tensor, Tensor], Tensor]
    torch: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


CASES = [
    Case("polynomial", lambda x, y: (x * x * y + x * y).sum(), lambda x, y: (x * x * y + x * y).sum()),
    Case("bent", lambda x, y: (x.tanh() * y.exp()).mean(), lambda x, y: (x.tanh() * y.exp()).mean()),
    Case("quotient", lambda x, y: (x / (y * y + 1.0)).square().sum(), lambda x, y: (x / (y * y + 1.0)).square().sum()),
    Case("softmax", lambda x, y: (softmax(x + y, 1) * x).sum(), lambda x, y: ((x + y).softmax(1) * x).sum()),
    Case(
        "reordered",
        lambda x, y: (x.permute((1, 0)).reshape(x.shape) * y).sin().sum(),
        lambda x, y: (x.permute(1, 0).reshape(x.shape) * y).sin().sum(),
    ),
]


# -- modules ----------------------------------------------------------------------------------------------
class Mlp(Module):
    """Two linear layers."""

    inner: nn.Linear
    outer: nn.Linear

    @staticmethod
    def make(device: Device, d_input: int = 3, d_hidden: int = 5, d_output: int = 2) -> Mlp:
        return Mlp(nn.LinearConfig(d_input, d_hidden).init(device), nn.LinearConfig(d_hidden, d_output).init(device))

    def forward(self, x: Tensor) -> Tensor:
        return self.outer.forward(self.inner.forward(x).tanh())


def mean_square(model: Any, x: Tensor, target: Tensor) -> Tensor:
    loss: Tensor = (model.forward(x) - target).square().mean()
    return loss


def drawn(module: Any, rng: np.random.Generator) -> Any:
    """The module with normal float64 parameters."""
    device = module.devices()[0]
    return rebuild(
        module,
        lambda leaf: (
            Param(tensor(0.5 * normal(rng, *leaf.shape), device), leaf.id, require_grad=leaf.require_grad)
            if isinstance(leaf, Param)
            else leaf
        ),
    )


def by_path(module: Module, grads: Any) -> dict[str, Array]:
    """Gradients of a module by path; each has the shape of its parameter, or one axis more."""
    return {path: array(grads.get(param.id)) for path, param in module.named_params() if param.id in grads}


def close(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Equal up to `tolerance` of the largest element: sums of float64 in another order differ by about 1e-14."""
    actual = array(actual) if isinstance(actual, Tensor) else np.asarray(actual)
    expected = array(expected) if isinstance(expected, Tensor) else np.asarray(expected)
    assert actual.shape == expected.shape, f"{actual.shape} and {expected.shape}"
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def twin(model: Any) -> dict[str, torch.Tensor]:
    """The parameters of an Mlp as torch's leaves."""
    return {path: torch.from_numpy(array(p.val()).copy()).requires_grad_() for path, p in model.named_params()}


def twin_forward(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(x @ values["inner.weight"] + values["inner.bias"])
    return hidden @ values["outer.weight"] + values["outer.bias"]


def twin_loss(values: dict[str, torch.Tensor], x: Array, y: Array) -> torch.Tensor:
    return (twin_forward(values, torch.from_numpy(x)) - torch.from_numpy(y)).square().mean()


def judge(model: Any, grads: Any, expected: dict[str, Array]) -> None:
    ours = by_path(model, grads)
    assert set(ours) == set(expected)
    for path, gradient in expected.items():
        close(ours[path], gradient)


def said(what: str, given: str = "", expected: str = "", mend: str = "") -> str:
    """The pattern of an error in three parts; each part may go on."""
    return rf"{what}(.|\n)*\n  given:    {given}(.|\n)*\n  expected: {expected}(.|\n)*\n  mend:     {mend}"
