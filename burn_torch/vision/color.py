"""Colours: RGB, grey, HSV.  Functions of images (batch, channels, height, width), as OpenCV defines them."""

from __future__ import annotations

from typing import Final

from burn_torch.core.checking import check_functions
from burn_torch.tensor import Tensor
from burn_torch.vision._images import require_floats, require_images

__all__ = ["gray2rgb", "hsv2rgb", "rgb2gray", "rgb2hsv"]

_LUMA: Final = (0.299, 0.587, 0.114)
"""The weights of red, green and blue of ITU-R BT.601."""


def rgb2gray(images: Tensor) -> Tensor:
    """0.299 red + 0.587 green + 0.114 blue.

    Shapes: images (batch, 3, height, width) -> (batch, 1, height, width).  Dtypes: any float, of any range.
    Raises: ShapeError, DTypeError.  Source: ITU-R BT.601.  OpenCV: cvtColor, COLOR_RGB2GRAY.
    """
    red, green, blue = _split(images)
    return red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2]


def gray2rgb(images: Tensor) -> Tensor:
    """Three equal channels.

    Shapes: images (batch, 1, height, width) -> (batch, 3, height, width).  Dtypes: any.  Raises: ShapeError.
    """
    require_images(images, 1)
    return images.repeat_dim(1, 3)


def rgb2hsv(images: Tensor) -> Tensor:
    """Hue in degrees from 0 to 360, saturation from 0 to 1, and value: the largest of the three channels.

    Hue and saturation are 0 where they are undefined, on grey and on black; no gradient comes from there.

    Shapes: images (batch, 3, height, width) -> the same.  Dtypes: any float, of any range from 0 on.
    Raises: ShapeError, DTypeError.  OpenCV: cvtColor, COLOR_RGB2HSV; skimage.color.rgb2hsv, whose hue ends at 1.
    """
    red, green, blue = _split(images)
    value = images.max_dim(1)
    chroma = value - images.min_dim(1)
    grey, black = chroma.equal(0.0), value.equal(0.0)
    divisor = chroma.mask_fill(grey, 1.0)
    sixths = (red - green) / divisor + 4.0
    sixths = sixths.mask_where(value.equal(green), (blue - red) / divisor + 2.0)
    sixths = sixths.mask_where(value.equal(red), (green - blue) / divisor).mask_fill(grey, 0.0)
    hue = sixths.mask_where(sixths.lower(0.0), sixths + 6.0) * 60.0
    hue = hue.mask_fill(hue.greater_equal(360.0), 0.0)  # a hue just below 0 rounds to 360
    return Tensor.cat([hue, chroma / value.mask_fill(black, 1.0), value], 1)


def hsv2rgb(images: Tensor) -> Tensor:
    """Red, green and blue of a hue in degrees, of any turn, a saturation from 0 to 1, and a value.

        channel = value - value * saturation * clamp(min(k, 4 - k), 0, 1),    k = (n + hue / 60) mod 6, n = 5, 3, 1

    Shapes: images (batch, 3, height, width) -> the same.  Dtypes: any float.
    Raises: ShapeError, DTypeError.  OpenCV: cvtColor, COLOR_HSV2RGB.
    """
    hue, saturation, value = _split(images)
    chroma = value * saturation
    channels = []
    for shift in (5.0, 3.0, 1.0):
        k = (hue / 60.0 + shift).remainder(6.0)
        channels.append(value - chroma * k.min_pair(4.0 - k).clamp(0.0, 1.0))
    return Tensor.cat(channels, 1)


def _split(images: Tensor) -> list[Tensor]:
    """The three channels.  Raises: ShapeError, DTypeError."""
    require_images(images, 3)
    require_floats(images)
    return [images.narrow(1, i, 1) for i in range(3)]


check_functions(globals(), "vision")
