"""Measures what recording costs the host: an operation on a fused device, with and without gradients, a known flush.

Nothing is computed in the flush: the launch is a stub that hands out results made before, so that only the host's own
work is timed.  One process, one thread, variants in a new order each round, medians and low deciles.
Run: `python benchmarks/fusion_host.py`; `--save` appends the row to benchmarks/data/fusion_host.jsonl.

`--lengths`: programs that are run at 50 different lengths, one a step, with kernels that are generated but not compiled
or launched.  Milliseconds of the thread's processor time to record and flush steps 1, 2, 3 and 50, medians, and how
many kernels a machine would compile.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from burn_torch import Device, Tensor
from burn_torch.backend import Fusion
from burn_torch.backend.lazy.plans import Ready

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
    times: dict[str, list[float]] = {"flush of 5 operations": [], "flush of 100 operations": [],
                                     "chain of 5, recorded and flushed": []}  # fmt: skip

    def stubbed(chain: Callable[[Any], Any]) -> None:
        y = chain(x)
        stream.flush()
        ready: Ready = stream.history[-1]
        outputs = (y.into_torch(),)
        ready._run = lambda *inputs: outputs

    stubbed(chain5)
    stubbed(unary)
    for _ in range(rounds):
        y = chain5(x)
        times["flush of 5 operations"].append(nanoseconds(stream.flush) / 1000)
        y = unary(x)
        times["flush of 100 operations"].append(nanoseconds(stream.flush) / 1000)

        def both() -> None:
            y = chain5(x)
            stream.flush()
            del y

        times["chain of 5, recorded and flushed"].append(nanoseconds(both) / 1000)
        del y
    return times


# -- ever new lengths ------------------------------------------------------------------------------------
LENGTHS = 50
STEPS = (1, 2, 3, LENGTHS)


def norm(x: Any) -> Any:
    centred = x - x.mean_dim(1)
    return centred / (centred.square().mean_dim(1) + 1e-5).sqrt()


def attended(x: Any) -> Any:
    scores = (x.matmul(x.transpose()) * 0.125).exp()
    return ((scores / scores.sum_dim(1)).matmul(x) + x).tanh()


def at_lengths(program: Callable[[Any], Any], width: int, *, tape: bool) -> tuple[list[float], int, int]:
    """Milliseconds of each step, how many kernels and how many compilations of them there were."""
    import burn_kernels.launch

    compiled: set[Any] = set()

    def launch(function: Any, grid: Any, out: Any, *given: Any, warps: int, **blocks: int) -> None:
        classes = tuple(x % 16 == 0 for x in given if isinstance(x, int))
        compiled.add((function.fn.__name__, warps, *blocks.values(), classes))

    burn_kernels.launch.launch = launch  # type: ignore[assignment]  # nothing is launched
    device = Device.cpu().fused()
    fusion: Any = device.backend
    fusion.replan()
    fusion.planner._recent.clear()
    stream = fusion.stream("cpu")
    times: list[float] = []
    for step in range(LENGTHS):
        data = torch.randn(100 + 7 * step, width)
        x = Tensor.from_torch(data, device.autodiff() if tape else device)
        x = x.require_grad() if tape else x
        start = time.thread_time_ns()
        y = program(x)
        gradient = x.grad(y.mean().backward()) if tape else None
        stream.flush()
        times.append((time.thread_time_ns() - start) / 1e6)
        del y, gradient
    return times, len({name for name, *_ in compiled}), len(compiled)


def lengths(rounds: int) -> dict[str, Any]:
    """For each program, with symbolic plans and with exact ones alone: medians of steps, kernels, compilations."""
    from burn_torch.fusion.shapes.variants import Variants

    programs: dict[str, tuple[Callable[[Any], Any], bool]] = {
        "chain of 5": (chain5, False), "norm": (norm, False), "attention": (attended, False),
        "chain of 5, forward and backward": (chain5, True), "norm, forward and backward": (norm, True),
    }  # fmt: skip
    rows: dict[str, Any] = {}
    symbolic = Variants.made
    width = 64
    for exact in (False, True):
        Variants.made = (lambda *arguments: None) if exact else symbolic  # type: ignore[method-assign]
        for name, (program, tape) in programs.items():
            runs = []
            for _ in range(rounds):
                width += 16  # so that nothing is known from the round before
                runs.append(at_lengths(program, width, tape=tape))
            times = [statistics.median(run[0][step - 1] for run in runs) for step in STEPS]
            title = f"{name}, exact plans alone" if exact else name
            rows[title] = {"ms": times, "kernels": runs[-1][1], "compilations": max(run[2] for run in runs)}
    Variants.made = symbolic  # type: ignore[method-assign]
    return rows


def main_of_lengths() -> None:
    """Prints the table of lengths, from a process in which kernels are generated."""
    if not os.environ.get("TRITON_INTERPRET"):
        environment = os.environ | {"TRITON_INTERPRET": "1"}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)
    warnings.simplefilter("ignore")  # the storm of exact plans
    torch.set_num_threads(1)
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 5
    rows = lengths(rounds)
    steps = "".join(f"{f'step {step}':>9s}" for step in STEPS)
    print(f"{'ms, recorded and flushed':52s}{steps}{'kernels':>9s}{'compiled':>9s}")
    for name, row in rows.items():
        times = "".join(f"{ms:9.2f}" for ms in row["ms"])
        print(f"{name:52s}{times}{row['kernels']:9d}{row['compilations']:9d}")
    if "--save" in sys.argv:
        save("fusion_lengths.jsonl", {"rounds": rounds, "load": os.getloadavg()[0], "rows": rows})


def save(name: str, fields: dict[str, Any]) -> None:
    """Appends a row to a file of data."""
    row = {"date": date.today().isoformat(), "python": platform.python_version(), "torch": torch.__version__,
           "machine": platform.machine(), **fields}  # fmt: skip
    with (Path(__file__).parent / "data" / name).open("a") as file:
        file.write(json.dumps(row) + "\n")


def main() -> None:
    """Prints the table."""
    if "--lengths" in sys.argv:
        main_of_lengths()
        return
    torch.set_num_threads(1)
    gc.freeze()
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 300
    times = recording(rounds) | flushing(rounds)
    rows = {name: (statistics.median(t), statistics.quantiles(t, n=10)[0]) for name, t in times.items()}
    print(f"{'us an operation, or a flush':44s} {'median':>8s} {'low decile':>11s}")
    for name, (median, low) in rows.items():
        print(f"{name:44s} {median:8.2f} {low:11.2f}")
    if "--save" in sys.argv:
        save("fusion_host.jsonl", {"rounds": rounds, "us": rows})


if __name__ == "__main__":
    main()
