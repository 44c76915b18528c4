"""Lion over many tensors in one launch.

    g = g * clip                                     clip: a number on the device, or none
    u = sign(beta1 * m + (1 - beta1) * g)            p' = p * (1 - lr * decay) - lr * u
    m' = beta2 * m + (1 - beta2) * g

Limit: memory.  Reads p, g, m and writes p, m: 20 bytes a float32 parameter; a bf16 copy of the new weights adds 2.
Computes in float32.  Deterministic.  The table of addresses is that of `optimizer`.
Source: Chen et al. 2023, algorithm 2, https://arxiv.org/abs/2302.06675.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import HALVES, wide_type
from burn_kernels.optimizer import _check_table, _launch, _runs_kernel, _write, flops
from burn_kernels.optimizer.configs import Config, candidates, default, step_tunable
from burn_kernels.optimizer.kernels import _clip, _load, _place, _pointer, _store
from burn_kernels.optimizer.references import draw_step
from burn_kernels.spec import Draw, Problem, register_spec
from burn_kernels.tensor_table import Table, Tensors, step_operator, table

__all__ = ["Config", "candidates", "default", "lion", "lion_", "lion_reference"]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(params: Tensors, *others: object, backward: bool = False, **_: object) -> int:
    """Per element p, g, m read and p, m written."""
    return 5 * sum(p.numel() * p.element_size() for p in params)


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _lion_part(pointers, at, inside, numbers, COPY: tl.constexpr):
    p_ptr, g_ptr, m_ptr, p_out, m_out, copy_ptr = pointers
    clip, beta1, rest1, beta2, rest2, lr, kept = numbers
    p = _load(p_ptr, at, inside)
    g = _load(g_ptr, at, inside) * clip
    m = _load(m_ptr, at, inside)
    u = beta1 * m + rest1 * g
    # where u is no number, so is the parameter: faults stay visible
    u = tl.where(u > 0.0, 1.0, tl.where(u < 0.0, -1.0, u))
    p = p * kept - lr * u
    m = beta2 * m + rest2 * g
    _store(p_out, at, p, inside)
    _store(m_out, at, m, inside)
    if COPY:
        _store(copy_ptr, at, p, inside)


@triton.jit
def _lion(
    table_ptr, clip_ptr, beta1, rest1, beta2, rest2, lr, kept, P: tl.constexpr, G: tl.constexpr, S: tl.constexpr,
    C: tl.constexpr, COPY: tl.constexpr, ALIGNED: tl.constexpr, SHARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    table_ptr, start, end = _place(table_ptr, SHARES, BLOCK)
    p_ptr, g_ptr = _pointer(table_ptr, 1, P, ALIGNED), _pointer(table_ptr, 2, G, ALIGNED)
    m_ptr, p_out = _pointer(table_ptr, 3, S, ALIGNED), _pointer(table_ptr, 5, P, ALIGNED)
    m_out, copy_ptr = _pointer(table_ptr, 6, S, ALIGNED), _pointer(table_ptr, 8, C, ALIGNED)
    pointers = (p_ptr, g_ptr, m_ptr, p_out, m_out, copy_ptr)
    numbers = (_clip(clip_ptr), beta1, rest1, beta2, rest2, lr, kept)
    at = start + tl.arange(0, BLOCK)
    if end == start + BLOCK:
        _lion_part(pointers, at, None, numbers, COPY)
    else:
        _lion_part(pointers, at, at < end, numbers, COPY)


# -- launchers ---------------------------------------------------------------------------------------
# Without the launcher of other families, as in `optimizer`: a step takes lists of tensors.
def lion(
    params: Tensors,
    grads: Tensors,
    means: Tensors,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.99),
    decay: float = 0.0,
    clip: torch.Tensor | None = None,
    config: Config | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """One step of Lion: new parameters and means; nothing that is given is written.

    `clip` is what gradients are multiplied by, a tensor of one element on their device.
    Dtypes: parameters one float type, gradients one, means one; they may differ.
    """
    groups = [[x.contiguous() for x in group] for group in (params, grads, means)]
    step_table = table(*groups)
    _step("lion", step_table, lr, betas, decay, clip, config)
    return step_table.results[0], step_table.results[1]


def lion_(
    table: Table,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.99),
    decay: float = 0.0,
    clip: torch.Tensor | None = None,
    config: Config | None = None,
) -> None:
    """One step of Lion over a table of parameters, gradients and means; writes the table's results."""
    _step("lion_", table, lr, betas, decay, clip, config)


