"""Norms of windows, maxima of windows at drawn places, and maxima put back where they were."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.core.spec import Shape
from burn_torch.tensor._arguments import real, truth, whole_list
from burn_torch.tensor.apply import apply_one, require_tensor, widen
from burn_torch.tensor.functional._settings import Sizes, Step, each_axis, require_spatial
from burn_torch.tensor.linalg.norms import root_of_sums
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]


# -- norms ---------------------------------------------------------------------------------------------------
def lp_pool1d(x: Tensor, p: float, kernel_size: Sizes, stride: Step = None, ceil_mode: bool = False) -> Tensor:
    """(sum of |x|^p)^(1/p) of each window; stride None is the kernel's size.  A window of zeros has no gradient.

    With ceil_mode a window that reaches past the end counts as if the rest of it were like its part inside.
    PyTorch: torch.nn.functional.lp_pool1d, which takes no absolute value: an odd p gives NaN for negative sums there.
    """
    return _lp_pool(x, 1, p, kernel_size, stride, ceil_mode)


def lp_pool2d(x: Tensor, p: float, kernel_size: Sizes, stride: Step = None, ceil_mode: bool = False) -> Tensor:
    """(sum of |x|^p)^(1/p) of each window; see `lp_pool1d`."""
    return _lp_pool(x, 2, p, kernel_size, stride, ceil_mode)


def lp_pool3d(x: Tensor, p: float, kernel_size: Sizes, stride: Step = None, ceil_mode: bool = False) -> Tensor:
    """(sum of |x|^p)^(1/p) of each window; see `lp_pool1d`."""
    return _lp_pool(x, 3, p, kernel_size, stride, ceil_mode)


def _lp_pool(x: Tensor, n: int, p: float, kernel_size: Sizes, stride: Step, ceil_mode: bool) -> Tensor:
    require_spatial(x, n)
    power = real(p, "p")
    if not 0.0 < power < math.inf:
        raise told(
            ArgumentError,
            "p is the power of no norm of windows",
            given=f"p {p}",
            expected="a finite number above 0",
            mend="max_pool takes the largest, which is p infinite",
        )
    kernel = each_axis("kernel_size", kernel_size, n)
    steps = kernel if stride is None else each_axis("stride", stride, n)
    settings = (kernel, steps, (0,) * n, True, truth(ceil_mode, "ceil_mode"))
    count = float(math.prod(kernel))
    return root_of_sums(
        widen(x).abs(), power, lambda powers: apply_one(ops.avg_pool, (powers,), *settings) * count
    ).cast(x.dtype)


# -- maxima put back -------------------------------------------------------------------------------------------
def max_unpool1d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros with each element of x where its index says: what undoes `max_pool1d_with_indices`.

    The size is that from which the windows come without rounding, or output_size, one stride away at most.  Of equal
    indices one wins; each has the gradient of its place.

    Shapes: x, indices (batch, channels, counts) -> (batch, channels, length).  Dtypes: x any float, indices integers.
    Raises: BoundsError for an index outside of the result, where the data is on the host.
    PyTorch: torch.nn.functional.max_unpool1d.
    """
    return _max_unpool(x, indices, 1, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros with each element of x where its index says; see `max_unpool1d`."""
    return _max_unpool(x, indices, 2, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros with each element of x where its index says; see `max_unpool1d`."""
    return _max_unpool(x, indices, 3, kernel_size, stride, padding, output_size)


def _max_unpool(
    x: Tensor,
    indices: Tensor,
    n: int,
    kernel_size: Sizes,
    stride: Step,
    padding: Sizes,
    output_size: Sequence[int] | None,
) -> Tensor:
    require_spatial(x, n)
    kernel = each_axis("kernel_size", kernel_size, n)
    steps = kernel if stride is None else each_axis("stride", stride, n)
    pads = each_axis("padding", padding, n)
    sizes = tuple(
        [(count - 1) * step - 2 * pad + k for count, step, pad, k in zip(x.shape[2:], steps, pads, kernel, strict=True)]
    )
    if output_size is not None:
        chosen = each_axis("output_size", whole_list(output_size, "output_size")[-n:], n)
        if any(abs(size - usual) >= step for size, usual, step in zip(chosen, sizes, steps, strict=True)):
            raise told(
                ShapeError,
                "windows of this output have other counts",
                given=f"output_size {chosen}, x {x.spec}",
                expected=f"less than a stride, {steps}, away from {sizes}",
                mend="pass the spatial sizes of what was pooled",
            )
        sizes = chosen
    return put_back(x, indices, sizes)


def put_back(x: Tensor, indices: Tensor, sizes: Shape) -> Tensor:
    """Zeros of these spatial sizes with each element of x where its flat index into them says."""
    require_tensor(indices, "indices")
    if indices.shape != x.shape or not indices.dtype.is_int:
        raise told(
            DTypeError if indices.shape == x.shape else ShapeError,
            "the indices do not fit the values",
            given=f"x {x.spec}, indices {indices.spec}",
            expected=f"integers of the shape {x.shape}",
            mend="pass what the pooling with indices gave beside the values",
        )
    planes, count = x.shape[:2], math.prod(x.shape[2:])
    empty = x.new_full((*planes, math.prod(sizes)), 0.0)
    flat = (*planes, count)
    y = apply_one(ops.scatter, (empty, indices.reshape(flat), x.reshape(flat)), 2, "assign")
    return y.reshape((*planes, *sizes))


# -- maxima at drawn places ---------------------------------------------------------------------------------------
def fractional_max_pool2d(x: Tensor, kernel_size: Sizes, output_size: Sizes, samples: Tensor) -> Tensor:
    """The largest element of windows whose steps differ, so that any smaller size comes of any larger one.

        start of window i = floor((i + u) a) - floor(u a) with a = (size - kernel) / (output - 1)

    The last window ends with the axis.  `samples` are the u, from [0, 1): one for each axis of
    each channel, those of the width before those of the height.
    The first of equal elements has the gradient.

    Shapes: x (batch, channels, height, width), samples (batch, channels, 2) -> (batch, channels, *output_size).
    Dtypes: x any float, the same out; samples any float.
    Source: Graham 2014, https://arxiv.org/abs/1412.6071.
    PyTorch: torch.nn.functional.fractional_max_pool2d, which draws the samples itself unless told.
    """
    return _fractional(x, 2, kernel_size, output_size, samples)[0]


def fractional_max_pool2d_with_indices(
    x: Tensor, kernel_size: Sizes, output_size: Sizes, samples: Tensor
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool2d`, and where each element was as a flat index into height * width."""
    return _fractional(x, 2, kernel_size, output_size, samples)


def fractional_max_pool3d(x: Tensor, kernel_size: Sizes, output_size: Sizes, samples: Tensor) -> Tensor:
    """The largest element of windows whose steps differ; see `fractional_max_pool2d`.

    Shapes: x (batch, channels, depth, height, width), samples (batch, channels, 3), those of the depth first.
    """
    return _fractional(x, 3, kernel_size, output_size, samples)[0]


def fractional_max_pool3d_with_indices(
    x: Tensor, kernel_size: Sizes, output_size: Sizes, samples: Tensor
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool3d`, and where each element was as a flat index into depth * height * width."""
    return _fractional(x, 3, kernel_size, output_size, samples)


def _fractional(x: Tensor, n: int, kernel_size: Sizes, output_size: Sizes, samples: Tensor) -> tuple[Tensor, Tensor]:
    require_spatial(x, n)
    require_tensor(samples, "samples")
    kernel, counts = each_axis("kernel_size", kernel_size, n), each_axis("output_size", output_size, n)
    sizes, planes = x.shape[2:], x.shape[:2]
    if samples.shape != (*planes, n) or not samples.dtype.is_float:
        raise told(
            ShapeError,
            "the samples do not fit the channels",
            given=f"samples {samples.spec}, x {x.spec}",
            expected=f"floats of the shape {(*planes, n)}",
            mend="draw them: Tensor.random((batch, channels, axes), Distribution.Default, device)",
        )
    if any(k < 1 or count < 1 or k + count - 1 > size for k, count, size in zip(kernel, counts, sizes, strict=True)):
        raise told(
            ShapeError,
            "the windows do not fit the input",
            given=f"kernel_size {kernel}, output_size {counts}, x {x.spec}",
            expected="1 or more of both, and kernel_size + output_size - 1 no larger than each axis",
            mend="make the output or the kernel smaller",
        )
    places: Tensor | None = None
    for axis, (size, count, k) in enumerate(zip(sizes, counts, kernel, strict=True)):
        drawn = widen(samples.narrow(2, n - 1 - axis if n == 2 else axis, 1))
        along = _starts(drawn, size, count, k).unsqueeze_dim(3) + _steps(k, drawn, DType.I64).reshape((1, 1, 1, k))
        shape = [1] * (2 * n)
        shape[axis], shape[n + axis] = count, k
        along = along.reshape((*planes, *shape))
        places = along if places is None else places * size + along
    assert places is not None
    flat = places.reshape((*planes, math.prod(counts) * math.prod(kernel)))
    windows = (
        x.reshape((*planes, math.prod(sizes))).gather(2, flat).reshape((*planes, math.prod(counts), math.prod(kernel)))
    )
    values, at = windows.max_dim_with_indices(3)
    indices = flat.reshape(windows.shape).gather(3, at)
    return values.reshape((*planes, *counts)), indices.reshape((*planes, *counts))


def _starts(drawn: Tensor, size: int, count: int, kernel: int) -> Tensor:
    """The first place of each window of an axis.  Shapes: drawn (batch, channels, 1) -> (batch, channels, count)."""
    last = drawn.new_full((*drawn.shape[:2], 1), float(size - kernel)).cast(DType.I64)
    if count == 1:
        return last
    step = (size - kernel) / (count - 1)
    steps = _steps(count - 1, drawn, drawn.dtype).reshape((1, 1, count - 1))
    starts = ((steps + drawn) * step).floor().cast(DType.I64) - (drawn * step).floor().cast(DType.I64)
    return Tensor.cat([starts, last], 2)


def _steps(count: int, like: Tensor, dtype: DType) -> Tensor:
    return Tensor.arange(count, (like.device.no_grad(), DType.I64)).cast(dtype)


word_functions(globals(), "functional")
