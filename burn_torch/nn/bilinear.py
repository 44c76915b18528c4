"""Bilinear: a map that is linear in each of two inputs."""

from __future__ import annotations

from burn_torch.config import Config
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules, noting_layer
from burn_torch.tensor import Device, Tensor, functional

__all__ = ["Bilinear", "BilinearConfig"]


class BilinearConfig(Config):
    """A map of two inputs.

    bias true: the map may shift.  initializer: even in +-1 / sqrt(d_input1), as PyTorch's.
    """

    d_input1: int
    d_input2: int
    d_output: int
    bias: bool = True
    initializer: Initializer = KAIMING

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "d_input1", "d_input2", "d_output").stop()

    def init(self, device: Device) -> Bilinear:
        """The layer with fresh parameters."""
        init, fans = self.initializer.init_with, (self.d_input1, self.d_output)
        weight = init((self.d_output, self.d_input1, self.d_input2), *fans, device)
        return Bilinear(weight, init((self.d_output,), *fans, device) if self.bias else None)


class Bilinear(Module):
    """y[o] = x1 @ weight[o] @ x2 + bias[o].

    Shapes: x1 (*batch, d_input1), x2 (*batch, d_input2), weight (d_output, d_input1, d_input2), bias (d_output,)
    -> (*batch, d_output).
    Dtypes: any float, the same for all.
    PyTorch: torch.nn.Bilinear.
    """

    weight: Param
    bias: Param | None

    @noting_layer
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The mapped inputs."""
        return functional.bilinear(x1, x2, self.weight.val(), None if self.bias is None else self.bias.val())

    def custom_content(self, content: Content) -> Content:
        """Sizes as Linear shows them."""
        d_output, d_input1, d_input2 = self.weight.shape
        content.add("d_input1", d_input1).add("d_input2", d_input2).add("d_output", d_output)
        return content.add("bias", self.bias is not None)
