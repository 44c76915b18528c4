"""Measures what fusion costs the host with true launches: recording, a flush, a launch, and each part of a short
chain.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from benchmarks._kernels.judged import Verdict
from benchmarks._kernels.timing import Call
from benchmarks.fusion_host import recording
from burn_torch import Device, Fusion, Tensor
from burn_torch.backend.libtorch.generated.kernel_variants import launched_with
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.spec import TensorSpec

__all__ = ["chain_of_five", "flushes", "recorded", "verdicts"]

RECORDED_US, TAPED_US = 2.0, 3.5
FLUSH_US, LAUNCH_US = 10.0, 5.0
CHAIN_US, CHAIN_GOAL_US = 24.0, 12.0
LAUNCHES = (1, 4, 8)
IN_A_ROW = 20
"""Calls before the device is waited for: few enough that its queue never fills."""

Row = dict[str, Any]


def _row(name: str, times: Sequence[float]) -> Row:
    low = statistics.quantiles(times, n=10, method="inclusive")[0]
    return {"name": name, "median_us": round(statistics.median(times), 3), "low_decile_us": round(low, 3)}


def _in_turns(calls: dict[str, Call], device: Device, rounds: int) -> dict[str, list[float]]:
    """Microseconds of a call by name: A B C, C B A, and so on; after each visit the device does what is left to do."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 2):
        for name in list(calls) if number % 2 else reversed(list(calls)):
            call = calls[name]
            begun = time.perf_counter()
            for _ in range(IN_A_ROW):
                call()
            taken = time.perf_counter() - begun
            device.sync()
            if number >= 2:
                times[name].append(1e6 * taken / IN_A_ROW)
    return times


# -- recording ---------------------------------------------------------------------------------------------
def recorded(device: Device, rounds: int) -> list[Row]:
    """An operation, recorded with and without Autodiff, beside eager ones."""
    return [_row(name, times) for name, times in recording(rounds, device).items()]


# -- flushes -----------------------------------------------------------------------------------------------
def five(x: Any) -> Any:
    """GELU of five operations."""
    return x * ((x / 1.4142135623730951).erf() + 1.0) / 2.0


def five_twin(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + torch.erf(x / 1.4142135623730951)) / 2


def flushes(device: Device, rounds: int) -> list[Row]:
    """The flush of a known plan of 1, 4 and 8 launches, the launches included."""
    fused = device.fused()
    stream = _fusion(fused).stream(fused.place)
    rows = []
    for count in LAUNCHES:
        # of different sizes, so that none are joined
        inputs = [Tensor.from_torch(torch.randn(64 + i, 64, device=fused.place), fused) for i in range(count)]
        times = []
        for number in range(rounds + 3):
            outputs = [five(x) for x in inputs]
            device.sync()  # not the fused device's own, which computes what is pending
            begun = time.perf_counter()
            stream.flush()
            taken = 1e6 * (time.perf_counter() - begun)
            if number >= 3:
                times.append(taken)
            del outputs
        kernels = stream.history[-1].plan.kernels
        rows.append(_row(f"flush of {count} launches", times) | {"launches": count, "kernels": kernels})
    return rows


def _fusion(device: Device) -> Fusion:
    backend = device.backend
    assert isinstance(backend, Fusion)
    return backend


# -- the chain of five operations ----------------------------------------------------------------------------
def chain_of_five(device: Device, rounds: int, *, compiled: bool, backend: str) -> list[Row]:
    """Five operations on 64 x 768 without gradients: all of it beside rivals, and each part of it.

    compiled   whether torch.compile takes part, with this backend
    """
    fused = device.fused()
    tensor = torch.randn(64, 768, device=fused.place)
    stream, x = _fusion(fused).stream(fused.place), Tensor.from_torch(tensor, fused)

    def whole() -> Any:
        y = five(x)
        stream.flush()
        return y

    calls: dict[str, Call] = {"ours": whole, "torch eager": partial(five_twin, tensor)}
    if compiled:
        calls["torch.compile"] = partial(torch.compile(five_twin, dynamic=False, backend=backend), tensor)
    for _ in range(8):  # a program is written when its shape has come a few times
        whole()
    ready = stream.history[-1]
    launched = _launches(ready)
    times: dict[str, list[float]] = {}
    with torch.no_grad():
        times |= _in_turns(calls, fused, rounds)

    def thrown_away() -> None:
        five(x)

    parts: dict[str, Call] = {"recording": thrown_away}
    inputs = [x.into_torch(), *_numbers_of(ready)]
    run = ready._run
    assert run is not None
    parts["the program, its launch included"] = partial(run, *inputs)
    parts |= launched
    times |= _in_turns(parts, fused, rounds)
    stream.flush()
    result = (five(x).into_torch(),)
    ready._run = lambda *_: result
    try:
        times["recording and flush, the launch left out"] = _in_turns({"": whole}, fused, rounds)[""]
    finally:
        ready._run = run
    return [_row(name, samples) for name, samples in times.items()]


