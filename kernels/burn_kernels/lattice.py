"""Scans over lattices whose states move a few places a step, one program a sample.

    y[d + 1, s] = x[d + 1, s] + sum over m of factors[d, m, s] * y[d, s - m]                 y[0] = x[0]
    y[d + 1, s] = log(sum over m of exp(weights[d, m, s] + y[d, s - m]))                     y[0] = start

They are the forward and the backward pass of losses over alignments: CTC moves by up to two states a step of time, a
transducer by up to one a diagonal.

Limit: latency.  A step waits for the step before, so samples, and states of a step, are all that runs side by side;
forward moves (moves + 1) * steps * states elements a sample.
Layout: dense.  Computes in float32, and keeps the states of all steps in float32 till the end.  Deterministic.
Source: Baum et al. 1970; Graves et al. 2006, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.errors import KernelShapeError
from burn_kernels.launch import describe, launch, next_power, wide_type
from burn_kernels.launcher import launcher
from burn_kernels.spec import Draw, Problem, register_kernel

MOST_STATES = 1024  # of a block; more states are several blocks, one after another, within each step


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(first: torch.Tensor, weights: torch.Tensor, *, backward: bool = False) -> int:
    """Both inputs read, the states of all steps written."""
    batch, steps, _, states = weights.shape
    return (first.numel() + weights.numel() + batch * (steps + 1) * states) * weights.element_size()


def flops(first: torch.Tensor, weights: torch.Tensor, *, backward: bool = False) -> int:
    """A product and a sum for each move; in logarithms an exponential beside them."""
    return 3 * weights.numel()


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _band_scan(x_ptr, factor_ptr, y_ptr, steps, states, MOVES: tl.constexpr, BLOCK: tl.constexpr):
    sample = tl.program_id(0).to(tl.int64)
    x_ptr += sample * (steps + 1) * states
    y_ptr += sample * (steps + 1) * states
    factor_ptr += sample * steps * MOVES * states
    for first in tl.range(0, states, BLOCK):
        s = first + tl.arange(0, BLOCK)
        tl.store(y_ptr + s, tl.load(x_ptr + s, mask=s < states, other=0.0).to(tl.float32), mask=s < states)
    for _ in tl.range(0, steps):
        tl.debug_barrier()  # the states of the step before are read by other threads than those that wrote them
        y_ptr += states
        x_ptr += states
        for first in tl.range(0, states, BLOCK):
            s = first + tl.arange(0, BLOCK)
            y = tl.load(x_ptr + s, mask=s < states, other=0.0).to(tl.float32)
            for m in tl.static_range(MOVES):
                reached = (s >= m) & (s < states)
                before = tl.load(y_ptr - states + s - m, mask=reached, other=0.0)
                y += before * tl.load(factor_ptr + m * states + s, mask=reached, other=0.0).to(tl.float32)
            tl.store(y_ptr + s, y, mask=s < states)
        factor_ptr += MOVES * states


@triton.jit
def _log_band_scan(start_ptr, weight_ptr, y_ptr, steps, states, MOVES: tl.constexpr, BLOCK: tl.constexpr):
    sample = tl.program_id(0).to(tl.int64)
    start_ptr += sample * states
    y_ptr += sample * (steps + 1) * states
    weight_ptr += sample * steps * MOVES * states
    for first in tl.range(0, states, BLOCK):
        s = first + tl.arange(0, BLOCK)
        tl.store(y_ptr + s, tl.load(start_ptr + s, mask=s < states, other=0.0).to(tl.float32), mask=s < states)
    for _ in tl.range(0, steps):
        tl.debug_barrier()  # as above
        y_ptr += states
        for first in tl.range(0, states, BLOCK):
            s = first + tl.arange(0, BLOCK)
            top = tl.full((BLOCK,), float("-inf"), tl.float32)
            for m in tl.static_range(MOVES):
                reached = (s >= m) & (s < states)
                before = tl.load(y_ptr - states + s - m, mask=reached, other=float("-inf"))
                way = before + tl.load(weight_ptr + m * states + s, mask=reached, other=0.0).to(tl.float32)
                top = tl.maximum(top, way)
            top = tl.where(tl.abs(top) == float("inf"), 0.0, top)
            total = tl.zeros((BLOCK,), tl.float32)
            for m in tl.static_range(MOVES):
                reached = (s >= m) & (s < states)
                before = tl.load(y_ptr - states + s - m, mask=reached, other=float("-inf"))
                way = before + tl.load(weight_ptr + m * states + s, mask=reached, other=0.0).to(tl.float32)
                total += tl.exp(way - top)
            tl.store(y_ptr + s, tl.log(total) + top, mask=s < states)
        weight_ptr += MOVES * states


# -- reference ---------------------------------------------------------------------------------------
def reference(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The linear scan in plain torch."""
    x, wide = x.to(wide_type(x.dtype)), factors.to(wide_type(x.dtype))
    rows = [x[:, 0]]
    for d in range(factors.shape[1]):
        rows.append(x[:, d + 1] + (_before(rows[-1], factors.shape[2], 0.0) * wide[:, d]).sum(1))
    return torch.stack(rows, 1).to(factors.dtype)


