"""Tensors as pictures in files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.checking import check_functions
from burn_torch.core.errors import ArgumentError, DataError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import require_tensor

__all__ = ["BatchDisplayOpts", "ColorDisplayOpts", "ImageDimOrder", "TensorDisplayOptions", "save_tensor_as_image"]

Color = tuple[float, float, float]


@final
class ImageDimOrder(Enum):
    """The axes of a tensor: n images, c channels, h rows, w columns."""

    Hw = "hw"
    Chw = "chw"
    Hwc = "hwc"
    Nhw = "nhw"
    Nchw = "nchw"
    Nhwc = "nhwc"


@final
class BatchDisplayOpts(Enum):
    """Several images in one picture: one below the other, or their mean."""

    Tiled = "tiled"
    Aggregated = "aggregated"


@final
@dataclass(frozen=True)
class ColorDisplayOpts:
    """The colours of a picture.

    ColorDisplayOpts.Rgb: up to three channels are red, green and blue; those that are missing are black.
    ColorDisplayOpts.Monochrome(min, max): the sum of the channels, between two colours of numbers from 0 to 1.
    """

    min: Color | None = None
    max: Color | None = None

    Rgb: ClassVar[ColorDisplayOpts]

    @staticmethod
    def Monochrome(min: Color, max: Color) -> ColorDisplayOpts:  # noqa: N802, Burn's variant
        """Between the colour of the smallest value and that of the largest."""
        return ColorDisplayOpts(min, max)


ColorDisplayOpts.Rgb = ColorDisplayOpts()


@final
@dataclass(frozen=True)
class TensorDisplayOptions:
    """How a tensor becomes a picture of width_out x height_out pixels; batch_opts only for several images."""

    dim_order: ImageDimOrder
    color_opts: ColorDisplayOpts
    batch_opts: BatchDisplayOpts | None
    width_out: int
    height_out: int

    def __post_init__(self) -> None:
        if min(self.width_out, self.height_out) < 1:
            raise told(
                ArgumentError,
                "a picture has pixels",
                given=f"width_out {self.width_out}, height_out {self.height_out}",
                expected="1 or more",
                mend="the sizes of the tensor show each of its pixels once",
            )


_COLORS: Final = 3


def save_tensor_as_image(tensor: Tensor, opts: TensorDisplayOptions, path: str | Path) -> None:
    """Writes a tensor as a picture, whose smallest value is black and whose largest is white; a constant one is black.

    The name says which kind: .png, .jpg, .bmp, ... .  Folders are made.  Pixels are repeated or left out where the
    sizes differ.

    Shapes: as opts.dim_order says.  Dtypes: any numbers, all finite.
    Raises: ShapeError, ArgumentError; DataError where Pillow is not installed, or knows no such kind of file.
    torchvision: utils.save_image.
    """
    require_tensor(tensor, "tensor")
    pixels = _shares(tensor, opts)
    rows, columns = (
        np.arange(wanted) * size // wanted
        for wanted, size in zip((opts.height_out, opts.width_out), pixels.shape[2:], strict=True)
    )
    pixels = pixels[:, :, rows[:, None], columns]
    if opts.color_opts.min is not None and opts.color_opts.max is not None:
        share = pixels.sum(1)[..., None]
        colored = np.asarray(opts.color_opts.min) * (1.0 - share) + np.asarray(opts.color_opts.max) * share
    else:
        colored = np.zeros((len(pixels), opts.height_out, opts.width_out, _COLORS))
        colored[..., : pixels.shape[1]] = np.moveaxis(pixels, 1, -1)
    picture = colored.mean(0) if opts.batch_opts is BatchDisplayOpts.Aggregated else np.concatenate(colored)
    _write((picture * 255.0).clip(0, 255).astype(np.uint8), Path(path))


def _shares(tensor: Tensor, opts: TensorDisplayOptions) -> NDArray[np.float64]:
    """(images, channels, height, width) from 0 for the smallest value to 1 for the largest."""
    order = opts.dim_order.value
    values: NDArray[np.float64] = tensor.into_data().values.astype(np.float64)
    if values.ndim != len(order) or not values.size:
        raise told(
            ShapeError,
            "the tensor does not have these axes",
            given=f"{tensor.spec}, dim_order {opts.dim_order.name}",
            expected=f"({', '.join(order)}), none of them empty",
            mend="choose another ImageDimOrder",
        )
    if not np.isfinite(values).all():
        raise told(
            DataError,
            "NaN and infinity have no colour",
            given=f"{tensor.spec}",
            expected="finite values",
            mend="tensor.mask_fill(tensor.is_finite().bool_not(), 0.0)",
        )
    for name in "nchw":
        if name not in order:
            values, order = np.expand_dims(values, 0), name + order
    values = values.transpose([order.index(name) for name in "nchw"])
    many, channels = values.shape[:2]
    if (many > 1 and opts.batch_opts is None) or (channels > _COLORS and opts.color_opts.min is None):
        raise told(
            ArgumentError,
            "the options do not say how to show so much",
            given=f"{many} images of {channels} channels, batch_opts {opts.batch_opts}",
            expected="BatchDisplayOpts for several images, Monochrome for more than three channels",
            mend="batch_opts=BatchDisplayOpts.Tiled",
        )
    low, high = float(values.min()), float(values.max())
    return (values - low) / ((high - low) or 1.0)


def _write(picture: NDArray[np.uint8], path: Path) -> None:
    try:
        from PIL import Image  # an optional package
    except ImportError as err:
        raise told(
            DataError,
            "Pillow is not installed, which writes pictures",
            given=str(path),
            expected="the package pillow",
            mend="pip install 'burn-torch[images]'",
        ) from err
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        Image.fromarray(picture).save(path)
    except ValueError as err:
        raise told(
            DataError,
            "there is no such kind of picture",
            given=str(path),
            expected=".png, .jpg, .bmp or another kind that Pillow writes",
            mend="end the name with .png",
        ) from err


check_functions(globals(), "vision")
