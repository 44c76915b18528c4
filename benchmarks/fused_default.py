"""Does a device that is fused by default cost anybody anything?  Each row fused and unfused, in turns in one process.

    python benchmarks/fused_default.py --device cuda --budget-s 60
    python benchmarks/fused_default.py --only loop,optimizer --device cpu

Cases: the CNN of Burn's guide at batches of 1, 64 and 512 and two layers of GPT-2, each step eager and compiled; AdamW
alone on 148 tensors; a loop that reads a value in each line, where recording fuses nothing; a chain of element-wise
lines.  Times by `benchmarks/_steps/measure.py`: medians over visits, ratios as the median over the rounds of the two
times next to each other.  `rise` is the memory that steps take over what lies there between them.  Rows go to $OUT or
benchmarks/data as fused-default-<device>-<date>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from benchmarks._steps.cases import COMPILED, EAGER, Case, all_cases, layers_of_gpt2, values_of
from benchmarks._steps.measure import Bar, Local, Result, close, judge, measure, prepare, rises, table
from benchmarks._steps.our_variants import EAGER_FUSED, FUSED, Ours
from burn_torch import Device, DType, Tensor, ops
from burn_torch.backend.lazy.decorator import fusion_of
from burn_torch.tensor import activation

ROOT = Path(__file__).resolve().parents[1]
PAIRS = ((EAGER_FUSED, EAGER), (FUSED, COMPILED))
MOST = 1.03
"""Decision 0015: no row may be slower fused by more."""


# -- steps that are no model's -------------------------------------------------------------------------------
class Alone(Local):
    """A function of a device that makes a step; what it returns is held as a user holds it."""

    def __init__(self, make: Callable[[Device], Callable[[int], Tensor]], place: str, name: str) -> None:
        self.made, self.place, self.name = make, place, name

    def start(self) -> None:
        self.device = Device.parse(self.place, fused=self.name == EAGER_FUSED)
        self.step, self.read = (
            self.made(self.device),
            lambda y: float(y.abs().sum().into_scalar()),
        )  # sums of norms are 0

    def wait(self) -> None:
        self.device.sync()


def loop(device: Device) -> Callable[[int], Tensor]:
    """Lines that each read what they have computed."""
    x = Tensor.from_data(np.linspace(-1.0, 1.0, 4096), device, DType.F32)

    def step(i: int) -> Tensor:
        y = x * 1.5
        scale = float(y.abs().max().into_scalar())
        y = y / scale
        mean = float(y.mean().into_scalar())
        return y - mean

    return step


def chain(device: Device) -> Callable[[int], Tensor]:
    """Element-wise lines, a softmax, a norm, each step on the last one's result: what fusion is for."""
    state = [Tensor.from_data(np.random.default_rng(0).standard_normal((2048, 1024)), device, DType.F32)]

    def step(i: int) -> Tensor:
        x = state[0]
        y = activation.gelu(x * 0.5 + 1.0)
        y = activation.softmax(y, 1) * x
        state[0] = (y - y.mean_dim(1)) / (y.var_bias(1) + 1e-5).sqrt()
        return state[0]

    return step


def few(device: Device) -> Callable[[int], Tensor]:
    """Three short lines on little data, the result used at once by torch: all is overhead."""
    x = Tensor.from_data(np.linspace(-1.0, 1.0, 64), device, DType.F32)

    def step(i: int) -> Tensor:
        y = (x + 1.0).relu() * 2.0
        y.into_torch()
        return y

    return step


def adamw(device: Device) -> Callable[[int], Tensor]:
    """AdamW on the shapes of 12 layers of GPT-2, a quarter as wide."""
    d = 192
    shapes = [(d, 3 * d), (3 * d,), (d, d), (d,), (d, 4 * d), (4 * d,), (4 * d, d), (d,), (d,), (d,), (d,), (d,)] * 12
    rng = np.random.default_rng(0)

    def drawn() -> list[Tensor]:
        return [Tensor.from_data(0.1 * rng.standard_normal(shape), device, DType.F32) for shape in shapes]

    state = [drawn(), [x * 0.0 for x in drawn()], [x * 0.0 for x in drawn()]]
    grads, count = drawn(), len(shapes)

    def step(i: int) -> Tensor:
        params, means, squares = state
        done = ops.adam_update(
            1e-3, 0.9, 0.999, 1e-8, 0.0, 0.01, float(i + 1), *params, *grads, *means, *squares,
            amsgrad=False, cautious=False,
        )  # fmt: skip
        state[:] = [list(done[:count]), list(done[count : 2 * count]), list(done[2 * count :])]
        return state[0][0]

    return step


ALONE = {"loop": loop, "few": few, "chain": chain, "optimizer": adamw}


