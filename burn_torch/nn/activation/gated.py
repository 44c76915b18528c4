"""Gated units: one half of the work decides how much of the other half passes."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, InlineLayer, Rules, noting_layer
from burn_torch.nn.linear import Linear, LinearConfig, LinearLayout
from burn_torch.tensor import Device, Tensor, activation
from burn_torch.tensor.apply import unary

__all__ = ["GLU", "SwiGlu", "SwiGluConfig"]

_silu = ops.silu


class GLU(InlineLayer):
    """The first half of an axis times the sigmoid of the second.

    Shapes: x (..., 2 n, ...) -> (..., n, ...), the halves along axis `dim`.
    PyTorch: torch.nn.GLU.  Source: Dauphin et al. 2016, section 2, https://arxiv.org/abs/1612.08083.
    """

    dim: int

    @staticmethod
    def new(dim: int) -> GLU:
        """Burn's constructor."""
        return GLU(dim)

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The gated half."""
        return activation.glu(x, self.dim)


class SwiGluConfig(Config):
    """A gated linear unit.

    bias false: as in the paper and the language models that use it.  initializer: even in +-1 / sqrt(d_input), which
    keeps the variance of both maps near that of the input.  layout Row: as for Linear.
    """

    d_input: int
    d_output: int
    bias: bool = False
    initializer: Initializer = KAIMING
    layout: LinearLayout = LinearLayout.Row

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "d_input", "d_output").stop()

    def init(self, device: Device) -> SwiGlu:
        """The layer with fresh parameters."""
        linear = LinearConfig(
            self.d_input, self.d_output, bias=self.bias, initializer=self.initializer, layout=self.layout
        )
        return SwiGlu(linear.init(device), linear.init(device))


class SwiGlu(Module):
    """silu(linear_inner(x)) * linear_outer(x).

    Shapes: x (*batch, d_input) -> (*batch, d_output).
    Dtypes: any float, the same for input and parameters.
    Source: Shazeer 2020, equation 6, https://arxiv.org/abs/2002.05202.
    """

    linear_inner: Linear
    linear_outer: Linear

    def forward(self, x: Tensor) -> Tensor:
        """The gated map."""
        return unary(_silu, self.linear_inner.forward(x)) * self.linear_outer.forward(x)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return self.linear_inner.custom_content(content)
