"""Gated linear units: y = act(gate) * up, element by element over (rows, cols).

    swiglu: act(a) = a * sigmoid(a)              act'(a) = s + y * (1 - s)             s = sigmoid(a), y = a * s
    geglu:  act(a) = a * Phi(a)                  act'(a) = Phi(a) + a * phi(a)         Phi by erf, or by tanh on request
    reglu:  act(a) = max(a, 0)                   act'(a) = 1 where a > 0

    dgate = dy * up * act'(gate)                 dup = dy * act(gate)

Limit: memory.  Forward moves 3 * rows * cols elements (gate, up in, y out), backward 5 (dy, gate, up in, two out).
The activation is computed again in the backward, so nothing is saved but the two inputs.
Layout: any; halves of one tensor (`x.chunk(2, -1)`) are read in place.  Computes in float32.  Deterministic.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.activation import (
    KINDS,
    TWINS,
    Config,
    activate,
    check_kind,
    launch_pointwise,
    plain,
    pointwise_tunable,
)
from burn_kernels.launch import Machine, next_power, rows_of, wide_type
from burn_kernels.launcher import launcher
from burn_kernels.operators import Operator, like
from burn_kernels.spec import Draw, Problem, large_rows, register_kernel

ACTIVATIONS = KINDS


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(gate: torch.Tensor, up: torch.Tensor, *, backward: bool = False, **_: object) -> int:
    """gate and up read, y written; backward dy, gate and up read, dgate and dup written."""
    return (5 if backward else 3) * gate.numel() * gate.element_size()


def flops(gate: torch.Tensor, up: torch.Tensor, *, backward: bool = False, **_: object) -> int:
    """Per element some 12 operations forward, 24 backward."""
    return (24 if backward else 12) * gate.numel()


# -- configs -----------------------------------------------------------------------------------------
def default(cols: int, itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(cols, itemsize, machine)[0]


def candidates(cols: int, itemsize: int, machine: Machine) -> list[Config]:
    """Configs that a tuner may try, the default first."""
    most = next_power(cols)
    configs = [
        Config(min(most, block), max(1, min(warps, most // 32)))
        for block, warps in ((2048, 4), (1024, 4), (4096, 8), (4096, 4), (2048, 8))
    ]
    return list(dict.fromkeys(configs))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _forward(gate_ptr, up_ptr, y_ptr, gate_stride, up_stride, cols, blocks, KIND: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = (pid // blocks).to(tl.int64)
    col = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    gate = tl.load(gate_ptr + row * gate_stride + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + col, mask=inside, other=0.0).to(tl.float32)
    y, _ = activate(gate, KIND, gate_ptr.dtype.element_ty)
    tl.store(y_ptr + row * cols + col, (y * up).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    dy_ptr, gate_ptr, up_ptr, dgate_ptr, dup_ptr, dy_stride, gate_stride, up_stride, cols, blocks,
    KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    row = (pid // blocks).to(tl.int64)
    col = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_stride + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + col, mask=inside, other=0.0).to(tl.float32)
    y, slope = activate(gate, KIND, gate_ptr.dtype.element_ty)
    tl.store(dgate_ptr + row * cols + col, (dy * up * slope).to(dgate_ptr.dtype.element_ty), mask=inside)
    tl.store(dup_ptr + row * cols + col, (dy * y).to(dup_ptr.dtype.element_ty), mask=inside)


# -- reference ---------------------------------------------------------------------------------------
def reference(gate: torch.Tensor, up: torch.Tensor, *, kind: str = "silu") -> torch.Tensor:
    """act(gate) * up in plain torch."""
    wide = wide_type(gate.dtype)
    return (plain(gate.to(wide), kind)[0] * up.to(wide)).to(gate.dtype)


def reference_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, *, kind: str = "silu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of gate and up in plain torch."""
    wide = wide_type(gate.dtype)
    y, slope = plain(gate.to(wide), kind)
    dy = dy.to(wide)
    return (dy * up.to(wide) * slope).to(gate.dtype), (dy * y).to(up.dtype)


# -- launchers ---------------------------------------------------------------------------------------
_check = functools.partial(check_kind, mend="swiglu is silu, geglu is gelu or gelu_tanh, reglu is relu")


@launcher("glu", "gate (*batch, cols), up as gate", reference=reference, options=_check)
def forward(gate: torch.Tensor, up: torch.Tensor, *, kind: str = "silu", config: Config | None = None) -> torch.Tensor:
    """act(gate) * up with act one of ACTIVATIONS.

    Shapes: gate, up (*batch, cols) -> the same.
    Dtypes: float32, float16, bfloat16, both the same; on the CPU float64 too.
    """
    y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if y.numel():
        launch_pointwise(FORWARD, _forward, _flatten(gate, up), (y,), kind, config)
    return y


@launcher("glu backward", "dy as gate, gate (*batch, cols), up as gate", reference=reference_backward, options=_check)
def backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, *, kind: str = "silu", config: Config | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of gate and up; no input is written."""
    dgate, dup = (torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) for _ in range(2))
    if dgate.numel():
        launch_pointwise(BACKWARD, _backward, _flatten(dy, gate, up), (dgate, dup), kind, config)
    return dgate, dup


def _flatten(*tensors: torch.Tensor) -> list[torch.Tensor]:
    # all in order: one long row, so that narrow tensors fill their blocks too
    if all(x.is_contiguous() for x in tensors):
        return [x.reshape(1, -1) for x in tensors]
    return [rows_of(x) for x in tensors]


# -- selection ---------------------------------------------------------------------------------------
_COMMON: dict[str, Any] = {"candidates": candidates, "shapes": ((8192, 5120), (8192, 14_336))}
FORWARD = pointwise_tunable(forward, _forward, inputs=2, tensors=3, operations=12, live=3.0, **_COMMON)
BACKWARD = pointwise_tunable(backward, _backward, inputs=3, tensors=5, operations=24, live=6.0, **_COMMON)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for shape in ((5, 7), (3, 64), (2, 3, 33), (1, 1), (1300,), (0, 5)):
        yield Problem((draw.normal(*shape, std=2.0), draw.normal(*shape)))
    halves = draw.normal(4, 34).chunk(2, -1)
    yield Problem((halves[0], halves[1]))
    yield Problem((draw.normal(17, 6).T, draw.normal(6, 17)))


OPERATOR = Operator(
    schema="glu(Tensor gate, Tensor up, str kind) -> Tensor",
    inputs="gate up",
    fake=lambda gate, up, kind: like(gate),
    gradients="gate up",
    saved="gate up kind",
    far="gate up",
)


def _draw_call(kind: str, draw: Draw) -> tuple[Any, ...]:
    gate = draw.rows(draw.width())
    if gate.shape[-1] % 2 == 0 and draw.integer(0, 2):
        return *gate.chunk(2, -1), kind
    return gate, draw.normal(*gate.shape), kind


for _name, _kind in (("swiglu", "silu"), ("geglu", "gelu"), ("geglu_tanh", "gelu_tanh"), ("reglu", "relu")):
    register_kernel(
        forward,
        backward,
        name=_name,
        options={"kind": _kind},
        gradient=lambda back, dy, inputs, outputs, kind: back(dy, *inputs, kind=kind),
        twin=lambda gate, up, kind: TWINS[kind](gate) * up,
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_problems,
        large=large_rows(lambda draw, x: [Problem((x, draw.normal(*x.shape)))]),
        draw_call=functools.partial(_draw_call, _kind),
        operators=[OPERATOR],
    )
