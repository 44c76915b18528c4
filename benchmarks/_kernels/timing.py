"""How calls are timed: in turns, from a cold cache, between two events on the device; on a CPU, between two clocks.

A call that is replayed has to leave its results in the memory that it handed out while it was captured: what is
computed later, or elsewhere, would cost no time.  `captured` refuses an empty graph, and `confirm` looks.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Call", "Replay", "Timer", "Untimed", "captured", "confirm", "peak_mib", "results_of"]

Call = Callable[[], Any]


class _Moment:
    """Holds what an event is, on a machine without a GPU."""

    at_s = 0.0

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def elapsed_time(self, later: _Moment) -> float:
        return 1e3 * (later.at_s - self.at_s)


def _event(device: str) -> Any:
    if device == "cpu":
        return _Moment()
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch is not typed there


class Timer:
    """Times calls in turns, each after the L2 cache was overwritten."""

    def __init__(self, rounds: int, device: str) -> None:
        self.rounds, self.device = rounds, device
        self.flush = torch.empty(1 if device == "cpu" else 128 << 20, dtype=torch.int32, device=device)

    def __call__(self, calls: dict[str, Call], rounds: int = 0) -> dict[str, list[float]]:
        """Milliseconds of each round by variant."""
        events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
        for number in range(rounds or self.rounds):
            for name in list(calls) if number % 2 else reversed(list(calls)):
                start, end = _event(self.device), _event(self.device)
                self.flush.zero_()
                start.record()
                calls[name]()
                end.record()
                events[name].append((start, end))
        if self.device != "cpu":
            torch.cuda.synchronize()
        return {name: [start.elapsed_time(end) for start, end in pairs] for name, pairs in events.items()}


# -- replays ---------------------------------------------------------------------------------------------
class Untimed(Exception):
    """A call whose time would say nothing, since it does not compute what it hands out."""


@dataclass(frozen=True)
class Replay:
    """A captured call.  kept: what it handed out, where each replay leaves its results."""

    replay: Callable[[], None]
    kept: Any

    def __call__(self) -> None:
        self.replay()


def captured(call: Call, device: str) -> Call:
    """The call as a CUDA graph, or itself where it cannot be captured.  Raises: Untimed for a graph without kernels."""
    if device == "cpu":
        return call
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch is not typed there
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # noted and not raised: torch would stay on the stream of the capture
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with torch.cuda.graph(graph):
                kept = call()
        except RuntimeError as error:
            print(f"    not captured, so host time counts: {str(error).splitlines()[0]}")
            torch.cuda.synchronize()
            _set_right()
            return call
    refuse_empty([str(one.message) for one in warned])
    return Replay(graph.replay, kept)


def _set_right() -> None:
    """Ends what a failed capture leaves: only one that succeeds lets torch's random generator draw again."""
    x, spare = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(spare):
        x.add_(1)


def refuse_empty(messages: Sequence[str]) -> None:
    """Raises: Untimed where torch warned, while it captured, that there was nothing."""
    if any("graph is empty" in line.lower() for line in messages):
        raise Untimed("its CUDA graph is empty: the call launches nothing, so its results are computed later")


def results_of(output: Any) -> list[torch.Tensor]:
    """The tensors that a call handed out; a lazy one is computed by this."""
    if isinstance(output, tuple | list):
        return [x for part in output for x in results_of(part)]
    while getattr(getattr(output, "backend", None), "is_autodiff", False):
        output = output.inner()
    if hasattr(output, "into_torch"):
        output = output.into_torch()
    return [output.detach()] if isinstance(output, torch.Tensor) else []


def confirm(call: Call, replay: Replay, *, tolerance: float = 1e-2) -> None:
    """Replays over poisoned results, and compares what is there with what a plain call gives.

    What draws new random numbers at each call is only looked at for poison.  Results in memory of the caller (of calls
    that work in place) are left alone.

    Raises: Untimed for results that the replay does not write, or that differ by more than `tolerance`, relatively.
    """
    expected, second = results_of(call()), results_of(call())
    kept = results_of(replay.kept)
    own = {x.untyped_storage().data_ptr() for x in expected}
    watched = [i for i, x in enumerate(kept) if x.numel() and x.untyped_storage().data_ptr() not in own]
    repeats = all(_apart(second[i], expected[i]) <= tolerance for i in watched)
    del second
    for i in watched:
        kept[i].fill_(_POISON if kept[i].is_floating_point() else 1 if kept[i].dtype is torch.bool else -1)
    replay()
    for i in watched:
        if kept[i].is_floating_point() and bool(kept[i].isnan().any()):
            raise Untimed(f"a replay does not write result {i} of {len(kept)}: it is computed later, or elsewhere")
        if repeats and not (apart := _apart(kept[i], expected[i])) <= tolerance:
            raise Untimed(f"a replay leaves result {i} of {len(kept)} wrong: {apart:.2e} from that of a plain call")


_POISON = float("nan")


def _apart(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """The relative root mean square of what differs; of whole numbers, the share of those that do."""
    if not exact.is_floating_point():
        return float((actual != exact).float().mean())
    # what is NaN in both, as an undefined result, agrees
    difference = torch.where(actual.isnan() & exact.isnan(), 0, actual - exact)
    size = float(exact.nan_to_num().float().norm())
    return float(difference.float().norm()) / size if size else float(difference.abs().max())


def peak_mib(call: Call, device: str) -> float:
    """Returns what a call allocates at most, beyond what was there; 0 on a CPU, where torch does not count."""
    if device == "cpu":
        return 0.0
    gc.disable()  # what is freed during the call would count for it; collecting first takes half a second each time
    try:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        kept = call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
        del kept
    finally:
        gc.enable()
    return (peak - before) / 2**20
