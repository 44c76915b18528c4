"""Reading an image at given positions, and every derivative of that.

A position (u, v) of the grid, -1 to 1 over the width and the height, becomes pixel coordinates; the result is a sum
of a few pixels (taps) with weights that are polynomials in the fraction of each coordinate:

    y[n, c, i] = sum over a, b of wy_a(v_i) * wx_b(u_i) * x[n, c, row_a, column_b]

A derivative with respect to the grid puts the derivatives of these polynomials in their places, so one row,
`grid_sample_2d_derivative`, holds all orders, and its transpose in x one more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.comparison import is_nan
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.reductions import sum as sum_over
from burn_torch.ops.resampling import check_choice
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import Array, sample, uniform
from burn_torch.ops.selection import mask_where
from burn_torch.ops.shapes import reshape
from burn_torch.ops.value import Primitive, Value

if TYPE_CHECKING:
    from numpy.random import Generator

MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")

_A = -0.75  # the slope parameter of the cubic kernel, as in torch
_KERNELS: dict[str, tuple[int, tuple[tuple[float, ...], ...]]] = {
    # the first tap relative to the floor (the nearest: to the rounded coordinate), and each tap's weight as a
    # polynomial in the fraction t, constant first
    "nearest": (0, ((1.0,),)),
    "bilinear": (0, ((1.0, -1.0), (0.0, 1.0))),
    "bicubic": (
        -1,
        ((0.0, _A, -2 * _A, _A), (1.0, 0.0, -(_A + 3), _A + 2), (0.0, -_A, 2 * _A + 3, -(_A + 2)), (0.0, 0.0, _A, -_A)),
    ),
}


# -- the formula, on numpy arrays and torch tensors alike ----------------------------------------------------
def _integers(x: Primitive) -> Primitive:
    return x.long() if isinstance(x, torch.Tensor) else x.astype(np.int64)


def _reflect(xp: ModuleType, p: Primitive, size: int, align_corners: bool) -> tuple[Primitive, ...]:
    """Coordinates mirrored at the outer elements, or at their outer edges, and the sign of their slope."""
    low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
    if span == 0:
        return xp.zeros_like(p), xp.zeros_like(p)
    q = p - low
    distance = xp.abs(q)
    extra, flips = xp.fmod(distance, span), xp.floor(distance / span)
    even = xp.fmod(flips, 2.0) == 0
    one = xp.ones_like(p)
    return xp.where(even, extra, span - extra) + low, xp.where(even, one, -one) * xp.where(q < 0, -one, one)


def _inside(xp: ModuleType, p: Primitive, size: int, padding_mode: str, align_corners: bool) -> tuple[Primitive, ...]:
    """Coordinates after padding, and the slope of that: 0 where they are clamped to an end."""
    slope = xp.ones_like(p)
    if padding_mode == "reflection":
        p, slope = _reflect(xp, p, size, align_corners)
    if padding_mode != "zeros":
        slope = xp.where((p <= 0) | (p >= size - 1), xp.zeros_like(p), slope)
        p = xp.clip(p, 0, size - 1)
    return p, slope


def _derivative(polynomial: tuple[float, ...], order: int) -> tuple[Primitive, ...]:
    for _ in range(order):
        polynomial = tuple(i * c for i, c in enumerate(polynomial))[1:]
    return polynomial


def _axis_taps(
    xp: ModuleType, grid: Primitive, size: int, orders: Primitive, mode: str, padding_mode: str, align_corners: bool
) -> list[Primitive]:
    """One axis: for each tap its index, whether that is inside, and its weight for each order of derivative."""
    scale = (size - 1) / 2 if align_corners else size / 2
    p = (grid + 1) * scale - (0.0 if align_corners else 0.5)
    slope = xp.ones_like(p)
    if mode != "bicubic":  # bicubic pads its taps, not the position
        p, slope = _inside(xp, p, size, padding_mode, align_corners)
    first = xp.round(p) if mode == "nearest" else xp.floor(p)
    t = p - first
    offset, polynomials = _KERNELS[mode]
    tap_list = []
    for i, polynomial in enumerate(polynomials, offset):
        index = first + i
        if mode == "bicubic":
            index, _ = _inside(xp, index, size, padding_mode, align_corners)
        held = (index >= 0) & (index <= size - 1)
        weights = {}
        for order in orders:
            weight = xp.zeros_like(t)
            for c in reversed(_derivative(polynomial, order)):
                weight = weight * t + c
            weights[order] = xp.where(held, weight * (slope * scale) ** order, xp.zeros_like(t))
        tap_list.append((_integers(xp.where(held, index, xp.zeros_like(index))), held, weights))
    return tap_list


def _taps(xp: ModuleType, grid: Primitive, size: list[int] | Shape, order: int, **settings: Any) -> Iterator[Any]:
    """Each pair of taps: flat pixel indices (batch, places), whether the pixel is inside, and weights {order along the
    height: (batch, places)}; what lies outside has weights of 0, and the index of a pixel that is not read.
    """
    grid = grid.reshape(grid.shape[0], -1, 2) if grid.shape[0] else grid.reshape(0, grid.shape[1] * grid.shape[2], 2)
    orders = range(order + 1)
    columns = _axis_taps(xp, grid[..., 0], size[1], orders, **settings)
    for row, row_held, row_weights in _axis_taps(xp, grid[..., 1], size[0], orders, **settings):
        for column, column_held, column_weights in columns:
            yield (
                row * size[1] + column,
                row_held & column_held,
                {along: row_weights[along] * column_weights[order - along] for along in range(order + 1)},
            )


def _precise(x: Primitive) -> Primitive:
    """In float64 (Apple's GPU: float32): derivatives are differences of pixels, and the results of these rows are
    summed again, so each is rounded once.
    """
    if isinstance(x, torch.Tensor):
        return x.float() if x.device.type == "mps" else x.double()
    return x.astype(np.float64)


def _split_off_nowhere(xp: ModuleType, grid: Primitive) -> tuple[Primitive, ...]:
    """A mask of positions that are not finite (batch, 1, height, width, 1), and the grid with zeros in their place."""
    nowhere = ~xp.isfinite(grid).all(-1)
    return nowhere[:, None, :, :, None], xp.where(nowhere[..., None], xp.zeros_like(grid), grid)


def _sample(xp: ModuleType, x: Primitive, grid: Primitive, *, order: int, **settings: Any) -> Primitive:
    nowhere, grid = _split_off_nowhere(xp, grid)
    batch, channels, *size = x.shape
    pixels, places = _precise(x).reshape(batch, channels, size[0] * size[1]), grid.shape[1:3]
    take = torch.take_along_dim if xp is torch else np.take_along_axis
    partials = [0.0] * (order + 1)  # by the order along the height
    for index, held, weights in _taps(xp, _precise(grid), size, order, **settings):
        values = take(pixels, index[:, None], 2)
        values = xp.where(held[:, None], values, xp.zeros_like(values))  # 0 times NaN is NaN
        for along, weight in weights.items():
            partials[along] = partials[along] + values * weight[:, None]
    chosen = [partials[k.bit_count()] for k in range(2**order)]
    y = xp.stack(chosen, -1).reshape(batch, channels, *places, 2**order)
    return xp.where(nowhere, xp.full_like(y, 0.0 if order else math.nan), y)


def _scatter(xp: ModuleType, g: Primitive, grid: Primitive, *, size: Shape, order: int, **settings: Any) -> Primitive:
    nowhere, grid = _split_off_nowhere(xp, grid)
    g = xp.where(nowhere, xp.zeros_like(g), g)
    batch, channels = g.shape[:2]
    places = g.shape[2] * g.shape[3]
    g, grid = _precise(g).reshape(batch, channels, places, 2**order), _precise(grid)
    parts: Primitive = [0.0] * (order + 1)
    for k in range(2**order):
        parts[k.bit_count()] = parts[k.bit_count()] + g[..., k]
    x: Primitive
    if xp is torch:
        x = torch.zeros((batch, channels, size[0] * size[1]), dtype=g.dtype, device=g.device)
    else:
        x = np.zeros((batch, channels, size[0] * size[1]), g.dtype)
        planes = (np.arange(batch)[:, None, None], np.arange(channels)[None, :, None])
    for index, held, weights in _taps(xp, grid, size, order, **settings):
        values: Primitive = 0.0
        for along, weight in weights.items():
            values = values + parts[along] * weight[:, None]
        values = xp.where(held[:, None], values, xp.zeros_like(values))
        if xp is torch:
            x.scatter_add_(2, index[:, None].expand(batch, channels, places), values)
        else:
            np.add.at(x, (*planes, index[:, None]), values)
    return x.reshape(batch, channels, *size)


def _like(run: Candidate) -> Candidate:
    """A torch candidate whose result is in the element type of its first input."""
    return lambda x, grid, **attrs: run(torch, x, grid, **attrs).to(x.dtype)


# -- rows ------------------------------------------------------------------------------------------------
def _settings(mode: str, padding_mode: str, align_corners: bool) -> Mapping[str, Any]:
    return {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}


_CASES = [
    ((2, 2, 3, 4), (3, 2), _settings("bilinear", "zeros", False)),
    ((1, 2, 4, 3), (2, 4), _settings("bilinear", "border", True)),
    ((1, 1, 3, 5), (3, 2), _settings("bilinear", "reflection", False)),
    ((1, 1, 3, 5), (3, 2), _settings("bilinear", "reflection", True)),
    ((2, 1, 4, 4), (2, 2), _settings("nearest", "zeros", True)),
    ((1, 2, 4, 3), (2, 5), _settings("nearest", "border", False)),
    ((1, 1, 3, 4), (3, 2), _settings("bicubic", "zeros", False)),
    ((1, 2, 4, 3), (2, 2), _settings("bicubic", "border", True)),
    ((1, 1, 3, 4), (2, 3), _settings("bicubic", "reflection", False)),
    ((0, 2, 4, 4), (2, 3), _settings("bilinear", "zeros", False)),
]
_SMOOTH_CASES = [case for case in _CASES if case[2]["mode"] != "nearest"]


def _grid(shape: Shape, places: Shape, *, align_corners: bool, **_: str) -> Candidate:
    """Positions around an image, the first one inside, none near the places where a mode jumps or bends."""

    def draw(generator: Generator) -> Array:
        sizes = np.array(shape[3:1:-1])
        whole = generator.integers(-1, sizes, (shape[0], *places, 2))
        whole[:, 0, 0] = 0
        pixel = whole + generator.uniform(0.1, 0.4, whole.shape)
        return 2 * pixel / np.maximum(sizes - 1, 1) - 1 if align_corners else (2 * pixel + 1) / sizes - 1

    return draw


def _check(x: TensorSpec, grid: TensorSpec, mode: str, padding_mode: str, name: str = "x", ndim: int = 4) -> None:
    check_choice("mode", mode, MODES)
    check_choice("padding_mode", padding_mode, PADDING_MODES)
    same_dtype(x.require(FLOAT), grid)
    if x.ndim != ndim or grid.ndim != 4 or grid.shape[3] != 2 or grid.shape[0] != x.shape[0] or 0 in x.shape[1:]:
        axes = "batch, channels, height, width" + (", partials" if ndim == 5 else "")
        raise shape_fault(
            f"{name} and grid do not fit",
            expected=f"{name} ({axes}) without empty axes but the batch, and "
            "grid (batch, out_height, out_width, 2) with the same batch",
            mend="the last axis of grid is (x, y), each from -1 to 1 over the image",
        )
    if 0 in grid.shape[1:]:
        raise shape_fault("grid has no positions", expected="at least one row and one column", mend="skip the call")


_TORCH_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_TORCH_PADDING = {"zeros": 0, "border": 1, "reflection": 2}


def _torch_settings(call: Call) -> tuple[int, int, bool]:
    attrs = call.attrs
    return _TORCH_MODES[attrs["mode"]], _TORCH_PADDING[attrs["padding_mode"]], attrs["align_corners"]


def _torch_positions(call: Call, grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A mask of positions that are not finite, where torch would read foreign memory, and positions that it reads."""
    nowhere, grid = _split_off_nowhere(torch, grid)
    # reflections repeat every 4: exact here, while torch's pixel coordinates of 1e9 have no fraction left
    return nowhere, grid.fmod(4.0) if call.attrs["padding_mode"] == "reflection" else grid


def _torch_grid_sample(call: Call) -> Candidate:
    mode, padding_mode, align_corners = _torch_settings(call)

    def run(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        nowhere, grid = _torch_positions(call, grid)
        return torch.grid_sampler_2d(x, grid, mode, padding_mode, align_corners).masked_fill_(nowhere[..., 0], math.nan)

    return run


@op(
    torch=PerCall(_torch_grid_sample),
    numpy=lambda x, grid, **settings: _sample(np, x, grid, order=0, **settings)[..., 0],
    samples=[sample(uniform(-1, 1, x), _grid(x, places, **settings), **settings) for x, places, settings in _CASES],
)
def grid_sample_2d(x: TensorSpec, grid: TensorSpec, *, mode: str, padding_mode: str, align_corners: bool) -> TensorSpec:
    """Reads x at the positions of grid: (x, y), each from -1 to 1 over the width and the height.

    With `align_corners` -1 and 1 are the centres of the outer pixels, else their outer edges.  Modes: "bilinear",
    "nearest" (halves go to the even pixel; no gradient to grid), "bicubic" (Keys' kernel, a = -0.75).  Outside:
    "zeros", the "border" pixel, or "reflection".  At the border between two pixels the slope is that of the pixel
    after; a position held at the border has none.

    Shapes: x (batch, channels, height, width), grid (batch, out_height, out_width, 2)
        -> (batch, channels, out_height, out_width); the batch may be empty.
    Dtypes: float, both the same.  A position that is not finite gives NaN, and no gradient.
    PyTorch: torch.nn.functional.grid_sample, which has no second gradients and reads some pixel at most such positions.
    """
    _check(x, grid, mode, padding_mode)
    return x.with_shape((*x.shape[:2], *grid.shape[1:3]))


@grid_sample_2d.gradient
def _(g, y, x, grid, **settings):
    if settings["mode"] == "nearest":
        return grid_sample_2d_backward(g, x, grid, live=(True, False), **settings)  # (gradient of x, None)
    return grid_sample_2d_backward(g, x, grid, live=(True, True), **settings)


def _torch_backward(call: Call) -> Candidate:
    live = call.attrs["live"]
    settings = _torch_settings(call)
    backward = torch.ops.aten.grid_sampler_2d_backward.default

    def run(g: torch.Tensor, x: torch.Tensor, grid: torch.Tensor) -> tuple[Primitive, ...]:
        nowhere, grid = _torch_positions(call, grid)
        g = g.masked_fill(nowhere[..., 0], 0)
        dx, dgrid = backward(g, x, grid, *settings, (live[0], True))  # torch always computes the second
        dgrid.masked_fill_(nowhere[:, 0], 0)  # 0 times an infinite pixel is NaN
        return dx if live[0] else None, dgrid if live[1] else None

    return run


@op(
    torch=PerCall(_torch_backward),
    samples=[
        sample(
            uniform(-1, 1, (*x[:2], *places)),
            uniform(-1, 1, x),
            _grid(x, places, **settings),
            live=(True, True),
            **settings,
        )
        for x, places, settings in _SMOOTH_CASES
    ],
)
def grid_sample_2d_backward(
    g: TensorSpec,
    x: TensorSpec,
    grid: TensorSpec,
    *,
    live: tuple[bool, ...],
    mode: str,
    padding_mode: str,
    align_corners: bool,
) -> tuple[TensorSpec | None, TensorSpec | None]:
    """The gradients of `grid_sample_2d` with respect to x and grid; `live` says which are computed.

    Shapes: g (batch, channels, out_height, out_width), x and grid as there -> those of x and grid.
    Dtypes: float, all the same.
    """
    _check(x, grid, mode, padding_mode)
    same_dtype(g, x)
    _check_g(g, (*x.shape[:2], *grid.shape[1:3]))
    return x if live[0] else None, grid if live[1] else None


@grid_sample_2d_backward.decomposes
def _(g, x, grid, *, live, **settings):
    ready = reshape(g, shape=(*g.shape, 1))
    dx = grid_sample_2d_scatter(ready, grid, size=x.shape[2:], order=0, **settings) if live[0] else None
    dgrid = _grid_gradient(ready, x, grid, 0, settings) if live[1] else None
    return dx, grid.new_full(grid.shape, 0.0) if live[1] and dgrid is None else dgrid


def _grid_gradient(g: Value, x: Value, grid: Value, order: int, settings: Mapping[str, Any]) -> Value | None:
    """The gradient with respect to grid of derivatives (batch, channels, h, w, 2**order) whose gradient is g.

    None where the weights are no longer functions of the position: their degree is used up on both axes.
    """
    degree = len(_KERNELS[settings["mode"]][1][0]) - 1
    if order >= 2 * degree:
        return None
    partials = grid_sample_2d_derivative(x, grid, order=order + 1, **settings)
    pairs = reshape(partials, shape=(*g.shape, 2))
    dgrid = reshape(sum_over(pairs * reshape(g, shape=(*g.shape, 1)), dims=(1, 4)), shape=grid.shape)
    return mask_where(dgrid, is_nan(sum_over(grid * 0.0, dims=(3,))), 0.0)  # g may be NaN where y is


def _check_g(g: TensorSpec, shape: Shape) -> None:
    if g.shape != shape:
        raise shape_fault("g does not fit", expected=f"g {shape}, as the output", mend="pass the output's gradient")


def _check_order(order: int) -> None:
    if order < 0:
        raise shape_fault(f"order is {order}", expected="an order of at least 0", mend="count derivatives from 0")


_FIRST = [(1, case) for case in _SMOOTH_CASES]
_SECOND = [(2, case) for case in _SMOOTH_CASES if case[2]["padding_mode"] != "reflection"]


@op(
    torch=_like(_sample),
    numpy=lambda x, grid, **settings: _sample(np, x, grid, **settings),
    samples=[
        sample(uniform(-1, 1, x), _grid(x, places, **settings), order=order, **settings)
        for order, (x, places, settings) in [*_FIRST, *_SECOND]
    ],
)
def grid_sample_2d_derivative(
    x: TensorSpec, grid: TensorSpec, *, order: int, mode: str, padding_mode: str, align_corners: bool
) -> TensorSpec:
    """All partial derivatives of one order of `grid_sample_2d` with respect to each position.

    The last axis counts sequences of axes in binary, 0 for x and 1 for y: order 2 gives xx, xy, yx, yy.

    Shapes: x, grid as there -> (batch, channels, out_height, out_width, 2**order).  Dtypes: float, both the same.
    """
    _check(x, grid, mode, padding_mode)
    _check_order(order)
    return x.with_shape((*x.shape[:2], *grid.shape[1:3], 2**order))


@grid_sample_2d_derivative.gradient
def _(g, y, x, grid, *, order, **settings):
    return (
        grid_sample_2d_scatter(g, grid, size=x.shape[2:], order=order, **settings),
        _grid_gradient(g, x, grid, order, settings),
    )


@op(
    torch=_like(_scatter),
    numpy=lambda g, grid, **settings: _scatter(np, g, grid, **settings),
    samples=[
        sample(
            uniform(-1, 1, (*x[:2], *places, 2**order)),
            _grid(x, places, **settings),
            size=x[2:],
            order=order,
            **settings,
        )
        for order, (x, places, settings) in [*((0, case) for case in _CASES), *_FIRST[-2:]]
    ],
)
def grid_sample_2d_scatter(
    g: TensorSpec, grid: TensorSpec, *, size: Shape, order: int, mode: str, padding_mode: str, align_corners: bool
) -> TensorSpec:
    """The gradient of `grid_sample_2d_derivative` with respect to x, an image of spatial sizes `size`.

    Shapes: g (batch, channels, out_height, out_width, 2**order), grid as there -> (batch, channels, *size).
    Dtypes: float, both the same.
    """
    _check(g, grid, mode, padding_mode, "g", 5)
    _check_order(order)
    _check_g(g, (*g.shape[:2], *grid.shape[1:3], 2**order))
    if len(size) != 2 or min(size) < 1:
        raise shape_fault(f"size is {size}", expected="(height, width) of at least 1", mend="pass the image's sizes")
    return g.with_shape((*g.shape[:2], *size))


@grid_sample_2d_scatter.gradient
def _(h, z, g, grid, *, size, order, **settings):
    return grid_sample_2d_derivative(h, grid, order=order, **settings), _grid_gradient(g, h, grid, order, settings)
