"""Activations of straight pieces: shrinkage, and the hard forms of sigmoid, swish and tanh."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.module import Module
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import apply_one, binary, unary

__all__ = [
    "HardShrink",
    "HardShrinkConfig",
    "HardSigmoid",
    "HardSigmoidConfig",
    "HardSwish",
    "Hardtanh",
    "HardtanhConfig",
    "Shrink",
    "ShrinkConfig",
    "SoftShrink",
    "SoftShrinkConfig",
]


# -- bounded ----------------------------------------------------------------------------------------------
class HardSigmoidConfig(ParameterlessConfig["HardSigmoid"]):
    """A sigmoid of three pieces.  alpha 0.2, beta 0.5: those of ONNX, 0 at -2.5 and 1 at 2.5."""

    alpha: float = 0.2
    beta: float = 0.5


class HardSigmoid(InlineLayer):
    """alpha * x + beta, kept between 0 and 1.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Hardsigmoid, whose alpha is 1/6.
    """

    alpha: float
    beta: float

    def forward(self, x: Tensor) -> Tensor:
        """The sigmoid of three pieces."""
        return apply_one(ops.hard_sigmoid, (x, self.alpha, self.beta))


class HardSwish(Module):
    """x * min(max(x + 3, 0), 6) / 6.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Hardswish.
    Source: Howard et al. 2019, section 5.2, https://arxiv.org/abs/1905.02244.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input, weighted by a sigmoid of three pieces."""
        return unary(ops.hard_swish, x)


class HardtanhConfig(ParameterlessConfig["Hardtanh"]):
    """A hyperbolic tangent of three pieces.  min_val -1, max_val 1: the bounds of tanh."""

    min_val: float = -1.0
    max_val: float = 1.0

    def __post_init__(self) -> None:
        rules = Rules(self)
        if not self.min_val < self.max_val:
            rules.fault("min_val", "the range is empty", f"a number below max_val, {self.max_val}", "swap the two")
        rules.stop()


class Hardtanh(InlineLayer):
    """x kept between min_val and max_val; the gradient passes at the bounds.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Hardtanh, whose gradient at the bounds is 0.
    """

    min_val: float
    max_val: float

    def forward(self, x: Tensor) -> Tensor:
        """The input between two bounds."""
        return x.clamp(self.min_val, self.max_val)


# -- shrinking ----------------------------------------------------------------------------------------------
class HardShrinkConfig(ParameterlessConfig["HardShrink"]):
    """Hard shrinkage.  lambda 0.5: that of PyTorch."""

    lambda_: float = 0.5

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "lambda_").stop()


class HardShrink(InlineLayer):
    """x where |x| > lambda, else 0; the gradient at +-lambda is 0.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Hardshrink.
    """

    lambda_: float

    def forward(self, x: Tensor) -> Tensor:
        """The input without what is small."""
        return binary(ops.hard_shrink, x, self.lambda_)


class SoftShrinkConfig(ParameterlessConfig["SoftShrink"]):
    """Soft shrinkage.  lambda 0.5: that of PyTorch."""

    lambda_: float = 0.5

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "lambda_").stop()


class SoftShrink(InlineLayer):
    """x moved toward 0 by lambda, and 0 where it would pass it; the gradient at +-lambda is 0.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Softshrink.
    """

    lambda_: float

    def forward(self, x: Tensor) -> Tensor:
        """The input, nearer to 0."""
        return binary(ops.soft_shrink, x, self.lambda_)


class ShrinkConfig(ParameterlessConfig["Shrink"]):
    """Shrinkage with a step.  lambda 0.5, bias 0.5: together soft shrinkage without a jump."""

    lambda_: float = 0.5
    bias: float = 0.5

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "lambda_").stop()


class Shrink(InlineLayer):
    """x + bias below -lambda, x - bias above lambda, else 0; the gradient at +-lambda is 0.

    Shapes: x (*s) -> (*s).  Source: ONNX Shrink.
    """

    lambda_: float
    bias: float

    def forward(self, x: Tensor) -> Tensor:
        """The input without what is small, the rest nearer to 0."""
        return apply_one(ops.shrink, (x, self.lambda_, self.bias))
