"""Activation functions: `activation.gelu(x)`.  Defaults are those of Burn's modules."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.distribution import Distribution
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import axis, real, truth
from burn_torch.tensor.apply import apply_one, binary, require_tensor, unary, widen
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "celu",
    "elu",
    "gelu",
    "gelu_approximate",
    "glu",
    "gumbel_softmax",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "hardtanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "prelu",
    "quiet_softmax",
    "relu",
    "relu6",
    "selu",
    "shrink",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "thresholded_relu",
]


# -- rectifiers -------------------------------------------------------------------------------------
def relu(tensor: Tensor) -> Tensor:
    """max(x, 0)."""
    return unary(ops.relu, tensor)


def relu6(tensor: Tensor) -> Tensor:
    """min(max(x, 0), 6)."""
    require_tensor(tensor)
    return tensor.clamp(0.0, 6.0)


def leaky_relu(tensor: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x above 0, negative_slope * x below."""
    return binary(ops.leaky_relu, tensor, real(negative_slope, "negative_slope"))


def prelu(tensor: Tensor, alpha: Tensor) -> Tensor:
    """x above 0, alpha * x below; alpha has one value, or one for each channel (axis 1)."""
    return binary(ops.prelu, tensor, alpha)


def thresholded_relu(tensor: Tensor, alpha: float = 1.0) -> Tensor:
    """x above alpha, else 0."""
    return binary(ops.thresholded_relu, tensor, real(alpha, "alpha"))


def threshold(tensor: Tensor, threshold: float, value: float) -> Tensor:
    """x above the threshold, else the value."""
    return apply_one(ops.threshold, (tensor, real(threshold, "threshold"), real(value, "value")))


def elu(tensor: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha * (exp(x) - 1) below."""
    return binary(ops.elu, tensor, real(alpha, "alpha"))


def celu(tensor: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha * (exp(x / alpha) - 1) below."""
    alpha = real(alpha, "alpha")
    if isinstance(alpha, float) and alpha == 0:
        raise told(ArgumentError, "alpha divides", given="alpha 0", expected="another number", mend="write alpha=1.0")
    return binary(ops.celu, tensor, alpha)


def selu(tensor: Tensor) -> Tensor:
    """elu, scaled so that means and variances stay: 1.0507 * elu(x, 1.6733)."""
    return unary(ops.selu, tensor)


# -- smooth ----------------------------------------------------------------------------------------
def gelu(tensor: Tensor) -> Tensor:
    """x times the probability that a standard normal value is below x."""
    return unary(ops.gelu, tensor)


def gelu_approximate(tensor: Tensor) -> Tensor:
    """gelu by tanh, as the first papers computed it.  PyTorch: gelu(approximate="tanh")."""
    return unary(ops.gelu_approximate, tensor)


def silu(tensor: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return unary(ops.silu, tensor)


def mish(tensor: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return unary(ops.mish, tensor)


def softplus(tensor: Tensor, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta."""
    return binary(ops.softplus, tensor, real(beta, "beta"))


def softsign(tensor: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    require_tensor(tensor)
    return tensor / (tensor.abs() + 1.0)


def tanh(tensor: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return unary(ops.tanh, tensor)


def tanhshrink(tensor: Tensor) -> Tensor:
    """x - tanh(x)."""
    require_tensor(tensor)
    return tensor - tensor.tanh()


# -- gates -------------------------------------------------------------------------------------------
def sigmoid(tensor: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return unary(ops.sigmoid, tensor)


def log_sigmoid(tensor: Tensor) -> Tensor:
    """The logarithm of the sigmoid."""
    return unary(ops.log_sigmoid, tensor)


def hard_sigmoid(tensor: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """alpha * x + beta between 0 and 1.  PyTorch's slope is 1/6."""
    return apply_one(ops.hard_sigmoid, (tensor, real(alpha, "alpha"), real(beta, "beta")))


def hard_swish(tensor: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6."""
    return unary(ops.hard_swish, tensor)


def hardtanh(tensor: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x between two bounds; as in clamp, bounds in the wrong order give the upper one everywhere."""
    require_tensor(tensor)
    return tensor.clamp(real(min_val, "min_val"), real(max_val, "max_val"))


def glu(tensor: Tensor, dim: int = -1) -> Tensor:
    """The first half of an axis times the sigmoid of the second.  Shapes: x (..., 2 n, ...) -> (..., n, ...)."""
    at = axis(tensor, dim)
    size = tensor.shape[at]
    if size % 2:
        raise told(
            ShapeError,
            "the axis does not have two halves",
            given=f"axis {at} of {tensor.spec}",
            expected="an axis of even size",
            mend="make the layer before it twice as wide as its result",
        )
    half = size // 2
    return tensor.narrow(at, 0, half) * sigmoid(tensor.narrow(at, half, half))


# -- shrinking -----------------------------------------------------------------------------------------
def hard_shrink(tensor: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return binary(ops.hard_shrink, tensor, real(lambd, "lambd"))


def soft_shrink(tensor: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved toward 0 by lambd, and 0 where it would pass it; a lambd below 0 moves away from 0, as in Burn."""
    return binary(ops.soft_shrink, tensor, real(lambd, "lambd"))


def shrink(tensor: Tensor, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
    """x + bias below -lambd, x - bias above lambd, else 0.  ONNX: Shrink."""
    return apply_one(ops.shrink, (tensor, real(lambd, "lambd"), real(bias, "bias")))


# -- over an axis ----------------------------------------------------------------------------------------
def softmax(tensor: Tensor, dim: int) -> Tensor:
    """exp(x) over its sum along an axis."""
    return unary(ops.softmax, tensor, axis(tensor, dim))


def softmin(tensor: Tensor, dim: int) -> Tensor:
    """softmax(-x)."""
    require_tensor(tensor)
    return softmax(tensor.neg(), dim)


def log_softmax(tensor: Tensor, dim: int) -> Tensor:
    """The logarithm of softmax."""
    return unary(ops.log_softmax, tensor, axis(tensor, dim))


def quiet_softmax(tensor: Tensor, dim: int) -> Tensor:
    """exp(x) over 1 + its sum along an axis, so that it can choose nothing."""
    return unary(ops.quiet_softmax, tensor, axis(tensor, dim))


def gumbel_softmax(tensor: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """softmax((x + noise) / tau) along an axis, with noise of Gumbel's distribution: a draw that has a gradient.

    `hard` gives 1 for the largest and 0 for the others, with the gradient of the soft draw.  The noise comes from the
    step scope's key, or counts on from `burn_torch.seed`.
    Source: Jang et al. 2016, https://arxiv.org/abs/1611.01144.  PyTorch: torch.nn.functional.gumbel_softmax.
    """
    at, temperature, is_hard = axis(tensor, dim), real(tau, "tau"), truth(hard, "hard")
    if temperature <= 0.0:
        raise told(
            ArgumentError,
            "tau is no temperature",
            given=f"tau {tau}",
            expected="a number above 0",
            mend="tau=1.0 is usual; hard=True gives ones and zeros",
        )
    wide = widen(tensor)
    noise = -(-wide.detach().random_like(Distribution.Default).log()).log()
    soft = softmax((wide + noise) / temperature, at)
    if is_hard:
        largest = soft.detach().argmax(at)
        classes = Tensor.arange(soft.shape[at], soft.device.no_grad()).cast(largest.dtype)
        along = [soft.shape[at] if i == at else 1 for i in range(soft.ndim)]
        soft = largest.equal(classes.reshape(along)).cast(soft.dtype) - soft.detach() + soft
    return soft.cast(tensor.dtype)


word_functions(globals())
