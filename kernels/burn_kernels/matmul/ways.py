"""The ways to compute a linear layer: tiles of this file, the library with an ending of its own, the library alone.

Each takes a `Layer`, whose tensors were checked, and gives the output and, where the backward needs it, z.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.activation import activate
from burn_kernels.launch import ceil_div, launch, next_power
from burn_kernels.matmul.configs import Config
from burn_kernels.products import add_product


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def place(program, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr, GROUP: tl.constexpr):
    """The tile that a program computes: GROUP rows of tiles, column by column, then the next ones."""
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(cols, COLS)
    group = program // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    within = program % (GROUP * across)
    return group * GROUP + within % height, within // height


@triton.jit
def product(
    x_ptr, w_ptr, row, col, rows, cols, inner, x_row, x_inner, w_col, w_inner,
    ROWS: tl.constexpr, COLS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The tile of x w^T at `row` and `col`, int64 of (ROWS,) and (COLS,), in float32."""
    k = tl.arange(0, INNER).to(tl.int64)
    x_ptrs = x_ptr + row[:, None] * x_row + k[None, :] * x_inner
    w_ptrs = w_ptr + col[None, :] * w_col + k[:, None] * w_inner
    within_row, within_col = row[:, None] < rows, col[None, :] < cols
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in tl.range(0, inner, INNER):
        left = inner - start
        x = tl.load(x_ptrs, mask=within_row & (k[None, :] < left), other=0.0)
        w = tl.load(w_ptrs, mask=within_col & (k[:, None] < left), other=0.0)
        total = add_product(x, w, total, PRECISION)
        x_ptrs += tl.cast(x_inner, tl.int64) * INNER
        w_ptrs += tl.cast(w_inner, tl.int64) * INNER
    return total


class Operands(NamedTuple):
    """Pointers to what follows a product; in kernels."""

    bias: object
    residual: object
    y: object
    z: object