# -- running ---------------------------------------------------------------------------------------------------
def model_cases(device: str, tiny: bool) -> Iterator[tuple[str, Case]]:
    small, large = all_cases(device, tiny)["mnist"][:2] if device == "cuda" else _of_cpu(tiny)
    one = [tuple(a[:1] for a in batch) for batch in small.batches]
    yield "mnist", replace(small, name="MNIST CNN b1, dropout", batches=one, bars=())
    yield "mnist", small
    yield "mnist", large
    yield "gpt2", layers_of_gpt2(2, tiny)


def _of_cpu(tiny: bool) -> Sequence[Case]:
    cases = [case for case in all_cases("cpu", tiny)["mnist"] if case.random]
    return cases[:2]


def told(name: str, results: Sequence[Result]) -> list[dict[str, Any]]:
    """The rows of a case, and of each pair the ratios of times and of memory."""
    print(f"\n{name}", flush=True)
    for line in table(results):
        print(line, flush=True)
    entries = []
    for ours, rival in PAIRS:
        if any(result.variant == ours for result in results):
            bars = (Bar(MOST, rival), Bar(1.0, rival, of="rise_mib"), Bar(1.0, rival, of="peak_mib", goal=True))
            entries += [{"case": name} | entry for entry in judge(bars, results, ours)]
    for entry in entries:
        ratio = "-" if entry["ratio"] is None else f"{entry['ratio']:.3f}"
        print(f"    {entry['ours']} / {entry['rival']}, {entry['of']}: {ratio} {entry['verdict']}", flush=True)
    return entries


def misses(place: str) -> dict[str, int]:
    """How often the streams of this process planned something new, and how often they computed."""
    fusion = fusion_of(Device.parse(place, fused=True).backend)
    assert fusion is not None
    return {"misses": fusion.planner.misses, "flushes": fusion.planner.flushes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="loop,few,chain,optimizer,mnist,gpt2")
    parser.add_argument("--eager", action="store_true", help="eager steps alone")
    parser.add_argument("--tiny", action="store_true", help="small shapes: does everything run?")
    parser.add_argument("--seconds", type=float, default=2.0, help="for the turns of a case")
    parser.add_argument("--budget-s", type=float, default=600.0)
    arguments = parser.parse_args()
    place, end = "cuda:0" if arguments.device == "cuda" else "cpu", time.monotonic() + arguments.budget_s
    if arguments.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    else:
        torch.set_num_threads(1)
    wanted = arguments.only.split(",")
    head = {"date": str(date.today()), "torch": torch.__version__, "python": platform.python_version()}
    head["device"] = torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine()
    rows: dict[str, Any] = head | {"cases": [], "bars": []}
    name = head["device"].split()[-1].lower() if arguments.device == "cuda" else "cpu"
    folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "data")
    file = folder / f"fused-default-{name}-{date.today()}.json"

    def run(title: str, variants: Sequence[Any], tolerance: float | None, visit_s: float, rounds: int) -> None:
        before = misses(place)
        results = prepare(variants, tolerance, lambda variant: end - time.monotonic() - arguments.seconds)
        warm = misses(place)
        measure(variants, results, visit_s=visit_s, seconds=arguments.seconds, rounds=rounds)
        rises(variants, results)
        rows["bars"] += told(title, results)
        planned = {"before": before, "warm": warm, "after": misses(place)}
        print(f"    planned anew while timed: {planned['after']['misses'] - warm['misses']}", flush=True)
        rows["cases"].append({"case": title, "planned": planned, "rows": [result.row() for result in results]})
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rows, indent=0, default=float) + "\n", encoding="utf-8")
        for variant in variants:
            close(variant)

    for key, make in ALONE.items():
        if key in wanted:
            variants = [Alone(make, place, variant) for variant in (EAGER, EAGER_FUSED)]
            run(f"{key}: {(make.__doc__ or '').splitlines()[0]}", variants, 1e-3, 0.01, 101)
    for key, case in model_cases(arguments.device, arguments.tiny):
        if key not in wanted:
            continue
        names = (EAGER, EAGER_FUSED) if arguments.eager else (EAGER, EAGER_FUSED, COMPILED, FUSED)
        values = values_of(case)
        tolerance = None if case.random else max(case.tolerance, 5e-3)
        run(case.name, [Ours(case, values, place, name) for name in names], tolerance, case.visit_s, 101)
    failed = [bar for bar in rows["bars"] if bar["verdict"] != "pass" and not bar["goal"]]
    for bar in failed:
        print(f"not held: {bar['case']}: {bar['ours']} / {bar['rival']}, {bar['of']}: {bar['ratio']} {bar['verdict']}")


if __name__ == "__main__":
    main()
