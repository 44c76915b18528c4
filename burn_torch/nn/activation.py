"""Activations as layers."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.errors import BurnTorchError, ShapeError, explain
from burn_torch.module import Content, Module, Param
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules, drawn_like, in_layer, inline
from burn_torch.nn.linear import Linear, LinearConfig, LinearLayout
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import apply, unary

__all__ = [
    "GLU",
    "Celu",
    "CeluConfig",
    "Elu",
    "EluConfig",
    "Gelu",
    "HardShrink",
    "HardShrinkConfig",
    "HardSigmoid",
    "HardSigmoidConfig",
    "HardSwish",
    "Hardtanh",
    "HardtanhConfig",
    "LeakyRelu",
    "LeakyReluConfig",
    "LogSigmoid",
    "Mish",
    "PRelu",
    "PReluConfig",
    "RRelu",
    "RReluConfig",
    "Relu",
    "Relu6",
    "Selu",
    "Shrink",
    "ShrinkConfig",
    "SiLU",
    "Sigmoid",
    "SoftShrink",
    "SoftShrinkConfig",
    "Softplus",
    "SoftplusConfig",
    "Softsign",
    "SwiGlu",
    "SwiGluConfig",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "ThresholdConfig",
    "ThresholdedRelu",
    "ThresholdedReluConfig",
]


class _Numbered(Module):
    def custom_content(self, content: Content) -> Content:
        """All numbers on one line."""
        return inline(self, content)


class HardSwish(Module):
    """x * clamp(x / 6 + 1/2, 0, 1).  PyTorch: torch.nn.Hardswish."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.hard_swish, x)


class LogSigmoid(Module):
    """log(sigmoid(x)), exact for large negative x.  PyTorch: torch.nn.LogSigmoid."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.log_sigmoid, x)


class Mish(Module):
    """x * tanh(softplus(x)).  PyTorch: torch.nn.Mish."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.mish, x)


class Relu(Module):
    """max(x, 0).  PyTorch: torch.nn.ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.relu, x)


class Selu(Module):
    """Elu with the scale that keeps mean 0 and variance 1.  PyTorch: torch.nn.SELU."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.selu, x)


class SiLU(Module):
    """x * sigmoid(x).  PyTorch: torch.nn.SiLU."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.silu, x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).  PyTorch: torch.nn.Sigmoid."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.sigmoid, x)


class Tanh(Module):
    """The hyperbolic tangent.  PyTorch: torch.nn.Tanh."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.tanh, x)


class CeluConfig(Config):
    """The numbers of Celu; alpha 1 makes it Elu."""

    alpha: float = 1.0

    def init(self, device: Device | None = None) -> Celu:
        """The activation; it has no parameters, so the device does not matter."""
        return Celu(self.alpha)


class Celu(_Numbered):
    """max(x, 0) + min(alpha (exp(x / alpha) - 1), 0).  PyTorch: torch.nn.CELU."""

    alpha: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.celu, (x, self.alpha))  # type: ignore[no-any-return]


class EluConfig(Config):
    """The numbers of Elu; alpha 1 makes the slope continuous at 0."""

    alpha: float = 1.0

    def init(self, device: Device | None = None) -> Elu:
        """The activation; it has no parameters, so the device does not matter."""
        return Elu(self.alpha)


class Elu(_Numbered):
    """x above 0, alpha (exp(x) - 1) below.  PyTorch: torch.nn.ELU."""

    alpha: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.elu, (x, self.alpha))  # type: ignore[no-any-return]


class HardShrinkConfig(Config):
    """The numbers of HardShrink; lambda 0.5 as in PyTorch."""

    lambda_: float = 0.5

    def init(self, device: Device | None = None) -> HardShrink:
        """The activation; it has no parameters, so the device does not matter."""
        return HardShrink(self.lambda_)


class HardShrink(_Numbered):
    """x where |x| > lambda, else 0.  PyTorch: torch.nn.Hardshrink."""

    lambda_: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.hard_shrink, (x, self.lambda_))  # type: ignore[no-any-return]


class HardSigmoidConfig(Config):
    """The numbers of HardSigmoid; alpha 0.2 and beta 0.5 are ONNX's."""

    alpha: float = 0.2
    beta: float = 0.5

    def init(self, device: Device | None = None) -> HardSigmoid:
        """The activation; it has no parameters, so the device does not matter."""
        return HardSigmoid(self.alpha, self.beta)


class HardSigmoid(_Numbered):
    """clamp(alpha x + beta, 0, 1).  PyTorch: torch.nn.Hardsigmoid, whose slope is 1/6."""

    alpha: float
    beta: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.hard_sigmoid, (x, self.alpha, self.beta))  # type: ignore[no-any-return]


