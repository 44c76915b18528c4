"""Augmentation: functions of images and a key, with a draw of its own for each image of a batch.

    images = random_crop(images, (32, 32), key, padding=4)

Equal keys give equal draws, on every leaf and device, eager or compiled; `fold(key, step)` makes a key for each step.
Without a key the numbers come from the step scope, or from `burn_torch.seed`, as those of `nn.Dropout`.  Nothing is
read on the host, so a compiled step may hold all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor import GridSampleOptions, GridSamplePaddingMode, InterpolateMode, PadMode, Tensor
from burn_torch.vision._draws import Draws
from burn_torch.vision._images import require_floats, require_images
from burn_torch.vision.adjusting import adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation

__all__ = [
    "color_jitter",
    "normalize",
    "random_affine",
    "random_crop",
    "random_erasing",
    "random_horizontal_flip",
    "random_resized_crop",
    "random_vertical_flip",
]

Range = tuple[float, float]


# -- crops and flips -------------------------------------------------------------------------------------------
def random_crop(
    images: Tensor,
    size: tuple[int, int],
    key: int | None = None,
    padding: int = 0,
    padding_mode: PadMode | str | float = "constant",
) -> Tensor:
    """A window of (height, width) of each image, after `padding` pixels on each side.

    Shapes: images (batch, channels, height, width) -> (batch, channels, *size).  Dtypes: any.
    Raises: ShapeError.  torchvision: transforms.v2.RandomCrop.
    """
    require_images(images)
    padded = images.pad((padding,) * 4, padding_mode) if padding else images
    free = [have - wanted for have, wanted in zip(padded.shape[2:], size, strict=True)]
    if min(free) < 0 or min(size) < 1:
        raise told(
            ShapeError,
            "the window is larger than the images",
            given=f"size {tuple(size)}, padding {padding}, images {images.spec}",
            expected=f"a height and a width of 1 to {tuple(padded.shape[2:])}",
            mend="pad by more pixels, or crop less",
        )
    draws = Draws(images, "random_crop", key)
    for dim, name, room in ((2, "top", free[0]), (3, "left", free[1])):
        if room:
            padded = _windows(padded, dim, draws.integers(name, room + 1), size[dim - 2])
    return padded


def _windows(x: Tensor, dim: int, first: Tensor, size: int) -> Tensor:
    """`size` elements along an axis from an index of each image on."""
    steps = Tensor.arange(size, (x.device.no_grad(), first.dtype))
    steps = steps.reshape((1, 1, size, 1) if dim == 2 else (1, 1, 1, size))
    shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
    return x.gather(dim, (first + steps).expand(shape))


def random_resized_crop(
    images: Tensor,
    size: tuple[int, int],
    key: int | None = None,
    scale: Range = (0.08, 1.0),
    ratio: Range = (3.0 / 4.0, 4.0 / 3.0),
) -> Tensor:
    """A window of each image of a drawn part of its area and a drawn ratio of width to height, resized.

    A window that would be larger than the image is cut to it.  It is read bilinearly, without a filter before it.

    Shapes: images (batch, channels, height, width) -> (batch, channels, *size).  Dtypes: any float.
    Raises: ShapeError, DTypeError, ArgumentError.  torchvision: transforms.v2.RandomResizedCrop(antialias=False).
    """
    _require(images)
    _require_ranges(scale=scale, ratio=ratio)
    draws = Draws(images, "random_resized_crop", key)
    sides = _sides(images, draws, scale, ratio)
    places = []
    for have, wanted, side, name in zip(images.shape[2:], size, sides, ("top", "left"), strict=True):
        first = (draws.uniform(name, 0.0, 1.0) * (side.neg() + (have + 1.0))).floor()
        steps = Tensor.arange(wanted, images.device.no_grad()).cast(side.dtype).reshape((1, 1, 1, wanted))
        place = first + ((steps + 0.5) * side / wanted - 0.5)
        places.append(place.max_pair(first).min_pair(first + side - 1.0))
    rows, columns = places
    shape = (images.shape[0], 1, *size)
    return _read(images, columns.expand(shape), rows.swap_dims(2, 3).expand(shape), "bilinear", "border")


def _sides(images: Tensor, draws: Draws, scale: Range, ratio: Range) -> tuple[Tensor, Tensor]:
    """Heights and widths, in whole pixels, of windows of a drawn area and a drawn ratio."""
    height, width = images.shape[2:]
    area = draws.uniform("area", *scale) * float(height * width)
    stretch = draws.uniform("ratio", math.log(ratio[0]), math.log(ratio[1])).exp()
    return (
        (area / stretch).sqrt().round().clamp(1.0, float(height)),
        (area * stretch).sqrt().round().clamp(1.0, float(width)),
    )


def random_horizontal_flip(images: Tensor, key: int | None = None, prob: float = 0.5) -> Tensor:
    """Each image mirrored from left to right with a probability.

    Shapes: images (batch, channels, height, width) -> the same.  Dtypes: any.
    Raises: ShapeError, ArgumentError.  torchvision: transforms.v2.RandomHorizontalFlip.
    """
    return _flip(images, 3, Draws(images, "random_horizontal_flip", key), prob)


def random_vertical_flip(images: Tensor, key: int | None = None, prob: float = 0.5) -> Tensor:
    """Each image mirrored from top to bottom with a probability; else as random_horizontal_flip."""
    return _flip(images, 2, Draws(images, "random_vertical_flip", key), prob)


def _flip(images: Tensor, dim: int, draws: Draws, prob: float) -> Tensor:
    require_images(images)
    return images.mask_where(draws.happens("flip", prob).expand(images.shape), images.flip([dim]))


# -- colours ---------------------------------------------------------------------------------------------------
def color_jitter(
    images: Tensor,
    key: int | None = None,
    brightness: float | Range = 0.0,
    contrast: float | Range = 0.0,
    saturation: float | Range = 0.0,
    hue: float | Range = 0.0,
) -> Tensor:
    """Brightness, contrast, saturation and hue of each image changed by drawn factors, in this order.

    A number b draws factors from max(0, 1 - b) to 1 + b, for hue from -b to b; a pair draws from its ends.
    torchvision draws the order too.

    Shapes: images (batch, 3, height, width) -> the same.  Dtypes: any float, from 0 to 1.
    Raises: ShapeError, DTypeError, ArgumentError.  torchvision: transforms.v2.ColorJitter.
    """
    _require(images, 3)
    draws = Draws(images, "color_jitter", key)
    wanted = (
        ("brightness", brightness, adjust_brightness),
        ("contrast", contrast, adjust_contrast),
        ("saturation", saturation, adjust_saturation),
        ("hue", hue, adjust_hue),
    )
    for name, factors, adjust in wanted:
        still = 0.0 if name == "hue" else 1.0
        low, high = _ends(factors, still)
        low = low if name == "hue" or isinstance(factors, tuple | list) else max(low, 0.0)
        if low > high or (name == "hue" and max(-low, high) > 0.5) or (name != "hue" and low < 0.0):
            raise told(
                ArgumentError,
                f"{name} is no range of factors",
                given=f"{name} {factors}",
                expected="-0.5 <= low <= high <= 0.5" if name == "hue" else "0 <= low <= high",
                mend=f"{name}=0.2 draws up to 0.2 to both sides",
            )
        if (low, high) != (still, still):
            images = adjust(images, draws.uniform(name, low, high).cast(images.dtype))
    return images


def normalize(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(images - mean) / std, with numbers for each channel.

    Shapes: images (batch, channels, height, width) -> the same.  Dtypes: any float.
    Raises: ShapeError, DTypeError, ArgumentError.  torchvision: transforms.v2.Normalize.
    """
    _require(images)
    channels = images.shape[1]
    if len(mean) != channels or len(std) != channels or 0.0 in std:
        raise told(
            ArgumentError,
            "mean and std do not fit the channels",
            given=f"mean {tuple(mean)}, std {tuple(std)}, images {images.spec}",
            expected=f"{channels} numbers each, no std of 0",
            mend="ImageNet: mean (0.485, 0.456, 0.406), std (0.229, 0.224, 0.225)",
        )
    options = (images.device.no_grad(), images.dtype)
    centre, spread = (Tensor.from_data(list(values), options).reshape((1, channels, 1, 1)) for values in (mean, std))
    return (images - centre) / spread


