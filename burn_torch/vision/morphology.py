"""Erosion and dilation: the smallest, or the largest, pixel under a structuring element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, final

import numpy as np

from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import BOOL, FLOAT
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor import Device, PadMode, Tensor
from burn_torch.tensor.apply import require_tensor

__all__ = [
    "BorderType",
    "KernelShape",
    "MorphOptions",
    "Point",
    "Size",
    "create_structuring_element",
    "dilate",
    "erode",
]


class Point(NamedTuple):
    """A place in a kernel: the column x and the row y."""

    x: int
    y: int


class Size(NamedTuple):
    """The width and the height of a kernel."""

    width: int
    height: int


@final
class KernelShape(Enum):
    """The form of a structuring element."""

    Rect = "rect"
    Cross = "cross"
    Ellipse = "ellipse"


@final
class BorderType(Enum):
    """The pixels beyond the border of an image, here of a row a b c d.

    Constant: MorphOptions.border_value.  Replicate: a a|a b c d|d d.  Reflect: b a|a b c d|d c.
    Reflect101: c b|a b c d|c b.  Wrap: c d|a b c d|a b.
    """

    Constant = "constant"
    Replicate = "replicate"
    Reflect = "reflect"
    Reflect101 = "reflect101"
    Wrap = "wrap"


@final
@dataclass(frozen=True)
class MorphOptions:
    """Options of `erode` and `dilate`.

    anchor: the pixel of the kernel that lies on the result; None is its middle, (width // 2, height // 2).
    iterations: how often it is done.  border_value: of each channel, for BorderType.Constant; None is what changes
    nothing, the largest value for erode and the smallest for dilate.
    """

    anchor: Point | tuple[int, int] | None = None
    iterations: int = 1
    border_type: BorderType = BorderType.Constant
    border_value: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.iterations < 0:
            raise told(
                ArgumentError,
                "iterations is negative",
                given=f"iterations {self.iterations}",
                expected="0 or more",
                mend="dilate is the inverse direction of erode",
            )


def create_structuring_element(
    shape: KernelShape, ksize: Size | tuple[int, int], anchor: Point | tuple[int, int] | None, device: Device
) -> Tensor:
    """A kernel of `erode` and `dilate`: a rectangle, a cross through the anchor, or the ellipse inside ksize.

    ksize is (width, height); anchor (x, y), None for the middle, counts for a cross alone.
    Shapes: -> (height, width).  Dtypes: bool.  Raises: ArgumentError.  OpenCV: getStructuringElement.
    """
    width, height = ksize
    if width < 1 or height < 1:
        raise told(
            ArgumentError,
            "a kernel has pixels",
            given=f"ksize {tuple(ksize)}",
            expected="a width and a height of 1 or more",
            mend="Size(3, 3) is the smallest that does something",
        )
    x, y = _anchor(anchor, width, height)
    kernel = np.ones((height, width), np.bool_)
    if shape is KernelShape.Cross:
        kernel[:] = False
        kernel[y], kernel[:, x] = True, True
    elif shape is KernelShape.Ellipse and (width, height) != (1, 1):
        kernel[:] = False
        radius, half = height // 2, width // 2
        for i in range(min(height, 2 * radius + 1)):
            share = (radius**2 - (i - radius) ** 2) / radius**2 if radius else 0.0
            reach = math.floor(half * math.sqrt(share) + 0.5)
            kernel[i, max(half - reach, 0) : half + reach + 1] = True
    return Tensor.from_data(kernel, device)


def erode(x: Tensor, kernel: Tensor, opts: MorphOptions | None = None) -> Tensor:
    """The smallest pixel of each channel under the kernel.

        y[i, j] = min over true kernel[a, b] of x[i + a - anchor.y, j + b - anchor.x]

    A NaN under the kernel gives NaN.  The gradient goes to the smallest pixel, in equal parts to equal ones of a pair.

    Shapes: x (height, width), (height, width, channels) as Burn's, or (batch, channels, height, width); kernel
    (kernel height, kernel width) -> as x.  Dtypes: x any float, integer or bool; kernel bool, read on the host.
    Raises: ShapeError, DTypeError, ArgumentError.  OpenCV: erode; scipy.ndimage.grey_erosion.
    """
    return _morph(x, kernel, opts, largest=False)


def dilate(x: Tensor, kernel: Tensor, opts: MorphOptions | None = None) -> Tensor:
    """The largest pixel of each channel under the kernel, which is not turned.

        y[i, j] = max over true kernel[a, b] of x[i + a - anchor.y, j + b - anchor.x]

    All else as `erode`.  OpenCV: dilate; scipy.ndimage.grey_dilation with the kernel turned by half a turn.
    """
    return _morph(x, kernel, opts, largest=True)


def _morph(x: Tensor, kernel: Tensor, opts: MorphOptions | None, largest: bool) -> Tensor:
    require_tensor(x)
    require_tensor(kernel, "kernel")
    options = opts or MorphOptions()
    if x.ndim not in (2, 3, 4):
        raise told(
            ShapeError,
            "this is no image",
            given=str(x.spec),
            expected="(height, width), (height, width, channels) or (batch, channels, height, width)",
            mend="reshape it",
        )
    if kernel.ndim != 2 or kernel.dtype not in BOOL:
        raise told(
            ShapeError if kernel.ndim != 2 else DTypeError,
            "this is no structuring element",
            given=f"kernel {kernel.spec}",
            expected="kernel (height, width) of bool",
            mend="create_structuring_element makes one",
        )
    flags = np.asarray(kernel.into_data().values, np.bool_)
    if not flags.any():
        raise told(
            ArgumentError,
            "the kernel has no pixel",
            given=f"kernel {kernel.spec}, all false",
            expected="one true element or more",
            mend="create_structuring_element makes one",
        )
    anchor = _anchor(options.anchor, kernel.shape[1], kernel.shape[0])
    offsets = [(int(row) - anchor.y, int(column) - anchor.x) for row, column in np.argwhere(flags)]
    passes = [offsets]
    if flags.all():  # a rectangle: one axis after the other
        passes = [sorted({(row, 0) for row, _ in offsets}), sorted({(0, column) for _, column in offsets})]
    for _ in range(options.iterations if x.spec.numel else 0):
        for part in passes:
            x = _extreme(x, part, options, largest)
    return x


def _extreme(x: Tensor, offsets: list[tuple[int, int]], options: MorphOptions, largest: bool) -> Tensor:
    """The extreme of the pixels at these offsets (rows, columns) of each pixel."""
    pick: Callable[[Tensor, Tensor], Tensor] = Tensor.max_pair if largest else Tensor.min_pair
    if x.dtype in BOOL:
        pick = Tensor.bool_or if largest else Tensor.bool_and
    first = 2 if x.ndim == 4 else 0
    size = x.shape[first : first + 2]
    starts = []
    for i in range(2):
        low, high = min(offset[i] for offset in offsets), max(offset[i] for offset in offsets)
        before, after = max(-low, 0), max(high, 0)
        x = _extend(x, first + i, before, after, options, largest)
        starts.append([before + offset[i] for offset in offsets])
    parts = [
        x.narrow(first, row, size[0]).narrow(first + 1, column, size[1]) for row, column in zip(*starts, strict=True)
    ]
    return functools.reduce(pick, parts)


def _extend(x: Tensor, dim: int, before: int, after: int, options: MorphOptions, largest: bool) -> Tensor:
    """x with pixels beyond both ends of an axis."""
    size = x.shape[dim]
    if not (before or after):
        return x
    if options.border_type is BorderType.Constant:
        pairs = [(before, after) if i == dim else (0, 0) for i in range(x.ndim)]
        channels, values = 1 if x.ndim == 4 else 2, options.border_value
        if values is None or len(set(values)) == 1:
            return x.pad(pairs, PadMode.Constant(_neutral(x, largest) if values is None else values[0]))
        if x.ndim == 2 or len(values) != x.shape[channels]:
            raise told(
                ShapeError,
                "border_value does not fit the channels",
                given=f"{len(values)} values, x {x.spec}",
                expected="one value for each channel, or one for all",
                mend="border_value=(0.0,) is one for all",
            )
        parts = [x.narrow(channels, i, 1).pad(pairs, PadMode.Constant(value)) for i, value in enumerate(values)]
        return Tensor.cat(parts, channels)
    places = np.arange(-before, size + after)
    if options.border_type is BorderType.Replicate:
        places = places.clip(0, size - 1)
    elif options.border_type is BorderType.Wrap:
        places = places % size
    else:
        last = options.border_type is BorderType.Reflect  # whether the last pixel is repeated
        period = max(2 * size - (0 if last else 2), 1)
        places = places % period
        places = np.where(places < size, places, period - places - (1 if last else 0))
    return x.select(dim, Tensor.from_data(places, x.device.no_grad()))


def _neutral(x: Tensor, largest: bool) -> float:
    """The number that loses against every other one."""
    if x.dtype in FLOAT:
        return -math.inf if largest else math.inf
    if x.dtype in BOOL:
        return int(not largest)
    info = np.iinfo(x.dtype.numpy)
    return int(info.min if largest else info.max)


def _anchor(anchor: tuple[int, int] | None, width: int, height: int) -> Point:
    """The anchor inside a kernel.  Raises: ArgumentError."""
    point = Point(width // 2, height // 2) if anchor is None else Point(*anchor)
    if not (0 <= point.x < width and 0 <= point.y < height):
        raise told(
            ArgumentError,
            "the anchor lies outside the kernel",
            given=f"anchor {tuple(point)}, a kernel of width {width} and height {height}",
            expected="0 <= x < width and 0 <= y < height",
            mend="None is the middle",
        )
    return point


check_functions(globals(), "vision")
