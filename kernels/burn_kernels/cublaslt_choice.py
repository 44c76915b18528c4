"""Chooses cuBLASLt's proposal for a product: each is timed beside torch's own, which is the first proposal.

    best(problem, index) -> rank, or None where torch's product, and what follows it as a kernel of its own, is as good

For who records a program that runs many times, as cuDNN searches there for its convolutions.  A proposal must compute
what torch does before it is timed, and be ahead by MARGIN.  A problem is timed once in a process, some 20 ms; nothing
in deterministic mode, at the level `off` of autotune, or while a CUDA graph is captured.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from burn_kernels.autotune import levels
from burn_kernels.autotune.clock import Clock, GpuClock
from burn_kernels.cublaslt import Problem, product, proposals
from burn_kernels.errors import KernelError
from burn_kernels.launch import unobserved

__all__ = ["best", "inputs_of", "raced", "separately"]

MARGIN: Final = 1.01
"""The share of a proposal's time: one that is ahead by less is as good as the other."""
MOST: Final = 8
"""Proposals that are timed; further ones were never ahead of the first by the library's own model."""
ROUNDS: Final = 9
TORCH: Final = -1

_found: dict[tuple[Problem, int], int | None] = {}
_timing = threading.Lock()


def best(problem: Problem, index: int) -> int | None:
    """The rank of the proposal to take on the GPU with this number; None where torch's own is as good."""
    if levels.level() == "off" or levels.is_deterministic():
        return None
    with _timing:
        key = (problem, index)
        if key not in _found:
            if torch.cuda.is_current_stream_capturing():
                return None
            with torch.cuda.device(index), unobserved():
                _found[key] = raced(problem, GpuClock(index, torch.cuda.current_stream(index)))
        return _found[key]


def raced(problem: Problem, clock: Clock) -> int | None:
    """The rank that is ahead by MARGIN; None where torch's own is as good, or the clock's device has no room."""
    try:
        return _raced(problem, clock)
    except torch.OutOfMemoryError:
        return None


def _raced(problem: Problem, clock: Clock) -> int | None:
    count = min(MOST, proposals(problem, clock.device.index or 0))
    if not count:
        return None
    inputs = inputs_of(problem, clock.device)
    calls: dict[int, Callable[[], object]] = {TORCH: lambda: _alike(problem, inputs)}
    expected = separately(problem, *inputs).clone()
    for rank in range(count):
        call = _call(problem, inputs, rank)
        if _agrees(call, expected, inputs[4]):
            calls[rank] = call
    times = _timed(calls, clock)
    rank = min(times, key=lambda r: times[r])
    return None if rank == TORCH or times[TORCH] < MARGIN * times[rank] else rank


Given = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]
"""x, w, the bias, what is kept, and where the result goes."""


def inputs_of(problem: Problem, device: torch.device) -> Given:
    """Inputs that lie as a problem says."""
    generator = torch.Generator(device=device).manual_seed(0)

    def drawn(count: int, scale: float = 1.0) -> Tensor:
        return torch.randn(count, device=device, generator=generator).mul_(scale).to(problem.dtype)

    rows, cols = problem.result.cols, problem.result.rows
    inner = problem.first.rows if problem.turned[0] else problem.first.cols

    def matrix(height: int, width: int, cols: int, step: int, turned: bool, scale: float) -> Tensor:
        return drawn(cols * step, scale).as_strided((height, width), (1, step) if turned else (step, 1))

    first, second = problem.first, problem.second
    w = matrix(inner, cols, first.cols, first.step, problem.turned[0], inner**-0.5)
    x = matrix(rows, inner, second.cols, second.step, problem.turned[1], 1.0)
    kept = drawn(rows * cols).view(rows, cols) if problem.ending.startswith("gelu_slope") else None
    out: Tensor | None = None
    if problem.adds or problem.result_dtype != problem.dtype or problem.result.step != cols:
        out = torch.zeros(rows * problem.result.step, dtype=problem.result_dtype, device=device)
        out = out.as_strided((rows, cols), (problem.result.step, 1))
    return x, w, drawn(cols) if problem.bias else None, kept, out


def separately(
    problem: Problem, x: Tensor, w: Tensor, bias: Tensor | None, kept: Tensor | None, out: Tensor | None
) -> Tensor:
    """The first result by torch: its product, and a kernel after it where the problem ends with something."""
    if problem.adds:
        assert out is not None
        if out.dtype == x.dtype:
            return torch.addmm(out, x, w, out=out)
        return torch.ops.aten.addmm.dtype_out(out, x, w, out.dtype, out=out)  # type: ignore[no-any-return]  # a tensor
    if out is not None and out.dtype != x.dtype:
        return torch.ops.aten.mm.dtype_out(x, w, out.dtype, out=out)  # type: ignore[no-any-return]  # a tensor
    z = torch.mm(x, w, out=out) if bias is None else torch.addmm(bias, x, w)
    if problem.ending == "gelu_kept":
        return torch.nn.functional.gelu(z, approximate="tanh")
    if kept is not None:
        return torch.ops.aten.gelu_backward(z, kept, approximate="tanh")  # type: ignore[no-any-return]  # a tensor
    return z


def _alike(problem: Problem, given: Given) -> Tensor:
    """The call that is timed in place of `separately`: for GELU's slope a pass with one operand less.

    A kernel after the product would also make GELU again where memory is short; a product that ends with the slope
    leaves that to a kernel of its own, a read and a write.
    """
    x, w, bias, kept, out = given
    if kept is None:
        return separately(problem, x, w, bias, kept, out)
    return torch.nn.functional.gelu(torch.mm(x, w), approximate="tanh")


def _call(problem: Problem, given: Given, rank: int) -> Callable[[], Tensor]:
    x, w, bias, kept, out = given
    ending, adds = problem.ending, problem.adds
    return lambda: product(x, w, bias, ending=ending, kept=kept, out=out, adds=adds, rank=rank)[0]


def _agrees(call: Callable[[], Tensor], expected: Tensor, out: Tensor | None) -> bool:
    """Tells if a proposal runs, and computes what torch does, up to the rounding of halves."""
    if out is not None:
        out.zero_()
    try:
        outputs = call()
    except KernelError:
        return False
    most = expected.abs().max()
    return bool((outputs - expected).abs().max() <= 0.02 * most)


def _timed(calls: dict[int, Callable[[], object]], clock: Clock) -> dict[int, float]:
    """Milliseconds of each call, the medians of turns."""
    clock.settle()
    times: dict[int, list[float]] = {rank: [] for rank in calls}
    for _ in range(1 + ROUNDS):
        for rank, call in calls.items():
            times[rank].append(clock.milliseconds(call))
    clock.settle()
    return {rank: statistics.median(samples[1:]) for rank, samples in times.items()}