# -- affine maps -----------------------------------------------------------------------------------------------
def random_affine(
    images: Tensor,
    key: int | None = None,
    degrees: float | Range = 0.0,
    translate: Range = (0.0, 0.0),
    scale: Range = (1.0, 1.0),
    shear: float | Range = 0.0,
    mode: InterpolateMode | str = InterpolateMode.Bilinear,
) -> Tensor:
    """Each image turned, moved, scaled and sheared along x by drawn amounts about its centre; zeros come in.

    degrees, shear: a number b draws from -b to b degrees.  translate: at most these parts of the width and the height,
    to both sides.  scale: factors, above 1 enlarges.

    Shapes: images (batch, channels, height, width) -> the same.  Dtypes: any float.
    Raises: ShapeError, DTypeError, ArgumentError.  torchvision: transforms.v2.RandomAffine.
    """
    _require(images)
    _require_ranges(scale=scale)
    draws = Draws(images, "random_affine", key)
    height, width = images.shape[2:]
    angle, slant = (draws.uniform(name, *_ends(ends, 0.0)) for name, ends in (("degrees", degrees), ("shear", shear)))
    moved = [
        (draws.uniform(name, -part, part) * size).round()
        for name, part, size in (("x", translate[0], width), ("y", translate[1], height))
    ]
    return warp(images, angle, moved[0], moved[1], draws.uniform("scale", *scale), (slant, slant.zeros_like()), mode)


