"""Optimizer steps over many tensors in one launch: AdamW, Adam, SGD with momentum; Lion is in `lion`.

    g = g * clip                                                            clip: a number on the device, or none
    AdamW:  m' = m + (1 - beta1) * (g - m)            v' = beta2 * v + (1 - beta2) * g * g
            p' = p * (1 - lr * decay) - lr / (1 - beta1^t) * m' / (sqrt(v' / (1 - beta2^t)) + eps)
    Adam:   g = g + decay * p                         then as AdamW without decay
    SGD:    g = g + decay * p                         v' = momentum * v + share * g
            p' = p - lr * v'                          nesterov: p - lr * (g + momentum * v')    no momentum: p - lr * g

Limit: memory.  AdamW reads p, g, m, v and writes p, m, v: 28 bytes a float32 parameter; a bf16 copy of the new weights
adds 2.  SGD 12, with momentum 20.  Computes in float32.  Deterministic.

Addresses, not arguments: a table on the device has, for each chunk of a tensor, the addresses of all that belongs to
it and its length.  Building it costs a copy to the device, so keep it (`Table`) while the tensors stay where they are.
Results may lie over the inputs (in place) or in tensors of their own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from burn_kernels._triton import tl
from burn_kernels.autotune.tunable import Tunable
from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelShapeError
from burn_kernels.launch import HALVES, check, describe, launch, runs_kernel
from burn_kernels.optimizer.configs import Config, candidates, default, step_tunable
from burn_kernels.optimizer.kernels import _adamw, _sgd
from burn_kernels.optimizer.references import (
    adamw_problems,
    adamw_reference,
    draw_adamw,
    draw_sgd,
    large_adamw,
    large_sgd,
    sgd_problems,
    sgd_reference,
    twin_adamw,
    twin_sgd,
)
from burn_kernels.spec import register, register_spec
from burn_kernels.tensor_table import CHUNK, Table, Tensors, staging_for, step_operator, table

__all__ = [
    "CHUNK",
    "Config",
    "Table",
    "adamw",
    "adamw_",
    "adamw_held",
    "adamw_reference",
    "candidates",
    "default",
    "sgd",
    "sgd_",
    "sgd_reference",
    "staging_for",
    "table",
]


# -- limits ------------------------------------------------------------------------------------------
def adamw_bytes_moved(params: Tensors, *others: object, backward: bool = False, **_: object) -> int:
    """Per element p, g, m, v read and p, m, v written."""
    return 7 * sum(p.numel() * p.element_size() for p in params)


def sgd_bytes_moved(params: Tensors, grads: Tensors, velocities: Tensors | None, **_: object) -> int:
    """Per element p, g read and p written; with momentum v read and written."""
    return (3 if velocities is None else 5) * sum(p.numel() * p.element_size() for p in params)


def flops(params: Tensors, *others: object, **_: object) -> int:
    """Per element some 14 operations."""
    return 14 * sum(p.numel() for p in params)


# -- launchers ---------------------------------------------------------------------------------------
# The launcher of other families compares single tensors with a table of shapes.  A step takes lists of tensors by a
# table of their addresses, so `_check_table` and `_runs_kernel` do what the launcher does elsewhere.
def adamw(
    params: Tensors,
    grads: Tensors,
    means: Tensors,
    squares: Tensors,
    *,
    lr: float,
    step: int,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    decay: float = 0.01,
    coupled: bool = False,
    clip: torch.Tensor | None = None,
    config: Config | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """One step of AdamW: new parameters, means and squares; nothing that is given is written.

    `step` counts from 1.  `coupled` adds the decay to the gradients, which makes it Adam.  `clip` is what gradients
    are multiplied by, a tensor of one element on their device.
    Dtypes: parameters one float type, gradients one, means and squares one; they may differ.
    """
    groups = [[x.contiguous() for x in group] for group in (params, grads, means, squares)]
    step_table = table(*groups)
    _step_adamw("adamw", step_table, clip, config, lr=lr, step=step, betas=betas, eps=eps, decay=decay, coupled=coupled)
    return step_table.results[0], step_table.results[1], step_table.results[2]


def adamw_(
    table: Table,
    *,
    lr: float,
    step: int,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    decay: float = 0.01,
    coupled: bool = False,
    clip: torch.Tensor | None = None,
    config: Config | None = None,
) -> None:
    """One step of AdamW over a table of parameters, gradients, means and squares; writes the table's results.

    >>> p, g, m, v = torch.ones(3), torch.ones(3), torch.zeros(3), torch.zeros(3)
    >>> adamw_(table([p], [g], [m], [v], in_place=True), lr=0.5, step=1, decay=0.0)
    >>> p
    tensor([0.5000, 0.5000, 0.5000])
    """
    _step_adamw("adamw_", table, clip, config, lr=lr, step=step, betas=betas, eps=eps, decay=decay, coupled=coupled)


def adamw_held(
    table: Table,
    kept: torch.Tensor,
    rate: torch.Tensor,
    second: torch.Tensor,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    clip: torch.Tensor | None = None,
    config: Config | None = None,
) -> None:
    """As `adamw_`, with the numbers that change from step to step in tensors of one float32 on the device.

        kept = 1 - lr * decay        rate = lr / (1 - beta1^step)        second = 1 / sqrt(1 - beta2^step)

    The host computes these, in double; a CUDA graph then takes another step at each replay.
    Raises: KernelDTypeError where one is not a float32.
    """
    numbers = {"kept": kept, "rate": rate, "second": second}
    _check_table("adamw_held", table, (2,), clip)
    wrong = [name for name, x in numbers.items() if x.dtype != torch.float32 or x.numel() != 1]
    if wrong:
        raise KernelDTypeError(
            f"adamw_held: {' and '.join(wrong)} must be read as one float32",
            given=describe(numbers),
            expected="tensors of one float32, on the device of the parameters",
            mend="make each with torch.tensor(number, dtype=torch.float32, device=device)",
        )
    if not _runs_kernel("adamw_held", table):
        params, grads, means, squares = table.inputs
        factor = 1.0 if clip is None else clip
        scaled = [g * factor for g in grads]
        new_means = [m + (1 - betas[0]) * (g - m) for m, g in zip(means, scaled, strict=True)]
        new_squares = [betas[1] * v + (1 - betas[1]) * g * g for v, g in zip(squares, scaled, strict=True)]
        new_params = [
            p * kept - rate * m / (v.sqrt() * second + eps)
            for p, m, v in zip(params, new_means, new_squares, strict=True)
        ]
        _write(table, (new_params, new_means, new_squares))
        return
    arguments = (1.0 - betas[0], betas[1], 1.0 - betas[1], eps, kept, rate, second, 0.0)
    _launch(ADAMW, _adamw, table, clip, arguments, config, HELD=True, COUPLED=False)


def sgd(
    params: Tensors,
    grads: Tensors,
    velocities: Tensors | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    share: float = 1.0,
    decay: float = 0.0,
    nesterov: bool = False,
    clip: torch.Tensor | None = None,
    config: Config | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """One step of SGD: new parameters and velocities (an empty list without them); nothing that is given is written.

    `share` is what a gradient adds to the velocity: 1 - dampening.
    """
    groups = [[x.contiguous() for x in group] for group in (params, grads, velocities) if group is not None]
    step_table = table(*groups)
    _step_sgd("sgd", step_table, clip, config, lr=lr, momentum=momentum, share=share, decay=decay, nesterov=nesterov)
    return step_table.results[0], step_table.results[1] if velocities is not None else []


def sgd_(
    table: Table,
    *,
    lr: float,
    momentum: float = 0.0,
    share: float = 1.0,
    decay: float = 0.0,
    nesterov: bool = False,
    clip: torch.Tensor | None = None,
    config: Config | None = None,
) -> None:
    """One step of SGD over a table of parameters, gradients and, for momentum, velocities; writes its results."""
    _step_sgd("sgd_", table, clip, config, lr=lr, momentum=momentum, share=share, decay=decay, nesterov=nesterov)


def _step_adamw(
    op: str, table: Table, clip: torch.Tensor | None, config: Config | None, *, lr: float, step: int,
    betas: tuple[float, float], eps: float, decay: float, coupled: bool,
) -> None:  # fmt: skip
    if step < 1 or not 0.0 <= betas[0] < 1.0 or not 0.0 <= betas[1] < 1.0:
        raise KernelArgumentError(
            f"{op}: an option is outside its range",
            given=f"step {step}, betas {betas}",
            expected="step from 1; betas from 0 up to, not including, 1",
            mend="count the first step as 1",
        )
    _check_table(op, table, (2,), clip)
    if not _runs_kernel(op, table):
        options: dict[str, Any] = {"lr": lr, "step": step, "betas": betas, "eps": eps, "decay": decay}
        _write(table, adamw_reference(*table.inputs[:4], **options, coupled=coupled, clip=clip))
        return
    # in the host's double precision: 1 - 0.999 in float32 would be wrong in its fifth digit
    rate, second = lr / (1.0 - betas[0] ** step), 1.0 / math.sqrt(1.0 - betas[1] ** step)
    kept = 1.0 if coupled else 1.0 - lr * decay
    numbers = (1.0 - betas[0], betas[1], 1.0 - betas[1], eps, kept, rate, second, decay)
    _launch(ADAMW, _adamw, table, clip, numbers, config, HELD=False, COUPLED=coupled)


def _step_sgd(
    op: str, table: Table, clip: torch.Tensor | None, config: Config | None, *, lr: float, momentum: float,
    share: float, decay: float, nesterov: bool,
) -> None:  # fmt: skip
    _check_table(op, table, (0, 1), clip)
    moving = len(table.inputs) == 3
    if (momentum != 0.0 or nesterov) and not moving:
        raise KernelArgumentError(
            f"{op}: momentum without velocities",
            given=f"momentum {momentum}, nesterov {nesterov}, no velocities",
            expected="velocities, one for each parameter",
            mend="pass velocities, zeros before the first step",
        )
    if not _runs_kernel(op, table):
        (params, grads), old = table.inputs[:2], table.inputs[2] if moving else None
        options: dict[str, Any] = {"momentum": momentum, "share": share, "decay": decay, "nesterov": nesterov}
        new: Sequence[Tensors] = sgd_reference(params, grads, old, lr=lr, **options, clip=clip)
        _write(table, new if moving else new[:1])
        return
    _launch(SGD, _sgd, table, clip, (lr, decay, momentum, share), config, MOMENTUM=moving, NESTEROV=nesterov)


def _runs_kernel(op: str, table: Table) -> bool:
    flat = [x for group in (*table.inputs, *table.results, table.copies or []) for x in group]
    return bool(table.chunks.shape[0]) and runs_kernel(op, *flat)


def _launch(
    chosen: Tunable,
    kernel: object,
    table: Table,
    clip: torch.Tensor | None,
    numbers: tuple[object, ...],
    config: Config | None,
    **flags: bool,
) -> None:
    first = table.inputs[0][0]
    params, grads, *states = (_TYPES[group[0].dtype]() for group in table.inputs)
    state = states[0] if states else params
    copy = params if table.copies is None else _TYPES[table.copies[0].dtype]()
    types = {"P": params, "G": grads, "S": state, "C": copy, "COPY": table.copies is not None, "ALIGNED": table.aligned}
    chunks = table.chunks.shape[0]

    def run(config: Config) -> None:
        shares = CHUNK // config.block
        arguments = (table.chunks, clip, *numbers)
        tile = {"SHARES": shares, "BLOCK": config.block}
        launch(kernel, (chunks * shares,), first, *arguments, warps=config.warps, **types, **flags, **tile)

    chosen.run(first, config, (first.dtype, chunks, table.aligned, table.kinds), run)


_TYPES: dict[torch.dtype, Callable[[], Any]] = {
    torch.float32: lambda: tl.float32,
    torch.float16: lambda: tl.float16,
    torch.bfloat16: lambda: tl.bfloat16,
}


def _write(table: Table, new: Sequence[Tensors]) -> None:
    for results, values in zip(table.results, new, strict=True):
        for result, value in zip(results, values, strict=True):
            result.copy_(value)
    for copy, value in zip(table.copies or [], new[0], strict=table.copies is not None):
        copy.copy_(value)


def _check_table(op: str, table: Table, states: tuple[int, ...], clip: torch.Tensor | None) -> None:
    if len(table.inputs) - 2 not in states:
        raise KernelShapeError(
            f"{op}: the table is of another optimizer",
            given=f"{len(table.inputs) - 2} states a parameter",
            expected=" or ".join(str(n) for n in states),
            mend="make the table with the states of this optimizer",
        )
    if clip is not None and table.inputs[0]:
        check(op, {"params[0]": table.inputs[0][0], "clip": clip}, {"clip": ()}, alike=["clip"])


# -- selection ---------------------------------------------------------------------------------------
# adamw_held too: three numbers that a program loads once make no other choice of its 8192 elements
ADAMW = step_tunable(
    "adamw", adamw, adamw_reference, adamw_,
    states=2, options={"lr": 1e-3, "step": 100}, kinds="g={dtype} s=float32", kernels=(_adamw,),
)  # fmt: skip
SGD = step_tunable("sgd", sgd, sgd_reference, sgd_, states=1, options={"lr": 1e-3}, kinds="g={dtype}", kernels=(_sgd,))


# -- registration ------------------------------------------------------------------------------------
SPEC = register_spec(
    name="adamw",
    forward=adamw,
    reference=adamw_reference,
    twin=twin_adamw,
    bytes_moved=adamw_bytes_moved,
    flops=flops,
    problems=adamw_problems,
    large=large_adamw,
    draw_call=draw_adamw,
    step=step_operator(
        "adamw_(float lr, int step, float beta1, float beta2, float eps, float decay, bool coupled)",
        "means squares",
        adamw_,
        adamw_reference,
    ),
    dtypes=(torch.float32, *HALVES),
    limits="contiguous tensors in a table; float64 on a GPU",
)
ADAM_SPEC = register(
    replace(
        SPEC,
        name="adam",
        forward=functools.partial(adamw, coupled=True),
        reference=functools.partial(adamw_reference, coupled=True),
        twin=functools.partial(twin_adamw, coupled=True),
    )
)
SGD_SPEC = register_spec(
    name="sgd",
    forward=sgd,
    reference=sgd_reference,
    twin=twin_sgd,
    bytes_moved=sgd_bytes_moved,
    flops=flops,
    problems=sgd_problems,
    large=large_sgd,
    draw_call=draw_sgd,
    step=step_operator(
        "sgd_(float lr, float momentum, float share, float decay, bool nesterov)",
        "velocities?",
        sgd_,
        sgd_reference,
    ),
    dtypes=(torch.float32, *HALVES),
    limits="contiguous tensors in a table; float64 on a GPU",
)
