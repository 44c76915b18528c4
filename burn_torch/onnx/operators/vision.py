"""Places in images: GridSample, RoiAlign, DeformConv, NonMaxSuppression."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.onnx.operators.axes import full, reshaped
from burn_torch.onnx.operators.registry import Host, Outputs, operator
from burn_torch.onnx.operators.windows import Dilated
from burn_torch.tensor import Tensor
from burn_torch.vision.boxes import align, suppress

__all__ = ["deform_conv", "grid_sample", "grid_sample_16", "non_max_suppression", "roi_align"]


# -- GridSample -------------------------------------------------------------------------------------------
@operator("GridSample", 20)
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """Reads x at the places of a grid, each coordinate in [-1, 1]."""
    padding = padding_mode
    if x.ndim == 4:
        named = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
        return ops.grid_sample_2d(x, grid, mode=named, padding_mode=padding, align_corners=bool(align_corners))
    if mode not in ("linear", "nearest") or padding not in ("zeros", "border", "reflection"):
        raise OnnxError(
            "GridSample: this is supported for images of two axes only",
            given=f"mode {mode!r}, padding_mode {padding!r}, x {x.shape}",
            expected="linear or nearest; zeros, border or reflection",
            mend="export the model with another mode",
        )
    sizes = x.shape[2:]
    places = []
    for i, size in enumerate(sizes):  # the last coordinate of the grid belongs to the first axis
        p = reshaped(grid.narrow(grid.ndim - 1, len(sizes) - 1 - i, 1), grid.shape[:-1])
        p = (p + 1.0) * ((size - 1) / 2) if align_corners else ((p + 1.0) * size - 1.0) / 2.0
        if padding == "reflection":
            p = _reflect(p, 0.0, size - 1.0) if align_corners else _reflect(p, -0.5, size - 0.5)
        places.append(p if padding == "zeros" else ops.clamp(p, 0.0, float(size - 1)))
    return _read(x, places, mode)


@operator("GridSample", 16, 19)
def grid_sample_16(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Tensor:
    """Reads x at the places of a grid, each coordinate in [-1, 1]."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return grid_sample(x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


def _reflect(p: Tensor, low: float, high: float) -> Tensor:
    """Places that go back and forth between two walls."""
    if high == low:
        return p * 0.0
    width = high - low
    beyond = ops.remainder((p - low).abs(), 2.0 * width)
    return low + ops.minimum(beyond, 2.0 * width - beyond)


def _read(x: Tensor, places: list[Tensor], mode: str = "linear") -> Tensor:
    """x (batch, channels, *spatial) at places (batch, *rest) of each axis, 0 outside -> (batch, channels, *rest)."""
    sizes = x.shape[2:]
    batch, channels = x.shape[:2]
    rest = places[0].shape[1:]
    flat = reshaped(x, (batch, channels, math.prod(sizes)))
    total: Tensor | None = None
    corners = itertools.product((0, 1), repeat=len(sizes)) if mode == "linear" else [(0,) * len(sizes)]
    below = [p.floor() if mode == "linear" else p.round() for p in places]
    for corner in corners:
        index = full(places[0].shape, 0, places[0], DType.I64)
        weight: Tensor | None = None
        inside: Tensor | None = None
        for p, low, size, side in zip(places, below, sizes, corner, strict=True):
            at = (low + float(side)).cast(DType.I64)
            fits = at.greater_equal(0).bool_and(at.lower(size))
            inside = fits if inside is None else inside.bool_and(fits)
            index = index * size + ops.clamp(at, 0, size - 1)
            if mode == "linear":
                part = (p - low) if side else (low + 1.0 - p)
                weight = part if weight is None else weight * part
        assert inside is not None
        picks = reshaped(index, (batch, 1, math.prod(rest)))
        values = ops.gather(flat, ops.expand(picks, shape=(batch, channels, math.prod(rest))), dim=2)
        values = reshaped(values, (batch, channels, *rest))
        hidden = reshaped(inside.bool_not(), (batch, 1, *rest))
        values = values.mask_fill(ops.expand(hidden, shape=values.shape), 0.0)
        if weight is not None:
            values = values * reshaped(weight, (batch, 1, *rest))
        total = values if total is None else total + values
    assert total is not None
    return total


# -- regions -------------------------------------------------------------------------------------------------
@operator("RoiAlign", 10)
def roi_align(
    x: Tensor,
    rois: Host,
    batch_indices: Host,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    version: int,
) -> Tensor:
    """Regions of images at one size: the mean or the largest of points read between pixels."""
    default = "half_pixel" if version >= 16 else "output_half_pixel"
    aligned = (coordinate_transformation_mode or default) == "half_pixel"
    items, size = batch_indices.reshape(-1).astype(np.int64), (output_height, output_width)
    return align(x, np.asarray(rois, np.float64), items, size, spatial_scale, sampling_ratio, aligned, mode)


@operator("NonMaxSuppression", 10)
def non_max_suppression(
    boxes: Host,
    scores: Host,
    max_output_boxes_per_class: Host | None = None,
    iou_threshold: Host | None = None,
    score_threshold: Host | None = None,
    *,
    center_point_box: int = 0,
) -> Outputs:
    """Returns which boxes stay, as (batch, class, box): the best, and those that overlap none of them too far.  On
    the host.
    """

    def first(x: Host | None, default: float) -> float:
        return default if x is None or not x.size else float(x.reshape(-1)[0])

    most, overlap = int(first(max_output_boxes_per_class, 0)), first(iou_threshold, 0.0)
    least = first(score_threshold, -math.inf)
    chosen: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        low, high = _corners(boxes[batch].astype(np.float64), center_point_box)
        for cls in range(scores.shape[1]):
            own = scores[batch, cls]
            order = np.argsort(-own, kind="stable")
            order = order if least == -math.inf else order[own[order] > least]
            chosen += [(batch, cls, int(i)) for i in suppress(low, high, order, overlap, most)]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _corners(boxes: Any, center_point_box: int) -> tuple[Any, Any]:
    if center_point_box:
        centre, size = boxes[:, :2], boxes[:, 2:]
        return centre - size / 2, centre + size / 2
    return np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])


# -- convolution at places that move ---------------------------------------------------------------------------
@operator("DeformConv", 19)
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    offset_group: int = 1,
    how: Dilated,
) -> Tensor:
    """A convolution whose windows read each element at a place of its own."""
    at = how.over(x.shape[2:], w.shape[2:])
    ends = tuple(zip(at.before, at.after, strict=True))
    settings = {"stride": at.stride, "padding": ends, "dilation": at.dilation}
    return ops.deform_conv(x, offset, w, mask, b, **settings, groups=group, offset_groups=offset_group)
