"""What `check` knows of operators over images: added to the tables of `_problems` when this is imported."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from burn_kernels import convolution
from burn_kernels.channel_norm.layout import ACTIVATIONS, PLAIN, scaled
from burn_kernels.spec import Draw
from burn_kernels.torch._problems import ADAPTERS, DRAWN, Adapter, Call

__all__: list[str] = []


def _integer(draw: Draw, low: int, high: int) -> int:
    return int(draw.integers(low, high, 1))


def _images(draw: Draw, channels: int, *, least: int = 1) -> torch.Tensor:
    """Images in one of the layouts that a model may have: in order, channels last, some of more channels, cut."""
    batch, height, width = _integer(draw, 1, 5), _integer(draw, least, 9), _integer(draw, max(least, 5), 12)
    layout = _integer(draw, 0, 5)
    if layout == 0:
        return draw.normal(batch, height, width, channels).movedim(3, 1)
    if layout == 1:
        return draw.normal(batch, channels + 3, height, width)[:, 1 : channels + 1]
    if layout == 2:
        return draw.normal(batch, channels, height, width + 4)[..., 2:-2]
    return draw.normal(batch, channels, height, width)


def _weights(draw: Draw, channels: int) -> tuple[torch.Tensor | None, ...]:
    return tuple(None if _integer(draw, 0, 5) == 0 else draw.normal(channels, mean=0.7) for _ in range(2))


# -- batch norm ----------------------------------------------------------------------------------------
def _batch_norm(x: Any, w: Any, b: Any, mean: object, var: object, momentum: float, eps: float, activation: str) -> Any:
    return PLAIN[activation](F.batch_norm(x, None, None, scaled(w, b), b, True, momentum, eps))


def _batch_norm_eval(x: Any, w: Any, b: Any, mean: Any, var: Any, eps: float, activation: str) -> Any:
    return PLAIN[activation](F.batch_norm(x, mean, var, scaled(w, b), b, False, 0.0, eps))


def _draw_batch_norm(draw: Draw) -> Call:
    channels = _integer(draw, 4, 20)
    x = draw.normal(_integer(draw, 4, 40), channels) if _integer(draw, 0, 4) == 0 else _images(draw, channels)
    running = (draw.normal(channels), draw.normal(channels).square()) if _integer(draw, 0, 2) else (None, None)
    return Call("batch_norm", (x, *_weights(draw, channels), *running, 0.1, 1e-5, ACTIVATIONS[_integer(draw, 0, 3)]))


def _draw_batch_norm_eval(draw: Draw) -> Call:
    channels = _integer(draw, 4, 20)
    statistics = draw.normal(channels), draw.normal(channels).square() + 0.1
    w, _ = _weights(draw, channels)
    # with a bias: where there is none a half x may equal the mean, and a ReLU has no slope there
    args = (_images(draw, channels), w, draw.normal(channels), *statistics)
    return Call("batch_norm_eval", (*args, 1e-5, ACTIVATIONS[_integer(draw, 0, 3)]))


# -- group norm ----------------------------------------------------------------------------------------
def _group_norm(x: Any, w: Any, b: Any, groups: int, eps: float, activation: str) -> Any:
    return PLAIN[activation](F.group_norm(x, groups, scaled(w, b), b, eps))


def _draw_group_norm(draw: Draw) -> Call:
    groups = _integer(draw, 1, 5)
    per = _integer(draw, 1, 5) + 4 // groups  # the gradients of few weights may be sums in which all cancels
    args = (_images(draw, groups * per, least=2), *_weights(draw, groups * per))
    return Call("group_norm", (*args, groups, 1e-5, ACTIVATIONS[_integer(draw, 0, 3)]))


# -- convolution ---------------------------------------------------------------------------------------
def _convolution(*args: Any) -> Any:
    (op,) = convolution.SPEC.complete_operators()
    inputs, _, options = op.call_of(dict(zip(op.arguments(), args, strict=True)))
    assert op.twin is not None
    return op.twin(*inputs, **options)


def _draw_convolution(draw: Draw) -> Call:
    groups = (1, 1, 2, 3)[_integer(draw, 0, 4)]
    sources, targets = _integer(draw, 1, 5), _integer(draw, 1, 7)
    kernel = _integer(draw, 1, 4), _integer(draw, 1, 4)
    x = _images(draw, groups * sources, least=7)
    w = draw.normal(groups * targets, sources, *kernel, std=0.5)
    pool = convolution.POOLS[_integer(draw, 0, 3)]
    seed = draw.integers(-(2**62), 2**62, 2) if _integer(draw, 0, 3) == 0 else None
    steps = [_integer(draw, 1, 3)] * 2, [_integer(draw, 0, 2), _integer(draw, 0, 2)], [1, 1]
    rest = (groups, bool(_integer(draw, 0, 2)), pool, 2, 0.0 if seed is None else 0.3, seed)
    b = draw.normal(groups * targets) if _integer(draw, 0, 3) else None
    return Call("convolution", (x, w, b, *steps, *rest))


# -- the tables ----------------------------------------------------------------------------------------
ADAPTERS |= {
    "batch_norm": Adapter(
        names=("images", "w", "b", "running_mean", "running_var", "momentum", "eps", "activation"),
        graded=(0, 1, 2),
        twin=_batch_norm,
        label=lambda args: "batch_norm",
    ),
    "batch_norm_eval": Adapter(
        names=("images", "w", "b", "mean", "var", "eps", "activation"),
        graded=(0, 1, 2),
        twin=_batch_norm_eval,
        label=lambda args: "batch_norm_eval",
    ),
}
ADAPTERS["convolution"] = Adapter(
    names=(
        *("images", "w", "b", "stride", "padding", "dilation", "groups", "relu", "pool", "window", "prob"),
        "seed",
    ),
    graded=(0, 1, 2),
    twin=_convolution,
    label=lambda args: "convolution",
)
ADAPTERS["group_norm"] = Adapter(
    names=("images", "w", "b", "groups", "eps", "activation"),
    graded=(0, 1, 2),
    twin=_group_norm,
    label=lambda args: "group_norm",
)
DRAWN |= {
    "group_norm": _draw_group_norm,
    "convolution": _draw_convolution,
    "batch_norm": _draw_batch_norm,
    "batch_norm_eval": _draw_batch_norm_eval,
}