class HardtanhConfig(Config):
    """The numbers of Hardtanh; -1 and 1 are the range of tanh."""

    min_val: float = -1.0
    max_val: float = 1.0

    def init(self, device: Device | None = None) -> Hardtanh:
        """The activation; it has no parameters, so the device does not matter."""
        return Hardtanh(self.min_val, self.max_val)


class Hardtanh(_Numbered):
    """clamp(x, min_val, max_val).  PyTorch: torch.nn.Hardtanh."""

    min_val: float
    max_val: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.clamp, (x, self.min_val, self.max_val))  # type: ignore[no-any-return]


class LeakyReluConfig(Config):
    """The numbers of LeakyRelu; negative_slope 0.01: a hundredth still passes."""

    negative_slope: float = 0.01

    def init(self, device: Device | None = None) -> LeakyRelu:
        """The activation; it has no parameters, so the device does not matter."""
        return LeakyRelu(self.negative_slope)


class LeakyRelu(_Numbered):
    """x above 0, negative_slope x below.  PyTorch: torch.nn.LeakyReLU."""

    negative_slope: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.leaky_relu, (x, self.negative_slope))  # type: ignore[no-any-return]


class ShrinkConfig(Config):
    """The numbers of Shrink; equal numbers make it SoftShrink."""

    lambda_: float = 0.5
    bias: float = 0.5

    def init(self, device: Device | None = None) -> Shrink:
        """The activation; it has no parameters, so the device does not matter."""
        return Shrink(self.lambda_, self.bias)


class Shrink(_Numbered):
    """x - bias above lambda, x + bias below -lambda, else 0.  ONNX: Shrink."""

    lambda_: float
    bias: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.shrink, (x, self.lambda_, self.bias))  # type: ignore[no-any-return]


class SoftShrinkConfig(Config):
    """The numbers of SoftShrink; lambda 0.5 as in PyTorch."""

    lambda_: float = 0.5

    def init(self, device: Device | None = None) -> SoftShrink:
        """The activation; it has no parameters, so the device does not matter."""
        return SoftShrink(self.lambda_)


class SoftShrink(_Numbered):
    """x - lambda above lambda, x + lambda below -lambda, else 0.  PyTorch: torch.nn.Softshrink."""

    lambda_: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.soft_shrink, (x, self.lambda_))  # type: ignore[no-any-return]


class SoftplusConfig(Config):
    """The numbers of Softplus; beta 1: the integral of sigmoid."""

    beta: float = 1.0

    def init(self, device: Device | None = None) -> Softplus:
        """The activation; it has no parameters, so the device does not matter."""
        return Softplus(self.beta)


class Softplus(_Numbered):
    """log(1 + exp(beta x)) / beta.  PyTorch: torch.nn.Softplus."""

    beta: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.softplus, (x, self.beta))  # type: ignore[no-any-return]


class ThresholdConfig(Config):
    """The numbers of Threshold."""

    threshold: float
    value: float

    def init(self, device: Device | None = None) -> Threshold:
        """The activation; it has no parameters, so the device does not matter."""
        return Threshold(self.threshold, self.value)


class Threshold(_Numbered):
    """x above `threshold`, else `value`.  PyTorch: torch.nn.Threshold."""

    threshold: float
    value: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.threshold, (x, self.threshold, self.value))  # type: ignore[no-any-return]


class ThresholdedReluConfig(Config):
    """The numbers of ThresholdedRelu; alpha 1 as in ONNX."""

    alpha: float = 1.0

    def init(self, device: Device | None = None) -> ThresholdedRelu:
        """The activation; it has no parameters, so the device does not matter."""
        return ThresholdedRelu(self.alpha)


class ThresholdedRelu(_Numbered):
    """x above alpha, else 0.  ONNX: ThresholdedRelu."""

    alpha: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.thresholded_relu, (x, self.alpha))  # type: ignore[no-any-return]


class Relu6(Module):
    """clamp(x, 0, 6).  PyTorch: torch.nn.ReLU6."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return apply(ops.clamp, (x, 0.0, 6.0))  # type: ignore[no-any-return]


class Softsign(Module):
    """x / (1 + |x|).  PyTorch: torch.nn.Softsign."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return x / (unary(ops.abs, x) + 1.0)