@triton.jit
def _finish(
    z, operands, top, left, r_row, rows, cols,
    KIND: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Bias, activation and residual of the tile of the product at (top, left), and what is kept of it."""
    TYPE: tl.constexpr = operands.y.dtype.element_ty
    # the tile begins at an int64; within it 32 bits are enough, and take half the registers, unless rows are WIDE
    down, across = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    if WIDE:
        down = down.to(tl.int64)
    inside = (down < rows - top) & (across < cols - left)
    begin, at = top * cols + left, down * cols + across
    if operands.bias is not None:
        z += tl.load(operands.bias + left + across, mask=across < cols - left, other=0.0).to(tl.float32)
    if operands.z is not None:
        tl.store(operands.z + begin + at, z.to(TYPE), mask=inside)
    if KIND == "none":
        y = z
    else:
        y, _ = activate(z, KIND, TYPE)
    if operands.residual is not None:
        y += tl.load(operands.residual + top * r_row + left + (down * r_row + across), mask=inside, other=0.0).to(
            tl.float32
        )
    tl.store(operands.y + begin + at, y.to(TYPE), mask=inside)


@triton.jit
def _tiles(
    x_ptr, w_ptr, b_ptr, r_ptr, y_ptr, z_ptr, rows, cols, inner, x_row, x_inner, w_col, w_inner, r_row,
    KIND: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, INNER: tl.constexpr,
    GROUP: tl.constexpr, HALVES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    down, across = place(tl.program_id(0), rows, cols, ROWS, COLS, GROUP)
    top, left = down.to(tl.int64) * ROWS, across.to(tl.int64) * COLS
    row, col = top + tl.arange(0, ROWS), left + tl.arange(0, COLS)
    z = product(
        x_ptr, w_ptr, row, col, rows, cols, inner, x_row=x_row, x_inner=x_inner, w_col=w_col, w_inner=w_inner,
        ROWS=ROWS, COLS=COLS, INNER=INNER, PRECISION=PRECISION,
    )  # fmt: skip
    operands = Operands(b_ptr, r_ptr, y_ptr, z_ptr)
    if HALVES:  # one half waits as it is while the other is finished, so that both fit the registers
        one, other = tl.split(tl.permute(tl.reshape(z, (ROWS, 2, COLS // 2)), (0, 2, 1)))
        _finish(one, operands, top, left, r_row, rows, cols, KIND, ROWS, COLS // 2, WIDE=WIDE)
        left += COLS // 2
        _finish(other, operands, top, left, r_row, rows, cols, KIND, ROWS, COLS // 2, WIDE=WIDE)
    else:
        _finish(z, operands, top, left, r_row, rows, cols, KIND, ROWS=ROWS, COLS=COLS, WIDE=WIDE)


@triton.jit
def _ending(
    z_ptr, r_ptr, y_ptr, r_row, rows, cols,
    KIND: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # z and y may be one tensor: each element is read and written by one thread
    across = tl.cdiv(cols, COLS)
    top, left = (tl.program_id(0) // across).to(tl.int64) * ROWS, (tl.program_id(0) % across).to(tl.int64) * COLS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    if WIDE:
        row = row.to(tl.int64)
    inside = (row < rows - top) & (col < cols - left)
    z = tl.load(z_ptr + top * cols + left + (row * cols + col), mask=inside, other=0.0).to(tl.float32)
    operands = Operands(None, r_ptr, y_ptr, None)
    _finish(z, operands, top, left, r_row, rows, cols, KIND, ROWS=ROWS, COLS=COLS, WIDE=WIDE)


KERNELS = (_tiles, _ending)


# -- launches ----------------------------------------------------------------------------------------
class Layer(NamedTuple):
    """The operands of a layer: x and residual as rows, and which activation follows."""

    x: torch.Tensor
    w: torch.Tensor
    bias: torch.Tensor | None
    residual: torch.Tensor | None
    kind: str
    keep: str
    """The tensor that the backward needs, as `keeps` names it."""


Outputs = tuple[torch.Tensor, torch.Tensor | None]


def by_tiles(layer: Layer, config: Config) -> Outputs:
    """The layer by the kernel of this file."""
    x, w, bias, residual, kind, keep = layer
    (rows, inner), features = x.shape, w.shape[0]
    y = torch.empty((rows, features), dtype=x.dtype, device=x.device)
    z = torch.empty_like(y) if keep == "z" else None
    if y.numel():
        tensors = (x, w, None if bias is None else bias.contiguous(), residual, y, z)
        strides = (*x.stride(), *w.stride(), 0 if residual is None else residual.stride(0))
        sizes = {"ROWS": config.rows, "COLS": config.features, "INNER": config.inner, "GROUP": config.group}
        grid = (ceil_div(rows, config.rows) * ceil_div(features, config.features),)
        words = {"KIND": kind, "PRECISION": "tf32" if in_tf32(x) else "ieee"}
        flags = {
            "HALVES": config.rows * config.features // (32 * config.warps) > 64,
            "WIDE": _is_wide(config.rows, y, residual),
        }
        numbers = (rows, features, inner, *strides)
        launch(_tiles, grid, x, *tensors, *numbers, warps=config.warps, stages=config.stages, **words, **flags, **sizes)
    return y, z


def by_library(layer: Layer) -> Outputs:
    """The layer by the library's product, then a kernel for what follows it."""
    x, w, bias, residual, kind, keep = layer
    z = torch.mm(x, w.T) if bias is None else torch.addmm(bias, x, w.T)
    if not z.numel() or (kind == "none" and residual is None):
        return z, None
    rows, features = z.shape
    y = torch.empty_like(z) if keep == "z" else z
    # 2048 elements: two vectors of 16 bytes a thread, in as much of a row as there is
    cols = min(1024, max(16, next_power(features)))
    sizes = {"ROWS": 2048 // cols, "COLS": cols}
    grid = (ceil_div(rows, sizes["ROWS"]) * ceil_div(features, cols),)
    arguments = (z, residual, y, 0 if residual is None else residual.stride(0), rows, features)
    launch(_ending, grid, x, *arguments, warps=4, KIND=kind, WIDE=_is_wide(sizes["ROWS"], y, residual), **sizes)
    return y, z


def by_ending(layer: Layer) -> Outputs:
    """The layer by the library's product with its own ending, which keeps nothing."""
    assert layer.bias is not None
    run: Any = torch.ops.aten._addmm_activation
    return run(layer.bias, layer.x, layer.w.T, use_gelu=layer.kind == "gelu_tanh"), None


def _is_wide(rows: int, *tensors: torch.Tensor | None) -> bool:
    """Tells if offsets within so many rows need 64 bits."""
    return any(rows * t.stride(0) + t.shape[1] >= 2**31 for t in tensors if t is not None)


def in_tf32(x: torch.Tensor) -> bool:
    """Tells if torch multiplies float32 as tf32 here, so that this file may."""
    if x.dtype != torch.float32 or torch.version.hip:
        return False
    settings: Any = torch.backends.cuda.matmul
    precision = getattr(settings, "fp32_precision", None)  # from torch 2.9; set_float32_matmul_precision sets it too
    if precision is None:
        return bool(settings.allow_tf32)
    general: Any = torch.backends
    return bool((general.fp32_precision if precision == "none" else precision) == "tf32")
