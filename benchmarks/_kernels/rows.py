"""The rows of one case: each variant's time beside a copy of the bytes that the case must move; files of rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks._kernels.timing import Call, Replay, Timer, captured, confirm, peak_mib, results_of
from burn_kernels import KernelSpec

__all__ = ["Case", "apart", "copies", "merged", "sampled", "timed"]


@dataclass
class Case:
    """Holds what is timed: calls by variant, each making its own results."""

    name: str
    spec: KernelSpec
    passed: str
    floor_bytes: int
    variants: Mapping[str, Call] = field(default_factory=dict)
    errors: Callable[[], dict[str, float]] = dict
    exact: Callable[[], tuple[list[torch.Tensor], list[torch.Tensor]]] | None = None
    """Inputs of a few rows with upstream gradients behind them, and the outputs in float64 with the gradients behind
    them; None where the results are random, or whole numbers."""


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
    compared: bool = True,
    width: int = 71,
) -> list[dict[str, Any]]:
    """The rows of a case, printed as they go to the file.  A variant that fails is told of and left out, and so is one
    whose replay does not leave its results where it handed them out.

    errors   the relative errors of variants, by name
    peaks    whether the memory of a call is measured
    compared whether variants give the same results, so that what each differs by from eager torch's says something
    width    of the names in a printed line
    """
    calls: dict[str, Call] = {}
    memory: dict[str, float] = {}
    samples: dict[str, list[torch.Tensor]] = {}
    both = copies(floor_bytes, timer.device)
    for variant, call in variants.items():
        try:
            samples[variant] = sampled(call()) if compared else []
            memory[variant] = peak_mib(call, timer.device) if peaks else 0.0
            replay = captured(call, timer.device)
            if isinstance(replay, Replay):
                confirm(call, replay)
            calls[variant] = replay
        except Exception as error:  # a rival or a candidate that fails is a finding, not the end of the run
            reason = (str(error).splitlines() or ["no message"])[0]
            print(f"    {name} {passed} {variant}: {type(error).__name__}: {reason}")
    times = timer(calls | both)
    copy = min(statistics.median(times[ceiling]) for ceiling in both)
    try:
        errors_of = errors()
    except Exception as error:  # of a variant that was told of above, most likely
        print(f"    {name} {passed}, its errors: {type(error).__name__}: {str(error).splitlines()[0]}")
        errors_of = {}
    rows = list[dict[str, Any]]()
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
                "error": errors_of.get(variant),
                "apart": apart(samples[variant], samples.get("eager", []), last=passed != "f"),
            }
        )
        exact = f"{errors_of[variant]:9.2e}" if variant in errors_of else " " * 9
        differs = rows[-1]["apart"]
        print(
            f"{name:<46} {passed:<5}{variant:<90}"[:width]
            + f"{median:9.4f} ms {100 * copy / median:6.1f} %{memory[variant]:9.0f} MiB {exact}"
            + ("" if differs is None else f"  apart {differs:.1e}"),
            flush=True,
        )
    return rows


# -- answers -----------------------------------------------------------------------------------------
SAMPLE = 1 << 16
"""Elements of a result that are looked at."""


def sampled(output: Any) -> list[torch.Tensor]:
    """Some elements of each result, evenly spread: enough to see that it is another one, and little to keep.

    Not of whole numbers: of equal values any may be called the largest.
    """
    samples = []
    for x in results_of(output):
        if not x.is_floating_point():
            continue
        flat = x.reshape(-1)
        samples.append(flat[:: max(1, flat.numel() // SAMPLE)].double().clone())
    return samples


def apart(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], *, last: bool) -> float | None:
    """The relative root mean square by which results differ from those expected, over all of them together.

    Ours may hand out more: outputs before gradients, or what a backward needs behind an output; so the last ones are
    compared, or the first.  None where there are no such results.
    """
    count = len(expected)
    actual = actual[-count:] if last else actual[:count]
    if not count or [x.shape for x in actual] != [x.shape for x in expected]:
        return None
    off = sum(float((x - y).square().sum()) for x, y in zip(actual, expected, strict=True))
    size = sum(float(y.square().sum()) for y in expected)
    return math.sqrt(off / size) if size else math.sqrt(off)


# -- files -------------------------------------------------------------------------------------------
SEARCHED = "compile, searched"

SAME = ("device", "torch", "triton", "tiny")
"""Holds what runs must have alike for their rows to stand in one file."""


def merged(before: Mapping[str, Any], after: Mapping[str, Any], order: Sequence[str] = ()) -> dict[str, Any]:
    """Two runs as one: of a case and pass that both timed, the rows of the later one.

    Each row says when it was measured; cases stand in `order`, others behind them as they come.  A search of
    torch.compile that was not ready in the later run keeps its row of the earlier one: it depends on nothing of ours.

    Raises: ValueError where the runs are of unlike devices or software.
    """
    unlike = [name for name in SAME if before.get(name) != after.get(name)]
    if unlike:
        differing = ", ".join(f"{name} {before.get(name)} and {after.get(name)}" for name in unlike)
        raise ValueError(f"rows of unlike runs stand in files of their own: {differing}")
    anew = {(row["case"], row["pass"]) for row in after["rows"]}
    there = {(row["case"], row["pass"]) for row in after["rows"] if row["variant"] == SEARCHED}
    rows = list[dict[str, Any]]()
    for row in before["rows"]:
        case = row["case"], row["pass"]
        if case not in anew or (row["variant"] == SEARCHED and case not in there):
            rows.append({"date": before["date"]} | row)
    rows += [{"date": after["date"]} | row for row in after["rows"]]
    place = {case: at for at, case in enumerate(order)}
    rows.sort(key=lambda row: place.get(row["case"], len(place)))  # stable: passes and variants stay as they were
    return {**before, **after, "jax": after.get("jax") or before.get("jax", ""), "rows": rows}
