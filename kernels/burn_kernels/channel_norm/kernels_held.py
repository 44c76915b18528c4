"""Batch norm of channels that fit the registers of a program: each element is read once, and held until it is written.

Statistics are those of two passes, as the numbers are at hand: the mean, then the squares of the distances from it.
"""

from __future__ import annotations

from burn_kernels._triton import tl, triton
from burn_kernels.channel_norm import configs as tiles
from burn_kernels.channel_norm.configs import Config
from burn_kernels.channel_norm.kernels import keep_statistics, known, lanes_of, there_of, vector_of
from burn_kernels.channel_norm.layout import Strides, Tiling
from burn_kernels.channel_norm.scaling import activated, away_from, scaled, slope_at
from burn_kernels.launch import Machine, next_power
from burn_kernels.prims import quotient, wide

MOST_HELD = 16_384
"""Elements that a program may hold: 32 of each of 512 threads."""


# -- configs -----------------------------------------------------------------------------------------
def default(tiling: Tiling, itemsize: int, machine: Machine) -> Config:
    """The config of batch norm in training that is used without timing."""
    return candidates(tiling, itemsize, machine)[0]


def candidates(tiling: Tiling, itemsize: int, machine: Machine) -> list[Config]:
    """Lists the configs that a tuner may try for batch norm in training: channels as they are held, then in tiles."""
    rows, block = next_power(tiling.rows), next_power(tiling.cols)
    configs: list[Config] = []
    if tiling.cols > 1 and rows * block <= MOST_HELD and tiling.kept >= machine.processors:
        configs = [Config(1, rows, block, warps, 4) for warps in (16, 32, 8, 4) if rows * block <= 1024 * warps]
    return list(dict.fromkeys([*configs, *tiles.candidates(tiling, itemsize, machine)]))


def held(tiling: Tiling, config: Config, *strides: Strides) -> bool:
    """Tells if a program has all elements of its channels in one tile, in reach of 32 bits from its first."""
    near = all(one.row * tiling.rows < 2**31 for one in strides)
    return near and config.rows >= tiling.rows and config.block >= tiling.cols


def whole_tile(config: Config) -> dict[str, int]:
    """The constants of the kernels here."""
    return {"KEPT": config.kept, "ROWS": config.rows, "BLOCK": config.block}


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def forward_held(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, old_mean_ptr, old_var_ptr, new_mean_ptr, new_var_ptr, x_inner,
    x_row, y_inner, y_row, kept, rows, cols, count, momentum, eps, KIND: tl.constexpr, KEPT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Statistics and output of KEPT channels."""
    TYPE: tl.constexpr = y_ptr.dtype.element_ty
    k = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)
    valid = k < kept
    r, c = lanes_of(ROWS, BLOCK)
    inside = there_of(0, 0, r, c, rows, cols, valid)
    x = tl.load(x_ptr + (k * x_inner)[:, None] + (r * x_row + c)[None, :], mask=inside, other=0.0).to(tl.float32)
    near = quotient(tl.sum(x, 1), count, TYPE)
    away = tl.where(inside, x - near[:, None], 0.0)
    squares, mean = tl.sum(away * away, 1), near
    if TYPE == tl.float32:  # what the mean's rounding left
        off = quotient(tl.sum(away, 1), count, TYPE)
        squares, mean = squares - count * off * off, wide(near, TYPE) + off
    pointers = (mean_ptr, rstd_ptr, old_mean_ptr, old_var_ptr, new_mean_ptr, new_var_ptr)
    rstd = keep_statistics(mean, quotient(squares, count, TYPE), count, pointers, k, valid, momentum, eps)
    w, b = vector_of(w_ptr, k, valid, 1.0)[:, None], vector_of(b_ptr, k, valid, 0.0)[:, None]
    y = scaled(x, mean[:, None], rstd[:, None], w, b)
    if KIND != "none":
        y, _ = activated(y, KIND, TYPE)
    tl.store(y_ptr + (k * y_inner)[:, None] + (r * y_row + c)[None, :], y.to(TYPE), mask=inside)


@triton.jit
def backward_held(
    dy_ptr, x_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, dy_inner, dy_row, x_inner, x_row, dx_inner,
    dx_row, kept, rows, cols, count, eps, TRAINED: tl.constexpr, KIND: tl.constexpr, KEPT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All gradients of KEPT channels."""
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    k = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)
    valid = k < kept
    mean, rstd, w, b = known(mean_ptr, rstd_ptr, w_ptr, b_ptr, k, kept, 1, valid, eps=eps, TRAINED=TRAINED, TYPE=TYPE)
    r, c = lanes_of(ROWS, BLOCK)
    inside = there_of(0, 0, r, c, rows, cols, valid)
    x = tl.load(x_ptr + (k * x_inner)[:, None] + (r * x_row + c)[None, :], mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy_ptr + (k * dy_inner)[:, None] + (r * dy_row + c)[None, :], mask=inside, other=0.0).to(tl.float32)
    rate = rstd.to(tl.float32)[:, None]
    n = away_from(x, mean[:, None]) * rate
    if KIND != "none":
        g *= slope_at(x, n, mean[:, None], rstd[:, None], w[:, None], b[:, None], KIND, TYPE)
    n = tl.where(inside, n, 0.0)
    along, offset = tl.sum(g * n, 1), tl.sum(g, 1)
    if dw_ptr is not None:
        tl.store(dw_ptr + k, along.to(dw_ptr.dtype.element_ty), mask=valid)
    if db_ptr is not None:
        tl.store(db_ptr + k, offset.to(db_ptr.dtype.element_ty), mask=valid)
    g *= w[:, None]
    if TRAINED:
        along, offset = quotient(along * w, count, TYPE), quotient(offset * w, count, TYPE)
        g = g - offset[:, None] - n * along[:, None]
    dx = (g * rate).to(dx_ptr.dtype.element_ty)
    tl.store(dx_ptr + (k * dx_inner)[:, None] + (r * dx_row + c)[None, :], dx, mask=inside)
