"""Measures what random numbers cost beside torch, on one CPU thread: a bernoulli mask, dropout forward and backward.

Interleaved runs, medians and low deciles.  Run: `python benchmarks/random_numbers.py [results.json]`; the bar is a
ratio of at most 1.0 for the mask.
"""

from __future__ import annotations

import itertools
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burn_torch import ops
from burn_torch.backend import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.ops import Value
from burn_torch.ops.mask_cache import MASKS

SHAPE = (64, 8, 24, 24)
SMALL = (16, 32)


def variants() -> dict[str, Callable[[], Any]]:
    """Each candidate under its name; a stream is used once, so that nothing is remembered."""
    leaf = LibTorch()
    streams = itertools.count()

    def drawn(row: Any, *parameters: float, shape: tuple[int, ...] = SHAPE, dtype: DType) -> Callable[[], Any]:
        attrs = {"shape": shape, "dtype": dtype, "place": "cpu"}
        return lambda: row.run(leaf, Value, (*parameters, 7, next(streams)), attrs)

    bools, floats = torch.empty(SHAPE, dtype=torch.bool), torch.empty(SHAPE)
    small = torch.empty(SMALL, dtype=torch.bool)
    x = torch.randn(SHAPE)
    value, tracked = Value(leaf, x, leaf.spec(x)), torch.randn(SHAPE, requires_grad=True)

    def ours_twice() -> Any:
        stream = next(streams)
        return ops.dropout(value, 0.5, 7, stream), ops.dropout(value, 0.5, 7, stream)

    def torch_twice() -> Any:
        return torch.autograd.grad(torch.nn.functional.dropout(tracked, 0.5), tracked, x)

    return {
        "mask: torch bernoulli_": lambda: bools.bernoulli_(0.5),
        "mask: burn_torch bernoulli": drawn(ops.bernoulli, 0.5, dtype=DType.BOOL),
        "small mask: torch bernoulli_": lambda: small.bernoulli_(0.5),
        "small mask: burn_torch bernoulli": drawn(ops.bernoulli, 0.5, shape=SMALL, dtype=DType.BOOL),
        "uniform: torch uniform_": floats.uniform_,
        "uniform: burn_torch uniform": drawn(ops.uniform, 0.0, 1.0, dtype=DType.F32),
        "normal: torch normal_": floats.normal_,
        "normal: burn_torch normal": drawn(ops.normal, 0.0, 1.0, dtype=DType.F32),
        "dropout and its backward: torch": torch_twice,
        "dropout and its backward: burn_torch": ours_twice,
    }


def measure(rounds: int = 60) -> dict[str, dict[str, float]]:
    """Median and low decile of each variant in ms; the variants take turns."""
    candidates = variants()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            begin = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - begin))
    MASKS.clear()
    return {
        name: {"median_ms": statistics.median(samples), "low_decile_ms": statistics.quantiles(samples, n=10)[0]}
        for name, samples in times.items()
    }


def main() -> None:
    torch.set_num_threads(1)
    measure(5)  # warm
    results = measure()
    for name, times in results.items():
        print(f"{name:40s} {times['median_ms']:8.3f} ms   low decile {times['low_decile_ms']:8.3f}")
    names = list(results)
    ratios = {
        theirs.split(":")[0]: results[ours]["median_ms"] / results[theirs]["median_ms"]
        for theirs, ours in zip(names[::2], names[1::2], strict=True)
    }
    for name, ratio in ratios.items():
        print(f"ratio {name:34s} {ratio:8.2f}")
    if len(sys.argv) > 1:
        row: dict[str, Any] = {
            "date": date.today().isoformat(),
            "machine": f"{platform.machine()}, 1 thread",
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "shape": SHAPE,
            "times": results,
            "ratios": ratios,
        }
        Path(sys.argv[1]).write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    if ratios["mask"] > 1.0:
        sys.exit(f"a mask costs {ratios['mask']:.2f} times torch's; the bar is 1.0")


if __name__ == "__main__":
    main()
