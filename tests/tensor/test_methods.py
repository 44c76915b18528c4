"""Every method once, in float64 on both leaves, against torch."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from burn_torch import DType
from burn_torch.tensor import GridSampleOptions, IndexingUpdateOp, PadMode, Tensor, s
from tests.tensor.leaves import LEAVES, numbers, same, tensors, torches

Case = tuple[Callable[..., Any], Callable[..., Any]]


def whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Burn's reductions of everything have shape (1,)."""
    return lambda x: function(x).reshape(1)


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x, dim=1, keepdim=True)


def values(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: tuple(function(x))


def by_name(name: str) -> Callable[..., Any]:
    return lambda x: getattr(x, name)()


def scattered(dim: int, update: str) -> Callable[..., Any]:
    """scatter as a loop in Python."""

    def run(x: torch.Tensor, k: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y = y[:2]
        out = x.clone()
        for r in range(k.shape[0]):
            for c in range(k.shape[1]):
                at = (int(k[r, c]), c) if dim == 0 else (r, int(k[r, c]))
                old, new = out[at], y[r, c]
                out[at] = combined(update, old, new)
        return out

    return run


def combined(update: str, old: Any, new: Any) -> Any:
    return {"assign": new, "add": old + new, "mul": old * new, "min": min(old, new), "max": max(old, new)}[update]


def rows_combined(update: str) -> Callable[..., Any]:
    def run(x: torch.Tensor, r: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        for n, row in enumerate(r.tolist()):
            for c in range(4):
                out[row, c] = combined(update, out[row, c], y[n, c])
        return out

    return run


METHODS: dict[str, list[Case]] = {
    # -- shape ---------------------------------------------------------------------------------
    "rank": [(lambda q: q.rank(), lambda q: q.dim())],
    "dims": [(lambda q: q.dims(), lambda q: tuple(q.shape))],
    "num_elements": [(lambda q: q.num_elements(), lambda q: q.numel())],
    "reshape": [
        (lambda q: q.reshape(4, -1), lambda q: q.reshape(4, -1)),
        (lambda q: q.reshape([2, 12]), lambda q: q.reshape(2, 12)),
        (lambda q: q.reshape((0, -1)), lambda q: q.reshape(2, -1)),
        (lambda q: q.reshape(24), lambda q: q.reshape(24)),
        (lambda q: q.reshape(np.int64(6), 4), lambda q: q.reshape(6, 4)),
        (lambda x: x.narrow(0, 0, 0).reshape(4, 0), lambda x: x[:0].reshape(4, 0)),
    ],
    "flatten": [
        (lambda q: q.flatten(), lambda q: q.flatten()),
        (lambda q: q.flatten(1, -1), lambda q: q.flatten(1)),
        (lambda v: v.select_dim(0, 1).flatten(), lambda v: v[1].flatten()),
    ],
    "squeeze": [(lambda x: x.unsqueeze_dim(1).squeeze(), lambda x: x)],
    "squeeze_dim": [(lambda x: x.unsqueeze_dim(-1).squeeze_dim(-1), lambda x: x)],
    "squeeze_dims": [
        (lambda x: x.unsqueeze_dims([0, 2]).squeeze_dims([0, -2]), lambda x: x),
        (lambda x: x.unsqueeze_dims([0, 2]).squeeze_dims([]), lambda x: x),
    ],
    "unsqueeze": [
        (lambda x: x.unsqueeze(), lambda x: x[None]),
        (lambda x: x.unsqueeze(4), lambda x: x[None, None]),
    ],
    "unsqueeze_dim": [
        (lambda x: x.unsqueeze_dim(-1), lambda x: x.unsqueeze(-1)),
        (lambda x: x.unsqueeze_dim(1), lambda x: x.unsqueeze(1)),
    ],
    "unsqueeze_dims": [
        (lambda q: q.unsqueeze_dims([0, -1, -1]), lambda q: q[None, ..., None, None]),
        (lambda q: q.unsqueeze_dims([1, 1]), lambda q: q[:, None, None]),
    ],
    "expand": [
        (lambda x: x.expand(2, 3, 4), lambda x: x.expand(2, 3, 4)),
        (lambda x: x.narrow(0, 0, 1).expand([5, -1]), lambda x: x[:1].expand(5, 4)),
    ],
    "transpose": [(lambda q: q.transpose(), lambda q: q.mT)],
    "t": [(lambda x: x.t(), lambda x: x.t())],
    "swap_dims": [(lambda q: q.swap_dims(0, -1), lambda q: q.transpose(0, -1))],
    "permute": [
        (lambda q: q.permute(2, 0, 1), lambda q: q.permute(2, 0, 1)),
        (lambda q: q.permute([-1, 0, 1]), lambda q: q.permute(-1, 0, 1)),
    ],
    "movedim": [
        (lambda q: q.movedim(0, -1), lambda q: q.movedim(0, -1)),
        (lambda q: q.movedim([0, 1], [1, 2]), lambda q: q.movedim((0, 1), (1, 2))),
    ],
    "flip": [
        (lambda q: q.flip([0, -1]), lambda q: q.flip(0, 2)),
        (lambda q: q.flip(1), lambda q: q.flip(1)),
    ],
    "roll": [(lambda q: q.roll([1, -2], [0, -1]), lambda q: q.roll((1, -2), (0, 2)))],
    "roll_dim": [(lambda q: q.roll_dim(5, -1), lambda q: q.roll(5, 2))],
    "repeat": [
        (lambda x: x.repeat([2, 3]), lambda x: x.repeat(2, 3)),
        (lambda x: x.repeat(2, 1, 1), lambda x: x.repeat(2, 1, 1)),
    ],
    "repeat_dim": [(lambda x: x.repeat_dim(-1, 3), lambda x: x.repeat(1, 3))],
    "pad": [
        (lambda q: q.pad([(1, 2)]), lambda q: F.pad(q, (1, 2))),
        (lambda q: q.pad((1, 2, 0, 3), 1.5), lambda q: F.pad(q, (1, 2, 0, 3), value=1.5)),
        (lambda q: q.pad([(2, 1), (1, 2)], "reflect"), lambda q: F.pad(q[None], (1, 2, 2, 1), mode="reflect")[0]),
        (lambda q: q.pad([(2, 1), (1, 2)], PadMode.Edge), lambda q: F.pad(q[None], (1, 2, 2, 1), mode="replicate")[0]),
        (lambda i: i.pad([(1, 0), (0, 0)], PadMode.Constant(2.0)), lambda i: F.pad(i, (0, 0, 1, 0), value=2)),
    ],
    "unfold": [(lambda q: q.unfold(-1, 2, 2), lambda q: q.unfold(-1, 2, 2))],
    "cat": [(lambda x, y: Tensor.cat([x, y], -1), lambda x, y: torch.cat([x, y], -1))],
    "stack": [(lambda x, y: Tensor.stack([x, y], -1), lambda x, y: torch.stack([x, y], -1))],
    "iter_dim": [(lambda q: list(q.iter_dim(1)), lambda q: list(q.split(1, 1)))],
    "narrow": [(lambda q: q.narrow(-1, 1, 2), lambda q: q.narrow(-1, 1, 2))],
    "chunk": [
        (lambda v: v.chunk(3, 0), lambda v: list(v.chunk(3))),
        (lambda v: v.chunk(9), lambda v: list(v.chunk(9))),
    ],
    "split": [
        (lambda v: v.split(3, 0), lambda v: list(v.split(3))),
        (lambda v: v.split([3, 4]), lambda v: list(v.split([3, 4]))),
    ],
    "split_with_sizes": [(lambda q: q.split_with_sizes([1, 3], -1), lambda q: list(q.split([1, 3], -1)))],
    # -- indices ---------------------------------------------------------------------------------
    "slice": [
        (lambda q: q.slice([range(1, 2), slice(-2, None), slice(None, None, 2)]), lambda q: q[1:2, -2:, ::2]),
        (lambda q: q.slice(s[..., -1]), lambda q: q[..., -1:]),
    ],
    "slice_dim": [
        (lambda q: q.slice_dim(-1, s[1:3]), lambda q: q[..., 1:3]),
        (lambda q: q.slice_dim(1, range(2, -1, -1)), lambda q: q.flip(1)),
    ],
    "select_dim": [(lambda q: q.select_dim(-1, -2), lambda q: q[..., -2])],
    "select": [(lambda q, r: q.select(1, r), lambda q, r: q.index_select(1, r))],
    "take": [(lambda q, k: q.take(1, k), lambda q, k: q[:, k])],
    "gather": [(lambda x, k: x.gather(0, k), lambda x, k: x.gather(0, k))],
    "gather_nd": [
        (lambda q, r: q.gather_nd((r.narrow(0, 0, 2) % 2).reshape(1, 2)), lambda q, r: q[r[0] % 2, r[1] % 2][None]),
        (lambda q, k: q.gather_nd(k.narrow(1, 0, 1) % 2), lambda q, k: q[k[:, 0] % 2]),
    ],
    "slice_assign": [
        (
            lambda q, x: q.slice_assign(s[0, ::2, 1:3], x.slice(s[:2, :2]).unsqueeze()),
            lambda q, x: numpy_assigned(q, (slice(0, 1), slice(None, None, 2), slice(1, 3)), x[:2, :2]),
        ),
        (
            lambda q, x: q.slice_assign(s[:, ::-1], x),
            lambda q, x: q.clone().copy_(x.flip(0)),
        ),
    ],
    "slice_fill": [
        (
            lambda q: q.slice_fill(s[:, 1], 2),
            lambda q: numpy_assigned(q, (slice(None), slice(1, 2)), torch.tensor(2.0)),
        )
    ],
    "diagonal": [
        (lambda x: x.diagonal(), torch.diagonal),
        (lambda q: q.diagonal(-1, 2, -2), lambda q: q.diagonal(-1, 2, -2)),
    ],
    "diagonal_assign": [
        (
            lambda q, x: q.diagonal_assign(x.slice(s[:2, :3]), 1, 1, 2),
            lambda q, x: q.diagonal_scatter(x[:2, :3], 1, 1, 2),
        )
    ],
    "select_assign": [
        (lambda x, r, y, m=m: x.select_assign(0, r, y, m), rows_combined(m.value)) for m in IndexingUpdateOp
    ],
    "scatter": [
        (lambda x, k, y, m=m, d=d: x.scatter(d, k, y.narrow(0, 0, 2), m.value), scattered(d, m.value))
        for m in IndexingUpdateOp
        for d in (0, 1)
    ],
    "scatter_nd": [
        (
            lambda x, r, y: x.scatter_nd(r.reshape(3, 1), y, IndexingUpdateOp.Add),
            lambda x, r, y: x.index_add(0, r, y),
        )
    ],
    "mask_where": [
        (lambda x, b, y: x.mask_where(b, y), lambda x, b, y: torch.where(b, y, x)),
        (lambda x, b: x.mask_where(b, 1.5), lambda x, b: x.masked_fill(b, 1.5)),
    ],
    "mask_fill": [
        (lambda x, b: x.mask_fill(b, -1), lambda x, b: x.masked_fill(b, -1)),
        (lambda i, b: i.mask_fill(b, 2.0), lambda i, b: i.masked_fill(b, 2)),
    ],
    "mask_select": [(lambda x, b: x.mask_select(b), lambda x, b: x.masked_select(b))],
    "nonzero": [
        (lambda b: b.nonzero(), lambda b: list(b.nonzero(as_tuple=True))),
        (lambda i: i.nonzero(), lambda i: list(i.nonzero(as_tuple=True))),
    ],
    "argwhere": [(lambda b: b.argwhere(), lambda b: b.argwhere())],
    # -- arithmetic --------------------------------------------------------------------------------
    "add": [(lambda x, y: x.add(y), lambda x, y: x + y), (lambda i: i.add(3), lambda i: i + 3)],
    "sub": [(lambda x, y: x.sub(y), lambda x, y: x - y), (lambda x: x.sub(0.5), lambda x: x - 0.5)],
    "mul": [(lambda x, y: x.mul(y), lambda x, y: x * y)],
    "div": [
        (lambda x, p: x.div(p), lambda x, p: x / p),
        (lambda i, j: i.div(j), lambda i, j: torch.div(i, j, rounding_mode="trunc")),
    ],
    "remainder": [
        (lambda x, y: x.remainder(y), lambda x, y: torch.remainder(x, y)),
        (lambda i: i.remainder(4), lambda i: i % 4),
    ],
    "neg": [(lambda x: x.neg(), lambda x: -x)],
    "sign": [(lambda x: x.sign(), torch.sign), (lambda i: i.sign(), torch.sign)],
    "abs": [(lambda x: x.abs(), torch.abs)],
    "square": [(lambda x: x.square(), torch.square), (lambda i: i.square(), torch.square)],
    "powi": [(lambda i, j: i.powi(j), torch.pow), (lambda x: x.powi(3), lambda x: x**3)],
    "powf": [(lambda p, y: p.powf(y), torch.pow), (lambda p: p.powf(1.5), lambda p: p**1.5)],
    # -- reductions -----------------------------------------------------------------------------------
    **{
        name: [(lambda x, name=name: getattr(x, name)(), whole(getattr(torch, name)))]
        for name in ("sum", "mean", "prod", "max", "min")
    },
    **{
        f"{name}_dim": [(lambda x, name=name: getattr(x, f"{name}_dim")(-1), kept(getattr(torch, torchs)))]
        for name, torchs in {"sum": "sum", "mean": "mean", "prod": "prod", "max": "amax", "min": "amin"}.items()
    },
    "sum_dims": [(lambda q: q.sum_dims([0, -1]), lambda q: q.sum((0, 2), keepdim=True))],
    "sum_dims_squeeze": [
        (lambda q: q.sum_dims_squeeze([0, -1]), lambda q: q.sum((0, 2))),
        (lambda q: q.sum_dims_squeeze([]), lambda q: q),
    ],
    "mean_dims": [(lambda q: q.mean_dims([1, 2]), lambda q: q.mean((1, 2), keepdim=True))],
    "prod_dims": [(lambda q: q.prod_dims([1, 2]), lambda q: q.flatten(1).prod(1).reshape(2, 1, 1))],
    "max_dims": [(lambda q: q.max_dims([1, 2]), lambda q: q.amax((1, 2), keepdim=True))],
    "min_dims": [(lambda q: q.min_dims([0, 2]), lambda q: q.amin((0, 2), keepdim=True))],
    "max_abs": [(lambda x: x.max_abs(), lambda x: x.abs().max().reshape(1))],
    "max_abs_dim": [(lambda x: x.max_abs_dim(0), lambda x: x.abs().amax(0, keepdim=True))],
    "max_abs_dims": [(lambda q: q.max_abs_dims([0, 1]), lambda q: q.abs().amax((0, 1), keepdim=True))],
    "any": [(lambda b: b.any(), whole(torch.any)), (lambda i: i.any(), whole(torch.any))],
    "all": [(lambda b: b.all(), whole(torch.all)), (lambda x: x.all(), whole(torch.all))],
    "any_dim": [(lambda b: b.any_dim(-1), kept(torch.any))],
    "all_dim": [(lambda b: b.all_dim(-1), kept(torch.all))],
    "argmax": [(lambda x: x.argmax(-1), kept(torch.argmax))],
    "argmin": [(lambda x: x.argmin(-1), kept(torch.argmin))],
    "max_dim_with_indices": [(lambda x: x.max_dim_with_indices(-1), values(kept(torch.max)))],
    "min_dim_with_indices": [(lambda x: x.min_dim_with_indices(-1), values(kept(torch.min)))],
    "max_pair": [(lambda x, y: x.max_pair(y), torch.maximum)],
    "min_pair": [(lambda x, y: x.min_pair(y), torch.minimum)],
    "cumsum": [(lambda x: x.cumsum(-1), lambda x: x.cumsum(1))],
    "cumprod": [(lambda x: x.cumprod(-1), lambda x: x.cumprod(1))],
    "cummax": [(lambda x: x.cummax(-1), lambda x: x.cummax(1).values)],
    "cummin": [(lambda x: x.cummin(-1), lambda x: x.cummin(1).values)],
    # -- matrices -------------------------------------------------------------------------------------
    "matmul": [(lambda q, x: q.matmul(x.transpose()), lambda q, x: q @ x.mT)],
    "dot": [(lambda v, w: v.dot(w), lambda v, w: torch.dot(v, w).reshape(1))],
    "triu": [(lambda q: q.triu(1), lambda q: q.triu(1))],
    "tril": [(lambda q: q.tril(-1), lambda q: q.tril(-1)), (lambda i: i.tril(), torch.tril)],
    "cross": [(lambda x, y: x.cross(y, 0), lambda x, y: torch.linalg.cross(x, y, dim=0))],
    # -- bits and truth -----------------------------------------------------------------------------------
    "bitwise_and": [(lambda i, j: i.bitwise_and(j), torch.bitwise_and)],
    "bitwise_or": [(lambda i, j: i.bitwise_or(j), torch.bitwise_or)],
    "bitwise_xor": [(lambda i: i.bitwise_xor(5), lambda i: i ^ 5)],
    "bitwise_not": [(lambda i: i.bitwise_not(), torch.bitwise_not)],
    "bitwise_left_shift": [(lambda i, j: i.bitwise_left_shift(j), torch.bitwise_left_shift)],
    "bitwise_right_shift": [(lambda i: i.bitwise_right_shift(2), lambda i: i >> 2)],
    "bool_not": [(lambda b: b.bool_not(), torch.logical_not)],
    "bool_and": [(lambda b, c: b.bool_and(c), torch.logical_and)],
    "bool_or": [(lambda b, c: b.bool_or(c), torch.logical_or)],
    "bool_xor": [(lambda b, c: b.bool_xor(c), torch.logical_xor)],
    # -- order ---------------------------------------------------------------------------------------------
    "equal": [(lambda i, j: i.equal(j), torch.eq), (lambda b, c: b.equal(c), torch.eq)],
    "not_equal": [(lambda i: i.not_equal(3), lambda i: i != 3)],
    "greater": [(lambda x, y: x.greater(y), torch.gt)],
    "greater_equal": [(lambda i, j: i.greater_equal(j), torch.ge)],
    "lower": [(lambda x: x.lower(0.1), lambda x: x < 0.1)],
    "lower_equal": [(lambda i, j: i.lower_equal(j), torch.le)],
    "clamp": [
        (lambda x: x.clamp(-0.5, 0.5), lambda x: x.clamp(-0.5, 0.5)),
        (lambda i: i.clamp(-2.0, 2), lambda i: i.clamp(-2, 2)),
    ],
    "clamp_min": [(lambda x: x.clamp_min(0.1), lambda x: x.clamp(min=0.1))],
    "clamp_max": [(lambda x: x.clamp_max(0.1), lambda x: x.clamp(max=0.1))],
    "sort": [(lambda x: x.sort(-1), lambda x: x.sort(1).values)],
    "sort_descending": [(lambda x: x.sort_descending(0), lambda x: x.sort(0, descending=True).values)],
    "sort_with_indices": [(lambda x: x.sort_with_indices(-1), values(lambda x: x.sort(1)))],
    "sort_descending_with_indices": [
        (lambda x: x.sort_descending_with_indices(0), values(lambda x: x.sort(0, descending=True)))
    ],
    "argsort": [(lambda x: x.argsort(-1), lambda x: x.argsort(1))],
    "argsort_descending": [(lambda x: x.argsort_descending(-1), lambda x: x.argsort(1, descending=True))],
    "topk": [(lambda x: x.topk(2, -1), lambda x: x.topk(2, 1).values)],
    "topk_with_indices": [(lambda x: x.topk_with_indices(2, 0), values(lambda x: x.topk(2, 0)))],
    "argtopk": [(lambda x: x.argtopk(2, -1), lambda x: x.topk(2, 1).indices)],
    "one_hot": [(lambda k: k.one_hot(3), lambda k: F.one_hot(k, 3))],
    "one_hot_fill": [
        (
            lambda k: k.float().cast("f64").one_hot_fill(3, 5.0, -1.0, 1),
            lambda k: (F.one_hot(k, 3) * 6.0 - 1.0).double().movedim(-1, 1),
        )
    ],
    # -- floats ------------------------------------------------------------------------------------------------
    **{
        name: [(by_name(name), lambda x, name=name: getattr(torch, name)(x))]
        for name in [
            "exp",
            "expm1",
            "erf",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "atan",
            "asinh",
            "relu",
            "round",
            "floor",
            "ceil",
            "trunc",
            "deg2rad",
            "rad2deg",
        ]
    },
    **{
        name: [(lambda p, name=name: getattr(p, name)(), lambda p, name=name: getattr(torch, name)(p))]
        for name in ("log", "log1p", "sqrt", "rsqrt")
    },
    **{
        name: [(lambda u, name=name: getattr(u, name)(), lambda u, name=name: getattr(torch, name)(u))]
        for name in ("asin", "acos", "atanh", "erfinv")
    },
    "acosh": [(lambda p: (p + 1.0).acosh(), lambda p: torch.acosh(p + 1))],
    "recip": [(lambda p: p.recip(), torch.reciprocal)],
    "atan2": [(lambda x, y: x.atan2(y), torch.atan2)],
    "hypot": [(lambda x, y: x.hypot(y), torch.hypot)],
    "logaddexp": [(lambda x, y: x.logaddexp(y), torch.logaddexp)],
    "fmod": [(lambda x, p: x.fmod(p), torch.fmod), (lambda x: x.fmod(0.3), lambda x: x.fmod(0.3))],
    "var": [(lambda x: x.var(-1), lambda x: x.var(1, keepdim=True))],
    "var_bias": [(lambda x: x.var_bias(-1), lambda x: x.var(1, correction=0, keepdim=True))],
    "var_mean": [(lambda x: x.var_mean(-1), lambda x: torch.var_mean(x, 1, keepdim=True))],
    "var_mean_bias": [(lambda x: x.var_mean_bias(0), lambda x: torch.var_mean(x, 0, correction=0, keepdim=True))],
    "median": [(lambda x: x.median(-1), lambda x: x.median(1, keepdim=True).values)],
    "median_with_indices": [(lambda x: x.median_with_indices(0), values(lambda x: x.median(0, keepdim=True)))],
    "cov": [
        (lambda x: x.cov(0, 1), lambda x: torch.cov(x.T)),
        (lambda x: x.cov(1, 0), lambda x: torch.cov(x, correction=0)),
    ],
    "logsumexp_dim": [(lambda x: x.logsumexp_dim(-1), lambda x: torch.logsumexp(x, 1, keepdim=True))],
    "is_nan": [(lambda n: n.is_nan(), torch.isnan)],
    "contains_nan": [
        (lambda n: n.contains_nan(), lambda n: torch.tensor([True])),
        (lambda x: x.contains_nan(), lambda x: torch.tensor([False])),
    ],
    "is_inf": [(lambda n: n.is_inf(), torch.isinf)],
    "is_finite": [(lambda n: n.is_finite(), torch.isfinite)],
    "is_close": [
        (lambda x: x.is_close(x + 1e-9), lambda x: torch.isclose(x, x + 1e-9)),
        (lambda x, y: x.is_close(y, 0.5, 0.1), lambda x, y: torch.isclose(x, y, 0.5, 0.1)),
        (lambda n, x: n.is_close(x), lambda n, x: torch.isclose(n, x)),
        (lambda n: n.is_close(n), lambda n: torch.isclose(n, n)),
        (lambda n, x: x.is_close(n), lambda n, x: torch.isclose(x, n)),
    ],
    "all_close": [
        (lambda x: x.all_close(x + 1e-9), lambda x: True),
        (lambda x, y: x.all_close(y), lambda x, y: False),
        (lambda x: x.all_close(x + 0.05, rtol=0.0, atol=0.1), lambda x: True),
    ],
    "grid_sample_2d": [
        (
            lambda q, u: q.unsqueeze().grid_sample_2d(u.reshape(1, 2, 3, 2)),
            lambda q, u: F.grid_sample(q[None], u.reshape(1, 2, 3, 2), align_corners=False),
        ),
        (
            lambda q, x: q.unsqueeze().grid_sample_2d(
                x.reshape(1, 2, 3, 2), GridSampleOptions("nearest", "border", True)
            ),
            lambda q, x: F.grid_sample(
                q[None], x.reshape(1, 2, 3, 2), mode="nearest", padding_mode="border", align_corners=True
            ),
        ),
    ],
    "cast": [(lambda x: x.cast(DType.I32), lambda x: x.int()), (lambda i: i.cast("f16"), lambda i: i.half())],
    "float": [(lambda i: i.float(), lambda i: i.float()), (lambda b: b.float(), lambda b: b.float())],
    "int": [(lambda x: x.int(), lambda x: x.long())],
    "bool": [(lambda i: i.bool(), lambda i: i.bool())],
    # -- of another tensor's shape ----------------------------------------------------------------------------------
    "zeros_like": [(lambda x: x.zeros_like(), torch.zeros_like)],
    "ones_like": [(lambda i: i.ones_like(), torch.ones_like)],
    "full_like": [(lambda i: i.full_like(3.0), lambda i: torch.full_like(i, 3))],
    "empty_like": [(lambda x: x.empty_like(), torch.zeros_like)],
    # -- data ------------------------------------------------------------------------------------------------------
    "tolist": [(lambda i: i.tolist(), lambda i: i.tolist())],
    "to_vec_as": [(lambda i: i.to_vec_as("f32"), lambda i: i.float().flatten().tolist())],
    "into_scalar": [(lambda x: x.sum().into_scalar(), lambda x: pytest.approx(x.sum().item(), 1e-14))],
    "to_data_dtype": [
        (lambda i: i.to_data_dtype(DType.F16).to_list(), lambda i: i.half().tolist()),
    ],
    "into_data": [(lambda b: b.into_data().to_list(), lambda b: b.tolist())],
    "detach": [(lambda x: x.detach(), lambda x: x)],
    "dequantize": [(lambda x: x.dequantize(), lambda x: x)],
    "no_grad": [(lambda x: x.no_grad(), lambda x: x)],
    "is_require_grad": [(lambda x: x.is_require_grad(), lambda x: False)],
}

ASYNC = {
    "mask_select_async": (lambda x, b: x.mask_select_async(b), lambda x, b: x.masked_select(b)),
    "nonzero_async": (lambda b: b.nonzero_async(), lambda b: list(b.nonzero(as_tuple=True))),
    "argwhere_async": (lambda b: b.argwhere_async(), lambda b: b.argwhere()),
    "into_scalar_async": (lambda i: i.sum().into_scalar_async(), lambda i: i.sum().item()),
}

ELSEWHERE = {
    "test_autodiff.py": "backward grad grad_remove grad_replace require_grad set_require_grad inner from_inner",
    "test_creation.py": "from_data from_floats from_ints from_bool full zeros ones empty arange arange_step eye "
    "cartesian_grid triu_mask tril_mask diag_mask random random_like categorical",
    "test_exchange.py": "from_torch from_dlpack into_torch to_device device into_data_async",
    "test_device.py": "with_gradient_checkpointing_strategy",
    "this file": "shape dtype ndim place is_number backend primitive spec new_full",
    "test_quantization.py": "quantize quantize_dynamic",
    "test_sets.py": "unique unique_with_counts bincount searchsorted quantile std std_bias where nan_to_num index_put "
    "linspace tril_indices triu_indices",
}


def numpy_assigned(x: torch.Tensor, at: Any, value: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    out[at] = value
    return out


def call(function: Callable[..., Any], named: dict[str, Any]) -> Any:
    """Calls with the inputs that the parameters name; those of torch take them in the same places."""
    return function(*[named[name] for name in names(function)])


def names(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty]


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("method", METHODS)
def test_method_equals_torch(method: str, leaf: str) -> None:
    for ours, theirs in METHODS[method]:
        inputs = names(ours)
        reference = theirs(*[torches()[name] for name in inputs])
        same(call(ours, tensors(LEAVES[leaf]())), reference)


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("method", ASYNC)
def test_async_method_equals_torch(method: str, leaf: str) -> None:
    ours, theirs = ASYNC[method]
    same(asyncio.run(call(ours, tensors(LEAVES[leaf]()))), call(theirs, torches()))


def own(cls: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(cls, name)
        for name in dir(cls)
        if not name.startswith("_") and name not in dir(object)
    }


def test_every_method_is_tested() -> None:
    functions = own(Tensor)
    tested = {*METHODS, *ASYNC, *" ".join(ELSEWHERE.values()).split()}
    aliases = {name for name, f in functions.items() if getattr(f, "__name__", name) in tested}
    assert sorted(set(functions) - tested - aliases) == []


def test_every_method_is_documented_and_typed() -> None:
    for name, member in own(Tensor).items():
        function = getattr(member, "__func__", getattr(member, "fget", None) or member)
        if not inspect.isfunction(function):
            continue  # a slot
        assert inspect.getdoc(function), name
        signature = inspect.signature(function)
        assert signature.return_annotation is not signature.empty, name
        for parameter in signature.parameters.values():
            assert parameter.name in ("self", "cls") or parameter.annotation is not parameter.empty, name


def test_numbers_of_numpy_count_as_numbers() -> None:
    for device in (make() for make in LEAVES.values()):
        x = tensors(device)["x"]
        same(x.add(np.float64(0.5)), numbers()["x"] + 0.5)
        same(tensors(device)["i"].mul(np.int64(3)), numbers()["i"] * 3)


def test_deg2rad_is_exact_at_180() -> None:
    assert Tensor.from_floats([180.0], LEAVES["torch"]()).cast("f64").deg2rad().item() == math.pi
