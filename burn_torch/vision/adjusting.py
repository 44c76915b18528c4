"""Changes of colours by a factor: one for all images, or one for each image as a tensor (batch, 1, 1, 1).

Images are floats from 0 to 1, and so are the results.
"""

from __future__ import annotations

from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told
from burn_torch.tensor import PadMode, Tensor
from burn_torch.tensor.apply import widen
from burn_torch.vision._images import require_floats, require_images
from burn_torch.vision.color import hsv2rgb, rgb2gray, rgb2hsv
from burn_torch.vision.filters import filter2d

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "autocontrast",
    "equalize",
    "posterize",
    "solarize",
]

_LEVELS = 256


def adjust_brightness(images: Tensor, factor: float | Tensor) -> Tensor:
    """Pixels times a factor, cut at 1.  torchvision: adjust_brightness."""
    _require(images)
    return (images * factor).clamp(0.0, 1.0)


def adjust_contrast(images: Tensor, factor: float | Tensor) -> Tensor:
    """Pixels further from the mean grey of their image, or nearer to it.  torchvision: adjust_contrast."""
    _require(images, 3)
    return _blend(images, rgb2gray(images).mean_dims((1, 2, 3)), factor)


def adjust_saturation(images: Tensor, factor: float | Tensor) -> Tensor:
    """Pixels further from their own grey, or nearer to it: 0 is a grey image.  torchvision: adjust_saturation."""
    _require(images, 3)
    return _blend(images, rgb2gray(images), factor)


def adjust_hue(images: Tensor, turn: float | Tensor) -> Tensor:
    """Hues turned by a part of the circle, from -0.5 to 0.5; of half types in float32.  torchvision: adjust_hue."""
    _require(images, 3)
    hsv = rgb2hsv(widen(images))
    angle = (turn.cast(hsv.dtype) if isinstance(turn, Tensor) else turn) * 360.0
    turned = Tensor.cat([hsv.narrow(1, 0, 1) + angle, hsv.narrow(1, 1, 2)], 1)
    return hsv2rgb(turned).clamp(0.0, 1.0).cast(images.dtype)


def adjust_sharpness(images: Tensor, factor: float | Tensor) -> Tensor:
    """Pixels further from the mean around them, or nearer to it: 0 is a blurred image; the outermost pixels stay.

    torchvision: adjust_sharpness.
    """
    _require(images)
    height, width = images.shape[2:]
    if min(height, width) < 3:
        return images
    device = (images.device.no_grad(), images.dtype)
    kernel = Tensor.from_data([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]], device) / 13.0
    inside = Tensor.full((1, 1, height - 2, width - 2), True, device[0]).pad((1, 1, 1, 1), PadMode.Constant(0.0))
    blurred = images.mask_where(inside.expand(images.shape), filter2d(images, kernel, PadMode.Edge))
    return _blend(images, blurred, factor)


def posterize(images: Tensor, bits: int) -> Tensor:
    """Pixels at 2^bits levels, each rounded down.  torchvision: posterize of floats."""
    _require(images)
    if not 0 <= bits <= 8:
        raise told(
            ArgumentError,
            "this is no number of bits",
            given=f"bits {bits}",
            expected="0 to 8",
            mend="8 bits are those of a byte",
        )
    levels = float(1 << bits)
    return (images * levels).floor().clamp(0.0, levels - 1.0) / levels


def solarize(images: Tensor, threshold: float) -> Tensor:
    """Pixels of the threshold or more become 1 less their value.  torchvision: solarize."""
    _require(images)
    return images.mask_where(images.greater_equal(threshold), 1.0 - images)


def autocontrast(images: Tensor) -> Tensor:
    """Each channel stretched from 0 to 1; one that is constant stays.  torchvision: autocontrast."""
    _require(images)
    low, high = images.min_dim(2).min_dim(3), images.max_dim(2).max_dim(3)
    flat = high.equal(low)
    stretched = (images - low) / (high - low).mask_fill(flat, 1.0)
    return stretched.mask_where(flat.expand(images.shape), images)


def equalize(images: Tensor) -> Tensor:
    """Each channel with about equally many pixels at each of 256 levels; carries no gradient.

    Levels are those of bytes: the nearest 1/255.  torchvision: equalize of bytes.
    """
    _require(images)
    batch, channels, height, width = images.shape
    shape, pixels = (batch * channels, height * width), height * width
    levels = (images.detach() * 255.0).round().clamp(0.0, 255.0).cast(DType.I64).reshape(shape)
    counts = Tensor.zeros((shape[0], _LEVELS), (images.device.no_grad(), DType.I64))
    counts = counts.scatter(1, levels, levels.ones_like())
    below = counts.cumsum(1)
    highest = counts.gather(1, levels.max_dim(1))
    step = (highest.neg() + pixels).div(_LEVELS - 1)
    flat = step.equal(0)
    divisor = step.mask_fill(flat, 1)
    table = (below.narrow(1, 0, _LEVELS - 1) + divisor.div(2)).div(divisor).clamp(0, _LEVELS - 1)
    table = Tensor.cat([step.zeros_like(), table], 1)
    equalized = table.gather(1, levels).mask_where(flat.expand(shape), levels)
    return (equalized.cast(images.dtype) / 255.0).reshape(images.shape)


def _blend(images: Tensor, other: Tensor, factor: float | Tensor) -> Tensor:
    """factor times the images, and 1 - factor times the other ones."""
    return (other + (images - other) * factor).clamp(0.0, 1.0)


def _require(images: Tensor, channels: int | None = None) -> None:
    require_images(images, channels)
    require_floats(images)


check_functions(globals(), "vision")
