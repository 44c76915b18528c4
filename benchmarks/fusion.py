"""Times what fusion makes, beside torch eager, torch.compile and JAX, and says which bars hold.

    python benchmarks/fusion.py                          all of it, in about eight minutes of a GPU
    python benchmarks/fusion.py --only gelu,host         groups (ops, host, gpt2, mnist), or beginnings of names of ops
    python benchmarks/fusion.py --tuned                  generated kernels with the tiles that are fastest here
    python benchmarks/fusion.py --device cpu --quick     few elements and turns: does everything run?  With
                                                         TRITON_INTERPRET=1 the generated kernels do, too

ops   GELU from primitives, a chain of 12 operations, dropout + residual + norm, batch norm + ReLU: forward (f) with
      gradients recorded, and forward and backward (fb).  Ours is what a user writes, on a fused device.  As in
      benchmarks/kernels.py: in turns, from a cold L2 cache, captured into CUDA graphs so that no host's time counts,
      medians; a replay has to write each result over poison, or its variant is not timed.  `share` is the time of a
      copy of the bytes that must be moved over the variant's.  `peak` is what a call allocates beyond its inputs:
      results alone, where no intermediate is kept.  JAX answers from a process of its own, before and after the turns;
      its figures are of a queue of calls, f and b in one function.
host  recording, flushes and launches; a chain of five operations on small tensors, and each part of it.
gpt2  a training step of GPT-2 124M, and of the CNN of Burn's guide: as in benchmarks/steps.py, compiled with generated
mnist kernels and without, beside torch.compile with a fused optimizer, the same in one CUDA graph, and JAX.

Rows go to --json, to $OUT/fusion.json where OUT is set, or to benchmarks/data; they are written after each part.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks._fusion import host
from benchmarks._fusion.operations import COMPILED, OURS, Operation, operations
from benchmarks._fusion.training import gpt2, mnist
from benchmarks._kernels.judged import Verdict, judge, table
from benchmarks._kernels.rows import timed
from benchmarks._kernels.timing import Call, Timer
from benchmarks._steps.asking import Asked, jax_environment
from benchmarks._steps.measure import Failed, why
from burn_torch import Device
from burn_torch.backend.base import capabilities

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("ops", "host", "gpt2", "mnist")
SHARES = {"ops": 0.45, "host": 0.1, "gpt2": 0.55, "mnist": 1.0}
"""Shares of the time that is left when a group begins: the last one that was asked for has all of it."""
MODES: dict[str, dict[str, Any]] = {"compile": {}, "compile max-autotune": {"mode": "max-autotune-no-cudagraphs"}}
MOST_APART = 4.0
"""The error of ours against float64, over that of eager torch: a result that is further off is wrong."""
NEEDED_S = {"compile": 10.0, "compile max-autotune": 25.0}
"""Holds what torch.compile may take for one operation: with less time left a variant is left out."""


class Run:
    """The settings of a run and what it has found."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.args = arguments
        self.begun = time.monotonic()
        self.device = Device.cuda(0) if arguments.device == "cuda" else Device.cpu()
        self.rows: list[dict[str, Any]] = []
        self.host: dict[str, list[dict[str, Any]]] = {}
        self.steps: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.wrong: list[str] = []
        self.end = self.begun + arguments.budget_s
        self.head = self._head()
        name = self.head["device"].split()[-1].lower() if self.cuda else "cpu"
        folder = os.environ.get("OUT")
        usual = Path(folder) / "fusion.json" if folder else ROOT / "benchmarks" / "data" / f"fusion-{name}.json"
        self.path = Path(arguments.json or usual)

    @property
    def cuda(self) -> bool:
        return bool(self.args.device == "cuda")

    def left_s(self) -> float:
        """Until the group that runs should end."""
        return float(self.end - time.monotonic())

    def wants(self, group: str, name: str = "") -> bool:
        """Returns whether a group was asked for, or one of its operations by the beginning of its name."""
        asked = [word for word in self.args.only.split(",") if word]
        return not asked or group in asked or any(name.startswith(word) for word in asked if name)

    def _head(self) -> dict[str, Any]:
        try:
            import triton

            version = triton.__version__
        except ImportError:
            version = None
        from burn_kernels._triton import INTERPRETED

        return {
            "date": str(date.today()),
            "device": torch.cuda.get_device_name() if self.cuda else platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "triton": version,
            "generates": capabilities(self.device.fused().backend).generates(self.device.place),
            "interpreted": INTERPRETED,
            "arguments": {k: v for k, v in vars(self.args).items() if v and k not in ("json", "jax_python")},
        }

    def write(self) -> None:
        """All that was found so far."""
        report = self.head | {"rows": self.rows, "host": self.host, "steps": self.steps}
        report |= {"bars": [asdict(verdict) for verdict in self.verdicts], "wrong": self.wrong}
        report["seconds"] = round(time.monotonic() - self.begun, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(report, indent=0, default=float) + "\n", encoding="utf-8")

    @contextmanager
    def group(self, name: str) -> Iterator[None]:
        """A group with its share of the time; one that fails is told of, and the next one runs."""
        whole = self.begun + self.args.budget_s
        last = [group for group in GROUPS if self.wants(group)][-1:] == [name]
        self.end = time.monotonic() + (1.0 if last else SHARES[name]) * (whole - time.monotonic())
        print(f"\n[{time.monotonic() - self.begun:5.0f} s] {name}, until {self.end - self.begun:.0f} s", flush=True)
        try:
            yield
        except Exception as error:
            self.wrong.append(f"{name}: {why(error)}")
            print(f"  WRONG {self.wrong[-1]}", flush=True)
            if self.args.verbose:
                raise
        self.write()
        gc.collect()
        torch._dynamo.reset()
        if self.cuda:
            torch.cuda.empty_cache()


