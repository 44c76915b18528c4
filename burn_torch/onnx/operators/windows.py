"""Convolutions and pooling: Conv, ConvTranspose, MaxPool, AveragePool, LpPool, the Global ones, MaxUnpool, Col2Im."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.onnx.operators.axes import Ints, constant, full, ints, malformed, reshaped
from burn_torch.onnx.operators.registry import Attributes, Host, Outputs, earlier, operator
from burn_torch.tensor import Tensor
from burn_torch.tensor.functional.unpooling import put_back
from burn_torch.tensor.linalg.norms import root_of_sums

__all__ = [
    "average_pool", "average_pool_1", "col2im", "conv", "conv_transpose", "global_average_pool",
    "global_lp_pool", "global_lp_pool_1", "global_max_pool",
    "lp_pool", "lp_pool_1", "max_pool", "max_pool_1", "max_unpool",
]  # fmt: skip


@dataclass(frozen=True)
class Windows:
    """Says where the windows of a convolution or a pool lie on the spatial axes."""

    kernel: Ints
    stride: Ints
    dilation: Ints
    before: Ints
    after: Ints
    counts: Ints

    def needed(self, sizes: Ints) -> Ints:
        """How much padding after each axis makes exactly these windows, without rounding."""
        return tuple(
            (count - 1) * step + (k - 1) * d + 1 - size - before
            for count, step, k, d, size, before in zip(
                self.counts, self.stride, self.kernel, self.dilation, sizes, self.before, strict=True
            )
        )


def windows(
    sizes: Ints,
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> Windows:
    """Works `auto_pad` and `ceil_mode` out.  Raises: OnnxError for what does not fit."""
    n = len(sizes)
    stride, dilation = strides or (1,) * n, dilations or (1,) * n
    chosen = pads if pads is not None and auto_pad == "NOTSET" else (0,) * (2 * n)
    if not len(kernel) == len(stride) == len(dilation) == n or len(chosen) != 2 * n:
        raise OnnxError(
            "the windows do not fit the spatial axes",
            given=f"kernel {kernel}, strides {strides}, dilations {dilations}, pads {pads} for {n} axes",
            expected="one number for each axis, two for pads",
            mend="the input has another number of axes than the model was exported for",
        )
    if min((*stride, *dilation, *kernel), default=1) < 1:
        raise malformed(
            "a window of no size",
            given=f"kernel {kernel}, strides {stride}, dilations {dilation}",
            expected="1 or more",
        )
    before, after, counts = list(chosen[:n]), list(chosen[n:]), []
    for i, size in enumerate(sizes):
        span = (kernel[i] - 1) * dilation[i] + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-size // stride[i])
            total = max((count - 1) * stride[i] + span - size, 0)
            less, more = total // 2, total - total // 2
            before[i], after[i] = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
        elif auto_pad in ("NOTSET", "VALID", ""):
            room = size + before[i] + after[i] - span
            count = room // stride[i] + 1
            if ceil_mode:
                count = -(-room // stride[i]) + 1
                if (count - 1) * stride[i] >= size + before[i]:
                    count -= 1
        else:
            raise malformed("no such auto_pad", given=repr(auto_pad), expected="NOTSET, VALID, SAME_UPPER, SAME_LOWER")
        counts.append(max(count, 0))
    return Windows(kernel, tuple(stride), tuple(dilation), tuple(before), tuple(after), tuple(counts))


# -- attributes -------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Dilated(Attributes):
    """Says where windows lie; `pads` are the amounts before all axes, then those after them."""

    auto_pad = "NOTSET"
    ceil_mode = 0
    dilations: Ints | None = None
    pads: Ints | None = None
    strides: Ints | None = None

    def over(self, sizes: Ints, kernel: Ints) -> Windows:
        """The windows over spatial axes of these sizes."""
        return windows(sizes, kernel, self.strides, self.dilations, self.pads, self.auto_pad, self.ceil_mode)


@dataclass(frozen=True, kw_only=True)
class Convolving(Dilated):
    """Attributes of convolutions; the kernel has the shape of the weights."""

    auto_pad: str = "NOTSET"
    group: int = 1
    kernel_shape: Ints | None = None


@dataclass(frozen=True, kw_only=True)
class Pooling(Dilated):
    """Attributes of pools."""

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    kernel_shape: Ints

    def of(self, x: Tensor) -> Windows:
        """The windows of a tensor."""
        return self.over(x.shape[2:], self.kernel_shape)


_LATER = ("ceil_mode", "dilations")
"""Attributes that the first pools lack."""


# -- convolution ------------------------------------------------------------------------------------------
@operator("Conv")
def conv(x: Tensor, w: Tensor, b: Tensor | None = None, *, how: Convolving) -> Tensor:
    """Convolution over the spatial axes."""
    at = how.over(x.shape[2:], w.shape[2:])
    ends = tuple(zip(at.before, at.after, strict=True))
    return ops.conv(x, w, b, stride=at.stride, padding=ends, dilation=at.dilation, groups=how.group)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    how: Convolving,
) -> Tensor:
    """The transpose of a convolution over the spatial axes."""
    n = x.ndim - 2
    kernel, sizes = w.shape[2:], x.shape[2:]
    stride, dilation = how.strides or (1,) * n, how.dilations or (1,) * n
    extra = output_padding or (0,) * n
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    whole = [s * (size - 1) + e + k for s, size, e, k in zip(stride, sizes, extra, span, strict=True)]
    if output_shape is not None or how.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        target = (
            [size * s for size, s in zip(sizes, stride, strict=True)] if output_shape is None else output_shape[-n:]
        )
        total = [full_size - wanted for full_size, wanted in zip(whole, target, strict=True)]
        less = [max(t, 0) // 2 for t in total]
        more = [max(t, 0) - part for t, part in zip(total, less, strict=True)]
        before, after = (less, more) if how.auto_pad == "SAME_UPPER" else (more, less)
        after = [last + min(t, 0) for last, t in zip(after, total, strict=True)]  # what lacks lies at the end
    else:
        chosen = how.pads or (0,) * (2 * n)
        before, after = list(chosen[:n]), list(chosen[n:])
    plain = before == after and all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True))
    settings: dict[str, Any] = {"stride": tuple(stride), "dilation": tuple(dilation), "groups": how.group}
    if plain and min((*before, 0)) >= 0:
        return ops.conv_transpose(x, w, b, padding=tuple(before), output_padding=tuple(extra), **settings)
    y = ops.conv_transpose(x, w, None, padding=(0,) * n, output_padding=(0,) * n, **settings)
    ends = [(-first, e - last) for first, last, e in zip(before, after, extra, strict=True)]
    y = _fit(y, ends, 0.0)
    return y if b is None else y + reshaped(b, (1, b.shape[0], *(1,) * n))


def _fit(x: Tensor, ends: list[tuple[int, int]], value: float) -> Tensor:
    """x with its spatial axes padded, or cut where an amount is negative."""
    spatial = x.shape[2:]
    keep = [(max(-a, 0), size - max(-b, 0), 1) for (a, b), size in zip(ends, spatial, strict=True)]
    if any(a < 0 or b < 0 for a, b in ends):
        x = ops.slice(x, ranges=((0, x.shape[0], 1), (0, x.shape[1], 1), *keep))
    more = tuple((max(a, 0), max(b, 0)) for a, b in ends)
    if any(a or b for a, b in more):
        x = ops.pad(x, value, padding=((0, 0), (0, 0), *more), mode="constant")
    return x


# -- the largest of each window ----------------------------------------------------------------------------
def _max_pool(x: Tensor, at: Windows) -> tuple[Tensor, Tensor]:
    """Values and flat indices into the spatial axes of x."""
    sizes = x.shape[2:]
    after = at.needed(sizes)
    simple = at.before == at.after and all(2 * b <= k for b, k in zip(at.before, at.kernel, strict=True))
    if simple and all(0 <= (p - q) < s for p, q, s in zip(at.after, after, at.stride, strict=True)):
        return ops.max_pool_with_indices(
            x, kernel=at.kernel, stride=at.stride, padding=at.before, dilation=at.dilation, ceil_mode=False
        )
    padded = _fit(x, list(zip(at.before, after, strict=True)), -math.inf)
    values, flat = ops.max_pool_with_indices(
        padded, kernel=at.kernel, stride=at.stride, padding=(0,) * len(sizes), dilation=at.dilation, ceil_mode=False
    )
    index = full(flat.shape, 0, flat)
    rest = flat
    for i, size in enumerate(sizes):
        inner = math.prod(padded.shape[3 + i :])
        place = rest / inner
        rest = rest - place * inner
        index = index * size + (place - at.before[i])
    return values, index


@operator("MaxPool", 8)
def max_pool(x: Tensor, *, storage_order: int = 0, how: Pooling, outputs: int = 1) -> Outputs:
    """The largest element of each window; as second output where it lies in the whole tensor."""
    at = how.of(x)
    values, index = _max_pool(x if x.dtype.is_float else x.cast(DType.F32), at)
    values = values.cast(x.dtype)
    if outputs == 1:
        return values
    sizes = x.shape[2:]
    if storage_order:  # column major
        index = _column_major(index, sizes)
    planes = np.arange(math.prod(x.shape[:2]), dtype=np.int64) * math.prod(sizes)
    return values, index + constant(planes.reshape(*x.shape[:2], *(1,) * len(sizes)), x.device, DType.I64)


_LARGEST = "The largest element of each window."
max_pool_1 = earlier(max_pool, "max_pool_1", 1, 7, lacks=(*_LATER, "storage_order"), what=_LARGEST)


def _column_major(index: Tensor, sizes: Ints) -> Tensor:
    moved = full(index.shape, 0, index)
    rest, inner = index, math.prod(sizes)
    weight = 1
    for size in sizes:
        inner //= size
        place = rest / inner
        rest = rest - place * inner
        moved = moved + place * weight
        weight *= size
    return moved


@operator("MaxUnpool", 9)
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Host | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """Zeros with each element put back where MaxPool took it from."""
    n = len(kernel_shape)
    stride, chosen = strides or (1,) * n, pads or (0,) * (2 * n)
    inferred = (
        *x.shape[:2],
        *(
            (size - 1) * s - a - b + k
            for size, s, a, b, k in zip(x.shape[2:], stride, chosen[:n], chosen[n:], kernel_shape, strict=True)
        ),
    )
    shape = inferred if output_shape is None else ints(output_shape)
    row = (1, 1, x.num_elements())  # indices are places in the whole tensor
    y = put_back(reshaped(x, row), reshaped(indices, row), (math.prod(inferred),))
    more = [(0, wanted - size) for wanted, size in zip(shape[2:], inferred[2:], strict=True)]
    return _fit(reshaped(y, inferred), more, 0.0)


# -- sums and means of each window ---------------------------------------------------------------------------
def _sums(x: Tensor, at: Windows) -> Tensor:
    """The sum of each window, by a convolution with ones over each channel alone."""
    n = len(at.kernel)
    flat = reshaped(x, (x.shape[0] * x.shape[1], 1, *x.shape[2:]))
    flat = _fit(flat, list(zip(at.before, at.needed(x.shape[2:]), strict=True)), 0.0)
    ones = full((1, 1, *at.kernel), 1.0, x)
    y = ops.conv(flat, ones, None, stride=at.stride, padding=((0, 0),) * n, dilation=at.dilation, groups=1)
    return reshaped(y, (*x.shape[:2], *at.counts))


def _counts(at: Windows, sizes: Ints, include_pad: bool) -> Outputs:
    """How many elements each window counts."""
    total = np.ones(())
    for i, size in enumerate(sizes):
        places = (
            np.arange(at.counts[i])[:, None] * at.stride[i] + np.arange(at.kernel[i]) * at.dilation[i] - at.before[i]
        )
        low, high = (-at.before[i], size + at.after[i]) if include_pad else (0, size)
        total = total[..., None] * ((places >= low) & (places < high)).sum(1)
    return total


def _average_pool(x: Tensor, at: Windows, include_pad: bool) -> Tensor:
    sizes = x.shape[2:]
    plain = (
        at.before == at.after
        and set(at.dilation) == {1}
        and all(2 * b <= k for b, k in zip(at.before, at.kernel, strict=True))
    )
    if plain and all(0 <= p - q < s for p, q, s in zip(at.after, at.needed(sizes), at.stride, strict=True)):
        return ops.avg_pool(
            x, kernel=at.kernel, stride=at.stride, padding=at.before, count_include_pad=include_pad, ceil_mode=False
        )
    return _sums(x, at) / constant(_counts(at, sizes, include_pad), x.device, x.dtype)


@operator("AveragePool", 7)
def average_pool(x: Tensor, *, count_include_pad: int = 0, how: Pooling) -> Tensor:
    """The mean of each window, with or without the padding."""
    return _average_pool(x, how.of(x), bool(count_include_pad))


_UNPADDED = "The mean of each window, without the padding."
average_pool_1 = earlier(average_pool, "average_pool_1", 1, 6, lacks=(*_LATER, "count_include_pad"), what=_UNPADDED)


@operator("LpPool", 2)
def lp_pool(x: Tensor, *, p: float = 2, how: Pooling) -> Tensor:
    """The p-norm of each window."""
    at = how.of(x)
    return root_of_sums(x, float(p), lambda powers: _sums(powers, at))


lp_pool_1 = earlier(lp_pool, "lp_pool_1", 1, 1, lacks=_LATER)


# -- over all places ------------------------------------------------------------------------------------------
@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    """The mean of each channel."""
    return ops.mean(x, dims=tuple(range(2, x.ndim)))


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    """The largest element of each channel."""
    return ops.amax(x, dims=tuple(range(2, x.ndim)))


@operator("GlobalLpPool", 2)
def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    """The p-norm of each channel."""
    return root_of_sums(x, float(p), lambda powers: powers.sum_dims(tuple(range(2, x.ndim))))


global_lp_pool_1 = earlier(global_lp_pool, "global_lp_pool_1", 1, 1)


# -- columns back to an image -------------------------------------------------------------------------------------
@operator("Col2Im", 18)
def col2im(x: Tensor, image_shape: Host, block_shape: Host, *, how: Dilated) -> Tensor:
    """Columns added into the windows of an image of any number of axes."""
    image, block = ints(image_shape), ints(block_shape)
    at = how.over(image, block)
    batch, channels = x.shape[0], x.shape[1] // math.prod(block)
    padded = tuple(b + size + a for b, size, a in zip(at.before, image, at.after, strict=True))
    index: Any = np.zeros((1, 1), np.int64)
    for i, width in enumerate(padded):  # (offsets in the block, places of the window)
        offset = np.arange(block[i]) * at.dilation[i]
        place = np.arange(at.counts[i]) * at.stride[i]
        each = offset[:, None] + place
        index = index[:, None, :, None] * width + each[None, :, None, :]
        index = index.reshape(index.shape[0] * index.shape[1], -1)
    values = reshaped(x, (batch * channels, index.size))
    empty = full((batch * channels, math.prod(padded)), 0.0, x)
    y: Tensor = ops.select_assign(empty, Tensor.from_data(index.reshape(-1), x.device), values, dim=1, update="add")
    y = reshaped(y, (batch, channels, *padded))
    return _fit(y, [(-b, -a) for b, a in zip(at.before, at.after, strict=True)], 0.0)
