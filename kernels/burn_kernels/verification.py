"""Checks an operation's launchers on one problem: outputs and gradients against float64, inputs untouched.

A kernel's error on a GPU may be 1.1 times that of plain torch in the same element type, plus half a unit in the last
place; that of references and of the interpreter twice torch's plus one unit.  The root mean square is held to it, and
in half types the largest error.  In float32 chance decides which of two right results has the larger one: of torch's
own attention and gradients, with keys and columns in another order (240 pairs), the root mean squares were within 1.04
of each other, the largest errors 1.7 apart in one of ten and 2.7 at most.  So it may be three times torch's.  Among
fewer than 16384 numbers chance decides both: twice torch's plus four units.  Memory that the launchers allocate is
filled with NaN before they run, so an element that was not written is found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from burn_kernels.arguments import checked
from burn_kernels.autotune.levels import deterministic, is_deterministic
from burn_kernels.spec import KernelSpec, Problem

__all__ = ["Difference", "cast", "convolved_alike", "poisoned", "verify"]


@checked
def verify(
    spec: KernelSpec,
    problem: Problem,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    seed: int = 0,
    seen: Seen | None = None,
) -> list[str]:
    """The faults of `spec` on this problem in this element type; an empty list if nothing is.

    `seen` is told every error of outputs and gradients, also of those that are right.
    """
    with convolved_alike():
        return _verify(spec, problem, dtype, torch.device(device), seed, seen or (lambda difference: None))


def _verify(
    spec: KernelSpec, problem: Problem, dtype: torch.dtype, device: torch.device, seed: int, seen: Seen
) -> list[str]:
    inputs = cast(problem.inputs, dtype, device)
    options = cast(problem.options, torch.float32 if dtype != torch.float64 else dtype, device)
    exact_inputs, exact_options = cast(inputs, torch.float64, "cpu"), cast(options, torch.float64, "cpu")
    watched = _memory(inputs)
    with poisoned():
        outputs = _tuple(spec.forward(*inputs, **options))
    faults = _note_changes("forward", watched, inputs)

    exact = _tuple(spec.reference(*exact_inputs, **exact_options))
    truths = _tuple(spec.twin(*_track(exact_inputs), **exact_options))
    for number, truth in enumerate(truths):
        name = "reference in float64" + (f", output {number}" if len(truths) > 1 else "")
        faults += compare(name, exact[number], truth, truth, torch.float64)
    kept = _tuple((spec.twin_kept or spec.reference)(*inputs, **options))[len(truths) :]
    plain = (*_tuple(spec.twin(*inputs, **options)), *kept)
    size = spec.size(*exact_inputs, **exact_options)
    for number, (ours, expected, common) in enumerate(zip(outputs, exact, plain, strict=True)):
        faults += compare(f"output {number}", ours, expected, common, dtype, floor=size, seen=seen)
    if spec.gradient is None or spec.reference_gradient is None:
        return faults

    generator = torch.Generator().manual_seed(seed)
    upstream = tuple(
        torch.randn(truth.shape, dtype=torch.float64, generator=generator).to(output.dtype).to(device)
        for truth, output in zip(truths, outputs, strict=False)
    )
    exact_upstream = tuple(g.to("cpu", torch.float64) for g in upstream)
    dy, exact_dy = (g if len(g) > 1 else g[0] for g in (upstream, exact_upstream))
    with poisoned():
        grads = spec.gradient(dy, inputs, outputs, **options)
    faults += _note_changes("gradient", watched, inputs)
    expected = _autograd(spec.twin, exact_inputs, exact_options, exact_upstream)
    common = _autograd(spec.twin, inputs, options, upstream)
    exact_grads = spec.reference_gradient(exact_dy, exact_inputs, exact, **exact_options)
    for number, grad in enumerate(grads):
        name = f"gradient of input {number}"
        if (grad is None) != (expected[number] is None):
            faults.append(f"{name}: {'missing' if grad is None else 'there, but torch has none'}")
        elif grad is not None:
            exact_name = f"{name} by the reference in float64"
            faults += compare(exact_name, exact_grads[number], expected[number], expected[number], torch.float64)
            faults += compare(name, grad, expected[number], common[number], dtype, seen=seen)
    return faults


MANY = 16_384
"""From this many numbers on, errors average."""
LARGEST = 3.0
"""How far the largest errors of two right float32 results may lie apart."""


class Difference(NamedTuple):
    """How far a result is from the exact one, by one measure, and what is allowed."""

    what: str
    """The name of the output, or of the input whose gradient it is."""
    kind: str
    """The measure: "relative RMS" or "largest"."""
    error: float
    plain: float
    """The same of what plain torch makes of it."""
    size: float
    """The exact result by the same measure."""
    allowed: float

    @property
    def holds(self) -> bool:
        """Tells if the error is within its bound; that of NaN is not."""
        return self.error <= self.allowed

    def __str__(self) -> str:
        return f"{self.what}: {self.kind} error {self.error:.3g} of {self.size:.3g}, allowed {self.allowed:.3g}"


Seen = Callable[[Difference], None]


def compare(
    name: str,
    output: Any,
    expected: Any,
    common: Any,
    dtype: torch.dtype,
    *,
    floor: float = 0.0,
    seen: Seen = lambda difference: None,
) -> list[str]:
    """The faults of `output`, if `expected` is exact and `common` is plain torch's.

    `floor` is the size of the numbers whose difference `found` may be, where that is known: their units count.  `seen`
    is told every difference that was measured.
    """
    if isinstance(output, (list, tuple)):
        if len(output) != len(expected):
            return [f"{name}: {len(output)} tensors, expected {len(expected)}"]
        rows = zip(output, expected, common, strict=True)
        return [fault for i, row in enumerate(rows) for fault in compare(f"{name}[{i}]", *row, dtype, seen=seen)]
    if output.shape != expected.shape:
        return [f"{name}: shape {tuple(output.shape)}, expected {tuple(expected.shape)}"]
    if not output.dtype.is_floating_point:
        wrong = (output.to(expected.device) != expected).sum().item()
        return [f"{name}: {wrong} of {expected.numel()} other integers"] if wrong else []
    on_gpu = output.is_cuda
    output, common = (x.detach().to(expected.device, torch.float64) for x in (output, common))
    expected = expected.detach()
    if not expected.numel():
        return []
    odd = ~torch.isfinite(expected)
    if not torch.equal(output[odd].nan_to_num(nan=0.5), expected[odd].nan_to_num(nan=0.5)):
        return [f"{name}: not the same NaN and infinities"]
    output, common, expected = (torch.where(odd, 0.0, x) for x in (output, common, expected))
    factor, slack = (1.1, 0.5) if on_gpu else (2.0, 1.0)
    if expected.numel() < MANY:
        factor, slack = 2.0, 4.0
    if dtype == torch.float64:  # `expected` has such errors itself
        factor, slack = 2.0, 1024.0  # two orders of 100,000s of numbers are some 300 units apart
    unit = torch.finfo(dtype).eps * slack
    faults = []
    for kind, measure in (("relative RMS", _rms), ("largest", _largest)):
        size, plain = measure(expected), measure(common - expected)
        by_chance = kind == "largest" and dtype == torch.float32
        allowed = (LARGEST if by_chance else factor) * plain + unit * max(size, floor)
        difference = Difference(name, kind, measure(output - expected), plain, size, allowed)
        seen(difference)
        faults += [] if difference.holds else [str(difference)]
    return faults


def _rms(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()


def _largest(x: torch.Tensor) -> float:
    return x.abs().max().item()


def cast(value: object, dtype: torch.dtype, device: torch.device | str) -> Any:
    """The same structure with its float tensors in `dtype`, all on `device`, strides and offsets kept."""
    if isinstance(value, torch.Tensor):
        size = value.untyped_storage().nbytes() // value.element_size()
        kind = dtype if value.dtype.is_floating_point else value.dtype
        room = torch.zeros(size, dtype=kind, device=device)
        return room.as_strided(value.shape, value.stride(), value.storage_offset()).copy_(value.detach())
    if isinstance(value, dict):
        return {name: cast(item, dtype, device) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(cast(item, dtype, device) for item in value)
    return value


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Fills what torch.empty gives with NaN; torch does so in deterministic mode only, which selection is not told."""
    chosen_so = is_deterministic()
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic  # its setting is a property that type checkers do not see
    filled = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    settings.fill_uninitialized_memory = True
    try:
        with deterministic(chosen_so):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        settings.fill_uninitialized_memory = filled


