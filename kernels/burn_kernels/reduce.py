"""Reductions over any axes: sum, mean, var, logsumexp, amax, amin, argmax, argmin.

    sum = sum_i x_i             mean = sum / n              var = sum_i (x_i - mean)^2 / (n - correction)
    logsumexp = m + log(sum_i exp(x_i - m)), m = max_i x_i
    amax, amin: NaN where there is one                      argmax, argmin: the first of equals; the first NaN wins

    dsum = dy        dmean = dy / n        dvar = dy * 2 (x - mean) / (n - correction)
    dlogsumexp = dy * exp(x - y)           damax, damin = dy / ties where x = y: equals share alike

Limit: memory.  Forward reads x once; backward reads x and writes dx, of sum and mean nothing: dx is a view of dy.
Layout: any strides; axes that are neighbours in memory are joined, what is left of kept and of reduced axes may be two
each, beyond that a copy is made first.  Accumulates in float32, index arithmetic in int64.  Deterministic.

Each lane of a tile keeps its own running value (of var mean and squares by Welford, of logsumexp the maximum and one
exp an element, of argmax value and place), joined once.  Where results are too few to fill the machine, the reduced
axis is cut, and a second, small kernel joins the parts; argmax carries (key, place) as one 64-bit number.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.errors import KernelArgumentError, KernelShapeError, explain
from burn_kernels.launch import (
    FLOATS,
    Machine,
    ceil_div,
    check,
    describe,
    launch,
    machine_of,
    next_power,
    runs_kernel,
    wide_type,
)
from burn_kernels.prims import LOWEST, exp_for
from burn_kernels.spec import Draw, KernelSpec, Problem, register

KINDS = ("sum", "mean", "var", "logsumexp", "amax", "amin", "argmax", "argmin")
FEW = 32
"""Kept or reduced axes shorter than this are not worth programs of their own."""
MOST = 1 << 30
"""Longest part of a reduced axis: places within one fit 31 bits."""

Axes = int | Sequence[int] | None


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *_: Any, backward: bool = False, **__: Any) -> int:
    """x read; backward x read and dx written."""
    return (2 if backward else 1) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *_: Any, backward: bool = False, **__: Any) -> int:
    """Per element some 4 operations."""
    return 4 * x.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """A tile of `kept` results by `block` elements, `warps` of 32 threads, `programs` a processor to aim at."""

    kept: int
    block: int
    warps: int
    programs: int


def default(kept: int, length: int, itemsize: int, machine: Machine, *, along: bool = True) -> Config:
    """The config that is used without timing; `along` where the reduced axis is the one with neighbours in memory."""
    return candidates(kept, length, itemsize, machine, along=along)[0]


def candidates(kept: int, length: int, itemsize: int, machine: Machine, *, along: bool = True) -> list[Config]:
    """What a tuner may try, the default first."""
    found = []
    for elements, warps, programs in ((4096, 4, 8), (8192, 8, 4), (4096, 8, 8), (2048, 4, 16)):
        size = max(32, elements // itemsize)
        if along:
            block = min(next_power(length), size)
            found.append(Config(min(next_power(kept), max(1, size // block)), block, warps, programs))
        else:
            wide = min(next_power(kept), 256 // itemsize)
            found.append(Config(wide, min(next_power(length), max(1, size // wide)), warps, programs))
    return list(dict.fromkeys(found))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _place(
    kept, inner, outer_stride, inner_stride, length, chunks, chunk, far_stride, blocks, SPREAD: tl.constexpr,
    KEPT: tl.constexpr,
):  # fmt: skip
    """Where this program works: first elements, numbers of results, which are there, begin and end, its part."""
    pid = tl.program_id(0).to(tl.int64)
    block, part = pid % blocks, pid // blocks
    if SPREAD:  # inner is short: a tile spans several outers
        k = block * KEPT + tl.arange(0, KEPT)
        valid = k < kept
        first = (k // inner) * outer_stride + (k % inner) * inner_stride
    else:
        in_row = tl.cdiv(inner, KEPT)
        outer = block // in_row
        i = (block % in_row) * KEPT + tl.arange(0, KEPT)
        valid = i < inner
        first = outer * outer_stride + i * inner_stride
        k = outer * inner + i
    start = (part % chunks) * chunk
    return first + (part // chunks) * far_stride, k, valid, start, tl.minimum(start + chunk, length), part


@triton.jit
def _peak(x, AXIS: tl.constexpr):
    """The maximum along an axis, NaN where there is one."""
    odd = tl.max((x != x).to(tl.int32), AXIS)
    top = tl.max(tl.where(x != x, float("-inf"), x), AXIS)
    return tl.where(odd > 0, float("nan"), top)


@triton.jit
def _pack(value, place):
    """One number that is larger for the larger value, at equals for the smaller place; NaN is above all."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)  # -0 equals 0
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = tl.where(value != value, 0x7FFFFFFF, key)
    return (key.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
def _reduce(
    x_ptr, like_ptr, a_ptr, b_ptr, y_ptr, mean_ptr, kept, inner, outer_stride, inner_stride, length, stride, chunks,
    chunk, far_stride, blocks, divisor, KIND: tl.constexpr, WHOLE: tl.constexpr, SPREAD: tl.constexpr,
    KEPT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first, k, valid, start, end, part = _place(
        kept, inner, outer_stride, inner_stride, length, chunks, chunk, far_stride, blocks, SPREAD, KEPT
    )
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    SIGN: tl.constexpr = -1.0 if KIND == "amin" or KIND == "argmin" else 1.0
    lane = tl.arange(0, BLOCK)
    a = tl.zeros((KEPT, BLOCK), tl.float32)
    b = tl.zeros((KEPT, BLOCK), tl.float32)
    place = tl.zeros((KEPT, BLOCK), tl.int32)
    if KIND == "amax" or KIND == "amin" or KIND == "argmax" or KIND == "argmin":
        a += float("-inf")
    if KIND == "logsumexp":
        a += LOWEST
    if KIND == "ties":
        like = tl.load(like_ptr + k, mask=valid, other=0.0).to(tl.float32)[:, None]
    for at in tl.range(start, end, BLOCK):
        r = at + lane
        inside = valid[:, None] & (r < end)[None, :]
        where = x_ptr + first[:, None] + (r * stride)[None, :]
        if KIND == "sum" or KIND == "mean":
            a += tl.load(where, mask=inside, other=0.0).to(tl.float32)
        elif KIND == "ties":
            x = tl.load(where, mask=inside, other=float("nan")).to(tl.float32)
            a += tl.where(x == like, 1.0, 0.0)
        elif KIND == "var":
            x = tl.load(where, mask=inside, other=0.0).to(tl.float32)
            gap = tl.where(inside, x - a, 0.0)
            a += gap * (1.0 / ((at - start) // BLOCK + 1).to(tl.float32))
            b += gap * tl.where(inside, x - a, 0.0)
        elif KIND == "logsumexp":
            x = tl.load(where, mask=inside, other=float("-inf")).to(tl.float32)
            # the larger of the two has exponential 1: one exp an element
            e = exp_for(-tl.abs(x - a), TYPE)
            b = tl.where(x > a, b * e + 1.0, b + e)
            a = tl.maximum(a, x, propagate_nan=tl.PropagateNan.ALL)
        else:
            x = SIGN * tl.load(where, mask=inside, other=-SIGN * float("inf")).to(tl.float32)
            if KIND == "amax" or KIND == "amin":
                a = tl.maximum(a, x, propagate_nan=tl.PropagateNan.ALL)
            else:
                better = (x > a) | ((x != x) & (a == a))
                a = tl.where(better, x, a)
                place = tl.where(better, (at - start).to(tl.int32), place)
    out = part * kept + k
    if KIND == "sum" or KIND == "mean" or KIND == "ties":
        total = tl.sum(a, 1)
        if WHOLE:
            tl.store(y_ptr + k, (total / divisor).to(y_ptr.dtype.element_ty), mask=valid)
        else:
            tl.store(a_ptr + out, total, mask=valid)
    elif KIND == "var":
        seen = (tl.maximum(end - start - lane + BLOCK - 1, 0) // BLOCK).to(tl.float32)[None, :]
        mean = tl.sum(a * seen, 1) / (end - start).to(tl.float32)
        away = a - mean[:, None]
        squares = tl.sum(b + seen * away * away, 1)
        if WHOLE:
            tl.store(y_ptr + k, (squares / divisor).to(y_ptr.dtype.element_ty), mask=valid)
            tl.store(mean_ptr + k, mean, mask=valid)
        else:
            tl.store(a_ptr + out, mean, mask=valid)
            tl.store(b_ptr + out, squares, mask=valid)
    elif KIND == "logsumexp":
        top = _peak(a, 1)
        total = tl.sum(b * exp_for(a - top[:, None], TYPE), 1)
        if WHOLE:
            tl.store(y_ptr + k, _logarithm(top, total).to(y_ptr.dtype.element_ty), mask=valid)
        else:
            tl.store(a_ptr + out, top, mask=valid)
            tl.store(b_ptr + out, total, mask=valid)
    elif KIND == "amax" or KIND == "amin":
        top = _peak(a, 1)
        if WHOLE:
            tl.store(y_ptr + k, (SIGN * top).to(y_ptr.dtype.element_ty), mask=valid)
        else:
            tl.store(a_ptr + out, top, mask=valid)
    else:
        packed = _pack(a, place + lane[None, :])
        packed = tl.where((start + lane < end)[None, :], packed, -0x7FFFFFFFFFFFFFFF)
        top = tl.max(packed, 1)
        if WHOLE:
            tl.store(y_ptr + k, start + 0x7FFFFFFF - (top & 0x7FFFFFFF), mask=valid)
        else:
            tl.store(a_ptr + out, top, mask=valid)


@triton.jit
def _logarithm(top, total):
    # a sum with +inf in it is +inf, though inf - inf is no number
    return tl.where(top == float("inf"), top, top + tl.log(total))


@triton.jit
def _join(
    a_ptr, b_ptr, y_ptr, mean_ptr, kept, parts, length, chunks, chunk, divisor, KIND: tl.constexpr,
    PARTS: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)
    valid = k < kept
    lane = tl.arange(0, PARTS)
    a = tl.zeros((PARTS, KEPT), tl.float32)
    b = tl.zeros((PARTS, KEPT), tl.float32)
    if KIND == "argmax" or KIND == "argmin":
        best = tl.full((PARTS, KEPT), -0x7FFFFFFFFFFFFFFF, tl.int64)
        place = tl.zeros((PARTS, KEPT), tl.int64)
    if KIND == "amax" or KIND == "amin" or KIND == "logsumexp":
        a += float("-inf")
    for at in tl.range(0, parts, PARTS):
        part = (at + lane).to(tl.int64)
        inside = (part < parts)[:, None] & valid[None, :]
        where = (part * kept)[:, None] + k[None, :]
        if KIND == "argmax" or KIND == "argmin":
            packed = tl.load(a_ptr + where, mask=inside, other=-0x7FFFFFFFFFFFFFFF)
            better = (packed >> 32) > (best >> 32)
            best = tl.where(better, packed, best)
            place = tl.where(better, (part * chunk)[:, None], place)
        elif KIND == "var":
            seen = tl.minimum(length - (part % chunks) * chunk, chunk).to(tl.float32)[:, None]
            a += seen * tl.load(a_ptr + where, mask=inside, other=0.0)
        elif KIND == "sum" or KIND == "mean" or KIND == "ties":
            a += tl.load(a_ptr + where, mask=inside, other=0.0)
        else:
            found = tl.load(a_ptr + where, mask=inside, other=float("-inf"))
            a = tl.maximum(a, found, propagate_nan=tl.PropagateNan.ALL)
    if KIND == "argmax" or KIND == "argmin":
        key = best >> 32
        local = place + 0x7FFFFFFF - (best & 0x7FFFFFFF)
        local = tl.where(key == tl.max(key, 0)[None, :], local, 0x7FFFFFFFFFFFFFFF)
        tl.store(y_ptr + k, tl.min(local, 0), mask=valid)
    elif KIND == "sum" or KIND == "mean" or KIND == "ties":
        tl.store(y_ptr + k, (tl.sum(a, 0) / divisor).to(y_ptr.dtype.element_ty), mask=valid)
    elif KIND == "amax" or KIND == "amin":
        SIGN: tl.constexpr = -1.0 if KIND == "amin" else 1.0
        tl.store(y_ptr + k, (SIGN * _peak(a, 0)).to(y_ptr.dtype.element_ty), mask=valid)
    else:
        if KIND == "var":
            middle = tl.sum(a, 0) / (parts // chunks * length).to(tl.float32)
        else:
            middle = _peak(a, 0)
        for at in tl.range(0, parts, PARTS):
            part = (at + lane).to(tl.int64)
            inside = (part < parts)[:, None] & valid[None, :]
            where = (part * kept)[:, None] + k[None, :]
            if KIND == "var":
                seen = tl.minimum(length - (part % chunks) * chunk, chunk).to(tl.float32)[:, None]
                away = tl.load(a_ptr + where, mask=inside, other=0.0) - middle[None, :]
                away = tl.where(inside, away, 0.0)
                b += tl.load(b_ptr + where, mask=inside, other=0.0) + seen * away * away
            else:
                found = tl.load(a_ptr + where, mask=inside, other=float("-inf"))
                total = tl.load(b_ptr + where, mask=inside, other=0.0)
                b += tl.where(total > 0.0, total * exp_for(found - middle[None, :], tl.float32), 0.0)
        if KIND == "var":
            tl.store(y_ptr + k, (tl.sum(b, 0) / divisor).to(y_ptr.dtype.element_ty), mask=valid)
            tl.store(mean_ptr + k, middle, mask=valid)
        else:
            tl.store(y_ptr + k, _logarithm(middle, tl.sum(b, 0)).to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def _back(
    dy_ptr, x_ptr, like_ptr, ties_ptr, dx_ptr, kept, inner, outer_stride, inner_stride, length, stride, chunks, chunk,
    far_stride, blocks, divisor, KIND: tl.constexpr, SPREAD: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first, k, valid, start, end, _ = _place(
        kept, inner, outer_stride, inner_stride, length, chunks, chunk, far_stride, blocks, SPREAD, KEPT
    )
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    dy = tl.load(dy_ptr + k, mask=valid, other=0.0).to(tl.float32) / divisor
    like = tl.load(like_ptr + k, mask=valid, other=0.0).to(tl.float32)[:, None]
    if KIND == "extreme":
        dy = dy / tl.load(ties_ptr + k, mask=valid, other=1.0)
    for at in tl.range(start, end, BLOCK):
        r = at + tl.arange(0, BLOCK)
        inside = valid[:, None] & (r < end)[None, :]
        where = first[:, None] + (r * stride)[None, :]
        x = tl.load(x_ptr + where, mask=inside, other=0.0).to(tl.float32)
        if KIND == "var":
            dx = dy[:, None] * 2.0 * (x - like)
        elif KIND == "logsumexp":
            dx = dy[:, None] * exp_for(x - like, TYPE)
        else:
            dx = dy[:, None] * tl.where(x == like, 1.0, 0.0)
        tl.store(dx_ptr + where, dx.to(TYPE), mask=inside)


# -- layouts -----------------------------------------------------------------------------------------
class _Plan(NamedTuple):
    """x as kept axes (outer, inner) by reduced axes (far, length), with strides; results in order of (outer, inner)."""

    x: torch.Tensor
    outer: int
    inner: int
    outer_stride: int
    inner_stride: int
    far: int
    length: int
    far_stride: int
    stride: int


def _axes(op: str, x: torch.Tensor, dim: Axes) -> tuple[int, ...]:
    given = range(x.dim()) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    axes = [axis + x.dim() if axis < 0 else axis for axis in given]
    if any(not 0 <= axis < x.dim() for axis in axes) or len(set(axes)) < len(axes):
        raise KernelShapeError(
            explain(
                f"{op}: no such axes",
                given=f"dim {dim} of {describe({'x': x})}",
                expected=f"different axes from {-x.dim()} to {x.dim() - 1}, or None for all",
                mend="count axes from 0, or from the end with -1",
            )
        )
    return tuple(sorted(axes))


def _joined(x: torch.Tensor, axes: Sequence[int]) -> list[tuple[int, int]]:
    """Sizes and strides of these axes, neighbours in memory joined."""
    found: list[tuple[int, int]] = []
    for axis in axes:
        size, stride = x.shape[axis], x.stride(axis)
        if size == 1:
            continue
        if found and found[-1][1] == stride * size:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found


def _plan(x: torch.Tensor, axes: tuple[int, ...], *, ordered: bool) -> _Plan:
    kept_axes = [axis for axis in range(x.dim()) if axis not in axes]
    kept, reduced = _joined(x, kept_axes), _joined(x, axes)
    short = len(reduced) == 2 and reduced[1][0] < FEW
    if len(kept) > 2 or len(reduced) > (1 if ordered else 2) or short:
        x = x.permute(*kept_axes, *axes).contiguous()
        kept, reduced = _joined(x, range(len(kept_axes))), _joined(x, range(len(kept_axes), x.dim()))
    (outer, outer_stride), (inner, inner_stride) = ([(1, 0)] * 2 + kept)[-2:]
    (far, far_stride), (length, stride) = ([(1, 0)] * (2 - len(reduced)) + reduced)[-2:]
    return _Plan(x, outer, inner, outer_stride, inner_stride, far, length, far_stride, stride)


def _grid(plan: _Plan, config: Config, machine: Machine) -> tuple[int, bool, int, int]:
    """Blocks of results, whether a tile spans several outers, parts of the length and how long one is."""
    spread = plan.outer > 1 and plan.inner < FEW
    blocks = (
        ceil_div(plan.outer * plan.inner, config.kept) if spread else plan.outer * ceil_div(plan.inner, config.kept)
    )
    wanted = machine.processors * config.programs // (blocks * plan.far)
    longest = ceil_div(plan.length, 4 * config.block)  # a part has four tiles at least
    chunks = max(1, min(wanted, longest), ceil_div(plan.length, MOST))
    chunk = ceil_div(ceil_div(plan.length, chunks), config.block) * config.block
    return blocks, spread, ceil_div(plan.length, chunk), chunk


def _config(plan: _Plan, machine: Machine) -> Config:
    spread = plan.outer > 1 and plan.inner < FEW
    kept = plan.outer * plan.inner if spread else plan.inner
    along = plan.stride == 1 or plan.inner_stride != 1
    return default(kept, plan.length, plan.x.element_size(), machine, along=along)


# -- launchers ---------------------------------------------------------------------------------------
def sum(x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> torch.Tensor:
    """The sum over the axes `dim`, all if None, in the type of x.

    Shapes: x (*s) -> s without these axes, or with 1 in their place.
    Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    """
    return _run("sum", x, dim, keepdim, 0.0, config)[0]


def mean(x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> torch.Tensor:
    """The mean over the axes `dim`; shapes and types as `sum`.  Of no elements NaN."""
    return _run("mean", x, dim, keepdim, 0.0, config)[0]


def var(
    x: torch.Tensor,
    dim: Axes = None,
    *,
    correction: float = 1.0,
    keepdim: bool = False,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The variance over the axes `dim`, and the mean in float32; shapes and types as `sum`.

    The squares are divided by n - correction; NaN where that is not above 0.
    """
    y, middle = _run("var", x, dim, keepdim, correction, config)
    assert middle is not None
    return y, middle


def logsumexp(
    x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None
) -> torch.Tensor:
    """The logarithm of the sum of exponentials over the axes `dim`; shapes and types as `sum`."""
    return _run("logsumexp", x, dim, keepdim, 0.0, config)[0]


def amax(x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> torch.Tensor:
    """The largest element over the axes `dim`, NaN if there is one; shapes and types as `sum`."""
    return _run("amax", x, dim, keepdim, 0.0, config)[0]


def amin(x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> torch.Tensor:
    """The smallest element over the axes `dim`, NaN if there is one; shapes and types as `sum`."""
    return _run("amin", x, dim, keepdim, 0.0, config)[0]


def argmax(x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> torch.Tensor:
    """Where the largest element is along `dim`, or in x read in order if None: int64, the first of equals."""
    return _run("argmax", x, dim, keepdim, 0.0, config)[0]


def argmin(x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False, config: Config | None = None) -> torch.Tensor:
    """Where the smallest element is, as `argmax`."""
    return _run("argmin", x, dim, keepdim, 0.0, config)[0]


def sum_backward(dy: torch.Tensor, x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False) -> torch.Tensor:
    """The gradient of x: dy, shown at each element (a view)."""
    return _with_axes("sum backward", dy, x, dim, keepdim).expand(x.shape)


def mean_backward(dy: torch.Tensor, x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False) -> torch.Tensor:
    """The gradient of x: dy / n, shown at each element (a view)."""
    wide = _with_axes("mean backward", dy, x, dim, keepdim)
    return (wide / _count(x, _axes("mean backward", x, dim))).expand(x.shape)


def var_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    dim: Axes = None,
    *,
    correction: float = 1.0,
    keepdim: bool = False,
    config: Config | None = None,
) -> torch.Tensor:
    """The gradient of x from that of the variance; `mean` as `var` gave it."""
    return _run_back("var", dy, x, mean, dim, keepdim, correction, config)


def logsumexp_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    config: Config | None = None,
) -> torch.Tensor:
    """The gradient of x from that of `logsumexp`'s result y."""
    return _run_back("logsumexp", dy, x, y, dim, keepdim, 0.0, config)


def extreme_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    dim: Axes = None,
    *,
    keepdim: bool = False,
    config: Config | None = None,
) -> torch.Tensor:
    """The gradient of x from that of `amax`'s or `amin`'s result y: elements that equal y share it alike."""
    return _run_back("extreme", dy, x, y, dim, keepdim, 0.0, config)


def _count(x: torch.Tensor, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _shape(x: torch.Tensor, axes: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return tuple(size for axis, size in enumerate(x.shape) if axis not in axes)


def _with_axes(op: str, y: torch.Tensor, x: torch.Tensor, dim: Axes, keepdim: bool) -> torch.Tensor:
    """y with the reduced axes, of size 1."""
    axes = _axes(op, x, dim)
    check(op, {"dy": y, "x": x}, {"dy": _shape(x, axes, keepdim)}, alike=["dy", "x"])
    return y.reshape(_shape(x, axes, True))


def _check(kind: str, x: torch.Tensor, dim: Axes) -> tuple[int, ...]:
    axes = _axes(kind, x, dim)
    check(kind, {"x": x}, {}, alike=["x"])
    several = kind.startswith("arg") and dim is not None and not isinstance(dim, int)
    if several or (kind in KINDS[4:] and not _count(x, axes)):
        raise KernelArgumentError(
            explain(
                f"{kind}: {'places along several axes' if several else 'of no elements'}",
                given=f"dim {dim} of {describe({'x': x})}",
                expected="one axis, or None for a place in x read in order" if several else "at least one element",
                mend="flatten the axes first" if several else "leave such tensors out",
            )
        )
    return axes


def _run(
    kind: str, x: torch.Tensor, dim: Axes, keepdim: bool, correction: float, config: Config | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    axes = _check(kind, x, dim)
    if not runs_kernel(kind, x):
        return _reference(kind, x, axes, keepdim, correction)
    shape, count = _shape(x, axes, keepdim), _count(x, axes)
    places = kind in ("argmax", "argmin")
    y = torch.empty(shape, dtype=torch.int64 if places else x.dtype, device=x.device)
    middle = torch.empty(shape, dtype=torch.float32, device=x.device) if kind == "var" else None
    if not y.numel():
        return y, middle
    if not count:
        y.fill_({"sum": 0.0, "logsumexp": -math.inf}.get(kind, math.nan))
        return y, middle if middle is None else middle.fill_(math.nan)
    divisor = {"mean": float(count), "var": builtins.max(count - correction, 0.0)}.get(kind, 1.0)
    _forward(kind, x, axes, None, y, middle, divisor, config)
    return y, middle


def _forward(
    kind: str,
    x: torch.Tensor,
    axes: tuple[int, ...],
    like: torch.Tensor | None,
    y: torch.Tensor,
    middle: torch.Tensor | None,
    divisor: float,
    config: Config | None,
) -> None:
    plan, machine = _plan(x, axes, ordered=kind.startswith("arg")), machine_of(x)
    kept = plan.outer * plan.inner

    def run(config: Config) -> None:
        blocks, spread, chunks, chunk = _grid(plan, config, machine)
        parts = plan.far * chunks
        a = b = None
        if parts > 1:
            partial = torch.int64 if kind.startswith("arg") else torch.float32
            a = torch.empty(parts, kept, dtype=partial, device=x.device)
            b = torch.empty_like(a) if kind in ("var", "logsumexp") else None
        numbers = (kept, *plan[2:5], plan.length, plan.stride, chunks, chunk, plan.far_stride, blocks, divisor)
        tile = {"KEPT": config.kept, "BLOCK": config.block}
        arguments = (plan.x, like, a, b, y, middle, *numbers)
        launch(_reduce, (blocks * parts,), x, *arguments, warps=config.warps,
               KIND=kind, WHOLE=parts == 1, SPREAD=spread, **tile)  # fmt: skip
        if parts > 1:
            width = builtins.min(next_power(kept), 64)
            rest = (a, b, y, middle, kept, parts, plan.length, chunks, chunk, divisor)
            tile = {"PARTS": builtins.min(next_power(parts), 2048 // width), "KEPT": width}
            launch(_join, (ceil_div(kept, width),), x, *rest, warps=4, KIND=kind, **tile)

    run(config or _config(plan, machine))


def _run_back(
    kind: str,
    dy: torch.Tensor,
    x: torch.Tensor,
    like: torch.Tensor,
    dim: Axes,
    keepdim: bool,
    correction: float,
    config: Config | None,
) -> torch.Tensor:
    op = f"{kind} backward"
    axes = _axes(op, x, dim)
    shape = _shape(x, axes, keepdim)
    check(op, {"dy": dy, "x": x, "saved": like}, {"dy": shape, "saved": shape}, alike=["dy", "x"])
    if not runs_kernel(op, dy, x):
        return _reference_back(kind, dy, x, like, axes, correction)
    dx = torch.empty_like(x)
    if not x.numel():
        return dx
    if dx.stride() != x.stride():  # the same offsets serve both
        x = x.contiguous()
        dx = torch.empty_like(x)
    dy, like, machine = dy.contiguous(), like.contiguous(), machine_of(x)
    ties = None
    if kind == "extreme":
        ties = torch.empty(shape, dtype=torch.float32, device=x.device)
        _forward("ties", x, axes, like, ties, None, 1.0, config)
    plan = _plan(x, axes, ordered=False)
    out = dx
    if plan.x is not x:  # a copy in another order of axes
        out = torch.empty_like(plan.x)
    divisor = builtins.max(_count(x, axes) - correction, 0.0) if kind == "var" else 1.0

    def run(config: Config) -> None:
        blocks, spread, chunks, chunk = _grid(plan, config, machine)
        numbers = (*plan[2:5], plan.length, plan.stride, chunks, chunk, plan.far_stride, blocks, divisor)
        arguments = (dy, plan.x, like, ties, out, plan.outer * plan.inner, *numbers)
        tile = {"KEPT": config.kept, "BLOCK": config.block}
        launch(_back, (blocks * plan.far * chunks,), x, *arguments, warps=config.warps,
               KIND=kind, SPREAD=spread, **tile)  # fmt: skip

    run(config or _config(plan, machine))
    if out is dx:
        return dx
    order = [axis for axis in range(x.dim()) if axis not in axes] + list(axes)
    return dx.copy_(out.permute([order.index(axis) for axis in range(x.dim())]))


# -- reference ---------------------------------------------------------------------------------------
def reference(
    kind: str, x: torch.Tensor, dim: Axes = None, *, keepdim: bool = False, correction: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The reduction `kind`, one of KINDS, in plain torch; of var the mean too."""
    return _reference(kind, x, _check(kind, x, dim), keepdim, correction)


def _reference(
    kind: str, x: torch.Tensor, axes: tuple[int, ...], keepdim: bool, correction: float
) -> tuple[torch.Tensor, torch.Tensor | None]:
    wide, shape, count = x.to(wide_type(x.dtype)), _shape(x, axes, keepdim), _count(x, axes)
    if not axes:  # torch takes no axes for all axes
        wide = wide.unsqueeze(-1)
    over = axes or (-1,)
    middle = None
    if kind.startswith("arg"):
        flat = wide if len(over) == 1 else wide.flatten()
        return getattr(torch, kind)(flat, over[0] if len(over) == 1 else 0).reshape(shape), None
    if kind in ("amax", "amin"):
        y = getattr(torch, kind)(wide, over)
    elif kind == "logsumexp":
        y = torch.logsumexp(wide, over)
    else:
        y = wide.sum(over)
        if kind != "sum":
            y = y / count if count else torch.full_like(y, math.nan)
        if kind == "var":
            middle = y.reshape(shape)
            away = wide - y.reshape(_shape(x, axes, True) if axes else (*x.shape, 1))
            y = (away * away).sum(over) / builtins.max(count - correction, 0.0)
    return y.reshape(shape).to(x.dtype), middle


def _reference_back(
    kind: str, dy: torch.Tensor, x: torch.Tensor, like: torch.Tensor, axes: tuple[int, ...], correction: float
) -> torch.Tensor:
    kept = _shape(x, axes, True)
    wide, g, known = (t.to(wide_type(t.dtype)) for t in (x, dy.reshape(kept), like.reshape(kept)))
    if kind == "var":
        dx = g * 2 * (wide - known) / builtins.max(_count(x, axes) - correction, 0.0)
    elif kind == "logsumexp":
        dx = g * torch.exp(wide - known)
    else:
        same = (wide == known).to(wide.dtype)
        dx = g * same / (same.sum(axes, keepdim=True) if axes else same)
    return dx.to(x.dtype)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw, kind: str) -> Iterator[Problem]:
    one = [((5, 7), -1), ((5, 7), 0), ((3, 2049), 1), ((2049, 3), 0), ((4, 33, 40), 1), ((40, 33, 5), 1), ((6,), None)]
    one += [((2, 3, 5000), None), ((7, 70_001), 1), ((70_001, 2), 0)]
    for shape, dim in one:
        yield Problem((draw.normal(*shape, mean=0.5),), {"dim": dim})
    # torch warns of variances that are NaN, and of none at all
    whole = {"correction": 0.0} if kind == "var" else {}
    if kind != "var":
        yield Problem((draw.normal(0, 5),), {"dim": 1})
    yield Problem((draw.normal(1, 1),), {"dim": 1, **whole})
    yield Problem((draw.normal(6, 40)[::2, 3:20],), {"dim": 1, "keepdim": True})
    yield Problem((draw.normal(17, 6, 5).permute(2, 0, 1),), {"dim": 1})
    if kind not in ("argmax", "argmin"):
        for shape, dims in (((3, 4, 50), (0, 2)), ((3, 4, 5, 6), (0, 2, 3)), ((3, 4, 5, 6), (1, 3)), ((3, 2), (0, 1))):
            yield Problem((draw.normal(*shape),), {"dim": dims})
        yield Problem((draw.normal(9, 3, 40),), {"dim": (0, -1), "keepdim": True})
        yield Problem((draw.normal(4, 3),), {"dim": (), **whole})
    if kind in KINDS[:2] or kind == "logsumexp":
        yield Problem((draw.normal(3, 0),), {"dim": 1})
    if kind == "var":
        yield Problem((draw.normal(5, 9, mean=100.0),), {"dim": 1, "correction": 0.0})


def _twin(kind: str, x: torch.Tensor, dim: Axes = None, keepdim: bool = False, **options: Any) -> torch.Tensor:
    if dim == ():
        x, dim = x.unsqueeze(-1), -1
    if kind == "logsumexp":
        return torch.logsumexp(x, _axes(kind, x, dim), keepdim)
    if kind in ("amax", "amin"):
        found: torch.Tensor = getattr(torch, kind)(x, () if dim is None else dim, keepdim)
        return found
    call: Callable[..., torch.Tensor] = getattr(torch, kind)
    return call(x, dim, keepdim=keepdim, **options)


def _gradient(kind: str, kernels: bool, dy: Any, inputs: Any, outputs: Any, dim: Axes = None, **options: Any) -> Any:
    (x,) = inputs
    if kind == "sum":
        return (sum_backward(dy, x, dim, **options),)
    if kind == "mean":
        return (mean_backward(dy, x, dim, **options),)
    which = "extreme" if kind in ("amax", "amin") else kind
    saved = outputs[1] if kind == "var" else outputs[0]
    if kernels:
        back: Callable[..., torch.Tensor] = globals()[f"{which}_backward"]
        return (back(dy, x, saved, dim, **options),)
    return (_reference_back(which, dy, x, saved, _axes(kind, x, dim), options.get("correction", 1.0)),)


def _plain(kind: str, x: torch.Tensor, dim: Axes = None, **options: Any) -> Any:
    y, middle = reference(kind, x, dim, **options)
    return y if middle is None else (y, middle)


def _register(kind: str, run: Callable[..., Any]) -> KernelSpec:
    places = kind in ("argmax", "argmin")
    return register(
        KernelSpec(
            name=kind,
            forward=run,
            gradient=None if places else functools.partial(_gradient, kind, True),
            reference=functools.partial(_plain, kind),
            reference_gradient=None if places else functools.partial(_gradient, kind, False),
            twin=functools.partial(_twin, kind),
            bytes_moved=bytes_moved,
            flops=flops,
            problems=functools.partial(_problems, kind=kind),
            dtypes=FLOATS,
            limits="none in size; float64 on a GPU",
        )
    )


_FORWARDS: tuple[Callable[..., Any], ...] = (sum, mean, var, logsumexp, amax, amin, argmax, argmin)

SPECS = [_register(kind, run) for kind, run in zip(KINDS, _FORWARDS, strict=True)]
