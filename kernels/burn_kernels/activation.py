"""Activations, element by element: GELU by erf or by tanh, SiLU, ReLU.

    gelu:       y = x * Phi(x)                      dx = dy * (Phi(x) + x * phi(x))
    gelu_tanh:  y = x / 2 * (1 + t)                 t = tanh(u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
    silu:       y = x * s                           dx = dy * (s + y * (1 - s))            s = sigmoid(x)
    relu:       y = max(x, 0)                       dx = dy where x > 0; at 0 no gradient passes

Limit: memory.  Forward moves 2 * numel elements (x in, y out), backward 3 (dy and x in, dx out); x alone is saved.
Layout: any; tensors whose elements lie side by side in any order of axes are read in that order, other rows in place.
Computes in float32.  Deterministic.

Half types are bound by arithmetic as much as by memory: there Phi is one polynomial and one exp2
(prims.normal_cdf_fast) in place of erf's two ranges, and (1 + tanh(u)) / 2 is sigmoid(2 u).
Source: Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, row_facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import Machine, ceil_div, launch, next_power, rows_key, rows_of, wide_type
from burn_kernels.launcher import Launcher, launcher
from burn_kernels.operators import Operator, like
from burn_kernels.prims import INV_SQRT_2PI, SQRT_HALF, erf, normal_cdf_fast, sigmoid, sigmoid_fast, tanh
from burn_kernels.spec import Draw, Problem, large_rows, register_kernel

KINDS = ("silu", "gelu", "gelu_tanh", "relu")


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: Tensor, *, backward: bool = False, **_: object) -> int:
    """x read and y written; backward dy and x read, dx written."""
    return (3 if backward else 2) * x.numel() * x.element_size()


def flops(x: Tensor, *, backward: bool = False, **_: object) -> int:
    """Per element some 12 operations forward, 20 backward."""
    return (20 if backward else 12) * x.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """`block` elements of a row a program, `warps` of 32 threads."""

    block: int
    warps: int


def default(cols: int, itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(cols, itemsize, machine)[0]


def candidates(cols: int, itemsize: int, machine: Machine) -> list[Config]:
    """Configs that a tuner may try, the default first."""
    most = next_power(cols)
    # two vectors of 16 bytes a thread: one is asked for while the other is computed
    configs = [
        Config(min(most, block), max(1, min(warps, most // 32)))
        for block, warps in ((64 * 64 // itemsize, 4), (32 * 64 // itemsize, 4), (4096, 8), (4096, 4), (1024, 4))
    ]
    return list(dict.fromkeys(configs))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def activate(x, KIND: tl.constexpr, TYPE: tl.constexpr):
    """The activation of x (float32) and its slope, as exact as a result in TYPE can show."""
    if KIND == "silu":
        if TYPE == tl.float32:
            s = sigmoid(x)
        else:
            s = sigmoid_fast(x)
        y = x * s
        slope = s + y * (1.0 - s)
    elif KIND == "gelu":
        if TYPE == tl.float32:
            phi = 0.5 + 0.5 * erf(x * SQRT_HALF)
        else:
            phi = normal_cdf_fast(x)
        y = x * phi
        slope = phi + x * (INV_SQRT_2PI * tl.exp2(x * x * -0.7213475204444817))
    elif KIND == "gelu_tanh":
        squared = x * x
        u = x * (0.7978845608028654 + 0.035677408136300125 * squared)
        rise = 0.7978845608028654 + 0.10703222440890037 * squared
        if TYPE == tl.float32:
            t = tanh(u)
            y = 0.5 * x * (1.0 + t)
            slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * rise
        else:
            s = sigmoid_fast(2.0 * u)
            y = x * s
            slope = s + 2.0 * y * (1.0 - s) * rise
    else:
        y = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
        slope = tl.where(x > 0.0, 1.0, 0.0)
    return y, slope


@triton.jit
def _forward(x_ptr, y_ptr, x_stride, cols, blocks, KIND: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = (pid // blocks).to(tl.int64)
    col = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    y, _ = activate(x, KIND, x_ptr.dtype.element_ty)
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(dy_ptr, x_ptr, dx_ptr, dy_stride, x_stride, cols, blocks, KIND: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = (pid // blocks).to(tl.int64)
    col = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    dy = tl.load(dy_ptr + row * dy_stride + col, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    _, slope = activate(x, KIND, x_ptr.dtype.element_ty)
    tl.store(dx_ptr + row * cols + col, (dy * slope).to(dx_ptr.dtype.element_ty), mask=inside)


# -- reference ---------------------------------------------------------------------------------------
def plain(a: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """The activation and its slope in plain torch."""
    if kind == "silu":
        s = torch.sigmoid(a)
        return a * s, s + a * s * (1 - s)
    if kind == "gelu":
        phi = 0.5 * (1 + torch.erf(a * math.sqrt(0.5)))
        return a * phi, phi + a * torch.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
    if kind == "gelu_tanh":
        root = math.sqrt(2 / math.pi)
        t = torch.tanh(root * (a + 0.044715 * a**3))
        return 0.5 * a * (1 + t), 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * root * (1 + 3 * 0.044715 * a * a)
    return a.clamp(min=0), (a > 0).to(a.dtype)


def reference(x: Tensor, *, kind: str = "gelu") -> Tensor:
    """The activation in plain torch."""
    return plain(x.to(wide_type(x.dtype)), kind)[0].to(x.dtype)


def reference_backward(dy: Tensor, x: Tensor, *, kind: str = "gelu") -> Tensor:
    """The gradient of x in plain torch."""
    wide = wide_type(x.dtype)
    return (dy.to(wide) * plain(x.to(wide), kind)[1]).to(x.dtype)


# -- launchers ---------------------------------------------------------------------------------------
_MEND = "gelu is the exact form, gelu_tanh the approximation; gated forms are in burn_kernels.glu"


def check_kind(
    op: str, *_: object, kind: str = "relu", kinds: Sequence[str] = KINDS, mend: str = _MEND, **__: object
) -> None:
    """Raises KernelArgumentError for an activation that is not one of `kinds`."""
    if kind not in kinds:
        raise KernelArgumentError(
            f"{op}: no such activation", given=f"kind {kind!r}", expected=f"one of {', '.join(kinds)}", mend=mend
        )


@launcher("activation", "x", reference=reference, options=check_kind)
def forward(x: Tensor, *, kind: str = "gelu", config: Config | None = None) -> Tensor:
    """The activation `kind`, one of KINDS, of x.

    Shapes: x (*s) -> the same.  Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    """
    y, flats = _flatten(x)
    if y.numel():
        launch_pointwise(FORWARD, _forward, flats, (y,), kind, config)
    return y


@launcher("activation backward", "dy as x, x (*any)", reference=reference_backward, options=check_kind)
def backward(dy: Tensor, x: Tensor, *, kind: str = "gelu", config: Config | None = None) -> Tensor:
    """The gradient of x from that of `forward`'s result."""
    dx, (flat_x, flat_dy) = _flatten(x, dy)
    if dx.numel():
        launch_pointwise(BACKWARD, _backward, [flat_dy, flat_x], (dx,), kind, config)
    return dx