# -- operations -------------------------------------------------------------------------------------------
def time_operations(run: Run) -> None:
    """All operations, their rows and verdicts."""
    chosen = [operation for operation in operations(run.args.quick) if run.wants("ops", operation.name)]
    timer = Timer(run.args.rounds, run.args.device)
    jax = _jax(run, chosen)
    try:
        for number, operation in enumerate(chosen):
            until = run.left_s() * (len(chosen) - number - 1) / (len(chosen) - number)
            for passed in ("f", "fb"):
                run.rows += _rows(run, operation, passed, timer, jax, until)
            run.verdicts += judge(operation.bars(), run.rows)
            run.write()
            gc.collect()
            torch._dynamo.reset()
            if run.cuda:
                torch.cuda.empty_cache()
    finally:
        if jax is not None:
            jax.close()


def _rows(
    run: Run, operation: Operation, passed: str, timer: Timer, jax: Asked | None, until: float
) -> list[dict[str, Any]]:
    inputs = operation.inputs(run.args.device)
    upstream = operation.upstream(inputs) if passed == "fb" else None
    fused = run.device.fused()
    variants: dict[str, Call] = {OURS: operation.lazily(inputs, upstream, fused)}
    variants["eager"] = operation.by_torch(inputs, upstream, operation.theirs)
    for name in COMPILED:
        if run.args.no_compile or run.left_s() - until < NEEDED_S[name] or (run.args.quick and name != "compile"):
            continue
        function = torch.compile(operation.theirs, dynamic=False, **(_backend(run) or MODES[name]))
        variants[name] = operation.by_torch(inputs, upstream, function)
    before = _of_jax(run, jax, operation, passed)
    moved = operation.moved[passed == "fb"]

    def errors() -> dict[str, float]:
        return operation.errors(passed, run.args.device, fused, 256 if run.cuda else 16)

    tuning = _tuned(run)
    with tuning:
        rows = timed(operation.name, passed, moved, variants, timer, errors=errors)
    if OURS not in {row["variant"] for row in rows}:
        run.wrong.append(f"{operation.name} {passed}: ours did not run, or not all of it while it was timed")
    apart = {row["variant"]: row["error"] for row in rows if row["error"] is not None}
    if apart.get(OURS, 0.0) > MOST_APART * apart.get("eager", 0.0) + 1e-6:
        run.wrong.append(f"{operation.name} {passed}: {apart[OURS]:.2e} from float64, eager torch {apart['eager']:.2e}")
    samples = [ms for ms in (before, _of_jax(run, jax, operation, passed)) if ms is not None]
    if samples:
        ms = statistics.median(samples)
        share = round(rows[0]["copy_ms"] / ms, 4) if rows else None
        row = {"case": operation.name, "pass": passed, "variant": "jax", "median_ms": round(ms, 5)}
        rows.append(row | {"share_of_copy": share, "floor_bytes": moved, "peak_mib": None, "error": None})
        print(f"{operation.name:<30}{passed:<12}{'jax':<20}{ms:9.4f} ms", flush=True)
    return rows


def _tuned(run: Run) -> Any:
    """Measuring the tiles of generated kernels, where that was asked for."""
    if not run.args.tuned:
        return nullcontext()
    from burn_kernels import autotune

    return autotune.using("on")


def _backend(run: Run) -> dict[str, Any]:
    """In a quick run, which only asks whether all is in place, torch compiles nothing."""
    return {"backend": "eager"} if run.args.quick else {}


