"""Resampling an image to another size: each output element is a weighted sum of a few input elements an axis (taps).

Positions are fractions of integers, so the taps are exact: for output i of m over an input of n elements,

    align_corners  i * (n - 1) / (m - 1)         the outer elements stay in place
    otherwise      ((2 i + 1) n - m) / (2 m)     the outer edges stay in place, elements being intervals

The map is linear and acts on each axis alone, so its gradient is the transposed map.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import RuleFault
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.value import Primitive
from burn_torch.ops.windows import Faults, check_settings, check_spatial, widened

MODES = ("nearest", "nearest_exact", "linear", "cubic", "lanczos")
_CUBIC = -0.75  # the slope parameter of the cubic kernel, as in torch and Burn
_nn = torch._C._nn
_aten = torch.ops.aten


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises a fault for a word that is not one of `choices`."""
    if value not in choices:
        raise RuleFault(
            ArgumentError,
            f"{name} is {value!r}",
            expected=f"one of {', '.join(map(repr, choices))}",
            mend="check the spelling",
        )


# -- taps ------------------------------------------------------------------------------------------------
def nearest_index(n: int, m: int, *, exact: bool) -> np.ndarray:
    """The index that each of m outputs takes of n elements: floor(i n / m), or with `exact` floor((i + 1/2) n / m)."""
    i = np.arange(m)
    return (2 * i + 1) * n // (2 * m) if exact else i * n // m