def _step(
    op: str,
    table: Table,
    lr: float,
    betas: tuple[float, float],
    decay: float,
    clip: torch.Tensor | None,
    config: Config | None,
) -> None:
    if not 0.0 <= betas[0] < 1.0 or not 0.0 <= betas[1] < 1.0:
        raise KernelArgumentError(
            f"{op}: an option is outside its range",
            given=f"betas {betas}",
            expected="betas from 0 up to, not including, 1",
            mend="0.9 and 0.99 are usual",
        )
    _check_table(op, table, (1,), clip)
    if not _runs_kernel(op, table):
        _write(table, lion_reference(*table.inputs[:3], lr=lr, betas=betas, decay=decay, clip=clip))
        return
    numbers = (betas[0], 1.0 - betas[0], betas[1], 1.0 - betas[1], lr, 1.0 - lr * decay)
    _launch(LION, _lion, table, clip, numbers, config)


# -- reference ---------------------------------------------------------------------------------------
def lion_reference(
    params: Tensors,
    grads: Tensors,
    means: Tensors,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.99),
    decay: float = 0.0,
    clip: torch.Tensor | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """One step of Lion in plain torch."""
    new: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for old in zip(params, grads, means, strict=True):
        p, g, m = (x.to(wide_type(x.dtype)) for x in old)
        if clip is not None:
            g = g * clip
        u = betas[0] * m + (1 - betas[0]) * g
        u = torch.where(u > 0, 1.0, torch.where(u < 0, -1.0, u))  # torch.sign makes 0 of NaN
        new[0].append((p * (1 - lr * decay) - lr * u).to(old[0].dtype))
        new[1].append((betas[1] * m + (1 - betas[1]) * g).to(old[2].dtype))
    return new


# -- selection ---------------------------------------------------------------------------------------
LION = step_tunable(
    "lion", lion, lion_reference, lion_,
    states=1, options={"lr": 1e-4}, kinds="g={dtype} s=float32", kernels=(_lion,),
)  # fmt: skip


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    shapes = ((3, 5), (7,), (), (0, 4), (2, 3, 4), (8_193,), (16,))

    def group() -> list[torch.Tensor]:
        return [draw.normal(*shape) for shape in shapes]

    yield Problem((group(), group(), group()), {"lr": 0.1})
    options = {"lr": 0.02, "betas": (0.8, 0.95), "decay": 0.3, "clip": torch.tensor(0.37, dtype=torch.float64)}
    yield Problem((group(), group(), group()), options)
    loose = [draw.normal(5, 4).T]
    yield Problem((loose, loose, loose), {"lr": 0.1})
    yield Problem(([torch.ones(3)], [torch.zeros(3)], [torch.zeros(3)]), {"lr": 0.5, "decay": 0.1})
    yield Problem(([], [], []), {"lr": 0.1})


def _twin(params: Tensors, grads: Tensors, means: Tensors, **options: Any) -> list[torch.Tensor]:
    # as the paper's program has it, with the in-place operations of torch; torch.optim has no Lion
    beta1, lr, clip = options.get("betas", (0.9, 0.99))[0], options["lr"], options.get("clip")
    new = []
    for p, g, m in zip(params, grads, means, strict=True):
        g = g.to(p.dtype) if clip is None else (g * clip).to(p.dtype)
        p = p.clone().mul_(1 - lr * options.get("decay", 0.0))
        new.append(p.add_(m.clone().mul_(beta1).add_(g, alpha=1 - beta1).sign_(), alpha=-lr))
    return new


SPEC = register_spec(
    name="lion",
    forward=lion,
    reference=lion_reference,
    twin=_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
    large=lambda draw: [Problem(tuple([draw.normal(100, 331)] for _ in range(3)), {"lr": 1e-2})],
    draw_call=functools.partial(draw_step, 1),
    step=step_operator("lion_(float lr, float beta1, float beta2, float decay)", "means", lion_, lion_reference),
    dtypes=(torch.float32, *HALVES),
    limits="contiguous tensors in a table; float64 on a GPU",
)
