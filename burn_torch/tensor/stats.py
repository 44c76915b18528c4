"""Statistics along an axis, which stays with size 1; `Tensor` has the most used ones as methods."""

from __future__ import annotations

from collections.abc import Sequence

from burn_torch.tensor._arguments import axis
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "median", "median_with_indices", "quantile", "std", "std_bias", "var", "var_bias", "var_with_mean",
    "var_with_mean_bias", "var_with_mean_n",
]  # fmt: skip


def var(tensor: Tensor, dim: int) -> Tensor:
    """The variance, over n - 1."""
    return tensor.var(dim)


def var_bias(tensor: Tensor, dim: int) -> Tensor:
    """The variance, over n."""
    return tensor.var_bias(dim)


def var_with_mean(tensor: Tensor, mean: Tensor, dim: int) -> Tensor:
    """The mean square distance from a given mean, over n - 1."""
    return var_with_mean_n(tensor, mean, dim, tensor.shape[axis(tensor, dim)] - 1)


def var_with_mean_bias(tensor: Tensor, mean: Tensor, dim: int) -> Tensor:
    """The mean square distance from a given mean, over n."""
    return var_with_mean_n(tensor, mean, dim, tensor.shape[axis(tensor, dim)])


def var_with_mean_n(tensor: Tensor, mean: Tensor, dim: int, n: int) -> Tensor:
    """The sum of the square distances from a given mean, over n; without elements to divide by, NaN or infinity."""
    total = (tensor - mean).square().sum_dim(dim)
    return total / float(n) if n else total / total.zeros_like()


def std(tensor: Tensor, dim: int) -> Tensor:
    """The standard deviation, over n - 1."""
    return tensor.std(dim)


def std_bias(tensor: Tensor, dim: int) -> Tensor:
    """The standard deviation, over n."""
    return tensor.std_bias(dim)


def quantile(tensor: Tensor, q: float | Sequence[float], dim: int, interpolation: str = "linear") -> Tensor:
    """The values below which the parts q lie; see `Tensor.quantile`."""
    return tensor.quantile(q, dim, interpolation)


def median(tensor: Tensor, dim: int) -> Tensor:
    """The median, the lower one of two."""
    return tensor.median(dim)


def median_with_indices(tensor: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The median, the lower one of two, and where it is."""
    return tensor.median_with_indices(dim)
