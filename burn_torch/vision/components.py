"""The connected parts of binary images: their numbers, areas and boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import final

from burn_torch import ops
from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import DType
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import require_tensor, unary

__all__ = [
    "ConnectedStats",
    "ConnectedStatsOptions",
    "Connectivity",
    "connected_components",
    "connected_components_with_stats",
]


@final
class Connectivity(Enum):
    """The neighbours of a pixel: along rows and columns, or along diagonals too."""

    Four = 4
    Eight = 8


@final
@dataclass(frozen=True)
class ConnectedStatsOptions:
    """The figures of the parts that are wanted; the others are None.  Labels are always compact here."""

    bounds_enabled: bool = True
    max_label_enabled: bool = True
    compact_labels: bool = True

    @staticmethod
    def all() -> ConnectedStatsOptions:
        """Every figure."""
        return ConnectedStatsOptions()

    @staticmethod
    def none() -> ConnectedStatsOptions:
        """The areas alone."""
        return ConnectedStatsOptions(False, False, False)


@final
@dataclass(frozen=True)
class ConnectedStats:
    """Figures of the parts by their label; entry 0 is the background, as in OpenCV.

    area: number of pixels.  left, top, right, bottom: the columns and rows of the outermost pixels, both inside; 0
    where a label has no pixel.  max_label: the number of parts.

    Shapes: (*batch, labels + 1), labels the most of any image; max_label (*batch,), (1,) of a single image.
    Dtypes: i64.
    """

    area: Tensor
    left: Tensor | None
    top: Tensor | None
    right: Tensor | None
    bottom: Tensor | None
    max_label: Tensor | None


def connected_components(images: Tensor, connectivity: Connectivity) -> Tensor:
    """The label of each pixel: 1, 2, ... for the connected parts of true pixels, in the order of their first pixels
    along rows; 0 where the image is false.

    Shapes: images (*batch, height, width) -> the same.  Dtypes: bool -> i64.  Raises: ShapeError, DTypeError.
    scipy: ndimage.label, whose structure is all ones for Connectivity.Eight.
    """
    require_tensor(images, "images")
    return unary(ops.connected_components, images, connectivity is Connectivity.Eight)


def connected_components_with_stats(
    images: Tensor, connectivity: Connectivity, options: ConnectedStatsOptions | None = None
) -> tuple[Tensor, ConnectedStats]:
    """`connected_components`, and the area and the box of each part.

    The number of labels is read on the host: this waits for the device, and cannot be traced.
    Shapes, dtypes and errors: as connected_components; see ConnectedStats.  OpenCV: connectedComponentsWithStats.
    """
    labels = connected_components(images, connectivity)
    wanted = options or ConnectedStatsOptions()
    *batch, height, width = labels.shape
    count, pixels = math.prod(batch), height * width
    flat = labels.reshape((count, pixels))
    largest = int(labels.max().item()) if labels.spec.numel else 0
    device = (labels.device.no_grad(), DType.I64)
    shape = (*batch, largest + 1)

    def collect(start: int, values: Tensor, update: str) -> Tensor:
        return Tensor.full((count, largest + 1), start, device).scatter(1, flat, values, update)

    area = collect(0, flat.ones_like(), "add")
    empty = area.equal(0)
    bounds: list[Tensor | None] = [None] * 4
    if wanted.bounds_enabled:
        places = Tensor.arange(pixels, device).reshape((1, pixels)).expand((count, pixels))
        columns, rows = places.remainder(max(width, 1)), places.div(max(width, 1))
        furthest = max(height, width)
        bounds = [
            collect(start, values, update).mask_fill(empty, 0).reshape(shape)
            for values, start, update in (
                (columns, furthest, "min"),
                (rows, furthest, "min"),
                (columns, 0, "max"),
                (rows, 0, "max"),
            )
        ]
    most = None
    if wanted.max_label_enabled:
        most = area.narrow(1, 1, largest).greater(0).cast(DType.I64).sum_dim(1).reshape(tuple(batch) or (1,))
    left, top, right, bottom = bounds
    return labels, ConnectedStats(area.reshape(shape), left, top, right, bottom, most)


check_functions(globals(), "vision")