def taps(n: int, m: int, mode: str, align_corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights (m, taps) of the inputs that each of m outputs along an axis of n elements sums.

    Taps beyond the ends read the end.
    """
    if mode in ("nearest", "nearest_exact"):
        return nearest_index(n, m, exact=mode == "nearest_exact")[:, None], np.ones((m, 1))
    i = np.arange(m)
    numerator, denominator = (i * (n - 1), max(m - 1, 1)) if align_corners else ((2 * i + 1) * n - m, 2 * m)
    if mode == "linear":
        numerator = np.maximum(numerator, 0)
    first, t = numerator // denominator, (numerator % denominator / denominator)[:, None]
    if mode == "linear":
        offsets, weights = np.arange(2), np.concatenate([1 - t, t], 1)
    elif mode == "cubic":
        offsets = np.arange(-1, 3)
        weights = _cubic(np.abs(t - offsets))
    else:
        offsets = np.arange(-2, 4)
        weights = np.sinc(t - offsets) * np.sinc((t - offsets) / 3)
        weights /= weights.sum(1, keepdims=True)
    return np.clip(first[:, None] + offsets, 0, n - 1), weights


def _cubic(d: Array) -> Array:
    """Keys' cubic convolution kernel at distances below 2."""
    near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
    far = ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC
    return np.where(d <= 1, near, far)


def _matrix(n: int, m: int, mode: str, align_corners: bool) -> Array:
    """The taps of one axis as a matrix (m, n)."""
    indices, weights = taps(n, m, mode, align_corners)
    matrix = np.zeros((m, n))
    np.add.at(matrix, (np.arange(m)[:, None], indices), weights)
    return matrix


# -- numpy -----------------------------------------------------------------------------------------------
def _numpy_interpolate(x: Array, *, output_size: Shape, mode: str, align_corners: bool) -> Array:
    y = widened(x)
    for axis, m in enumerate(output_size, 2):
        indices, weights = taps(x.shape[axis], m, mode, align_corners)
        rows = y.swapaxes(axis, -1)[..., indices]  # (..., m, taps)
        y = np.einsum("...mt,mt->...m", rows, weights.astype(y.dtype)).swapaxes(axis, -1)
    return y


def _numpy_interpolate_backward(g: Array, *, size: Shape, mode: str, align_corners: bool) -> Array:
    x = widened(g)
    for axis, n in enumerate(size, 2):
        indices, weights = taps(n, g.shape[axis], mode, align_corners)
        rows = np.moveaxis(x, axis, 0)  # (m, ...)
        parts = rows[:, None] * weights.astype(x.dtype).reshape(*weights.shape, *(1,) * (rows.ndim - 1))
        total = np.zeros((n, *rows.shape[1:]), x.dtype)
        np.add.at(total, indices, parts)  # a product of matrices would spread NaN to all pixels
        x = np.moveaxis(total, 0, axis)
    return np.ascontiguousarray(x)


# -- torch -----------------------------------------------------------------------------------------------
_FORWARD: dict[tuple[str, int], Candidate] = {
    ("nearest", 1): _nn.upsample_nearest1d,
    ("nearest", 2): _nn.upsample_nearest2d,
    ("nearest_exact", 1): _nn._upsample_nearest_exact1d,
    ("nearest_exact", 2): _nn._upsample_nearest_exact2d,
    ("linear", 1): _nn.upsample_linear1d,
    ("linear", 2): _nn.upsample_bilinear2d,
    ("cubic", 2): _nn.upsample_bicubic2d,
}
_BACKWARD = {
    ("nearest", 1): _aten.upsample_nearest1d_backward.default,
    ("nearest", 2): _aten.upsample_nearest2d_backward.default,
    ("nearest_exact", 1): _aten._upsample_nearest_exact1d_backward.default,
    ("nearest_exact", 2): _aten._upsample_nearest_exact2d_backward.default,
    ("linear", 1): _aten.upsample_linear1d_backward.default,
    ("linear", 2): _aten.upsample_bilinear2d_backward.default,
    ("cubic", 2): _aten.upsample_bicubic2d_backward.default,
}


def _torch_rounds_right(size: Shape, output_size: Shape, mode: str) -> bool:
    """Tells if torch's nearest kernels pick the exact indices: they multiply by n / m rounded to float32 or float64.

    From 2 to 82 elements, for one, they are off at output 41.
    """
    for n, m in zip(size, output_size, strict=True):
        exact = nearest_index(n, m, exact=mode == "nearest_exact")
        for dtype in (np.float32, np.float64):
            position: Primitive = np.arange(m, dtype=dtype)
            position = position + dtype(0.5 if mode == "nearest_exact" else 0)
            if not np.array_equal(np.minimum(np.floor(position * dtype(n / m)), n - 1), exact):
                return False
    return True


def _kernel(
    table: Mapping[tuple[str, int], Candidate], size: Shape, output_size: Shape, mode: str, align_corners: bool
) -> tuple[Primitive, ...]:
    """torch's function for this mode with what it takes besides the tensor and the sizes, or None."""
    kernel = table.get((mode, len(size)))
    if kernel is None or (mode.startswith("nearest") and not _torch_rounds_right(size, output_size, mode)):
        return None, ()
    scales = (None,) * len(size)  # computed from the sizes
    return kernel, scales if mode.startswith("nearest") else (align_corners, *scales)


def _wide(dtype: DType) -> torch.dtype:
    return torch.float64 if dtype is DType.F64 else torch.float32


def _torch_interpolate(call: Call) -> Candidate:
    x = call.tensor(0)
    output_size, mode, align_corners = call.attrs.values()
    kernel, more = _kernel(_FORWARD, x.shape[2:], output_size, mode, align_corners)
    if kernel is not None:
        return lambda x: kernel(x, output_size, *more)
    dtype = _wide(x.dtype)
    axes = []
    for axis, (n, m) in enumerate(zip(x.shape[2:], output_size, strict=True), 2):
        indices, weights = taps(n, m, mode, align_corners)
        shape = (m, weights.shape[1], *(1,) * (x.ndim - 1 - axis))
        axes.append(
            (
                axis,
                torch.from_numpy(indices.ravel()).to(x.place),
                torch.from_numpy(weights).to(x.place, dtype).reshape(shape),
                (m, weights.shape[1]),
            )
        )

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.to(dtype)
        for axis, indices, weights, sizes in axes:
            y = (y.index_select(axis, indices).unflatten(axis, sizes) * weights).sum(axis + 1)
        return y.to(x.dtype)

    return run


def _torch_interpolate_backward(call: Call) -> Candidate:
    g = call.tensor(0)
    size, mode, align_corners = call.attrs.values()
    kernel, more = _kernel(_BACKWARD, size, g.shape[2:], mode, align_corners)
    if kernel is not None:
        return lambda g: kernel(g, g.shape[2:], (*g.shape[:2], *size), *more)
    dtype = _wide(g.dtype)
    matrices = [
        (axis, torch.from_numpy(_matrix(n, g.shape[axis], mode, align_corners)).to(g.place, dtype))
        for axis, n in enumerate(size, 2)
    ]

    def run(g: torch.Tensor) -> torch.Tensor:
        x = g.to(dtype)
        for axis, matrix in matrices:  # a product, not index_add: the sum has one order, on a GPU too
            x = torch.matmul(x.transpose(axis, -1), matrix).transpose(axis, -1)
        return x.to(g.dtype)

    return run


# -- rows ------------------------------------------------------------------------------------------------
def _interpolation(size: Shape, output_size: Shape, mode: str, align_corners: bool = False) -> tuple[Primitive, ...]:
    return size, output_size, {"mode": mode, "align_corners": align_corners}


_CASES = [
    _interpolation(size, output_size, mode, align_corners)
    for mode, align_corners in (
        ("nearest", True),
        ("nearest_exact", False),
        ("linear", True),
        ("linear", False),
        ("cubic", True),
        ("cubic", False),
        ("lanczos", True),
        ("lanczos", False),
    )
    for size, output_size in (((2, 3, 5), (8,)), ((1, 2, 4, 7), (6, 3)))
] + [
    _interpolation((1, 1, 2), (82,), "nearest"),
    _interpolation((2, 1, 3, 5), (1, 1), "linear", align_corners=True),
    _interpolation((0, 2, 3, 3), (4, 5), "linear"),
    _interpolation((0, 2, 3, 3), (4, 5), "lanczos"),
]


@op(
    torch=PerCall(_torch_interpolate),
    numpy=_numpy_interpolate,
    packed="dense",
    samples=[sample(uniform(-1, 1, x), output_size=m, **settings) for x, m, settings in _CASES],
    source="cubic: Keys 1981, a = -0.75; lanczos: Duchon 1979, a = 3",
)
def interpolate(x: TensorSpec, *, output_size: tuple[int, ...], mode: str, align_corners: bool) -> TensorSpec:
    """Resamples the spatial axes to `output_size`, each axis alone.

    At position p of an axis (see the module), with q = floor(p):
        nearest        x[floor(i n / m)]; align_corners has no effect
        nearest_exact  x[floor((i + 1/2) n / m)], as image libraries do; align_corners has no effect
        linear         between x[q] and x[q + 1]; p is not below 0
        cubic          x[q - 1] to x[q + 2], Keys' kernel with a = -0.75
        lanczos        x[q - 2] to x[q + 3], weights sinc(d) sinc(d / 3) at distance d, divided by their sum
    Elements beyond an end are the end.  Making an image smaller does not smooth it first.

    Shapes: x (batch, channels, *spatial) -> (batch, channels, *output_size), 1 or 2 spatial axes; the batch may be
        empty.
    Dtypes: float in, the same float out.
    PyTorch: torch.nn.functional.interpolate, modes nearest, nearest-exact, linear or bilinear, bicubic.  torch has
        no cubic over one axis and no lanczos, and its nearest modes round n / m, so at few sizes (2 to 82) they pick
        another element.  Burn's align_corners is true unless told.
    """
    check_choice("mode", mode, MODES)
    faults = Faults()
    check_settings(faults, check_spatial(faults, x.require(FLOAT), axes=(1, 2)), output_size=output_size)
    faults.stop()
    return x.with_shape((*x.shape[:2], *output_size))


@interpolate.gradient
def _(g, y, x, *, output_size, **settings):
    return interpolate_backward(g, size=x.shape[2:], **settings)


@op(
    torch=PerCall(_torch_interpolate_backward),
    numpy=_numpy_interpolate_backward,
    samples=[sample(uniform(-1, 1, (*x[:2], *m)), size=x[2:], **settings) for x, m, settings in _CASES],
)
def interpolate_backward(g: TensorSpec, *, size: Shape, mode: str, align_corners: bool) -> TensorSpec:
    """The transpose of `interpolate` from spatial sizes `size`.

    Shapes: g (batch, channels, *spatial) -> (batch, channels, *size).  Dtypes: float in, the same float out.
    """
    check_choice("mode", mode, MODES)
    faults = Faults()
    check_settings(faults, check_spatial(faults, g.require(FLOAT), "g", (1, 2)), size=size)
    faults.stop()
    return g.with_shape((*g.shape[:2], *size))


@interpolate_backward.gradient
def _(h, z, g, *, size, **settings):
    return interpolate(h, output_size=g.shape[2:], **settings)
