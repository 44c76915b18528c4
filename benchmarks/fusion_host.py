"""What recording costs the host: an operation on a fused device, with and without gradients, and a known flush.

Nothing is computed in the flush: the launch is a stub that hands out results made before, so that only the host's own
work is timed.  One process, one thread, variants in a new order each round, medians and low deciles.
Run: `python benchmarks/fusion_host.py`; `--save` appends the row to benchmarks/data/fusion_host.jsonl.
"""

from __future__ import annotations

import gc
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from burn_torch import Device, Tensor
from burn_torch.backend import Fusion
from burn_torch.backend.fusion.plans import Ready

OPS = 100


def unary(x: Any) -> Any:
    y = x
    for _ in range(OPS):
        y = y.relu()
    return y


def numbers(x: Any) -> Any:
    y = x
    for _ in range(OPS):
        y = y * 2.0
    return y


def pairs(x: Any) -> Any:
    y = x
    for _ in range(OPS):
        y = y + x
    return y


CHAINS = {"relu": unary, "mul by a number": numbers, "add": pairs}


def chain5(x: Any) -> Any:
    return ((x * 2.0 + 1.0).tanh() * x).relu()


def nanoseconds(run: Callable[[], Any]) -> int:
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


def recording(rounds: int, device: Device | None = None) -> dict[str, list[float]]:
    """Microseconds an operation, recorded and thrown away; the flush of what nobody holds is not in them."""
    fused = (device or Device.cpu()).fused()
    x = torch.randn(16, 32, device=fused.place)
    plain, tracked = Tensor.from_torch(x, fused), Tensor.from_torch(x, fused.autodiff()).require_grad()
    eager = Tensor.from_torch(x)
    variants: dict[str, Callable[[], Any]] = {}
    for name, chain in CHAINS.items():
        variants[f"{name}, torch eager"] = partial(chain, x)
        variants[f"{name}, LibTorch"] = partial(chain, eager)
        variants[f"{name}, recorded"] = partial(chain, plain)
        variants[f"{name}, recorded with Autodiff"] = partial(chain, tracked)
    times: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for number in range(rounds + 3):
        random.shuffle(order)
        for name in order:
            taken = nanoseconds(variants[name]) / OPS / 1000
            fused.flush()
            if number >= 3:
                times[name].append(taken)
    return times


def flushing(rounds: int) -> dict[str, list[float]]:
    """Microseconds a flush of a known plan whose launch is a stub."""
    x = Tensor.from_torch(torch.randn(16, 32), Device.cpu().fused())
    backend = x.backend
    assert isinstance(backend, Fusion)
    stream = backend.stream("cpu")
    found: dict[str, list[float]] = {"flush of 5 operations": [], "flush of 100 operations": [],
                                     "chain of 5, recorded and flushed": []}  # fmt: skip

    def stubbed(chain: Callable[[Any], Any]) -> None:
        y = chain(x)
        stream.flush()
        ready: Ready = stream.history[-1]
        made = (y.into_torch(),)
        ready._run = lambda *inputs: made

    stubbed(chain5)
    stubbed(unary)
    for _ in range(rounds):
        y = chain5(x)
        found["flush of 5 operations"].append(nanoseconds(stream.flush) / 1000)
        y = unary(x)
        found["flush of 100 operations"].append(nanoseconds(stream.flush) / 1000)

        def both() -> None:
            y = chain5(x)
            stream.flush()
            del y

        found["chain of 5, recorded and flushed"].append(nanoseconds(both) / 1000)
        del y
    return found


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    gc.freeze()
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 300
    times = recording(rounds) | flushing(rounds)
    rows = {name: (statistics.median(t), statistics.quantiles(t, n=10)[0]) for name, t in times.items()}
    print(f"{'us an operation, or a flush':44s} {'median':>8s} {'low decile':>11s}")
    for name, (median, low) in rows.items():
        print(f"{name:44s} {median:8.2f} {low:11.2f}")
    if "--save" in sys.argv:
        row = {"date": date.today().isoformat(), "python": platform.python_version(), "torch": torch.__version__,
               "machine": platform.machine(), "rounds": rounds, "us": rows}  # fmt: skip
        with (Path(__file__).parent / "data" / "fusion_host.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
