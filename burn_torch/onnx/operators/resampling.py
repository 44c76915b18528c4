"""Resize and Upsample: every mode is a matrix for each axis, worked out on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import axis_of, constant, ints, malformed
from burn_torch.onnx.operators.registry import Host, Outputs, operator
from burn_torch.tensor import Tensor

__all__ = ["resize", "resize_10", "upsample", "upsample_7"]

Array = NDArray[Any]


def _positions(mode: str, scale: float, size: int, count: int, roi: tuple[float, float]) -> tuple[Array, Array]:
    """Returns where each of `count` results lies on an axis of `size` elements, and which lie outside (for cropping).

    In float32, as onnxruntime does: which element is nearest to a place between two depends on the rounding.
    """
    one, half = np.float32(1), np.float32(0.5)
    y, factor, last = np.arange(count, dtype=np.float32), np.float32(scale), np.float32(size - 1)
    width = factor * np.float32(size)
    inside = np.zeros(count, np.bool_)
    if mode == "align_corners":
        return (np.zeros(count, np.float32) if width == 1 else y * last / (width - one)), inside
    if mode == "asymmetric":
        return y / factor, inside
    if mode == "tf_crop_and_resize":
        start, end = np.float32(roi[0]), np.float32(roi[1])
        if count > 1:
            x = start * last + y * (end - start) * last / (width - one)
        else:
            x = np.full(count, (start + end) * last / 2)
        return x, (x < 0) | (x > last)
    x = (y + half) / factor - half
    if mode == "pytorch_half_pixel" and count == 1:
        return np.zeros(count, np.float32), inside
    if mode == "half_pixel_symmetric":
        return np.float32(size) / 2 * (one - np.float32(count) / width) + x, inside
    if mode == "tf_half_pixel_for_nn":
        return (y + half) / factor, inside
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return x, inside
    raise malformed(
        "Resize: no such coordinate transformation",
        given=repr(mode),
        expected="align_corners, asymmetric, half_pixel, half_pixel_symmetric, pytorch_half_pixel, tf_crop_and_resize",
    )


def _nearest(x: Array, mode: str, size: int) -> Array:
    low = np.floor(x)
    if mode in ("round_prefer_floor", ""):
        at = low + (x - low > 0.5)
    elif mode == "round_prefer_ceil":
        at = low + (x - low >= 0.5)
    elif mode == "floor":
        at = low
    elif mode == "ceil":
        at = np.ceil(x)
    else:
        raise malformed(
            "Resize: no such nearest mode",
            given=repr(mode),
            expected="round_prefer_floor, round_prefer_ceil, floor, ceil",
        )
    return at.clip(0, size - 1).astype(np.int64)


def _linear(d: Array, a: float) -> Array:
    return np.clip(1 - np.abs(d), 0, 1)


def _cubic(d: Array, a: float) -> Array:
    d = np.abs(d)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _matrix(x: Array, mode: str, size: int, scale: float, a: float, antialias: bool, exclude: bool) -> Array:
    """Weights (results, elements); elements beyond an end are the end, or left out."""
    shrink = min(scale, 1.0) if antialias else 1.0
    radius = (1 if mode == "linear" else 2) / shrink
    reach = int(np.ceil(radius)) + 1
    x = x.astype(np.float64)
    near = np.floor(x).astype(np.int64)[:, None] + np.arange(-reach, reach + 1)
    weights = (_linear if mode == "linear" else _cubic)((near - x[:, None]) * shrink, a)
    if exclude:
        weights = np.where((near >= 0) & (near < size), weights, 0.0)
    if exclude or antialias:
        weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((len(x), size))
    np.add.at(matrix, (np.arange(len(x))[:, None], near.clip(0, size - 1)), weights)
    return matrix


@operator("Resize", 11)
def resize(
    x: Tensor,
    roi: Host | None = None,
    scales: Host | None = None,
    sizes: Host | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Some axes resampled to other sizes: the nearest element, a line between two, or a cubic through four."""
    dims = tuple(range(x.ndim)) if axes is None else tuple(axis_of(axis, x.ndim) for axis in axes)
    if mode not in ("nearest", "linear", "cubic"):
        raise malformed("Resize: no such mode", given=repr(mode), expected="nearest, linear, cubic")
    amounts = sizes if sizes is not None and sizes.size else scales
    if amounts is not None and amounts.size not in (0, len(dims)):
        raise malformed(
            "Resize: the sizes do not fit the axes",
            given=f"{amounts.size} numbers for axes {dims}",
            expected="one for each axis",
        )
    if sizes is not None and sizes.size:
        wanted = list(ints(sizes))
        factors = [count / x.shape[at] for count, at in zip(wanted, dims, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            factor = (min if keep_aspect_ratio_policy == "not_larger" else max)(factors)
            factors = [factor] * len(dims)
            wanted = [int(factor * x.shape[at] + 0.5) for at in dims]
    elif scales is not None and scales.size:
        factors = [float(scale) for scale in scales.reshape(-1)]
        wanted = [int(np.float32(scale) * np.float32(x.shape[at])) for scale, at in zip(factors, dims, strict=True)]
    else:
        raise malformed("Resize: neither scales nor sizes", given="both empty", expected="one of them")
    if min(wanted, default=0) < 0:
        raise malformed("Resize: a size is negative", given=f"sizes {wanted}", expected="0 or more")
    regions = None if roi is None or not roi.size else [float(v) for v in roi.reshape(-1)]
    y, outside = x if x.dtype.is_float else x.cast(DType.F64 if mode != "nearest" else x.dtype), None
    for i, at in enumerate(dims):
        region = (0.0, 1.0) if regions is None else (regions[i], regions[i + len(dims)])
        crop = coordinate_transformation_mode == "tf_crop_and_resize"
        if factors[i] == 1.0 and wanted[i] == x.shape[at] and not (crop and region != (0.0, 1.0)):
            continue
        place, away = _positions(coordinate_transformation_mode, factors[i], x.shape[at], wanted[i], region)
        if mode == "nearest":
            index = _nearest(place, nearest_mode, x.shape[at])
            y = ops.select(y, Tensor.from_data(index, x.device), dim=at)
        else:
            weights = _matrix(
                place, mode, x.shape[at], factors[i], cubic_coeff_a, bool(antialias), bool(exclude_outside)
            )
            y = _apply(y, constant(weights.T.copy(), x.device, y.dtype), at)
        if crop and away.any():
            shape = [1] * x.ndim
            shape[at] = wanted[i]
            outside = away.reshape(shape) if outside is None else outside | away.reshape(shape)
    if outside is not None:
        y = y.mask_fill(constant(np.broadcast_to(outside, y.shape).copy(), x.device, DType.BOOL), extrapolation_value)
    return y if y.dtype is x.dtype else y.round().cast(x.dtype)


def _apply(x: Tensor, weights: Tensor, at: int) -> Tensor:
    last = x.ndim - 1
    y: Tensor = ops.matmul(x if at == last else x.swap_dims(at, last), weights) if x.ndim > 1 else _vector(x, weights)
    return y if at == last else y.swap_dims(at, last)


def _vector(x: Tensor, weights: Tensor) -> Tensor:
    return ops.reshape(ops.matmul(ops.reshape(x, shape=(1, x.shape[0])), weights), shape=(weights.shape[1],))


@operator("Resize", 10, 10)
def resize_10(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    """Resampled by factors; the positions begin at the first element, and between two an axis that shrinks goes on."""
    shrinking = tuple(i for i, factor in enumerate(scales.reshape(-1)) if factor < 1)
    if mode != "nearest" or not shrinking:
        return _asymmetric(x, scales, mode)
    more = np.where(scales < 1, 1, scales).astype(np.float32)
    less = scales.reshape(-1)[list(shrinking)]
    return _asymmetric(_asymmetric(x, more, mode), less, mode, axes=shrinking, nearest_mode="ceil")


@operator("Upsample", 7, 8)
def upsample_7(x: Tensor, *, mode: str = "nearest", scales: tuple[float, ...]) -> Tensor:
    """Resampled by factors; the positions begin at the first element."""
    return _asymmetric(x, np.array(scales, np.float32), mode)


@operator("Upsample", 9, 9)
def upsample(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    """Resampled by factors; the positions begin at the first element."""
    return _asymmetric(x, scales, mode)


def _asymmetric(x: Tensor, scales: Host, mode: str, nearest_mode: str = "floor", **more: Any) -> Outputs:
    mode = "linear" if mode == "bilinear" else mode
    return resize(
        x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode=nearest_mode, **more
    )
