"""Operators that rearrange elements: Reshape, Transpose, Concat, Slice, Pad, ..., and what makes tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from burn_torch import ops
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.onnx.operators.axes import (
    ONNX_NAMES,
    Ints,
    axes_of,
    axis_of,
    dtype_of,
    ints,
    malformed,
    misfit,
    reshaped,
    squeezed,
    unsqueezed,
)
from burn_torch.onnx.operators.registry import Host, Outputs, earlier, operator, read
from burn_torch.tensor import Device, Tensor

__all__ = [
    "bfloat16", "bit_cast", "cast",
    "cast_1", "cast_like", "center_crop_pad", "concat", "concat_1", "constant_of_shape", "depth_to_space", "expand",
    "eye_like", "flatten", "pad", "pad_1", "pad_2", "range_of", "reshape", "reshape_1", "shape", "size", "slice_1",
    "slice_of", "space_to_depth", "split", "split_1", "split_2", "squeeze", "squeeze_1", "tile", "transpose", "trilu",
    "unsqueeze", "unsqueeze_1",
]  # fmt: skip


# -- what is known of the shape -------------------------------------------------------------------------------
@operator("Shape")
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Outputs:
    """The sizes of the axes from `start` to below `end`, on the host."""
    return np.array(x.shape[start:end], np.int64)


@operator("Size")
def size(x: Tensor) -> Outputs:
    """The number of elements, on the host."""
    return np.array(x.num_elements(), np.int64)


# -- another shape --------------------------------------------------------------------------------------------
@operator("Reshape", 5)
def reshape(x: Tensor, shape: Host, *, allowzero: int = 0) -> Tensor:
    """The same elements under another shape; -1 is worked out, 0 keeps the size at its place unless `allowzero`."""
    wanted = list(ints(shape))
    if not allowzero:
        wanted = [x.shape[i] if size == 0 and i < x.ndim else size for i, size in enumerate(wanted)]
    if wanted.count(-1) == 1:
        known = math.prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = x.num_elements() // known if known else 0
    if math.prod(wanted) != x.num_elements() or any(size < 0 for size in wanted):
        raise OnnxError(
            "Reshape: the elements do not fit the shape",
            given=f"x {x.shape} for {list(ints(shape))}",
            expected=f"a shape of {x.num_elements()} elements",
            mend="the input has another shape than the model was exported for, or the model is malformed",
        )
    return reshaped(x, tuple(wanted))


@operator("Reshape", 1, 4)
def reshape_1(x: Tensor, *, shape: Ints = (), consumed_inputs: object = None) -> Tensor:
    """The same elements under another shape."""
    return reshape(x, np.array(shape, np.int64))


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """A matrix: the axes before `axis` as rows, the others as columns."""
    at = axis if axis == x.ndim else axis_of(axis, x.ndim)
    return reshaped(x, (math.prod(x.shape[:at]), math.prod(x.shape[at:])))


@operator("Squeeze", 13)
def squeeze(x: Tensor, axes: Host | None = None) -> Tensor:
    """Without the axes named, or without all axes of size 1."""
    gone = axes_of([i for i, size in enumerate(x.shape) if size == 1] if axes is None else ints(axes), x.ndim)
    if any(x.shape[axis] != 1 for axis in gone):
        raise misfit(
            "Squeeze: an axis that is to go has a size other than 1",
            given=f"axes {gone} of {x.shape}",
            expected="axes of size 1",
        )
    return squeezed(x, gone)


squeeze_1 = earlier(squeeze, "squeeze_1", 1, 12, attributes=["axes"])


@operator("Unsqueeze", 13)
def unsqueeze(x: Tensor, axes: Host) -> Tensor:
    """With new axes of size 1 at these places of the result."""
    return unsqueezed(x, ints(axes))


unsqueeze_1 = earlier(unsqueeze, "unsqueeze_1", 1, 12, attributes=["axes"])


@operator("Transpose")
def transpose(x: Tensor, *, perm: Ints | None = None) -> Tensor:
    """The axes in another order; turned round without `perm`."""
    order = tuple(reversed(range(x.ndim))) if perm is None else tuple(axis_of(axis, x.ndim) for axis in perm)
    return ops.permute(x, axes=order)


@operator("Expand", 8)
def expand(x: Tensor, shape: Host) -> Tensor:
    """Broadcast to a shape; sizes of x larger than 1 stay where the shape says 1."""
    wanted = ints(shape)
    try:
        result = np.broadcast_shapes(x.shape, wanted)
    except ValueError:
        raise misfit(
            "Expand: the shapes do not broadcast",
            given=f"x {x.shape} to {wanted}",
            expected="sizes that are equal or 1, from the last axis on",
        ) from None
    return ops.expand(x, shape=tuple(result))


@operator("Tile", 6)
def tile(x: Tensor, repeats: Host) -> Tensor:
    """Copies of the whole tensor side by side along each axis."""
    return ops.repeat(x, times=ints(repeats))


# -- parts ---------------------------------------------------------------------------------------------------
@operator("Concat", 1, 3)
def concat_1(*xs: Tensor, axis: int = 1) -> Tensor:
    """Tensors one after the other along an axis."""
    return concat(*xs, axis=axis)


@operator("Concat", 4)
def concat(*xs: Tensor, axis: int) -> Tensor:
    """Tensors one after the other along an axis."""
    return Tensor.cat(list(xs), axis_of(axis, xs[0].ndim))


@operator("Split", 18)
def split(
    x: Tensor, split: Host | None = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> tuple[Tensor, ...]:
    """Consecutive parts along an axis, of the sizes given or of equal ones, the last one smaller."""
    at, parts = axis_of(axis, x.ndim), num_outputs or outputs
    if split is None:
        each = -(-x.shape[at] // parts)
        sizes = tuple(max(0, min(each, x.shape[at] - i * each)) for i in range(parts))
    else:
        sizes = ints(split)
    if len(sizes) != parts or sum(sizes) != x.shape[at] or any(size < 0 for size in sizes):
        raise misfit(
            "Split: the parts do not make the whole",
            given=f"sizes {sizes} for {parts} outputs of axis {at} of {x.shape}",
            expected=f"one size an output, {x.shape[at]} together",
        )
    return ops.split(x, sizes=sizes, dim=at)


split_1 = earlier(split, "split_1", 1, 12, attributes=["split"], lacks=["num_outputs"])
split_2 = earlier(split, "split_2", 13, 17, lacks=["num_outputs"])


@operator("Slice", 10)
def slice_of(x: Tensor, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None) -> Tensor:
    """The elements in ranges of some axes, every step-th, backwards where the step is negative."""
    firsts, lasts = ints(starts), ints(ends)
    named = range(len(firsts)) if axes is None else ints(axes)
    by = (1,) * len(firsts) if steps is None else ints(steps)
    if not len(firsts) == len(lasts) == len(named) == len(by) or 0 in by:
        raise malformed(
            "Slice: the ranges are malformed",
            given=f"starts {firsts}, ends {lasts}, axes {tuple(named)}, steps {by}",
            expected="as many of each, and no step of 0",
        )
    ranges = [(0, size, 1) for size in x.shape]
    backwards: list[int] = []
    for axis, start, end, step in zip(named, firsts, lasts, by, strict=True):
        at = axis_of(axis, x.ndim)
        if step < 0 and start < -x.shape[at]:  # the standard begins at the first element, where Python has none
            start = -x.shape[at]
        taken = range(*slice(start, end, step).indices(x.shape[at]))
        if step < 0:
            backwards.append(at)
            taken = taken[::-1]
        ranges[at] = (taken[0], taken[-1] + 1, abs(step)) if len(taken) else (0, 0, 1)
    y: Tensor = ops.slice(x, ranges=tuple(ranges))
    return ops.flip(y, axes=tuple(sorted(set(backwards)))) if backwards else y


_RANGES = "The elements in ranges of some axes."
slice_1 = earlier(slice_of, "slice_1", 1, 9, attributes=["starts", "ends", "axes"], lacks=["steps"], what=_RANGES)


# -- more elements ----------------------------------------------------------------------------------------------
@operator("Pad", 1, 1)
def pad_1(x: Tensor, *, paddings: Ints, mode: str = "constant", value: float = 0.0) -> Tensor:
    """Elements added before and after each axis."""
    return _pad(x, paddings, None, value, mode)


@operator("Pad", 2, 10)
def pad_2(x: Tensor, *, pads: Ints, mode: str = "constant", value: float = 0.0) -> Tensor:
    """Elements added before and after each axis."""
    return _pad(x, pads, None, value, mode)


@operator("Pad", 11)
def pad(
    x: Tensor, pads: Host, constant_value: Host | None = None, axes: Host | None = None, *, mode: str = "constant"
) -> Tensor:
    """Elements added before and after some axes: a value, the edge, a mirror image, or from the other end."""
    value = 0.0 if constant_value is None or not constant_value.size else constant_value.reshape(-1)[0].item()
    return _pad(x, ints(pads), None if axes is None else ints(axes), value, mode)


def _pad(x: Tensor, pads: Ints, axes: Ints | None, value: Any, mode: str) -> Tensor:
    axes = tuple(range(x.ndim)) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise malformed(
            "Pad: not as many amounts as axes",
            given=f"pads {pads} for axes {axes}",
            expected="one before and one after each axis",
        )
    amounts = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        amounts[axis_of(axis, x.ndim)] = (pads[i], pads[i + len(axes)])
    cut = tuple((max(-before, 0), n - max(-after, 0), 1) for (before, after), n in zip(amounts, x.shape, strict=True))
    if any(before < 0 or after < 0 for before, after in amounts):
        x = ops.slice(x, ranges=cut)
    padding = tuple((max(before, 0), max(after, 0)) for before, after in amounts)
    if mode == "constant":
        if x.dtype.is_int or x.dtype.is_bool:
            value = bool(value) if x.dtype.is_bool else int(value)
        return ops.pad(x, value, padding=padding, mode="constant")
    return _place(x, padding, mode)


def _place(x: Tensor, padding: tuple[tuple[int, int], ...], mode: str) -> Tensor:
    """Padding whose elements come from x: each axis is read at places worked out on the host."""
    for axis, (before, after) in enumerate(padding):
        n = x.shape[axis]
        if not before and not after:
            continue
        at = np.arange(-before, n + after)
        if mode == "edge":
            at = at.clip(0, n - 1)
        elif mode == "wrap":
            at %= max(n, 1)
        elif mode == "reflect":
            at = np.zeros_like(at) if n == 1 else np.abs((at + n - 1) % (2 * n - 2) - (n - 1))
        else:
            raise malformed("Pad: no such mode", given=repr(mode), expected="constant, reflect, edge or wrap")
        x = ops.select(x, Tensor.from_data(at.astype(np.int64), x.device), dim=axis)
    return x


@operator("CenterCropPad", 18)
def center_crop_pad(x: Tensor, shape: Host, *, axes: Ints | None = None) -> Tensor:
    """x cropped and padded with zeros around its centre to a shape."""
    wanted = ints(shape)
    pads: dict[int, tuple[int, int]] = {}
    for axis, size in zip(range(x.ndim) if axes is None else axes, wanted, strict=True):
        at = axis_of(axis, x.ndim)
        more = size - x.shape[at]
        before = more // 2 if more > 0 else -(-more // 2)
        pads[at] = (before, more - before)
    order = sorted(pads)
    return _pad(x, (*[pads[at][0] for at in order], *[pads[at][1] for at in order]), tuple(order), 0, "constant")


# -- blocks -------------------------------------------------------------------------------------------------------
@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels made into blocks of pixels: depth first (DCR) or column and row first (CRD)."""
    n, c, h, w = x.shape
    b = blocksize
    deep = c // (b * b)
    parts, order = ((b, b, deep), (0, 3, 4, 1, 5, 2)) if mode == "DCR" else ((deep, b, b), (0, 1, 4, 2, 5, 3))
    return reshaped(ops.permute(reshaped(x, (n, *parts, h, w)), axes=order), (n, deep, h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of pixels made into channels."""
    n, c, h, w = x.shape
    b = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = ops.permute(reshaped(x, (n, c, h // b, b, w // b, b)), axes=order)
    return reshaped(y, (n, c * b * b, h // b, w // b))


@operator("Trilu", 14)
def trilu(x: Tensor, k: Host | None = None, *, upper: int = 1) -> Tensor:
    """The upper or the lower triangle of the last two axes, zero elsewhere."""
    diagonal = 0 if k is None else int(k.reshape(-1)[0])
    return ops.triu(x, diagonal=diagonal) if upper else ops.tril(x, diagonal=diagonal)


# -- element types ---------------------------------------------------------------------------------------------------
@operator("Cast", 1, 5)
def cast_1(x: Tensor, *, to: str) -> Tensor:
    """The same values in the element type of this name."""
    return x.cast(dtype_of(next((number for number, name in ONNX_NAMES.items() if name == to), 0)))


@operator("Cast", 6)
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """The same values in another element type: to integers toward zero, to bool "is not zero"."""
    return x.cast(dtype_of(to))


@operator("CastLike", 15)
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """The same values in the element type of another tensor."""
    return x.cast(like.dtype)


@operator("BitCast", 26)
def bit_cast(x: Tensor, *, to: int) -> Outputs:
    """The same bits read as another element type of the same width; read on the host."""
    dtype = dtype_of(to)
    if dtype.itemsize != x.dtype.itemsize:
        raise OnnxError(
            "BitCast: these element types cannot be exchanged here",
            given=f"{x.dtype} as {dtype}",
            expected="two types of one width",
            mend="leave the node out, or cast",
        )
    bits = np.ascontiguousarray(x.into_data().array).reshape(-1).view(dtype.numpy).reshape(x.shape)
    return Tensor.from_data(TensorData(bits, dtype), x.device)


# -- made of numbers --------------------------------------------------------------------------------------------------
@operator("ConstantOfShape", 9)
def constant_of_shape(shape: Tensor, *, value: object = None, place: Device | None = None) -> Outputs:
    """One value everywhere, known on the host like its shape unless a place is given."""
    sizes = ints(read(shape))
    device = shape.device if place is None else place
    if isinstance(value, TensorData):  # bfloat16
        return Tensor.full(sizes, float(value.values.reshape(-1)[0]), (device, value.dtype))
    one = np.zeros((1,), np.float32) if value is None else np.asarray(value)
    return Tensor.full(sizes, one.reshape(-1)[0].item(), (device, DType.from_numpy(one.dtype)))


@operator("Range", 11)
def range_of(
    start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1, place: Device | None = None
) -> Outputs:
    """start, start + delta, ... below limit, each rounded once from double; reads its inputs on the host."""
    first, last, step = (read(x).reshape(-1)[0].item() for x in (start, limit, delta))
    if not step:
        raise malformed("Range: the step is 0", given="delta 0", expected="another step")
    whole = isinstance(first, int)
    length = max(-((first - last) // step) if whole else math.ceil((last - first) / step), 0)
    device = start.device if place is None else place
    dtype = start.dtype if isinstance(start, Tensor) else DType.from_numpy(np.asarray(start).dtype)
    attrs = {"length": length, "dtype": dtype, "place": device.place}
    return ops.arange.run(device.backend, Tensor, (first, step), attrs)


@operator("EyeLike", 9)
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """1 on a diagonal, 0 elsewhere, in the shape of x."""
    rows, columns = x.shape
    ones = np.eye(rows, columns, k, dtype=np.bool_)
    return Tensor.from_data(ones, x.device).cast(x.dtype if dtype is None else dtype_of(dtype))


def bfloat16(values: object) -> TensorData:
    """Values that are known on the host as bfloat16, which numpy lacks."""
    return TensorData.of(np.asarray(values), DType.BF16)
