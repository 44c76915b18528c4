"""Trials show if a candidate computes the right thing: it runs in fenced, poisoned memory beside the reference.

While a trial runs, every tensor that a launcher makes lies between two guard zones, and is full of a value that no
result has by chance: NaN, or the largest integer.  After it, the guards must be as they were (nothing was written past
an end), inputs must be as they were, outputs may hold no poison (nothing was left out), and must be as near to
float64 as plain torch is, by the rule of `burn_kernels.verify`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from burn_kernels.launcher import Launcher
from burn_kernels.verification import cast, compare

__all__ = ["Trial", "Truth", "agree", "fenced", "judge"]

GUARD_BYTES = 512
"""On each side: two of the widest distances to which the allocator aligns, so that alignment stays as it was."""
CHUNK = 1 << 24
"""Elements that are compared, and words that are summed, at once."""


# -- what is tried -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Trial:
    """A problem with inputs of its own: how to run a config on it, and what it must give."""

    inputs: tuple[Any, ...]
    """Tensors and numbers; what `run` reads."""
    run: Callable[..., Any]
    """(inputs, config) -> output or outputs, by the real launcher."""
    reference: Callable[..., Any]
    """(inputs) -> the same outputs, in plain torch; computes in float64 on float64 inputs."""
    timed: Callable[..., object] | None = None
    """The timed call where `run` does more than the kernel does: copies an input that it writes over, makes a table."""

    @staticmethod
    def of(run: Launcher[..., Any], *inputs: Any, **options: Any) -> Trial:
        """The trial of a launcher on these inputs, with these options, beside its reference."""
        return Trial(
            inputs,
            lambda given, config: run(*given, **options, config=config),
            lambda given: run.reference(*given, **options),
        )

    @functools.cached_property
    def sums(self) -> list[torch.Tensor]:
        """The sums of the bytes of each input, as they were drawn: a config that changed them leaves other ones."""
        return [_sum_of_bytes(x) for x in _flat(self.inputs)]


@dataclass(frozen=True)
class Truth:
    """The results that a small problem must give, worked out once for all its configs."""

    exact: Sequence[torch.Tensor]
    """In float64."""
    plain: Sequence[torch.Tensor]
    """As plain torch computes them in the problem's own types: how far from exact it is allowed to be."""

    @staticmethod
    def of(trial: Trial) -> Truth:
        """By the trial's reference, on the device of its inputs."""
        drawn = _flat(trial.inputs)  # none where the kernel draws numbers
        inputs = cast(trial.inputs, torch.float64, drawn[0].device) if drawn else trial.inputs
        return Truth(_flat(trial.reference(inputs)), _flat(trial.reference(trial.inputs)))


def judge(trial: Trial, config: object, truth: Truth, dtype: torch.dtype) -> list[str]:
    """The faults of a config on a small problem, by comparison with float64; an empty list if nothing is."""
    fence, outputs, faults = _run(trial, config)
    if len(outputs) != len(truth.exact):
        return [*faults, f"{len(outputs)} outputs, expected {len(truth.exact)}"]
    for number, (output, exact, common) in enumerate(zip(outputs, truth.exact, truth.plain, strict=True)):
        expected = exact.to(output.device)  # a reference that draws its outputs has put them on a device of its own
        faults += [f"output {number}: {fault}" for fault in unwritten(output, expected)]
        if output.dtype.is_floating_point:
            faults += compare(f"output {number}", output, expected, common, dtype)
        elif not torch.equal(output, expected.to(output.dtype)):
            faults.append(f"output {number}: other integers than the reference")
    return faults + fence.broken()


def agree(trial: Trial, config: object, base: Sequence[torch.Tensor], dtype: torch.dtype) -> list[str]:
    """The faults of a config on a large problem, beside the outputs of one that was judged right."""
    fence, outputs, faults = _run(trial, config)
    if len(outputs) != len(base):
        return [*faults, f"{len(outputs)} outputs, expected {len(base)}"]
    for number, (output, expected) in enumerate(zip(outputs, base, strict=True)):
        wrong = unwritten(output, expected) + apart(output, expected, dtype)
        faults += [f"output {number}: {fault}" for fault in wrong]
    return faults + fence.broken()


def first(trial: Trial, config: object) -> tuple[list[torch.Tensor], list[str]]:
    """The outputs of a config that was judged right on a small problem, and what is wrong with how it got them."""
    fence, outputs, faults = _run(trial, config)
    return outputs, faults + fence.broken()


def _run(trial: Trial, config: object) -> tuple[Fence, list[torch.Tensor], list[str]]:
    before = trial.sums
    with fenced() as fence:
        outputs = _flat(trial.run(trial.inputs, config))
    after = [_sum_of_bytes(x) for x in _flat(trial.inputs)]
    changed = [
        f"writes to input {i}" for i, pair in enumerate(zip(before, after, strict=True)) if not torch.equal(*pair)
    ]
    return fence, outputs, changed


def _sum_of_bytes(x: torch.Tensor) -> torch.Tensor:
    # two sums, the second weighted, so that swapped numbers show; of whole storages, gaps between rows included
    data = torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())
    whole = data.numel() // 8 * 8
    total = torch.zeros(2, dtype=torch.int64, device=x.device)
    for words in (data[:whole].view(torch.int64), data[whole:].to(torch.int64)):
        for start in range(0, words.numel(), CHUNK):  # sums wrap around, which is as good
            part = words[start : start + CHUNK]
            weight = torch.arange(part.numel(), dtype=torch.int64, device=x.device).remainder_(8191).add_(1)
            total[0] += part.sum()
            total[1] += weight.mul_(part).sum() * (start + 1)
    return total


