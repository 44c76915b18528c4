"""Maxima and means of windows, and of a given number of parts."""

from __future__ import annotations

from burn_torch import ops
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import truth
from burn_torch.tensor.apply import apply, apply_one
from burn_torch.tensor.functional._settings import Sizes, Step, each_axis, require_spatial
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool2d_backward",
    "avg_pool3d",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_backward",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "max_pool3d",
    "max_pool3d_with_indices",
]


def max_pool1d(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> Tensor:
    """The largest element of each window; stride None is the kernel's size."""
    return max_pool1d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)[0]


def max_pool2d(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> Tensor:
    """The largest element of each window; stride None is the kernel's size."""
    return max_pool2d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)[0]


def max_pool3d(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> Tensor:
    """The largest element of each window; stride None is the kernel's size."""
    return max_pool3d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)[0]


def max_pool1d_with_indices(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """The largest element of each window and where it is."""
    return _max_pool(x, 1, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """The largest element of each window and where it is, as a flat index into height * width."""
    return _max_pool(x, 2, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d_with_indices(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """The largest element of each window and where it is, as a flat index into depth * height * width."""
    return _max_pool(x, 3, kernel_size, stride, padding, dilation, ceil_mode)


def _max_pool(
    x: Tensor, n: int, kernel_size: Sizes, stride: Step, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    require_spatial(x, n)
    attrs = _max_pool_attrs(n, kernel_size, stride, padding, dilation, ceil_mode)
    pooled: tuple[Tensor, Tensor] = apply(ops.max_pool_with_indices, (x,), *attrs)
    return pooled


def _max_pool_attrs(
    n: int, kernel_size: Sizes, stride: Step, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[object, ...]:
    windows = _window_attrs(n, kernel_size, stride, padding)
    return *windows, each_axis("dilation", dilation, n), truth(ceil_mode, "ceil_mode")


def _window_attrs(n: int, kernel_size: Sizes, stride: Step, padding: Sizes) -> tuple[object, ...]:
    kernel = each_axis("kernel_size", kernel_size, n)
    return kernel, kernel if stride is None else each_axis("stride", stride, n), each_axis("padding", padding, n)


def max_pool2d_with_indices_backward(
    x: Tensor,
    kernel_size: Sizes,
    stride: Step,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    output_grad: Tensor,
    indices: Tensor,
) -> Tensor:
    """The gradient of max_pool2d: each element of `output_grad` goes where its index says."""
    attrs = _max_pool_attrs(2, kernel_size, stride, padding, dilation, ceil_mode)
    return apply_one(ops.max_pool_with_indices_backward, (output_grad, indices), x.shape[2:], *attrs)


max_pool2d_backward = max_pool2d_with_indices_backward


def avg_pool1d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; stride None is the kernel's size."""
    return _avg_pool(x, 1, kernel_size, stride, padding, count_include_pad, ceil_mode)


def avg_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; stride None is the kernel's size."""
    return _avg_pool(x, 2, kernel_size, stride, padding, count_include_pad, ceil_mode)


def avg_pool3d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; stride None is the kernel's size."""
    return _avg_pool(x, 3, kernel_size, stride, padding, count_include_pad, ceil_mode)


def _avg_pool(
    x: Tensor, n: int, kernel_size: Sizes, stride: Step, padding: Sizes, count_include_pad: bool, ceil_mode: bool
) -> Tensor:
    require_spatial(x, n)
    attrs = _avg_pool_attrs(n, kernel_size, stride, padding, count_include_pad, ceil_mode)
    return apply_one(ops.avg_pool, (x,), *attrs)


def _avg_pool_attrs(
    n: int, kernel_size: Sizes, stride: Step, padding: Sizes, count_include_pad: bool, ceil_mode: bool
) -> tuple[object, ...]:
    windows = _window_attrs(n, kernel_size, stride, padding)
    return *windows, truth(count_include_pad, "count_include_pad"), truth(ceil_mode, "ceil_mode")


def avg_pool2d_backward(
    x: Tensor,
    grad: Tensor,
    kernel_size: Sizes,
    stride: Step,
    padding: Sizes,
    count_include_pad: bool,
    ceil_mode: bool = False,
) -> Tensor:
    """The gradient of avg_pool2d: each element of `grad` spread over its window."""
    attrs = _avg_pool_attrs(2, kernel_size, stride, padding, count_include_pad, ceil_mode)
    return apply_one(ops.avg_pool_backward, (grad,), x.shape[2:], *attrs)


def adaptive_avg_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """Means of as many parts of the axis as the result has elements."""
    return _adaptive(x, output_size, 1)


def adaptive_avg_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """Means of as many parts of the axes as the result has elements."""
    return _adaptive(x, output_size, 2)


def adaptive_avg_pool3d(x: Tensor, output_size: Sizes) -> Tensor:
    """Means of as many parts of the axes as the result has elements."""
    return _adaptive(x, output_size, 3)


def _adaptive(x: Tensor, output_size: Sizes, n: int) -> Tensor:
    require_spatial(x, n)
    return apply_one(ops.adaptive_avg_pool, (x,), each_axis("output_size", output_size, n))


def adaptive_max_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """Maxima of as many parts of the axis as the result has elements; the first of equal ones has the gradient."""
    return _adaptive_max(x, output_size, 1)


def adaptive_max_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """Maxima of as many parts of the axes as the result has elements; the first of equal ones has the gradient."""
    return _adaptive_max(x, output_size, 2)


def adaptive_max_pool3d(x: Tensor, output_size: Sizes) -> Tensor:
    """Maxima of as many parts of the axes as the result has elements; the first of equal ones has the gradient."""
    return _adaptive_max(x, output_size, 3)


def _adaptive_max(x: Tensor, output_size: Sizes, n: int) -> Tensor:
    require_spatial(x, n)
    for axis, count in enumerate(each_axis("output_size", output_size, n), 2):
        size = x.spec.shape[axis]
        starts = [i * size // count for i in range(count)]
        stops = [-(-(i + 1) * size // count) for i in range(count)]
        longest = max(stop - start for start, stop in zip(starts, stops, strict=True))
        # windows that are shorter than the longest name their last element again
        places = [min(start + k, stop - 1) for start, stop in zip(starts, stops, strict=True) for k in range(longest)]
        parts = x.select(axis, Tensor.from_ints(places, x.device))
        parts = parts.reshape((*x.spec.shape[:axis], count, longest, *x.spec.shape[axis + 1 :]))
        x = parts.max_dim_with_indices(axis + 1)[0].squeeze_dim(axis + 1)
    return x


word_functions(globals(), "functional")