def _jax(run: Run, chosen: Sequence[Operation]) -> Asked | None:
    """The worker that answers for JAX; None where there is none."""
    if run.args.no_jax or not chosen:
        return None
    names = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
    task = [
        {"name": o.name, "function": o.jax, "shapes": o.shapes, "dtype": names[o.dtype], "graded": o.graded}
        for o in chosen
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "task.json"
        file.write_text(json.dumps(task), encoding="utf-8")
        script = str(Path(__file__).with_name("_fusion") / "jax_worker.py")
        command = [run.args.jax_python or sys.executable, script, str(file)]
        try:
            worker = Asked(command, jax_environment(run.args.device, torch.get_num_threads()))
        except Failed as error:
            print(f"  no JAX: {error}", flush=True)
            return None
    run.head["jax"] = f"{worker.ready['ready']} on {worker.ready['device']}"
    return worker


def _of_jax(run: Run, jax: Asked | None, operation: Operation, passed: str) -> float | None:
    """Milliseconds of a call in JAX; None where that is not to be had."""
    if jax is None:
        return None
    answer = jax.ask({"time": [operation.name, passed], "calls": 2 if run.args.quick else 20})
    if "error" in answer:
        print(f"    {operation.name} {passed} jax: {answer['error']}", flush=True)
        return None
    return float(answer["ms"])


# -- the host ---------------------------------------------------------------------------------------------
def time_host(run: Run) -> None:
    """Recording, flushes, and the chain of five."""
    rounds = run.args.rounds if run.args.quick else 200
    run.host["recording"] = host.recorded(run.device, rounds)
    run.host["flush"] = host.flushes(run.device, rounds)
    backend = "eager" if run.args.quick else "inductor"
    run.host["chain of five"] = host.chain_of_five(
        run.device, rounds if run.args.quick else 60, compiled=not run.args.no_compile, backend=backend
    )
    for title, rows in run.host.items():
        for row in rows:
            print(f"  {title:<16}{row['name']:<44}{row['median_us']:9.2f} us   low {row['low_decile_us']:.2f}")
    run.verdicts += host.verdicts(*run.host.values())


# -- the run ------------------------------------------------------------------------------------------------
def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--only", default="", help="groups, or beginnings of operations' names, separated by commas")
    parser.add_argument("--quick", action="store_true", help="few elements and turns: does everything run?")
    parser.add_argument("--json", default="", metavar="OUT", help="the file for the rows")
    parser.add_argument("--budget-s", type=float, default=470, help="leave out what does not fit into so many seconds")
    parser.add_argument("--rounds", type=int, default=0, help="of turns of an operation; 31, in a quick run 3")
    parser.add_argument("--tuned", action="store_true", help="measure the tiles of generated kernels first")
    parser.add_argument("--profile", action="store_true", help="on a GPU, the kernels of a step of ours")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-jax", action="store_true", help="leave JAX out")
    parser.add_argument("--jax-python", default="", help="an interpreter that has jax, where this one has none")
    parser.add_argument("--verbose", action="store_true", help="end at the first failure, with its traceback")
    parsed = parser.parse_args(argv)
    parsed.rounds = parsed.rounds or (3 if parsed.quick else 31)
    return parsed


def main(argv: list[str] | None = None) -> int:
    """1 where something of ours failed, else 0: bars are shown, not enforced."""
    arguments = parse(argv)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks/fusion.py: torch finds no CUDA device here; --device cpu --quick runs", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    warnings.filterwarnings("ignore", module=r"torch\._(inductor|dynamo).*")
    run = Run(arguments)
    print(" ".join(f"{k}={v}" for k, v in run.head.items() if k != "arguments"), flush=True)
    if not run.head["generates"]:
        print("no kernel is generated here: what is timed are the operations, one by one", flush=True)
    known = [operation.name for operation in operations(arguments.quick)]
    strange = [
        w for w in arguments.only.split(",") if w and w not in GROUPS and not any(n.startswith(w) for n in known)
    ]
    if strange:
        print(f"--only: {', '.join(strange)} is none of {', '.join([*GROUPS, *known])}", file=sys.stderr)
        return 2
    if any(run.wants("ops", name) for name in known):
        with run.group("ops"):
            time_operations(run)
    if run.wants("host"):
        with run.group("host"):
            time_host(run)
    for name, steps in (("gpt2", gpt2), ("mnist", mnist)):
        if run.wants(name):
            with run.group(name):
                for outcome in steps(arguments, run.left_s):
                    run.steps.append(outcome.rows)
                    run.verdicts += outcome.verdicts
                    run.wrong += outcome.wrong
                    run.write()
    run.write()
    print(f"\n{time.monotonic() - run.begun:.0f} s: {os.path.relpath(run.path)}\n{table(run.verdicts)}")
    for line in run.wrong:
        print(f"WRONG  {line}")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
