"""Boxes in images: those that stay among overlapping ones, and the pixels inside them at one size."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from burn_torch import ops
from burn_torch.core.checking import check_functions
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import require_tensor
from burn_torch.vision._images import require_floats, require_images

__all__ = ["NmsOptions", "nms", "roi_align"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_MODES: Final = ("avg", "max")


# -- non-maximum suppression -----------------------------------------------------------------------------------
@final
@dataclass(frozen=True)
class NmsOptions:
    """Options of `nms`.

    iou_threshold: a box goes if it shares more than this part of their union with a better one that stays.
    score_threshold: boxes of a lower score go at once.  max_output_boxes: how many stay at most; 0 for all.
    """

    iou_threshold: float = 0.5
    score_threshold: float = 0.0
    max_output_boxes: int = 0

    def __post_init__(self) -> None:
        if self.max_output_boxes < 0:
            raise told(
                ArgumentError,
                "max_output_boxes is negative",
                given=f"max_output_boxes {self.max_output_boxes}",
                expected="0 or more",
                mend="0 keeps all boxes that do not overlap",
            )


def nms(boxes: Tensor, scores: Tensor, options: NmsOptions | None = None) -> Tensor:
    """The indices of the boxes that stay, best first: each overlaps none of the better ones that stay too far.

    A box is (x1, y1, x2, y2), and its area is (x2 - x1) * (y2 - y1); Burn's CPU code counts pixels instead, one more
    on each side.  Of equal scores the first box is better.  A score of NaN is below every threshold.

    Shapes: boxes (n, 4), scores (n,) -> (m,) with m <= n.  Dtypes: any numbers -> i64.  It computes on the host, in
    float64, so it waits for the device and cannot be traced.
    Raises: ShapeError.  torchvision: ops.nms, which has no score_threshold.
    """
    require_tensor(boxes, "boxes")
    require_tensor(scores, "scores")
    if boxes.ndim != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
        raise told(
            ShapeError,
            "the boxes and their scores do not fit",
            given=f"boxes {boxes.spec}, scores {scores.spec}",
            expected="boxes (n, 4) and scores (n,)",
            mend="call nms for each class and each image",
        )
    chosen = options or NmsOptions()
    corners, ranks = _on_host(boxes), _on_host(scores)
    candidates = np.flatnonzero(ranks >= chosen.score_threshold)
    kept = suppress(
        corners[:, :2],
        corners[:, 2:],
        candidates[np.argsort(-ranks[candidates], kind="stable")],
        chosen.iou_threshold,
        chosen.max_output_boxes or len(ranks),
    )
    return Tensor.from_data(kept, boxes.device.no_grad())


def suppress(low: Floats, high: Floats, order: Indices, iou_threshold: float, most: int) -> Indices:
    """The boxes of `order`, best first, that stay, `most` at most; low and high are arrays of their corners."""
    areas = (high - low).prod(1)
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        sides = np.minimum(high[order], high[best]) - np.maximum(low[order], low[best])
        shared = sides.clip(0, None).prod(1)
        order = order[~(shared > iou_threshold * (areas[order] + areas[best] - shared))]
    return np.array(kept, np.int64)


def _on_host(x: Tensor) -> Floats:
    values: Floats = x.into_data().values.astype(np.float64)
    return values


# -- regions at one size ---------------------------------------------------------------------------------------
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = True,
    mode: str = "avg",
) -> Tensor:
    """Regions of images at one size: each bin is the mean, or the largest, of points read between pixels.

    rois are (x1, y1, x2, y2), times spatial_scale in pixels of x; batch_indices name their images.  sampling_ratio:
    points along each side of a bin; 0 takes as many as the region has pixels there.  aligned: pixel centres lie at
    half numbers; without it regions are one pixel wide at least.  mode "max" takes the largest of the weighted corners
    of the points, as ONNX does.

    Shapes: x (batch, channels, height, width), rois (n, 4), batch_indices (n,) -> (n, channels, *output_size).
    Dtypes: x any float; the regions are read on the host and carry no gradient.
    Raises: ShapeError, DTypeError, ArgumentError.
    Source: He et al. 2017, https://arxiv.org/abs/1703.06870.  torchvision: ops.roi_align.
    """
    require_images(x)
    require_floats(x)
    require_tensor(rois, "rois")
    require_tensor(batch_indices, "batch_indices")
    if rois.ndim != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
        raise told(
            ShapeError,
            "the regions do not fit",
            given=f"rois {rois.spec}, batch_indices {batch_indices.spec}",
            expected="rois (n, 4) and batch_indices (n,)",
            mend="torchvision's (n, 5) has the indices in column 0",
        )
    items = _on_host(batch_indices).astype(np.int64)
    if mode not in _MODES or min(*output_size) < 1 or sampling_ratio < 0:
        raise told(
            ArgumentError,
            "the options do not say how bins are read",
            given=f"mode {mode!r}, output_size {tuple(output_size)}, sampling_ratio {sampling_ratio}",
            expected=f"mode one of {', '.join(_MODES)}, an output_size of 1 or more, a sampling_ratio of 0 or more",
            mend="mode='avg' is the usual one",
        )
    if items.size and not 0 <= items.min() <= items.max() < x.shape[0]:
        raise told(
            ArgumentError,
            "a region names an image that is not there",
            given=f"batch_indices from {items.min()} to {items.max()}, x {x.spec}",
            expected=f"0 to {x.shape[0] - 1}",
            mend="count images from 0",
        )
    return align(x, _on_host(rois), items, tuple(output_size), spatial_scale, sampling_ratio, aligned, mode)


def align(
    x: Tensor,
    rois: Floats,
    items: Indices,
    size: tuple[int, ...],
    scale: float,
    sampling_ratio: int,
    aligned: bool,
    mode: str,
) -> Tensor:
    """`roi_align` of regions on the host."""
    channels, *sizes = x.shape[1:]
    device = x.device.no_grad()
    if not len(rois):
        return x.new_full((0, channels, *size), 0.0)
    corners = rois * scale - (0.5 if aligned else 0.0)
    starts = corners[:, 1::-1]  # rows first
    extents = corners[:, 3:1:-1] - starts
    extents = extents if aligned else np.maximum(extents, 1.0)
    bins = np.array(size)
    ratios = np.maximum(np.ceil(extents / bins), 1).astype(np.int64) if not sampling_ratio else None
    ratios = np.full_like(extents, sampling_ratio, np.int64) if ratios is None else ratios
    pixels = x.permute((0, 2, 3, 1)).reshape((x.shape[0] * math.prod(sizes), channels))
    regions, order = [], []
    for ratio in np.unique(ratios, axis=0):  # regions with one number of points are read together
        members = np.flatnonzero((ratios == ratio).all(1))
        rows, columns = (
            _points(starts[members, i], extents[members, i], size[i], int(ratio[i]), sizes[i]) for i in range(2)
        )
        parts = []
        for row, row_weight in rows:
            for column, column_weight in columns:
                places = (items[members, None, None] * sizes[0] + row[:, :, None]) * sizes[1] + column[:, None]
                weights = Tensor.from_data((row_weight[:, :, None] * column_weight[:, None]).reshape(-1, 1), device)
                read = pixels.select(0, Tensor.from_data(places.reshape(-1), device))
                parts.append(read * weights.cast(x.dtype))
        points = functools.reduce(Tensor.add if mode == "avg" else Tensor.max_pair, parts)
        points = points.reshape((len(members), size[0], int(ratio[0]), size[1], int(ratio[1]), channels))
        pooled = points.mean_dims((2, 4)) if mode == "avg" else ops.amax(points, dims=(2, 4))
        regions.append(pooled.reshape((len(members), *size, channels)).permute((0, 3, 1, 2)))
        order.append(members)
    back = np.argsort(np.concatenate(order), kind="stable")
    return Tensor.cat(regions, 0).select(0, Tensor.from_data(back, device))


def _points(start: Floats, extent: Floats, bins: int, ratio: int, limit: int) -> list[tuple[Indices, Floats]]:
    """The two pixels beside each point of an axis, and their weights; points beyond a pixel outside have none."""
    steps = np.arange(bins)[:, None] + (np.arange(ratio) + 0.5) / ratio
    places = start[:, None] + steps.reshape(-1) * (extent[:, None] / bins)
    outside = (places < -1) | (places > limit)
    places = places.clip(0, None)
    low = np.minimum(places.astype(np.int64), limit - 1)
    high = np.minimum(low + 1, limit - 1)
    share: Floats = np.where(low >= limit - 1, 0.0, places - low)
    return [(low, np.where(outside, 0.0, 1 - share)), (high, np.where(outside, 0.0, share))]


check_functions(globals(), "vision")