class Tanhshrink(Module):
    """x - tanh(x).  PyTorch: torch.nn.Tanhshrink."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return x - unary(ops.tanh, x)


class Gelu(_Numbered):
    """x times the normal distribution function of x, or its approximation by tanh.

    Source: Hendrycks, Gimpel 2016, https://arxiv.org/abs/1606.08415.  PyTorch: torch.nn.GELU(approximate="tanh").
    """

    approximate: bool = False

    @staticmethod
    def new() -> Gelu:
        """The exact one."""
        return Gelu()

    @staticmethod
    def new_approximate() -> Gelu:
        """The approximation by tanh."""
        return Gelu(approximate=True)

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return unary(ops.gelu_approximate if self.approximate else ops.gelu, x)

    def custom_content(self, content: Content) -> Content:
        """Its name alone, where it is the exact one."""
        return content.add("approximate", True) if self.approximate else content


class GLU(_Numbered):
    """The first half of an axis times the sigmoid of the second.

    Shapes: x (..., 2 n, ...) -> (..., n, ...) on axis `dim`.  PyTorch: torch.nn.GLU.
    """

    dim: int

    @staticmethod
    def new(dim: int) -> GLU:
        """Burn's constructor."""
        return GLU(dim)

    def forward(self, x: Tensor) -> Tensor:
        """The gated half.  Raises: ShapeError for an axis that is absent or has an odd size."""
        dim = self.dim + x.ndim if self.dim < 0 else self.dim
        if not 0 <= dim < x.ndim or x.shape[dim] % 2:
            raise in_layer(
                ShapeError(
                    explain(
                        "GLU: the axis cannot be halved",
                        given=f"x {x.spec}, dim {self.dim}",
                        expected="an axis of even size",
                        mend="double the features before it",
                    )
                ),
                self,
            )
        half = x.shape[dim] // 2
        value, gate = (
            ops.slice(x, ranges=tuple((at, at + half, 1) if i == dim else (0, n, 1) for i, n in enumerate(x.shape)))
            for at in (0, half)
        )
        return value * unary(ops.sigmoid, gate)  # type: ignore[no-any-return]


class PReluConfig(Config):
    """A slope below 0 that is learnt; one for all channels, alpha 0.25 as in the paper."""

    num_parameters: int = 1
    alpha: float = 0.25

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "num_parameters").stop()

    def init(self, device: Device) -> PRelu:
        """The activation with fresh slopes."""
        return PRelu(Initializer.Constant(self.alpha).init((self.num_parameters,), device), self.alpha)


class PRelu(Module):
    """x above 0, alpha x below, with learnt alpha: one, or one a channel.

    Shapes: x (batch, channels, *s) -> the same; alpha (1,) or (channels,).
    Source: He et al. 2015, https://arxiv.org/abs/1502.01852.  PyTorch: torch.nn.PReLU, weight is alpha.
    """

    alpha: Param
    alpha_value: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        try:
            return apply(ops.prelu, (x, self.alpha.val()))  # type: ignore[no-any-return]
        except BurnTorchError as err:
            in_layer(err, self)
            raise

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return content.add("num_parameters", self.alpha.shape[0]).add("alpha_value", self.alpha_value)


class RReluConfig(Config):
    """The range of the random slope: 1/8 to 1/3 as in PyTorch."""

    lower: float = 0.125
    upper: float = 1.0 / 3.0

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            rules = Rules(self)
            rules.fault("lower", f"not below upper {self.upper}", "lower < upper", "LeakyRelu has one slope")
            rules.stop()

    def init(self, device: Device | None = None) -> RRelu:
        """The activation; it has no parameters, so the device does not matter."""
        return RRelu(self.lower, self.upper)


class RRelu(_Numbered):
    """x above 0, a x below, with a drawn from [lower, upper) for each element while training, else their mean.

    It trains on a device with gradients, as Dropout.  PyTorch: torch.nn.RReLU.
    """

    lower: float
    upper: float

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        if not x.backend.is_autodiff:
            return apply(ops.leaky_relu, (x, (self.lower + self.upper) / 2))  # type: ignore[no-any-return]
        slopes = drawn_like(self, ops.uniform, (self.lower, self.upper), x)
        return ops.mask_where(x * slopes, ops.greater(x, 0.0), x)  # type: ignore[no-any-return]


class SwiGluConfig(Config):
    """Two linear layers, one of them gated.

    bias false, as in the papers that use it.  initializer and layout as in LinearConfig.
    """

    d_input: int
    d_output: int
    bias: bool = False
    initializer: Initializer = KAIMING
    layout: LinearLayout = LinearLayout.Row

    def init(self, device: Device) -> SwiGlu:
        """The layer with fresh parameters."""
        linear = LinearConfig(
            self.d_input, self.d_output, bias=self.bias, initializer=self.initializer, layout=self.layout
        )
        return SwiGlu(linear.init(device), linear.init(device))


class SwiGlu(Module):
    """silu(linear_inner(x)) * linear_outer(x).

    Shapes: x (*batch, d_input) -> (*batch, d_output).
    Source: Shazeer 2020, https://arxiv.org/abs/2002.05202.
    """

    linear_inner: Linear
    linear_outer: Linear

    def forward(self, x: Tensor) -> Tensor:
        """The gated map."""
        return unary(ops.silu, self.linear_inner.forward(x)) * self.linear_outer.forward(x)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        d_input, d_output = self.linear_inner.weight.shape
        content.add("d_input", d_input).add("d_output", d_output)
        return content.add("bias", self.linear_inner.bias is not None)