def _flatten(x: Tensor, *others: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A result for x, and x with the others as rows of elements in the result's order in memory."""
    y = torch.empty_like(x)
    tensors = [x, *others]
    if all(t.stride() == y.stride() for t in tensors):  # side by side, in one order: one long row
        return y, [t.as_strided((1, t.numel()), (t.numel(), 1)) for t in tensors]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return y, [rows_of(torch.atleast_1d(t)) for t in tensors]


def launch_pointwise(
    choice: Tunable, kernel: Any, flats: list[Tensor], results: tuple[Tensor, ...], kind: str, config: Config | None
) -> None:
    """Launches a kernel over (rows, cols), of which a program takes `config.block` elements of a row."""
    rows, cols = flats[0].shape
    arguments = (*flats, *results, *[flat.stride(0) for flat in flats], cols)

    def run(config: Config) -> None:
        blocks = ceil_div(cols, config.block)
        how: dict[str, Any] = {"warps": config.warps, "KIND": kind, "BLOCK": config.block}
        launch(kernel, (rows * blocks,), flats[0], *arguments, blocks, **how)

    choice.run(flats[0], config, rows_key(*flats, flags=kind), run)


# -- selection ---------------------------------------------------------------------------------------
def _facts(dtype: torch.dtype, rows: int, cols: int, strides: tuple[int, ...], address: int, kind: str) -> Facts:
    # a block never spans two rows, so neither size shapes the kernel: both are free
    return row_facts(dtype, rows, cols, strides, address, kind)._replace(free=(rows, cols), exact=())


def pointwise_tunable(
    run: Launcher[..., Any],
    kernel: object,
    *,
    inputs: int,
    tensors: int,
    operations: int,
    live: float,
    candidates: Callable[[int, int, Machine], list[Config]],
    shapes: tuple[tuple[int, int], ...],
) -> Tunable:
    """The place of choice of a kernel over elements: `tensors` read or written, the first `inputs` of them read."""

    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        (rows, cols), size = facts.free, facts.dtype.itemsize
        blocks = ceil_div(cols, config.block)
        moved, sums = tensors * rows * cols * size, operations * rows * cols
        return Work(rows * blocks, config.warps, config.block, size, moved, sums, cols / (blocks * config.block), live)

    def trial(facts: Facts, draw: Inputs) -> Trial:
        rows, cols = facts.free
        return Trial.of(run, *(draw.rows(facts, rows, cols, std=2.0) for _ in range(inputs)), kind=facts.flags)

    return register_tunable(
        name=run.op,
        config=Config,
        facts=_facts,
        free=("rows", "cols"),
        exact=(),
        candidates=lambda facts, machine: candidates(facts.free[1], facts.dtype.itemsize, machine),
        supports=lambda config, facts: config.block >= 32 or config.warps == 1,
        work=work,
        trial=trial,
        kernels=(kernel,),
        problems=lambda rows, cols, dtype: [Facts((1, rows * cols), (), dtype, flags=kind) for kind in KINDS],
        shapes=shapes,
    )


_COMMON: dict[str, Any] = {"candidates": candidates, "shapes": ((8192, 8192),)}
FORWARD = pointwise_tunable(forward, _forward, inputs=1, tensors=2, operations=12, live=2.0, **_COMMON)
BACKWARD = pointwise_tunable(backward, _backward, inputs=2, tensors=3, operations=20, live=3.0, **_COMMON)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for shape in ((5, 7), (3, 64), (2, 3, 33), (), (1,), (1300,), (0, 5), (9001,)):
        yield Problem((draw.normal(*shape, std=2.0),))
    yield Problem((draw.normal(6, 40)[::2, 3:20],))  # strided rows
    yield Problem((draw.normal(17, 6, 3).permute(2, 0, 1),))  # side by side in another order
    yield Problem((draw.normal(17, 6).T[::2],))


TWINS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "relu": torch.nn.functional.relu,
}
"""The activations as PyTorch has them."""


def _as_it_lies(x: Tensor) -> Tensor:
    """Memory for a result for x: its elements in the order of x where these fill their memory, else in order."""
    y = torch.empty_like(x)
    return y if y.stride() == x.stride() else like(x)


OPERATOR = Operator(
    schema="activation(Tensor x, str kind) -> Tensor",
    inputs="x",
    fake=lambda x, kind: _as_it_lies(x),
    gradients="x",
    saved="x kind",
    room=_as_it_lies,
    far="x",
)
for _kind in ("gelu", "gelu_tanh", "silu", "relu"):
    register_kernel(
        forward,
        backward,
        name=_kind,
        options={"kind": _kind},
        gradient=lambda back, dy, inputs, outputs, kind: (back(dy, *inputs, kind=kind),),
        twin=lambda x, kind: TWINS[kind](x),
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_problems,
        large=large_rows(lambda draw, x: [Problem((x,))]),
        draw_call=lambda draw, kind=_kind: (draw.rows(draw.width()), kind),
        operators=[OPERATOR],
    )