def warp(
    images: Tensor,
    degrees: Tensor,
    x: Tensor,
    y: Tensor,
    scale: Tensor,
    shear: tuple[Tensor, Tensor],
    mode: InterpolateMode | str,
) -> Tensor:
    """Images turned clockwise, moved in pixels, scaled, sheared in degrees; each number is (batch, 1, 1, 1)."""
    turn, slant_x, slant_y = ((value * (math.pi / 180.0)) for value in (degrees, *shear))
    tan, cos_y = slant_x.sin() / slant_x.cos(), slant_y.cos()
    along, across = (turn - slant_y).cos() / cos_y, (turn - slant_y).sin() / cos_y
    # the inverse of the map, since pixels of the result are read in the image; its determinant is scale squared
    matrix = (
        (turn.cos() - across * tan) / scale,
        (along * tan + turn.sin()) / scale,
        across.neg() / scale,
        along / scale,
    )
    height, width = images.shape[2:]
    device = images.device.no_grad()
    columns = Tensor.arange(width, device).cast(turn.dtype).reshape((1, 1, 1, width)) - (width - 1) / 2 - x
    rows = Tensor.arange(height, device).cast(turn.dtype).reshape((1, 1, height, 1)) - (height - 1) / 2 - y
    return _read(
        images,
        matrix[0] * columns + matrix[1] * rows + (width - 1) / 2,
        matrix[2] * columns + matrix[3] * rows + (height - 1) / 2,
        mode,
        "zeros",
    )


def _read(images: Tensor, columns: Tensor, rows: Tensor, mode: InterpolateMode | str, padding: str) -> Tensor:
    """Pixels at places (batch, 1, height, width), counted from the middle of the first pixel."""
    height, width = images.shape[2:]
    parts = [(columns * 2.0 + 1.0) / width - 1.0, (rows * 2.0 + 1.0) / height - 1.0]
    grid = Tensor.stack(parts, 4).squeeze_dim(1)
    wide = images.cast(grid.dtype)
    options = GridSampleOptions(InterpolateMode.of(mode), GridSamplePaddingMode.of(padding), align_corners=False)
    return wide.grid_sample_2d(grid, options).cast(images.dtype)


# -- erasing ---------------------------------------------------------------------------------------------------
def random_erasing(
    images: Tensor,
    key: int | None = None,
    prob: float = 0.5,
    scale: Range = (0.02, 0.33),
    ratio: Range = (0.3, 3.3),
    value: float = 0.0,
) -> Tensor:
    """One number in a box of each image, with a probability: a box of a drawn part of the area and a drawn ratio.

    Shapes: images (batch, channels, height, width) -> the same.  Dtypes: any.
    Raises: ShapeError, ArgumentError.
    Source: Zhong et al. 2017, https://arxiv.org/abs/1708.04896.  torchvision: transforms.v2.RandomErasing.
    """
    require_images(images)
    _require_ranges(scale=scale, ratio=ratio)
    draws = Draws(images, "random_erasing", key)
    sides = _sides(images, draws, scale, ratio)
    firsts = [
        (draws.uniform(name, 0.0, 1.0) * (side.neg() + (size + 1.0))).floor()
        for name, side, size in zip(("top", "left"), sides, images.shape[2:], strict=True)
    ]
    box = inside(images, firsts, [first + side for first, side in zip(firsts, sides, strict=True)])
    return images.mask_fill(box.bool_and(draws.happens("erase", prob)).expand(images.shape), value)


def inside(images: Tensor, low: Sequence[Tensor], high: Sequence[Tensor]) -> Tensor:
    """The pixels whose row and column are at least `low` and below `high`: (batch, 1, height, width) of bool."""
    device, (height, width) = images.device.no_grad(), images.shape[2:]
    rows = Tensor.arange(height, device).cast(DType.F32).reshape((1, 1, height, 1))
    columns = Tensor.arange(width, device).cast(DType.F32).reshape((1, 1, 1, width))
    parts = [
        place.greater_equal(first.cast(DType.F32)).bool_and(place.lower(last.cast(DType.F32)))
        for place, first, last in zip((rows, columns), low, high, strict=True)
    ]
    return parts[0].bool_and(parts[1])


def _require(images: Tensor, channels: int | None = None) -> None:
    require_images(images, channels)
    require_floats(images)


def _ends(drawn: float | Range, middle: float) -> Range:
    """The ends of a range: itself, or as far as a number says to both sides of the middle."""
    if isinstance(drawn, tuple | list):
        low, high = drawn
        return low, high
    return middle - drawn, middle + drawn


def _require_ranges(**ranges: Range) -> None:
    for name, (low, high) in ranges.items():
        if not 0.0 < low <= high:
            raise told(
                ArgumentError,
                f"{name} is no range",
                given=f"{name} {(low, high)}",
                expected="0 < low <= high",
                mend=f"{name}=(0.5, 1.0), for example",
            )


check_functions(globals(), "vision")
