"""Activations without kinks: the sigmoids and what is made of them."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.module import Module
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import binary, unary

__all__ = [
    "Gelu",
    "LogSigmoid",
    "Mish",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "SoftplusConfig",
    "Softsign",
    "Tanh",
    "Tanhshrink",
]

_gelu, _gelu_approximate, _silu, _sigmoid, _tanh = ops.gelu, ops.gelu_approximate, ops.silu, ops.sigmoid, ops.tanh


class Gelu(InlineLayer):
    """x times the probability that a standard normal value is below x.

        x / 2 * (1 + erf(x / sqrt(2)))                                        exact, the default
        x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))               approximate

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.GELU, approximate="tanh" for the second.
    Source: Hendrycks, Gimpel 2016, section 2, https://arxiv.org/abs/1606.08415.
    """

    approximate: bool = False

    @staticmethod
    def new() -> Gelu:
        """The exact one."""
        return Gelu()

    @staticmethod
    def new_approximate() -> Gelu:
        """The one by tanh."""
        return Gelu(approximate=True)

    def forward(self, x: Tensor) -> Tensor:
        """The input, weighted by how large it is among normal values."""
        return unary(_gelu_approximate if self.approximate else _gelu, x)


class SiLU(Module):
    """x * sigmoid(x), also called swish.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.SiLU.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input, weighted by its sigmoid."""
        return unary(_silu, x)


class Mish(Module):
    """x * tanh(softplus(x)).

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Mish.  Source: Misra 2019, https://arxiv.org/abs/1908.08681.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input, weighted by a smooth gate."""
        return unary(ops.mish, x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Sigmoid.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input, squeezed into (0, 1)."""
        return unary(_sigmoid, x)


class LogSigmoid(Module):
    """log(1 / (1 + exp(-x))), without overflow.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.LogSigmoid.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The logarithm of the sigmoid."""
        return unary(ops.log_sigmoid, x)


class Tanh(Module):
    """The hyperbolic tangent.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Tanh.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input, squeezed into (-1, 1)."""
        return unary(_tanh, x)


class Tanhshrink(Module):
    """x - tanh(x).

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Tanhshrink.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input less its hyperbolic tangent."""
        return x - unary(_tanh, x)


class SoftplusConfig(ParameterlessConfig["Softplus"]):
    """A smooth rectifier.  beta 1: its slope is the sigmoid."""

    beta: float = 1.0

    def __post_init__(self) -> None:
        Rules(self).positive("beta").stop()


class Softplus(InlineLayer):
    """log(1 + exp(beta * x)) / beta, without overflow; the larger beta, the nearer to relu.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Softplus, which is x itself where beta * x > 20.
    """

    beta: float

    def forward(self, x: Tensor) -> Tensor:
        """The smooth positive part."""
        return binary(ops.softplus, x, self.beta)


class Softsign(Module):
    """x / (1 + |x|).

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Softsign.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input, squeezed into (-1, 1), slowly."""
        return x / (x.abs() + 1.0)
