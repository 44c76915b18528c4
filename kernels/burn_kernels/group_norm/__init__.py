"""Group norm of (batch, channels, *space), with an activation; instance norm has one channel a group.

    n = (x - mean) * rstd      y = act(n * w + b)      mean and biased var over a group's channels and space, by image

    g  = dy * act'(n * w + b)                    dw = sum of g * n                       db = sum of g
    dx = rstd * (g * w - mean of g * w - n * mean of g * w * n), means over the group

Limit: memory.  Forward moves 3 * numel elements (x in, x in again, y out), backward 5 (dy and x in twice, dx out); what
fits the L2 cache is read from memory once, and the second reading goes the opposite way, as in `batch_norm`.
Layout: channels before space, in order, or channels last: both are read in place; others are copied first.
Accumulates in float32; mean and rstd are float32, of float32 tensors float64: their rounding would be an error of each
result.  Deterministic: the backward sums each channel of each image, adds these over the channels of a group for dx,
and over images for dw and db, in a fixed order, no atomics.

One launch forward where groups fill the machine, otherwise three; four backward.  The kernels are in
`channel_norm.kernels`, the backward in `group_norm.launch_backward`.
Source: Wu and He 2018, https://arxiv.org/abs/1803.08494.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.channel_norm.configs import Config, candidates, default
from burn_kernels.channel_norm.kernels import forward_whole, join_moments, moments_of_parts, normalize
from burn_kernels.channel_norm.launching import launch_training
from burn_kernels.channel_norm.layout import (
    ACTIVATIONS,
    PLAIN,
    alike,
    check_norm,
    large_images,
    ordered,
    room_like,
    scaled,
    statistics_type,
    unfolded,
    words,
)
from burn_kernels.channel_norm.selection import activation_of, draw_weights, supports, work_of
from burn_kernels.group_norm.launch_backward import backward
from burn_kernels.group_norm.references import (
    SHAPES,
    check_groups,
    draw_images,
    elements,
    facts,
    groups_of,
    problems_with,
    reference,
    reference_backward,
    sizes_of,
    strides_of,
)
from burn_kernels.launch import contiguous, fill, wide_type
from burn_kernels.launcher import launcher
from burn_kernels.operators import Operator
from burn_kernels.spec import Draw, Problem, register_kernel

__all__ = ["ACTIVATIONS", "Config", "backward", "candidates", "default", "forward", "reference", "reference_backward"]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *others: object, backward: bool = False, **_: object) -> int:
    """x read twice and y written; backward x and dy read twice, dx written.  Vectors are small beside them."""
    return (5 if backward else 3) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *others: object, backward: bool = False, **_: object) -> int:
    """Per element some 10 operations forward, 24 backward."""
    return (24 if backward else 10) * x.numel()


# -- launchers ---------------------------------------------------------------------------------------
def _check(op: str, x: torch.Tensor, w: Any, b: Any, groups: int, *, activation: str = "none", **_: object) -> None:
    check_norm(op, x, {"w": w, "b": b}, activation)
    check_groups(op, x, groups)


@launcher("group_norm", "x (batch, channels, *space); w (channels), b (channels)", reference=reference, options=_check)
def forward(
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    groups: int,
    *,
    eps: float = 1e-5,
    activation: str = "none",
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Group norm: y, mean, rstd.

    Shapes: x (batch, channels, *space), w, b (channels,) or None -> y as x, mean and rstd (batch, groups).
    Dtypes: float32, float16, bfloat16; vectors in the type of x or float32; mean and rstd float32, of float32
    float64.  On the CPU float64.
    """
    kept = statistics_type(x.dtype)
    mean, rstd = (torch.empty(x.shape[0], groups, dtype=kept, device=x.device) for _ in range(2))
    if not x.numel():
        fill(math.nan, mean, rstd)
        return x.clone(), mean, rstd
    flat, last = ordered(x)
    y, tiling, per = alike(flat, last), groups_of(flat, last, groups), x.shape[1] // groups
    vectors = contiguous(w, b)
    tensors, statistics = (flat, *vectors, y), (mean, rstd, None, None, None, None)
    strides = (strides_of(flat, last, per), strides_of(y, last, per))
    place = "kept" if per == 1 else "col" if last else "row"

    def run(config: Config) -> None:
        launch_training(tensors, statistics, strides, (0.0, eps), tiling, config, activation=activation, place=place)

    flags = words(activation, last, w=w is not None, b=b is not None)
    call = (x.dtype, *sizes_of(flat, groups), tuple(strides[0]), flat.data_ptr() & 15, flags)
    FORWARD.run(x, config, call, run)
    return unfolded(y, x.shape), mean, rstd