def log_reference(start: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The scan in logarithms in plain torch."""
    wide = weights.to(wide_type(weights.dtype))
    rows = [start.to(wide.dtype)]
    for d in range(weights.shape[1]):
        rows.append(torch.logsumexp(_before(rows[-1], weights.shape[2], -math.inf) + wide[:, d], 1))
    return torch.stack(rows, 1).to(weights.dtype)


def _before(y: torch.Tensor, moves: int, fill: float) -> torch.Tensor:
    """(batch, states) -> (batch, moves, states): for each state those that it is reached from."""
    padded = torch.nn.functional.pad(y, (moves - 1, 0), value=fill)
    return padded.unfold(1, y.shape[1], 1).flip(1)


# -- launchers ---------------------------------------------------------------------------------------
def _require_rows(op: str, x: torch.Tensor, factors: torch.Tensor) -> None:
    batch, steps, _, states = factors.shape
    if x.shape != (batch, steps + 1, states) or x.dtype != factors.dtype or x.device != factors.device:
        raise KernelShapeError(
            f"{op}: x does not fit the factors, of one step less",
            given=describe({"x": x, "factors": factors}),
            expected="x (batch, steps + 1, states) beside factors (batch, steps, moves, states), of one type",
            mend="row 0 of x is what the scan starts from",
        )


def _scan(kernel: object, first: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    batch, steps, moves, states = weights.shape
    y = torch.empty((batch, steps + 1, states), dtype=torch.float32, device=weights.device)
    if y.numel():
        block = min(next_power(states), MOST_STATES)
        inputs = first.contiguous(), weights.contiguous()
        warps = max(1, min(8, block // 32))
        launch(kernel, (batch,), y, *inputs, y, steps, states, warps=warps, MOVES=moves, BLOCK=block)
    return y.to(weights.dtype)


@launcher(
    "band_scan",
    "factors (batch, steps, moves, states)",
    reference=reference,
    options=_require_rows,
)
def band_scan(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The linear scan.

    Shapes: x (batch, steps + 1, states), factors (batch, steps, moves, states) -> that of x.
    Dtypes: float32, float16, bfloat16, both the same; on the CPU float64 too.
    """
    return _scan(_band_scan, x, factors)


@launcher("log_band_scan", "weights (batch, steps, moves, states), start (batch, states)", reference=log_reference)
def log_band_scan(start: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The scan in logarithms; -inf is a state that no path reaches, or a move that is not allowed.

    Shapes: start (batch, states), weights (batch, steps, moves, states) -> (batch, steps + 1, states).
    Dtypes: float32, float16, bfloat16, both the same; on the CPU float64 too.
    """
    return _scan(_log_band_scan, start, weights)


# -- registration ------------------------------------------------------------------------------------
_SHAPES = ((2, 4, 3, 5), (1, 3, 2, 33), (3, 1, 1, 2), (2, 0, 2, 3), (0, 2, 2, 3), (1, 2, 3, 1))


def _problems(draw: Draw, *, has_rows: bool) -> Iterator[Problem]:
    for batch, steps, moves, states in _SHAPES:
        first = draw.normal(batch, steps + 1, states) if has_rows else draw.normal(batch, states)
        yield Problem((first, draw.normal(batch, steps, moves, states, std=0.5)))


def _large(draw: Draw, *, has_rows: bool) -> Iterator[Problem]:
    first = draw.normal(8, 65, 129) if has_rows else draw.normal(8, 129)
    yield Problem((first, draw.normal(8, 64, 3, 129, std=0.3)))


def _linear_twin(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    y = [x[:, 0]]
    for d in range(factors.shape[1]):
        moved = [torch.nn.functional.pad(y[-1], (m, 0))[:, : x.shape[2]] for m in range(factors.shape[2])]
        y.append(x[:, d + 1] + sum(f * z for f, z in zip(factors[:, d].unbind(1), moved, strict=True)))
    return torch.stack(y, 1)


def _log_twin(start: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    y = [start]
    for d in range(weights.shape[1]):
        pads = [torch.nn.functional.pad(y[-1], (m, 0), value=-math.inf) for m in range(weights.shape[2])]
        moved = torch.stack([z[:, : start.shape[1]] for z in pads], 1)
        y.append((moved + weights[:, d]).logsumexp(1))
    return torch.stack(y, 1)


BAND_SCAN = register_kernel(
    band_scan,
    twin=_linear_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=lambda draw: _problems(draw, has_rows=True),
    large=lambda draw: _large(draw, has_rows=True),
)

LOG_BAND_SCAN = register_kernel(
    log_band_scan,
    twin=_log_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=lambda draw: _problems(draw, has_rows=False),
    large=lambda draw: _large(draw, has_rows=False),
)
