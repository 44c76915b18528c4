"""The rows of one case: each variant's time beside a copy of the bytes that the case must move."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks._kernels.timing import Call, Replay, Timer, captured, confirm, peak_mib

__all__ = ["copies", "timed"]


def copies(floor_bytes: int, device: str) -> dict[str, Call]:
    """A copy and a negation that move so many bytes: the faster one is the ceiling."""
    source = torch.randn(floor_bytes // 4, device=device).to(torch.bfloat16)
    target = torch.empty_like(source)
    return {"copy": lambda: target.copy_(source), "negate": lambda: torch.neg(source, out=target)}


def timed(
    name: str,
    passed: str,
    floor_bytes: int,
    variants: Mapping[str, Call],
    timer: Timer,
    *,
    errors: Callable[[], dict[str, float]] = dict,
    peaks: bool = True,
    width: int = 62,
) -> list[dict[str, Any]]:
    """The rows of a case, printed as they go to the file.  A variant that fails is told of and left out, and so is one
    whose replay does not leave its results where it handed them out.

    errors   the relative errors of variants, by name
    peaks    whether the memory of a call is measured
    width    of the names in a printed line
    """
    calls: dict[str, Call] = {}
    memory: dict[str, float] = {}
    both = copies(floor_bytes, timer.device)
    for variant, call in variants.items():
        try:
            call()
            memory[variant] = peak_mib(call, timer.device) if peaks else 0.0
            replay = captured(call, timer.device)
            if isinstance(replay, Replay):
                confirm(call, replay)
            calls[variant] = replay
        except Exception as error:  # a rival or a candidate that fails is a finding, not the end of the run
            told = (str(error).splitlines() or ["no message"])[0]
            print(f"    {name} {passed} {variant}: {type(error).__name__}: {told}")
    times = timer(calls | both)
    copy = min(statistics.median(times[ceiling]) for ceiling in both)
    found, rows = errors(), list[dict[str, Any]]()
    for variant in calls:
        spread = statistics.quantiles(times[variant], n=10)
        median = statistics.median(times[variant])
        rows.append(
            {
                "case": name,
                "pass": passed,
                "variant": variant,
                "median_ms": round(median, 5),
                "low_decile_ms": round(spread[0], 5),
                "high_decile_ms": round(spread[-1], 5),
                "floor_bytes": floor_bytes,
                "copy_ms": round(copy, 5),
                "share_of_copy": round(copy / median, 4),
                "peak_mib": round(memory[variant], 1),
                "error": found.get(variant),
            }
        )
        apart = f"{found[variant]:9.2e}" if variant in found else " " * 9
        print(
            f"{name:<30}{passed:<12}{variant:<90}"[:width]
            + f"{median:9.4f} ms {100 * copy / median:6.1f} %{memory[variant]:9.0f} MiB {apart}",
            flush=True,
        )
    return rows
