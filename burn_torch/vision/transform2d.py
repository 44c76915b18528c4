"""Affine transforms of images."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

from burn_torch.tensor import GridSampleOptions, GridSamplePaddingMode, InterpolateMode, Tensor
from burn_torch.tensor.grid import affine_grid_2d
from burn_torch.vision._images import require_floats, require_images

__all__ = ["Transform2D"]

Row = tuple[float, float, float]


@final
@dataclass(frozen=True)
class Transform2D:
    """An affine map of the places of an image: pixel p of the result is read at matrix * (x, y, 1).

    Coordinates run from -1 to 1 over the centres of the outer pixels, x to the right and y down.  The map says where
    pixels come from: a translation to the right shows what is further right, so the picture moves to the left.
    padding_mode: what lies outside, the border unless told otherwise.
    """

    matrix: tuple[Row, Row]
    padding_mode: GridSamplePaddingMode = GridSamplePaddingMode.Border

    @staticmethod
    def identity() -> Transform2D:
        """Every place as it is."""
        return Transform2D(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)))

    @staticmethod
    def rotation(theta: float, cx: float, cy: float) -> Transform2D:
        """A turn by theta, in radians, about (cx, cy)."""
        cos, sin = math.cos(theta), math.sin(theta)
        return _around(cos, -sin, sin, cos, cx, cy)

    @staticmethod
    def scale(sx: float, sy: float, cx: float, cy: float) -> Transform2D:
        """Distances from (cx, cy) times sx and sy; a factor below 1 enlarges the picture."""
        return _around(sx, 0.0, 0.0, sy, cx, cy)

    @staticmethod
    def translation(tx: float, ty: float) -> Transform2D:
        """Every place moved by (tx, ty); 2 is the width, or the height, between the outer pixels."""
        return Transform2D(((1.0, 0.0, tx), (0.0, 1.0, ty)))

    @staticmethod
    def shear(shx: float, shy: float, cx: float, cy: float) -> Transform2D:
        """x plus shx times y, and y plus shy times x, from (cx, cy)."""
        return _around(1.0, shx, shy, 1.0, cx, cy)

    @staticmethod
    def composed(transforms: Iterable[Transform2D]) -> Transform2D:
        """The product of the matrices, the first on the left: places go through the last one first."""
        every = list(transforms)
        last = every[-1].padding_mode if every else GridSamplePaddingMode.Border
        return functools.reduce(_product, every, Transform2D.identity()).with_padding_mode(last)

    def with_padding_mode(self, padding_mode: GridSamplePaddingMode | str) -> Transform2D:
        """The same map with something else outside: GridSamplePaddingMode.Zeros, Border or Reflection."""
        return replace(self, padding_mode=GridSamplePaddingMode.of(padding_mode))

    def transform(self, images: Tensor) -> Tensor:
        """The images, read bilinearly at the places of the map.

        Shapes: images (batch, channels, height, width) -> the same.  Dtypes: any float.
        Raises: ShapeError, DTypeError.  torchvision: transforms.v2.functional.affine, which takes pixels and degrees.
        """
        require_images(images)
        require_floats(images)
        device = images.device.no_grad()
        matrix = Tensor.from_data([list(row) for row in self.matrix], (device, images.dtype))
        grid = affine_grid_2d(matrix.reshape((1, 2, 3)).expand((images.shape[0], 2, 3)), images.shape)
        options = GridSampleOptions(InterpolateMode.Bilinear, self.padding_mode, align_corners=True)
        return images.grid_sample_2d(grid, options)


def _around(a: float, b: float, c: float, d: float, cx: float, cy: float) -> Transform2D:
    """The matrix ((a, b), (c, d)) with (cx, cy) as the place that stays."""
    return Transform2D(((a, b, cx - a * cx - b * cy), (c, d, cy - c * cx - d * cy)))


def _product(left: Transform2D, right: Transform2D) -> Transform2D:
    def row(of: Row) -> Row:
        x, y, one = ((*pair,) for pair in zip(*right.matrix, strict=True))
        return (
            of[0] * x[0] + of[1] * x[1],
            of[0] * y[0] + of[1] * y[1],
            of[0] * one[0] + of[1] * one[1] + of[2],
        )

    return replace(left, matrix=(row(left.matrix[0]), row(left.matrix[1])))