@contextlib.contextmanager
def convolved_alike() -> Iterator[None]:
    """Convolutions of float32 in float32, and torch's own by the algorithms of deterministic mode.

    In that mode memory is poisoned, and cuDNN takes other algorithms in it: of one gradient, by its own kernels, they
    leave 7e-7 where the others leave 4e-7, and with torch's leave to take tf32, which is its default, 1e-3.
    """
    cudnn: Any = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.deterministic
    cudnn.allow_tf32, cudnn.deterministic = False, True
    try:
        yield
    finally:
        cudnn.allow_tf32, cudnn.deterministic = before


def _tuple(outputs: object) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _flat(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for item in value for x in _flat(item)] if isinstance(value, (list, tuple)) else []


def _memory(inputs: object) -> list[torch.Tensor]:
    # whole storages, as bytes: what lies between the rows of a strided input may not change either
    return [_bytes(x).clone() for x in _flat(inputs)]


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


def _note_changes(when: str, watched: list[torch.Tensor], inputs: object) -> list[str]:
    now = [_bytes(x) for x in _flat(inputs)]
    pairs = enumerate(zip(watched, now, strict=True))
    return [f"{when} writes to input {i}" for i, (before, after) in pairs if not torch.equal(before, after)]


def _track(inputs: Any) -> Any:
    return tuple(
        x.detach().requires_grad_() if isinstance(x, torch.Tensor) and x.dtype.is_floating_point else x for x in inputs
    )


def _autograd(
    twin: Callable[..., object], inputs: object, options: dict[str, object], upstream: tuple[torch.Tensor, ...]
) -> list[torch.Tensor | None]:
    tracked = _track(inputs)
    outputs = _tuple(twin(*tracked, **options))
    leaves = [x for x in tracked if isinstance(x, torch.Tensor) and x.requires_grad]
    upstream = tuple(g.to(y.dtype) for g, y in zip(upstream, outputs, strict=True))
    grads = iter(torch.autograd.grad(outputs, leaves, upstream))
    return [next(grads) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in tracked]
