"""Activation, functional, grid and stats functions against torch in float64, on both leaves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.tensor import (
    AttentionModuleOptions,
    ConvOptions,
    ConvTransposeOptions,
    Device,
    InterpolateMode,
    InterpolateOptions,
    PaddedConvOptions,
    Tensor,
    UnfoldOptions,
    activation,
    functional,
    grid,
    stats,
)
from tests.tensor.leaves import LEAVES, same, tensors, torches

Function = Callable[..., Any]

ACTIVATIONS: dict[str, list[tuple[Function, Function]]] = {
    "relu": [(activation.relu, F.relu)],
    "relu6": [(lambda x: activation.relu6(x * 9.0), lambda x: F.relu6(x * 9))],
    "leaky_relu": [
        (activation.leaky_relu, F.leaky_relu),
        (lambda x: activation.leaky_relu(x, 0.3), lambda x: F.leaky_relu(x, 0.3)),
    ],
    "thresholded_relu": [(lambda x: activation.thresholded_relu(x, 0.2), lambda x: torch.where(x > 0.2, x, 0.0))],
    "threshold": [(lambda x: activation.threshold(x, 0.1, -3.0), lambda x: F.threshold(x, 0.1, -3.0))],
    "elu": [(lambda x: activation.elu(x, 0.7), lambda x: F.elu(x, 0.7))],
    "celu": [(lambda x: activation.celu(x, 0.7), lambda x: F.celu(x, 0.7))],
    "selu": [(activation.selu, F.selu)],
    "gelu": [(activation.gelu, F.gelu)],
    "gelu_approximate": [(activation.gelu_approximate, lambda x: F.gelu(x, approximate="tanh"))],
    "silu": [(activation.silu, F.silu)],
    "mish": [(activation.mish, F.mish)],
    "softplus": [(lambda x: activation.softplus(x, 2.0), lambda x: F.softplus(x, 2.0))],
    "softsign": [(activation.softsign, F.softsign)],
    "tanh": [(activation.tanh, torch.tanh)],
    "tanhshrink": [(activation.tanhshrink, F.tanhshrink)],
    "sigmoid": [(activation.sigmoid, torch.sigmoid)],
    "log_sigmoid": [(activation.log_sigmoid, F.logsigmoid)],
    "hard_sigmoid": [(lambda x: activation.hard_sigmoid(x * 3.0), lambda x: (0.6 * x + 0.5).clamp(0, 1))],
    "hard_swish": [(lambda x: activation.hard_swish(x * 4.0), lambda x: F.hardswish(x * 4))],
    "hardtanh": [(activation.hardtanh, F.hardtanh)],
    "glu": [(activation.glu, F.glu), (lambda x: activation.glu(x.t(), 0), lambda x: F.glu(x.t(), 0))],
    "hard_shrink": [(activation.hard_shrink, F.hardshrink)],
    "soft_shrink": [(activation.soft_shrink, F.softshrink)],
    "shrink": [
        (
            lambda x: activation.shrink(x, 0.4, 0.1),
            lambda x: torch.where(x < -0.4, x + 0.1, torch.where(x > 0.4, x - 0.1, 0.0)),
        )
    ],
    "softmax": [(lambda x: activation.softmax(x, -1), lambda x: F.softmax(x, -1))],
    "softmin": [(lambda x: activation.softmin(x, 0), lambda x: F.softmin(x, 0))],
    "log_softmax": [(lambda x: activation.log_softmax(x, 0), lambda x: F.log_softmax(x, 0))],
    "quiet_softmax": [
        (lambda x: activation.quiet_softmax(x, -1), lambda x: x.exp() / (1 + x.exp().sum(-1, keepdim=True)))
    ],
}


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_equals_torch(name: str, leaf: str) -> None:
    for ours, theirs in ACTIVATIONS[name]:
        same(ours(tensors(LEAVES[leaf]())["x"]), theirs(torches()["x"]))


def test_every_activation_is_tested() -> None:
    assert {*ACTIVATIONS, "gumbel_softmax", "prelu"} == set(activation.__all__)


def make(leaf: str, *shapes: tuple[int, ...]) -> list[tuple[Tensor, torch.Tensor]]:
    g = np.random.default_rng(17)
    arrays = [g.normal(size=shape) for shape in shapes]
    return [(Tensor.from_data(a, LEAVES[leaf]()), torch.from_numpy(a)) for a in arrays]


leaves = pytest.mark.parametrize("leaf", LEAVES)


@leaves
def test_prelu(leaf: str) -> None:
    (x, tx), (alpha, ta) = make(leaf, (2, 3, 4), (3,))
    same(activation.prelu(x, alpha), F.prelu(tx, ta))
    same(activation.prelu(x, alpha[:1]), F.prelu(tx, ta[:1]))


@leaves
def test_linear_and_embedding(leaf: str) -> None:
    (x, tx), (w, tw), (b, tb) = make(leaf, (2, 5, 4), (4, 3), (3,))
    same(functional.linear(x, w, b), tx @ tw + tb)
    same(functional.linear(x[0], w), tx[0] @ tw)
    same(functional.linear(x[0, 0], w, b), tx[0, 0] @ tw + tb)
    k, tk = tensors(LEAVES[leaf]())["k"], torches()["k"]
    same(functional.embedding(w, k), F.embedding(tk, tw))


def test_linear_mixes_a_tracked_weight_with_a_plain_input() -> None:
    x = Tensor.from_floats([[1.0, 2.0]], Device.cpu())
    w = Tensor.ones((2, 3), Device.cpu().autodiff()).require_grad()
    gradient = w.grad(functional.linear(x, w).backward())
    assert gradient is not None
    assert gradient.tolist() == [[1.0] * 3, [2.0] * 3]
    b = Tensor.ones((3,), Device.cpu().autodiff()).require_grad()
    y = functional.linear(x, Tensor.ones((2, 3), Device.cpu()), b)
    assert b.grad(y.backward()).tolist() == [1.0] * 3  # type: ignore[union-attr]


@leaves
@pytest.mark.parametrize("n", [1, 2, 3])
def test_convolutions(n: int, leaf: str) -> None:
    spatial = (7, 6, 5)[:n]
    (x, tx), (w, tw), (b, tb) = make(leaf, (2, 4, *spatial), (6, 2, *(3, 2, 2)[:n]), (6,))
    conv, theirs = getattr(functional, f"conv{n}d"), getattr(F, f"conv{n}d")
    options = ConvOptions(stride=2, padding=1, dilation=1, groups=2)
    same(conv(x, w, b, options), theirs(tx, tw, tb, 2, 1, 1, 2))
    same(conv(x, w, None, ConvOptions(groups=2)), theirs(tx, tw, groups=2))
    pairs = ((1, 2), (0, 1), (2, 0))[:n]
    flat = [size for pair in reversed(pairs) for size in pair]
    same(conv(x, w, b, PaddedConvOptions(padding=pairs, groups=2)), theirs(F.pad(tx, flat), tw, tb, groups=2))
    (v, tv), (c, tc) = make(leaf, (4, 3, *(3, 2, 2)[:n]), (6,))
    transpose, theirs = getattr(functional, f"conv_transpose{n}d"), getattr(F, f"conv_transpose{n}d")
    chosen = ConvTransposeOptions(stride=2, padding=1, padding_out=1, groups=2)
    same(transpose(x, v, c, chosen), theirs(tx, tv, tc, 2, 1, 1, 2))
    same(transpose(x, v), theirs(tx, tv))


@leaves
def test_windows_as_columns(leaf: str) -> None:
    ((x, tx),) = make(leaf, (2, 3, 6, 5))
    options = UnfoldOptions(stride=(2, 1), padding=1, dilation=(1, 2))
    columns = functional.unfold4d(x, (3, 2), options)
    theirs = F.unfold(tx, (3, 2), (1, 2), 1, (2, 1))
    same(columns, theirs)
    same(functional.fold4d(columns, (6, 5), (3, 2), options), F.fold(theirs, (6, 5), (3, 2), (1, 2), 1, (2, 1)))


@leaves
@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools(n: int, leaf: str) -> None:
    ((x, tx),) = make(leaf, (2, 3, *(7, 6, 5)[:n]))
    pool, theirs = getattr(functional, f"max_pool{n}d"), getattr(F, f"max_pool{n}d")
    same(pool(x, 2), theirs(tx, 2))
    same(pool(x, 3, 2, 1, 1, True), theirs(tx, 3, 2, 1, 1, True))
    pool, theirs = getattr(functional, f"avg_pool{n}d"), getattr(F, f"avg_pool{n}d")
    same(pool(x, 2), theirs(tx, 2))
    same(pool(x, 3, 2, 1, False), theirs(tx, 3, 2, 1, count_include_pad=False))
    pool, theirs = getattr(functional, f"adaptive_avg_pool{n}d"), getattr(F, f"adaptive_avg_pool{n}d")
    same(pool(x, (4, 3, 2)[:n]), theirs(tx, (4, 3, 2)[:n]))
    if n < 3:
        pooled = getattr(functional, f"max_pool{n}d_with_indices")(x, 3, 2)
        same(pooled, getattr(F, f"max_pool{n}d")(tx, 3, 2, return_indices=True))


@leaves
def test_gradients_of_windows(leaf: str) -> None:
    (x, tx), (w, tw), (g, tg) = make(leaf, (2, 3, 6, 6), (4, 3, 3, 3), (2, 4, 4, 4))
    same(functional.conv2d_weight_backward(x, w, g), torch.nn.grad.conv2d_weight(tx, tw.shape, tg))
    (h, th) = make(leaf, (2, 3, 3, 3))[0]
    tx.requires_grad_()
    (expected,) = torch.autograd.grad(F.avg_pool2d(tx, 2), tx, th)
    same(functional.avg_pool2d_backward(x, h, 2, 2, 0, True), expected)
    values, indices = functional.max_pool2d_with_indices(x, 2, 2)
    (expected,) = torch.autograd.grad(F.max_pool2d(tx, 2), tx, th)
    same(functional.max_pool2d_with_indices_backward(x, 2, 2, 0, 1, False, h, indices), expected)
    assert values.shape == h.shape


@leaves
def test_interpolate_aligns_corners_unless_told(leaf: str) -> None:
    ((x, tx),) = make(leaf, (2, 3, 5, 4))
    same(functional.interpolate(x, (3, 8)), F.interpolate(tx, (3, 8)))
    for mode, theirs in ((InterpolateMode.Bilinear, "bilinear"), ("bicubic", "bicubic")):
        same(functional.interpolate(x, (7, 6), InterpolateOptions(mode)), F.interpolate(tx, (7, 6), None, theirs, True))
        options = InterpolateOptions(mode, align_corners=False)
        same(functional.interpolate(x, (7, 6), options), F.interpolate(tx, (7, 6), None, theirs, False))
    line, tline = x[:, :, 0], tx[:, :, 0]
    same(
        functional.interpolate(line, 9, InterpolateOptions("bilinear")),
        F.interpolate(tline, 9, mode="linear", align_corners=True),
    )
    assert functional.interpolate(x, 6, InterpolateOptions("lanczos3")).shape == (2, 3, 6, 6)


@leaves
def test_normalisations(leaf: str) -> None:
    (x, tx), (gamma, tg), (beta, tb), (mean, tm) = make(leaf, (2, 4, 3, 5), (5,), (5,), (4,))
    same(functional.layer_norm(x, gamma, beta, 1e-3), F.layer_norm(tx, (5,), tg, tb, 1e-3))
    same(functional.layer_norm(x, gamma), F.layer_norm(tx, (5,), tg))
    same(functional.rms_norm(x, gamma, 1e-3), F.rms_norm(tx, (5,), tg, 1e-3))
    same(functional.group_norm(x, 2, gamma[:4], beta[:4]), F.group_norm(tx, 2, tg[:4], tb[:4]))
    var = mean.square()
    expected = F.batch_norm(tx, tm, tm.square(), tg[:4], tb[:4], training=False, eps=1e-3)
    same(functional.batch_norm(x, gamma[:4], beta[:4], mean, var, 1e-3), expected)


@leaves
def test_attention_and_its_fallback(leaf: str) -> None:
    (q, tq), (k, tk), (v, tv), (bias, tb) = make(leaf, (2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7), (2, 1, 4, 6))
    mask = bias > 0.6
    hidden = torch.zeros(tb.shape, dtype=torch.float64).masked_fill(tb > 0.6, -math.inf)
    for f in (functional.attention, functional.attention_fallback):
        same(f(q, k, v), F.scaled_dot_product_attention(tq, tk, tv))
        same(f(q, k, v, mask, bias), F.scaled_dot_product_attention(tq, tk, tv, hidden + tb))
        options = AttentionModuleOptions(scale=0.3, is_causal=True)
        same(f(q, k, v, options=options), F.scaled_dot_product_attention(tq, tk, tv, is_causal=True, scale=0.3))
        scores = tq @ tk.mT / math.sqrt(5)
        capped = torch.softmax(2.0 * torch.tanh(scores / 2.0), -1) @ tv
        same(f(q, k, v, options=AttentionModuleOptions(softcap=2.0)), capped)


@leaves
def test_cross_entropy_with_logits(leaf: str) -> None:
    (x, tx), (y, ty) = make(leaf, (4, 3), (4, 3))
    probs = activation.softmax(y, 1)
    expected = F.cross_entropy(tx, torch.softmax(ty, 1)).reshape(1)
    same(functional.cross_entropy_with_logits(x, probs), expected)


# -- grids, statistics -------------------------------------------------------------------------------------
@leaves
def test_grids(leaf: str) -> None:
    (a, ta), (b, tb), (c, tc) = make(leaf, (2,), (3,), (4,))
    same(grid.meshgrid([a, b, c]), torch.meshgrid(ta, tb, tc, indexing="ij"))
    same(grid.meshgrid([a, b, c], "xy"), torch.meshgrid(ta, tb, tc, indexing="xy"))
    sparse = grid.meshgrid([a, b, c], "xy", "sparse")
    assert [x.shape for x in sparse] == [(1, 2, 1), (3, 1, 1), (1, 1, 4)]
    same([x.expand(3, 2, 4) for x in sparse], torch.meshgrid(ta, tb, tc, indexing="xy"))
    theirs = torch.meshgrid(ta, tb, indexing="ij")
    same(grid.meshgrid_stack([a, b]), torch.stack(theirs, -1))
    same(grid.meshgrid_stack([a, b], "first"), torch.stack(theirs))


@leaves
@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid behavior has changed")
@pytest.mark.parametrize("align", [True, False])
def test_affine_grids(align: bool, leaf: str) -> None:
    ((t, tt),) = make(leaf, (2, 2, 3))
    for size in ((2, 3, 4, 5), (2, 1, 1, 3)):
        same(grid.affine_grid_2d(t, size, align), F.affine_grid(tt, list(size), align_corners=align))


@leaves
def test_statistics_with_given_means(leaf: str) -> None:
    ours, theirs = tensors(LEAVES[leaf]()), torches()
    x, tx = ours["x"], theirs["x"]
    mean, tm = x.mean_dim(1), tx.mean(1, keepdim=True)
    same(stats.var(x, -1), tx.var(1, keepdim=True))
    same(stats.var_bias(x, 1), tx.var(1, correction=0, keepdim=True))
    same(stats.var_with_mean(x, mean, -1), tx.var(1, keepdim=True))
    same(stats.var_with_mean_bias(x, mean + 1.0, 1), (tx - tm - 1).square().mean(1, keepdim=True))
    same(stats.var_with_mean_n(x, mean, 1, 7), (tx - tm).square().sum(1, keepdim=True) / 7)
    same(stats.median(x, 0), tx.median(0, keepdim=True).values)
    same(stats.median_with_indices(x, 1), tuple(tx.median(1, keepdim=True)))
    assert stats.var_with_mean(x[:, :1], x[:, :1], 1).is_nan().all().item() is True


# -- errors ---------------------------------------------------------------------------------------------------
def test_errors() -> None:
    x, line = Tensor.ones((1, 2, 4, 4), Device.cpu()), Tensor.ones((5,), Device.cpu())
    with pytest.raises(ShapeError, match=r"(?s)glu: the axis does not have two halves.*even"):
        activation.glu(line)
    with pytest.raises(ShapeError, match=r"(?s)softmax: dim 3 is out of range.*-1 to 0"):
        activation.softmax(line, 3)
    with pytest.raises(ShapeError, match=r"(?s)conv1d: 1 spatial axes are needed.*batch, channels and 1 spatial"):
        functional.conv1d(x, x)
    with pytest.raises(DTypeError, match=r"(?s)avg_pool2d: stride is not one number for each axis.*one number, or 2"):
        functional.avg_pool2d(x, 2, (1, 2, 3))
    with pytest.raises(DTypeError, match=r"(?s)max_pool2d: kernel_size is not a whole number.*2.5"):
        functional.max_pool2d(x, 2.5)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ArgumentError, match=r"(?s)interpolate: there is no such InterpolateMode.*'area'.*'bilinear'"):
        functional.interpolate(x, 3, InterpolateOptions("area"))
    with pytest.raises(ShapeError, match=r"(?s)meshgrid: a grid is spanned by vectors.*one axis"):
        grid.meshgrid([x])
    with pytest.raises(ShapeError, match=r"(?s)affine_grid_2d: the transform does not fit the image"):
        grid.affine_grid_2d(x, (1, 2, 4, 4))
    with pytest.raises(ShapeError, match=r"(?s)linear: the input does not fit the weight.*given.*expected.*mend"):
        functional.linear(line, Tensor.ones((4, 2), Device.cpu()))
