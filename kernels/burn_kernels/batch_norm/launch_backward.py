"""The backward of batch norm; the formulas are in `batch_norm`."""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.batch_norm.references import (
    SHAPES,
    Gradients,
    check_given,
    evaluate_reference_backward,
    facts,
    problems_with,
    reference,
    reference_backward,
    strides_of,
    tiling_of,
    tiling_of_facts,
)
from burn_kernels.channel_norm.configs import Config, grid, sizes_of
from burn_kernels.channel_norm.kernels import backward_whole, join_sums, slopes_of_parts, sums_of_parts
from burn_kernels.channel_norm.kernels_held import backward_held, candidates, held, whole_tile
from burn_kernels.channel_norm.launching import launch_join, launch_slopes
from burn_kernels.channel_norm.layout import alike, check_norm, in_order_of, ordered, unfolded, words
from burn_kernels.channel_norm.selection import activation_of, draw_weights, supports, work_of_backward
from burn_kernels.launch import contiguous, fill, launch, machine_of
from burn_kernels.launcher import launcher


# -- launchers ---------------------------------------------------------------------------------------
def _check(
    op: str, dy: Any, x: torch.Tensor, w: Any, b: Any, mean: Any, rstd: Any, *, activation: str = "none", **_: object
) -> None:
    check_norm(op, x, {"w": w, "b": b, "mean": mean, "rstd": rstd}, activation, "mean", "rstd")


@launcher(
    "batch_norm backward",
    "dy as x, x (batch, channels, *space); w (channels), b (channels), mean (channels), rstd (channels)",
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

    The activation's slope is that at the output, computed again: nothing of it was saved, and y is not read.
    """
    return _run((dy, x, w, b, mean, rstd), 0.0, activation, config, trained=True)


@launcher(
    "batch_norm_eval backward",
    "dy as x, x (batch, channels, *space); w (channels), b (channels), mean (channels), var (channels)",
    reference=evaluate_reference_backward,
    options=lambda op, dy, *tensors, **options: check_given(op, *tensors, **options),
)
def evaluate_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    *,
    eps: float = 1e-5,
    activation: str = "none",
    config: Config | None = None,
) -> Gradients:
    """The gradients of x, w and b where the statistics were given; these have none."""
    return _run((dy, x, w, b, mean, var), eps, activation, config, trained=False)


def _run(tensors: Any, eps: float, activation: str, config: Config | None, *, trained: bool) -> Gradients:
    dy, x, w, b, *statistics = tensors
    dw, db = (None if t is None else torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (w, b))
    if not x.numel():
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        fill(0.0, dw, db)
        return dx, dw, db
    flat, last = ordered(x)
    g, dx = in_order_of(dy, last), alike(flat, last)
    tiling = tiling_of(flat, last)
    strides = (strides_of(g, last), strides_of(flat, last), strides_of(dx, last))
    inputs = (g, flat, *contiguous(w, b, *statistics))
    compiled: dict[str, Any] = {"TRAINED": trained, "KIND": activation}
    machine, count = machine_of(x), float(tiling.elements)

    def join(along: torch.Tensor, offset: torch.Tensor, parts: int) -> list[torch.Tensor]:
        means = [torch.empty(tiling.kept, dtype=torch.float32, device=x.device) for _ in range(2)]
        launch_join((along, offset, inputs[2]), means, (dw, db), tiling.kept, parts, count)
        return means

    def run(config: Config) -> None:
        blocks, parts, _ = grid(tiling, config, machine)
        if held(tiling, config, *strides):
            near = (*(step for one in strides for step in one[1:]), tiling.kept, tiling.rows, tiling.cols)
            arguments = (*inputs, dx, dw, db, *near, count, eps)
            launch(backward_held, (blocks,), x, *arguments, warps=config.warps, **compiled, **whole_tile(config))
        elif parts == 1:
            whole = (*inputs, dx, dw, db, *strides, sizes_of(tiling, config), count, eps)
            launch(backward_whole, (blocks,), x, *whole, warps=config.warps, **compiled, TILE=config.tile)
        else:
            launch_slopes(inputs, dx, strides, tiling, config, join, eps=eps, **compiled)

    address = (g.data_ptr() | flat.data_ptr()) & 15
    flags = words(activation, last, w=w is not None, b=b is not None, given=not trained)
    sizes = (tiling.kept, tiling.rows, tiling.cols)
    BACKWARD.run(x, config, (x.dtype, *sizes, (*strides[0], *strides[1]), address, flags), run)
    return unfolded(dx, x.shape), dw, db


# -- selection ---------------------------------------------------------------------------------------
def _trial(facts: Facts, inputs: Inputs) -> Trial:
    tiling, activation = tiling_of_facts(facts), activation_of(facts)
    shape = (tiling.rows, tiling.kept, tiling.cols)
    x, dy = (inputs.normal(*shape, dtype=facts.dtype) for _ in range(2))
    w, b = draw_weights(facts, inputs, tiling.kept)
    mean, rstd = reference(x, w, b)[1:3]
    if "given" in facts.flags.split():
        mean, rstd = mean.float(), rstd.float()
        return Trial.of(evaluate_backward, dy, x, w, b, mean, rstd, activation=activation)
    return Trial.of(backward, dy, x, w, b, mean, rstd, activation=activation)


BACKWARD = register_tunable(
    name="batch_norm backward",
    config=Config,
    facts=facts,
    free=("rows",),
    exact=("channels", "cols"),
    candidates=lambda facts, machine: candidates(tiling_of_facts(facts), facts.dtype.itemsize, machine),
    supports=supports,
    work=lambda config, facts, machine: work_of_backward(tiling_of_facts(facts), config, facts, machine),
    trial=_trial,
    kernels=(backward_whole, backward_held, sums_of_parts, join_sums, slopes_of_parts),
    problems=problems_with("relu w b", "w b"),
    shapes=SHAPES,
)
