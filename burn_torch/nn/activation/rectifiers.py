"""Rectifiers: what is above 0 passes, what is below is cut, scaled or bent."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, drawn_like, noting_layer
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply_one, binary, unary

__all__ = [
    "Celu",
    "CeluConfig",
    "Elu",
    "EluConfig",
    "LeakyRelu",
    "LeakyReluConfig",
    "PRelu",
    "PReluConfig",
    "RRelu",
    "RReluConfig",
    "Relu",
    "Relu6",
    "Selu",
    "Threshold",
    "ThresholdConfig",
    "ThresholdedRelu",
    "ThresholdedReluConfig",
]

_relu, _selu, _elu, _celu, _leaky_relu = ops.relu, ops.selu, ops.elu, ops.celu, ops.leaky_relu


# -- cut ----------------------------------------------------------------------------------------------
class Relu(Module):
    """max(x, 0); the gradient at 0 is 0.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.ReLU.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The positive part."""
        return unary(_relu, x)


class Relu6(Module):
    """min(max(x, 0), 6); the gradient passes at both bounds.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.ReLU6, whose gradient at the bounds is 0.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The part between 0 and 6."""
        return x.clamp(0.0, 6.0)


class ThresholdConfig(ParameterlessConfig["Threshold"]):
    """A threshold; neither number has a natural default."""

    threshold: float
    value: float


class Threshold(InlineLayer):
    """x where x > threshold, else value; the gradient at the threshold is 0.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.Threshold.
    """

    threshold: float
    value: float

    def forward(self, x: Tensor) -> Tensor:
        """Returns what exceeds the threshold; the value elsewhere."""
        return apply_one(ops.threshold, (x, self.threshold, self.value))


class ThresholdedReluConfig(ParameterlessConfig["ThresholdedRelu"]):
    """A rectifier with a threshold.  alpha 1: that of ONNX."""

    alpha: float = 1.0


class ThresholdedRelu(InlineLayer):
    """x where x > alpha, else 0; the gradient at alpha is 0.

    Shapes: x (*s) -> (*s).  Source: ONNX ThresholdedRelu.
    """

    alpha: float

    def forward(self, x: Tensor) -> Tensor:
        """Returns what exceeds alpha; 0 elsewhere."""
        return binary(ops.thresholded_relu, x, self.alpha)


# -- scaled ----------------------------------------------------------------------------------------------
class LeakyReluConfig(ParameterlessConfig["LeakyRelu"]):
    """A leaky rectifier.  negative_slope 0.01: just enough that no unit dies, that of its paper."""

    negative_slope: float = 0.01


class LeakyRelu(InlineLayer):
    """x above 0, negative_slope * x elsewhere.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.LeakyReLU.
    Source: Maas, Hannun, Ng 2013, section 2.
    """

    negative_slope: float

    def forward(self, x: Tensor) -> Tensor:
        """The input, flatter below 0."""
        return binary(_leaky_relu, x, self.negative_slope)


class PReluConfig(Config):
    """A rectifier that learns its slope.

    num_parameters 1: one slope for all channels.  alpha 0.25: where the slopes start, as in its paper.
    """

    num_parameters: int = 1
    alpha: float = 0.25

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "num_parameters").stop()

    def init(self, device: Device) -> PRelu:
        """The layer with fresh slopes."""
        return PRelu(Initializer.Constant(self.alpha).init((self.num_parameters,), device), self.alpha)


class PRelu(Module):
    """x above 0, alpha * x elsewhere, with alpha learnt: one for all, or one a channel.

    `alpha_value` is what alpha began with.
    Shapes: x (*s), alpha (1,) -> (*s); or x (batch, channels, *s), alpha (channels,) -> (batch, channels, *s).
    Dtypes: float, both the same.
    PyTorch: torch.nn.PReLU.  Source: He et al. 2015, equation 1, https://arxiv.org/abs/1502.01852.
    """

    alpha: Param
    alpha_value: float

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The input, with another slope below 0."""
        return binary(ops.prelu, x, self.alpha.val())

    def custom_content(self, content: Content) -> Content:
        """The number of slopes and what they began with."""
        return content.add("num_parameters", self.alpha.shape[0]).add("alpha_value", self.alpha_value)


class RReluConfig(ParameterlessConfig["RRelu"]):
    """A rectifier with random slopes.  lower 1/8, upper 1/3: those of the competition entry it is known from."""

    lower: float = 0.125
    upper: float = 1.0 / 3.0

    def __post_init__(self) -> None:
        rules = Rules(self)
        if not self.lower <= self.upper:
            rules.fault("lower", "the range is empty", f"lower <= upper, which is {self.upper}", "swap the two")
        rules.stop()


class RRelu(InlineLayer):
    """x from 0 on, slope * x below; in training each element draws its slope evenly from [lower, upper).

    It trains on a device with gradients.  Elsewhere the slope is the middle, (lower + upper) / 2.
    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.RReLU.
    Source: Xu et al. 2015, section 2.4, https://arxiv.org/abs/1505.00853.
    """

    lower: float
    upper: float

    def forward(self, x: Tensor) -> Tensor:
        """The input, with a random slope below 0 in training."""
        lower, upper = self.lower, self.upper
        if lower == upper or not x.backend.trains:
            return binary(_leaky_relu, x, (lower + upper) / 2)
        return x.mask_where(x.lower(0.0), x * drawn_like(self, ops.uniform, (lower, upper), x))


# -- bent ------------------------------------------------------------------------------------------------
class EluConfig(ParameterlessConfig["Elu"]):
    """An exponential rectifier.  alpha 1: the slope has no jump at 0."""

    alpha: float = 1.0


class Elu(InlineLayer):
    """x above 0, alpha * (exp(x) - 1) elsewhere.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.ELU.
    Source: Clevert, Unterthiner, Hochreiter 2015, equation 16, https://arxiv.org/abs/1511.07289.
    """

    alpha: float

    def forward(self, x: Tensor) -> Tensor:
        """The input, bent toward -alpha below 0."""
        return binary(_elu, x, self.alpha)


class CeluConfig(ParameterlessConfig["Celu"]):
    """An exponential rectifier whose slope never jumps.  alpha 1: the same as Elu there."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        rules = Rules(self)
        if self.alpha == 0:
            rules.fault("alpha", "divides by zero", "a number other than 0", "Relu is its limit")
        rules.stop()


class Celu(InlineLayer):
    """x above 0, alpha * (exp(x / alpha) - 1) elsewhere.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.CELU.
    Source: Barron 2017, equation 2, https://arxiv.org/abs/1704.07483.
    """

    alpha: float

    def forward(self, x: Tensor) -> Tensor:
        """The input, bent toward -alpha below 0."""
        return binary(_celu, x, self.alpha)


class Selu(Module):
    """1.0507 * elu(x, 1.6733): deep stacks keep mean 0 and variance 1.

    Shapes: x (*s) -> (*s).  PyTorch: torch.nn.SELU.
    Source: Klambauer et al. 2017, equation 2, https://arxiv.org/abs/1706.02515.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The scaled exponential rectifier."""
        return unary(_selu, x)
