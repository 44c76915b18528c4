"""Normalisation over axes, groups and channels."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import integer
from burn_torch.tensor.apply import apply, apply_one
from burn_torch.tensor.functional._settings import epsilon_of
from burn_torch.tensor.tensor import Tensor

__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]


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


word_functions(globals(), "functional")