# -- selection ---------------------------------------------------------------------------------------
def _tiling(facts: Facts) -> Any:
    (batch,), (channels, groups, space) = facts.free, facts.exact
    return groups_of(torch.empty(batch, channels, space, device="meta"), "last" in facts.flags.split(), groups)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    channels, groups, _ = facts.exact
    x = draw_images(facts, inputs)
    return Trial.of(forward, x, *draw_weights(facts, inputs, channels), groups, activation=activation_of(facts))


FORWARD = register_tunable(
    name="group_norm",
    config=Config,
    facts=facts,
    free=("batch",),
    exact=("channels", "groups", "space"),
    candidates=lambda facts, machine: candidates(_tiling(facts), facts.dtype.itemsize, machine),
    supports=supports,
    work=lambda config, facts, machine: work_of(_tiling(facts), config, facts, machine),
    trial=_trial,
    kernels=(forward_whole, moments_of_parts, join_moments, normalize),
    problems=problems_with("silu w b", "w b"),
    shapes=SHAPES,
    elements=elements,
)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    shapes = (((3, 6), 2), ((2, 6, 9), 3), ((2, 4, 5, 7), 1), ((1, 8, 40, 31), 4), ((2, 5, 6, 5), 5), ((0, 4, 3), 2))
    for number, (shape, groups) in enumerate(shapes):
        w, b = draw.normal(shape[1], mean=1.0, std=0.3), draw.normal(shape[1])
        yield Problem((draw.normal(*shape, mean=0.5), w, b, groups), {"activation": ACTIVATIONS[number % 3]})
    w, b = draw.normal(6, mean=1.0, std=0.3), draw.normal(6)
    last = draw.normal(2, 6, 7, 6).permute(0, 3, 1, 2)
    yield Problem((last, w, b, 2), {"activation": "silu"})
    yield Problem((last, w, None, 6), {"eps": 1e-3})  # instance norm
    yield Problem((draw.normal(2, 9, 4, 5)[:, 2:8], w, b, 3), {"activation": "relu"})
    yield Problem((draw.normal(4, 6, 6, 8)[..., ::2], None, None, 2))
    yield Problem((draw.normal(1, 2, 5000, mean=3.0), w[:2], b[:2], 1))


def _twin(
    x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, groups: int, *, eps: float = 1e-5,
    activation: str = "none",
) -> torch.Tensor:  # fmt: skip
    return PLAIN[activation](torch.nn.functional.group_norm(x, groups, _as(scaled(w, b), x), _as(b, x), eps))


def _as(v: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    return v if v is None or v.dtype == x.dtype else v.to(wide_type(x.dtype))


def _gradient(back: Any, dy: Any, inputs: Any, outputs: Any, *, activation: str = "none", **_: object) -> Any:
    return *back(dy, *inputs[:3], *outputs[1:], activation=activation), None


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    groups = draw.integer(1, 5)
    channels = groups * (draw.integer(1, 5) + 4 // groups)  # gradients of few weights may be sums in which all cancels
    tensors = draw.images(channels, least=2), *draw.vectors(channels, 2)
    return *tensors, groups, 1e-5, ACTIVATIONS[draw.integer(0, 3)]


def _statistics(x: torch.Tensor, groups: int) -> torch.Tensor:
    return torch.empty(x.shape[0], groups, dtype=statistics_type(x.dtype), device=x.device)


SPEC = register_kernel(
    forward,
    backward,
    gradient=_gradient,
    twin=_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
    large=lambda draw: (Problem((*image, 8), {"activation": "silu"}) for image in large_images(draw)),
    draw_call=_draw_call,
    operators=[
        Operator(
            schema="group_norm(Tensor x, Tensor? w, Tensor? b, int groups, float eps, str activation)"
            " -> (Tensor, Tensor, Tensor)",
            inputs="x w b groups",
            fake=lambda x, w, b, groups, *_: (room_like(x), *(_statistics(x, groups) for _ in range(2))),
            results="y mean rstd",
            gradients="x w b",
            saved="x w b mean rstd eps activation",
            recall=lambda saved: {"groups": saved["mean"].shape[1]},
            room=room_like,
            laid="x",
            images=True,
            autocast=("cuda",),
        )
    ],
)
