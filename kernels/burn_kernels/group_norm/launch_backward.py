"""The backward of group norm, and its reference; the formulas are in `group_norm`."""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, tunable
from burn_kernels.channel_norm.configs import Config, candidates, grid
from burn_kernels.channel_norm.kernels import join_groups, join_sums, slopes_of_parts, sums_of_parts
from burn_kernels.channel_norm.launching import launch_join, launch_slopes
from burn_kernels.channel_norm.layout import alike, check_norm, in_order_of, ordered, unfolded, words
from burn_kernels.group_norm.references import (
    SHAPES,
    Gradients,
    channels_of,
    check_groups,
    elements,
    facts,
    problems_with,
    reference,
    reference_backward,
    sizes_of,
    strides_of,
)
from burn_kernels.launch import Machine, ceil_div, check, contiguous, fill, launch, next_power
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
def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (batch,), (channels, _, space), size = facts.free, facts.exact, facts.dtype.itemsize
    tiling = channels_of(torch.empty(batch, channels, space, device="meta"), "last" in facts.flags.split())
    blocks, parts, steps = grid(tiling, config, machine)
    held, count = config.kept * config.rows * config.block, batch * channels * space
    useful = count / (blocks * parts * steps * held)
    return Work(blocks * parts, config.warps, held, size, 5 * count * size, 24 * count, useful, 4.0, passes=2)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    (batch,), (channels, groups, space), flags = facts.free, facts.exact, facts.flags.split()
    activation = next((word for word in flags if word in ("relu", "silu")), "none")
    x, dy = (inputs.normal(batch, channels, space, dtype=facts.dtype) for _ in range(2))
    if "last" in flags:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    w, b = (inputs.normal(channels, dtype=torch.float32) if part in flags else None for part in ("w", "b"))
    _, mean, rstd = reference(x, w, b, groups)
    return Trial.of(backward, dy, x, w, b, mean, rstd, activation=activation)


def _candidates(facts: Facts, machine: Machine) -> list[Config]:
    (batch,), (channels, _, space) = facts.free, facts.exact
    tiling = channels_of(torch.empty(batch, channels, space, device="meta"), "last" in facts.flags.split())
    return candidates(tiling, facts.dtype.itemsize, machine)


BACKWARD = tunable(
    Tunable(
        name="group_norm backward",
        config=Config,
        facts=facts,
        free=("batch",),
        exact=("channels", "groups", "space"),
        candidates=_candidates,
        supports=lambda config, facts: config.kept * config.rows * config.block <= 16_384,
        work=_work,
        trial=_trial,
        kernels=(sums_of_parts, join_sums, join_groups, slopes_of_parts),
        problems=problems_with("silu w b", "w b"),
        shapes=SHAPES,
        elements=elements,
    )
)
