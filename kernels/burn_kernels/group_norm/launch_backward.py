"""The backward of group norm, and its reference; the formulas are in `group_norm`."""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.channel_norm.configs import Config, candidates
from burn_kernels.channel_norm.kernels import join_groups, join_sums, slopes_of_parts, sums_of_parts
from burn_kernels.channel_norm.launching import launch_join, launch_slopes
from burn_kernels.channel_norm.layout import Tiling, alike, check_norm, in_order_of, ordered, unfolded, words
from burn_kernels.channel_norm.selection import activation_of, draw_weights, supports, work_of_backward
from burn_kernels.group_norm.references import (
    SHAPES,
    Gradients,
    channels_of,
    check_groups,
    draw_images,
    elements,
    facts,
    problems_with,
    reference,
    reference_backward,
    sizes_of,
    strides_of,
)
from burn_kernels.launch import ceil_div, check, contiguous, fill, launch, next_power
from burn_kernels.launcher import launcher


# -- launchers ---------------------------------------------------------------------------------------
def _check(
    op: str, dy: Any, x: torch.Tensor, w: Any, b: Any, mean: torch.Tensor, rstd: Any, *, activation: str = "none",
    **_: object,
) -> None:  # fmt: skip
    check_norm(op, x, {"w": w, "b": b}, activation)
    groups = mean.shape[-1] if mean.dim() == 2 else 0
    check_groups(op, x, groups)
    check(op, {"mean": mean, "rstd": rstd}, dict.fromkeys(("mean", "rstd"), (x.shape[0], groups)), alike=[])


@launcher(
    "group_norm backward",
    "dy as x, x (batch, channels, *space); w (channels), b (channels), mean, rstd",
    reference=reference_backward,
    options=_check,
)
def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    activation: str = "none",
    config: Config | None = None,
) -> Gradients:
    """The gradients of x, w and b; those of w and b are None where these are.

    mean and rstd are those of the forward, (batch, groups).  The activation's slope is computed again from x.
    """
    dw, db = (None if t is None else torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (w, b))
    if not x.numel():
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        fill(0.0, dw, db)
        return dx, dw, db
    flat, last = ordered(x)
    g, dx = in_order_of(dy, last), alike(flat, last)
    tiling, groups = channels_of(flat, last), mean.shape[1]
    per = x.shape[1] // groups
    strides = (strides_of(g, last, 1), strides_of(flat, last, 1), strides_of(dx, last, 1))
    w, b = contiguous(w, b)
    inputs = (g, flat, w, b, mean.contiguous(), rstd.contiguous())

    def join(along: torch.Tensor, offset: torch.Tensor, parts: int) -> list[torch.Tensor]:
        means = [torch.empty(mean.shape, dtype=torch.float32, device=x.device) for _ in range(2)]
        wide, count = min(next_power(per), 64), float(per * flat.shape[2])
        joined = (along, offset, w, *means, mean.numel(), tiling.inner, per, parts, tiling.kept, count)
        kept = max(1, 128 // wide)
        launch(join_groups, (ceil_div(mean.numel(), kept),), x, *joined, warps=2, KEPT=kept, PER=wide)
        if dw is not None or db is not None:
            launch_join((along, offset, None), (None, None), (dw, db), tiling.inner, parts * tiling.outer)
        return means

    def run(config: Config) -> None:
        launch_slopes(inputs, dx, strides, tiling, config, join, per=per, TRAINED=True, KIND=activation)

    address = (g.data_ptr() | flat.data_ptr()) & 15
    flags = words(activation, last, w=w is not None, b=b is not None)
    BACKWARD.run(x, config, (x.dtype, *sizes_of(flat, groups), (*strides[0], *strides[1]), address, flags), run)
    return unfolded(dx, x.shape), dw, db


# -- selection ---------------------------------------------------------------------------------------
def _tiling(facts: Facts) -> Tiling:
    (batch,), (channels, _, space) = facts.free, facts.exact
    return channels_of(torch.empty(batch, channels, space, device="meta"), "last" in facts.flags.split())


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    channels, groups, _ = facts.exact
    x, (w, b) = draw_images(facts, inputs), draw_weights(facts, inputs, channels)
    dy = inputs.normal(*x.shape, dtype=facts.dtype)
    _, mean, rstd = reference(x, w, b, groups)
    return Trial.of(backward, dy, x, w, b, mean, rstd, activation=activation_of(facts))


BACKWARD = register_tunable(
    name="group_norm backward",
    config=Config,
    facts=facts,
    free=("batch",),
    exact=("channels", "groups", "space"),
    candidates=lambda facts, machine: candidates(_tiling(facts), facts.dtype.itemsize, machine),
    supports=supports,
    work=lambda config, facts, machine: work_of_backward(_tiling(facts), config, facts, machine),
    trial=_trial,
    kernels=(sums_of_parts, join_sums, join_groups, slopes_of_parts),
    problems=problems_with("silu w b", "w b"),
    shapes=SHAPES,
    elements=elements,
)
