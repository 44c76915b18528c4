"""Normalisation over axes, groups and channels."""

from __future__ import annotations

import math

from burn_torch import ops
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import integer, real
from burn_torch.tensor.apply import apply, apply_one, require_tensor, widen
from burn_torch.tensor.functional._settings import epsilon_of
from burn_torch.tensor.linalg.norms import vector_normalize
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "normalize",
    "rms_norm",
]


def layer_norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None = None, epsilon: float = 1e-5) -> Tensor:
    """Normalised over the last axis, scaled by gamma, shifted by beta."""
    y: Tensor = apply(ops.layer_norm, (x, gamma, beta, epsilon_of(epsilon)))[0]
    return y


def rms_norm(x: Tensor, gamma: Tensor | None, epsilon: float = 1e-5) -> Tensor:
    """Divided by the root of the mean square over the last axis, scaled by gamma."""
    y: Tensor = apply(ops.rms_norm, (x, gamma, epsilon_of(epsilon)))[0]
    return y


def group_norm(
    x: Tensor, num_groups: int, gamma: Tensor | None, beta: Tensor | None = None, epsilon: float = 1e-5
) -> Tensor:
    """Normalised over groups of channels (axis 1) and all spatial axes, scaled and shifted by channel."""
    y: Tensor = apply(ops.group_norm, (x, gamma, beta, epsilon_of(epsilon)), integer(num_groups, "num_groups"))[0]
    return y


def batch_norm(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, mean: Tensor, variance: Tensor, epsilon: float = 1e-5
) -> Tensor:
    """Normalised by channel (axis 1) with given statistics.  PyTorch: batch_norm(training=False)."""
    return apply_one(ops.batch_norm_inference, (x, gamma, beta, mean, variance, epsilon_of(epsilon)))


def instance_norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None = None, epsilon: float = 1e-5) -> Tensor:
    """Normalised over all spatial axes of each channel of each item, scaled and shifted by channel."""
    require_tensor(x)
    return group_norm(x, x.shape[1] if x.ndim > 1 else 1, gamma, beta, epsilon)


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x over its p-norm along an axis, or over eps where the norm is smaller; see `linalg.vector_normalize`."""
    return vector_normalize(x, p, dim, eps)


def local_response_norm(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta, zeros beyond the first and the last.

    Shapes: x (batch, channels, *s) with a spatial axis or more -> the same.  Dtypes: any float, the same out.
    An even size has one channel more in front.
    PyTorch: torch.nn.functional.local_response_norm.
    """
    count = integer(size, "size")
    if count < 1:
        raise told(
            ArgumentError, "no channels are neighbours", given=f"size {size}", expected="1 or more", mend="write size=5"
        )
    return respond_to(x, count // 2, (count - 1) // 2, real(alpha, "alpha"), real(beta, "beta"), real(k, "k"))


def respond_to(x: Tensor, before: int, after: int, alpha: float, beta: float, k: float) -> Tensor:
    """`local_response_norm` over so many channels before and after each."""
    require_tensor(x)
    if x.ndim < 3:
        raise told(
            ShapeError,
            f"the input has {x.ndim} axes",
            given=f"x {x.spec}",
            expected="(batch, channels, *s) with at least one spatial axis",
            mend="insert an axis with unsqueeze_dim",
        )
    if not x.spec.numel:  # pooling asks for at least one element
        return x
    batch, channels = x.shape[:2]
    wide = widen(x)
    squares = (wide * wide).reshape((batch, 1, channels, math.prod(x.shape[2:])))
    padded = apply_one(ops.pad, (squares, 0.0), ((0, 0), (0, 0), (before, after), (0, 0)), "constant")
    means = apply_one(ops.avg_pool, (padded,), (before + after + 1, 1), (1, 1), (0, 0), True, False)
    return (wide / (means.reshape(x.shape) * alpha + k).powf(beta)).cast(x.dtype)


word_functions(globals(), "functional")