# -- comparing ---------------------------------------------------------------------------------------
def unwritten(outputs: torch.Tensor, expected: torch.Tensor) -> list[str]:
    """Tells if poison is left where a number should be; looks at large tensors in pieces."""
    counted = torch.zeros((), dtype=torch.int64, device=outputs.device)
    for part, other in _pieces(outputs, expected):
        if outputs.dtype.is_floating_point:
            counted += (part.isnan() & ~other.isnan()).sum()
        elif outputs.dtype != torch.bool:
            top = torch.iinfo(outputs.dtype).max
            counted += ((part == top) & (other != top)).sum()
    count = int(counted)
    return [f"{count} elements not written, or NaN where there should be numbers"] if count else []


def apart(outputs: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> list[str]:
    """Tells if two right results of a problem in `dtype` are further apart than rounding takes them.

    Each may be off by what sums in another order make: in half types the last rounding, one unit; in float32 the
    order of up to some thousand terms, 64 units.  Largest and root mean square, beside the expected ones.
    """
    if outputs.shape != expected.shape:
        return [f"shape {tuple(outputs.shape)}, expected {tuple(expected.shape)}"]
    if not outputs.dtype.is_floating_point:
        return [] if torch.equal(outputs, expected) else ["other integers"]
    unit = torch.finfo(dtype).eps * (64 if dtype == torch.float32 else 4)
    # on the device to the end: of the difference and of what is expected, the sum of squares and the largest
    sums, tops = (torch.zeros(2, dtype=torch.float64, device=outputs.device) for _ in range(2))
    unlike = torch.zeros((), dtype=torch.bool, device=outputs.device)
    for part, other in _pieces(outputs, expected):
        odd = ~other.isfinite()
        unlike |= (odd & (part != other) & ~(part.isnan() & other.isnan())).any()
        part, other = (torch.where(odd, 0.0, x.to(torch.float32)) for x in (part, other))
        for place, values in enumerate((part - other, other)):
            sums[place] += values.square().sum(dtype=torch.float64)
            tops[place] = torch.maximum(tops[place], values.abs().max())
    if bool(unlike):
        return ["not the same NaN and infinities"]
    faults = []
    for kind, pair in (("largest", tops.tolist()), ("root mean square", sums.sqrt().tolist())):
        error, size = pair
        if not error <= unit * size:  # NaN too
            faults.append(f"{kind} difference {error:.3g} of {size:.3g} from another config, allowed {unit * size:.3g}")
    return faults


def _pieces(outputs: torch.Tensor, expected: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if outputs.shape != expected.shape or not outputs.numel():
        return
    one, other = outputs.reshape(-1), expected.reshape(-1)
    for start in range(0, one.numel(), CHUNK):
        yield one[start : start + CHUNK], other[start : start + CHUNK]


def _flat(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for item in value for x in _flat(item)] if isinstance(value, (list, tuple)) else []


# -- fences ------------------------------------------------------------------------------------------
class Fence:
    """The memory that was given out while a fence stood."""

    def __init__(self) -> None:
        self.rooms: list[tuple[torch.Tensor, int]] = []

    def broken(self) -> list[str]:
        """Names the guard zones that were written to."""
        faults = []
        for number, (room, size) in enumerate(self.rooms):
            for side, zone in (("before", room[:GUARD_BYTES]), ("past", room[GUARD_BYTES + size :])):
                if not bool((zone == _GUARD).all()):
                    faults.append(f"writes {side} the {'start' if side == 'before' else 'end'} of allocation {number}")
        return faults


_GUARD = 0xA5


class _FencedMemory(TorchDispatchMode):
    def __init__(self, fence: Fence) -> None:
        super().__init__()
        self.fence = fence

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        out = func(*args, **(kwargs or {}))
        if func in _EMPTY and isinstance(out, torch.Tensor) and out.numel() and out.device.type != "meta":
            return self._between_guards(out)
        return out

    def _between_guards(self, out: torch.Tensor) -> torch.Tensor:
        itemsize = out.element_size()
        spread = 1 + sum((n - 1) * s for n, s in zip(out.shape, out.stride(), strict=True))
        size = spread * itemsize
        room = torch.full((size + 2 * GUARD_BYTES,), _GUARD, dtype=torch.uint8, device=out.device)
        # the end of a row of 2-byte elements need not be a multiple of 8, so the inner part is cut out as bytes first
        inner = room[GUARD_BYTES : GUARD_BYTES + size].view(out.dtype)
        inner.fill_(poison_of(out.dtype))
        self.fence.rooms.append((room, size))
        return inner.as_strided(out.shape, out.stride(), inner.storage_offset())


_EMPTY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


def poison_of(dtype: torch.dtype) -> float | int | bool:
    """The value in memory that no kernel wrote to: NaN, the largest integer, True."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


@contextmanager
def fenced() -> Iterator[Fence]:
    """Puts guard zones around, and poison into, all that torch.empty and its kin give inside the block."""
    fence = Fence()
    with _FencedMemory(fence):
        yield fence
