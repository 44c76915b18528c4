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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, row_facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, tunable
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import (
    FLOATS,
    Machine,
    ceil_div,
    check,
    launch,
    next_power,
    rows_of,
    runs_kernel,
    wide_type,
)
from burn_kernels.operators import Operator, like
from burn_kernels.prims import INV_SQRT_2PI, SQRT_HALF, erf, normal_cdf_fast, sigmoid, sigmoid_fast, tanh
from burn_kernels.spec import Draw, KernelSpec, Problem, register

KINDS = ("silu", "gelu", "gelu_tanh", "relu")


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *, backward: bool = False, **_: object) -> int:
    """x read and y written; backward dy and x read, dx written."""
    return (3 if backward else 2) * x.numel() * x.element_size()


def flops(x: torch.Tensor, *, backward: bool = False, **_: object) -> int:
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
    """What a tuner may try, the default first."""
    most = next_power(cols)
    # two vectors of 16 bytes a thread: one is asked for while the other is computed
    found = [
        Config(min(most, block), max(1, min(warps, most // 32)))
        for block, warps in ((64 * 64 // itemsize, 4), (32 * 64 // itemsize, 4), (4096, 8), (4096, 4), (1024, 4))
    ]
    return list(dict.fromkeys(found))


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


# -- launchers ---------------------------------------------------------------------------------------
def forward(x: torch.Tensor, *, kind: str = "gelu", config: Config | None = None) -> torch.Tensor:
    """The activation `kind`, one of KINDS, of x.

    Shapes: x (*s) -> the same.  Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    """
    _check("activation", kind, {"x": x})
    if not runs_kernel("activation", x):
        return reference(x, kind=kind)
    y, flats = _flatten(x)
    if y.numel():
        (rows, cols), stride = flats[0].shape, flats[0].stride(0)

        def run(config: Config) -> None:
            blocks = ceil_div(cols, config.block)
            arguments = (*flats, y, stride, cols, blocks)
            launch(_forward, (rows * blocks,), x, *arguments, warps=config.warps, KIND=kind, BLOCK=config.block)

        FORWARD.run(x, config, (x.dtype, rows, cols, (stride,), _address(flats), kind), run)
    return y


def backward(dy: torch.Tensor, x: torch.Tensor, *, kind: str = "gelu", config: Config | None = None) -> torch.Tensor:
    """The gradient of x from that of `forward`'s result."""
    _check("activation backward", kind, {"dy": dy, "x": x})
    if not runs_kernel("activation backward", dy, x):
        return reference_backward(dy, x, kind=kind)
    dx, flats = _flatten(x, dy)
    if dx.numel():
        flat_x, flat_dy = flats
        rows, cols = flat_x.shape
        strides = (flat_dy.stride(0), flat_x.stride(0))

        def run(config: Config) -> None:
            blocks = ceil_div(cols, config.block)
            arguments = (flat_dy, flat_x, dx, *strides, cols, blocks)
            launch(_backward, (rows * blocks,), x, *arguments, warps=config.warps, KIND=kind, BLOCK=config.block)

        BACKWARD.run(x, config, (x.dtype, rows, cols, strides, _address(flats), kind), run)
    return dx


def _check(op: str, kind: str, tensors: dict[str, torch.Tensor]) -> None:
    if kind not in KINDS:
        raise KernelArgumentError(
            f"{op}: no such activation",
            given=f"kind {kind!r}",
            expected=f"one of {', '.join(KINDS)}",
            mend="gelu is the exact form, gelu_tanh the approximation; gated forms are in burn_kernels.glu",
        )
    check(op, tensors, dict.fromkeys(tensors, tensors["x"].shape), alike=list(tensors))


def _flatten(x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A result for x, and x with the others as rows of elements in the result's order in memory."""
    y = torch.empty_like(x)
    tensors = [x, *others]
    if all(t.stride() == y.stride() for t in tensors):  # side by side, in one order: one long row
        return y, [t.as_strided((1, t.numel()), (t.numel(), 1)) for t in tensors]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return y, [rows_of(torch.atleast_1d(t)) for t in tensors]


# -- reference ---------------------------------------------------------------------------------------
def plain(a: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
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


def reference(x: torch.Tensor, *, kind: str = "gelu") -> torch.Tensor:
    """The activation in plain torch."""
    return plain(x.to(wide_type(x.dtype)), kind)[0].to(x.dtype)


def reference_backward(dy: torch.Tensor, x: torch.Tensor, *, kind: str = "gelu") -> torch.Tensor:
    """The gradient of x in plain torch."""
    wide = wide_type(x.dtype)
    return (dy.to(wide) * plain(x.to(wide), kind)[1]).to(x.dtype)


# -- selection ---------------------------------------------------------------------------------------
def _address(flats: Iterable[torch.Tensor]) -> int:
    return functools.reduce(lambda bits, flat: bits | flat.data_ptr(), flats, 0) & 15


def _facts(dtype: torch.dtype, rows: int, cols: int, strides: tuple[int, ...], address: int, kind: str) -> Facts:
    # a block never spans two rows, so neither size shapes the kernel: both are free
    return row_facts(dtype, rows, cols, strides, address, kind)._replace(free=(rows, cols), exact=())


def pointwise_tunable(
    name: str,
    *,
    tensors: int,
    operations: int,
    live: float,
    given: int,
    run: Callable[..., object],
    plain: Callable[..., object],
    candidates: Callable[[int, int, Machine], list[Config]],
    kernels: tuple[object, ...],
    shapes: tuple[tuple[int, int], ...],
) -> Tunable:
    """The place of choice of a kernel over elements: `tensors` read or written, `given` of them its inputs."""

    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        (rows, cols), size = facts.free, facts.dtype.itemsize
        blocks = ceil_div(cols, config.block)
        moved, sums = tensors * rows * cols * size, operations * rows * cols
        return Work(rows * blocks, config.warps, config.block, size, moved, sums, cols / (blocks * config.block), live)

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        (rows, cols), kind = facts.free, facts.flags
        return Trial(
            tuple(inputs.rows(facts, rows, cols, std=2.0) for _ in range(given)),
            lambda given, config: run(*given, kind=kind, config=config),
            lambda given: plain(*given, kind=kind),
        )

    return tunable(
        Tunable(
            name=name,
            config=Config,
            facts=_facts,
            free=("rows", "cols"),
            candidates=lambda facts, machine: candidates(facts.free[1], facts.dtype.itemsize, machine),
            supports=lambda config, facts: config.block >= 32 or config.warps == 1,
            work=work,
            trial=trial,
            kernels=kernels,
            problems=lambda rows, cols, dtype: [Facts((1, rows * cols), (), dtype, flags=kind) for kind in KINDS],
            shapes=shapes,
        )
    )


_ALIKE: dict[str, Any] = {
    "candidates": candidates,
    "shapes": ((8192, 8192),),
}
FORWARD = pointwise_tunable(
    "activation",
    tensors=2,
    operations=12,
    live=2.0,
    given=1,
    run=forward,
    plain=reference,
    kernels=(_forward,),
    **_ALIKE,
)
BACKWARD = pointwise_tunable(
    "activation backward",
    tensors=3,
    operations=20,
    live=3.0,
    given=2,
    run=backward,
    plain=reference_backward,
    kernels=(_backward,),
    **_ALIKE,
)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for shape in ((5, 7), (3, 64), (2, 3, 33), (), (1,), (1300,), (0, 5), (9001,)):
        yield Problem((draw.normal(*shape, std=2.0),))
    yield Problem((draw.normal(6, 40)[::2, 3:20],))  # strided rows
    yield Problem((draw.normal(17, 6, 3).permute(2, 0, 1),))  # side by side in another order
    yield Problem((draw.normal(17, 6).T[::2],))


TWINS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "relu": torch.nn.functional.relu,
}
"""The activations as PyTorch has them."""


def _gradient(dy: torch.Tensor, inputs: Any, outputs: object, *, kind: str) -> tuple[torch.Tensor]:
    return (backward(dy, *inputs, kind=kind),)


def _reference_gradient(dy: torch.Tensor, inputs: Any, outputs: object, *, kind: str) -> tuple[torch.Tensor]:
    return (reference_backward(dy, *inputs, kind=kind),)


def _as_it_lies(x: torch.Tensor) -> torch.Tensor:
    """Memory for a result for x: its elements in the order of x where these fill their memory, else in order."""
    y = torch.empty_like(x)
    return y if y.stride() == x.stride() else like(x)


OPERATOR = Operator(
    schema="activation(Tensor x, str kind) -> Tensor",
    inputs="x",
    fake=lambda x, kind: _as_it_lies(x),
    gradients="x",
    saved="x kind",
    forward=forward,
    reference=reference,
    gradient=_gradient,
    reference_gradient=_reference_gradient,
    twin=lambda x, kind: TWINS[kind](x),
    room=_as_it_lies,
)


def _register(kind: str) -> KernelSpec:
    return register(
        KernelSpec(
            name=kind,
            forward=functools.partial(forward, kind=kind),
            gradient=functools.partial(_gradient, kind=kind),
            reference=functools.partial(reference, kind=kind),
            reference_gradient=functools.partial(_reference_gradient, kind=kind),
            twin=TWINS[kind],
            bytes_moved=bytes_moved,
            flops=flops,
            problems=_problems,
            dtypes=FLOATS,
            limits="none in size; float64 on a GPU",
            operators=(OPERATOR,),
            bound={"kind": kind},
        )
    )


SPEC = _register("gelu")
GELU_TANH_SPEC = _register("gelu_tanh")
SILU_SPEC = _register("silu")
RELU_SPEC = _register("relu")