def _numbers_of(ready: Any) -> list[float]:
    """The numbers of the chain, in its order."""
    numbers = [1.4142135623730951, 1.0, 2.0]
    assert len(ready.graph.inputs) == 1 + len(numbers)
    return numbers


def _launches(ready: Any) -> dict[str, Call]:
    """The launch of the chain's kernel alone, and the driver's part of it; nothing where no kernel runs.

    What the driver's own part is, nobody saves: Triton's C function reads the arguments and calls it.
    """
    names = getattr(ready._run, "__globals__", {})
    kernels = [value for value in names.values() if isinstance(value, FusedKernel)]
    if not ready.fused or len(kernels) != 1 or not kernels[0].variants:
        return {}
    from burn_kernels.prepared import prepared

    (kernel,) = kernels
    (variant,) = kernel.variants.values()
    if variant.last is None:
        return {}
    tiles, compiled = variant.last
    device = torch.device(variant.kernel.outputs[0].place)
    specs = [spec for _, spec in kernel.body.inputs]
    known = iter(_numbers_of(ready))
    order = [torch.randn(ready.graph.inputs[0][1].shape, device=device) if isinstance(spec, TensorSpec) else next(known)
             for spec in specs]  # fmt: skip
    calls: dict[str, Call] = {"the launch": partial(kernel, *order)}
    index = device.index
    quick = None if index is None else prepared(compiled, index)
    if quick is not None and len(variant.kernel.outputs) == 1:
        x = next(value for value in order if isinstance(value, torch.Tensor))
        numbers = [launched_with(argument, order) for argument in variant.kernel.numbers]
        y = torch.empty_like(x)
        operands = [x.data_ptr(), y.data_ptr(), *numbers, *variant.kernel.sizes, *tiles.blocks(variant.kernel).values()]
        stream = torch.cuda.current_stream(device).cuda_stream
        programs = tiles.programs(variant.kernel)
        submit = partial(quick.submit, programs, 1, 1, stream, *quick.head, *operands)
        calls["the driver's part"] = partial(_run_and_keep, submit, y)
    return calls


def _run_and_keep(call: Call, memory: torch.Tensor) -> None:
    """Runs a call that writes to memory, which lives as long as this is bound to it."""
    call()


# -- bars ----------------------------------------------------------------------------------------------------
def verdicts(recordings: Sequence[Row], flushed: Sequence[Row], chain: Sequence[Row]) -> list[Verdict]:
    """Each figure beside its bar."""
    judged: list[Verdict] = []

    def at_most(case: str, asked: str, value: float | None, most: float) -> None:
        judged.append(Verdict(case, "host", asked, value, most, value is not None and value <= most))

    taped = [row["median_us"] for row in recordings if row["name"].endswith("with Autodiff")]
    plain = [row["median_us"] for row in recordings if row["name"].endswith("recorded")]
    at_most("recording an operation", "us, at most", max(plain, default=None), RECORDED_US)
    at_most("recording with Autodiff", "us, at most", max(taped, default=None), TAPED_US)
    for row in flushed:
        at_most(row["name"], "us, at most", row["median_us"], FLUSH_US + LAUNCH_US * row["launches"])
    ours = next((row["median_us"] for row in chain if row["name"] == "ours"), None)
    at_most("chain of five operations", "us, at most", ours, CHAIN_US)
    at_most("chain of five operations", "us, goal", ours, CHAIN_GOAL_US)
    return judged
