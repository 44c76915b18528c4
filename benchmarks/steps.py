"""Times whole training steps beside torch and JAX: what each takes, whether it computes the same, which bars hold.

    python benchmarks/steps.py                           on the CPU, one thread
    python benchmarks/steps.py --device cuda             on the GPU; MNIST, then the MLP, then GPT-2
    python benchmarks/steps.py --only mnist --budget-s 180
    python benchmarks/steps.py --tiny --no-compile       small shapes: does everything run?

How: one process; every variant of a case starts from the same weights and goes through the same batches, and the losses
of its first five steps are compared with those of the first variant, since a variant that computes something else is
no rival (with dropout they draw other numbers, so the same case without dropout is compared).  Then all take turns
(A B C, C B A, ...), as many steps a visit as fill a fixed time, the device waited for once a visit.  Reported: median
and low decile over the visits, spread (distance of the quartiles over the median), and the ratio to a bar's rival as
the median over the rounds of the two times next to each other.  On a CPU with one thread times are processor time, so
that other programs disturb less (--clock).  JAX runs in a process of its own and takes turns too.

GPU memory, over what was there before the variant: `peak` from its first line on, warming up and capturing included;
`steady` in later steps; `held` is what its graphs keep reserved while it waits.
Rows go to benchmarks/data/steps-<device>-<date>.json (or to $OUT, or --out), written after every case.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks._steps import extras
from benchmarks._steps.cases import (
    COMPILE_GRAPH,
    COMPILED,
    GRAPH,
    MODES_SECONDS,
    Adam,
    Case,
    all_cases,
    scale_of,
    values_of,
)
from benchmarks._steps.jax_variant import JaxStep
from benchmarks._steps.measure import NO_TIME, Variant, close, judge, measure, prepare, table, why
from benchmarks._steps.our_variants import Ours, our_variants
from benchmarks._steps.torch_variants import torch_variants

ROOT = Path(__file__).resolve().parents[1]
TRACE_MS, HOST_US = 30.0, 50.0
PATHS = ("jax_python", "out")
"""Arguments that name places on a machine: no business of the rows."""


class Run:
    """The settings of a run and what it has found."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.args = arguments
        self.begun = time.monotonic()
        self.cases: list[dict[str, Any]] = []
        self.bars: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        self.head = self._head()
        name = "tiny" if arguments.tiny else self.head["device"].split()[-1].lower() if self.cuda else "cpu"
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "data")
        self.path = Path(arguments.out or folder / f"steps-{name}-{date.today()}.json")

    @property
    def cuda(self) -> bool:
        return bool(self.args.device == "cuda")

    def left(self) -> float:
        return float(self.args.budget_s - (time.monotonic() - self.begun))

    def _head(self) -> dict[str, Any]:
        args = self.args
        head: dict[str, Any] = {
            "date": str(date.today()),
            "device": torch.cuda.get_device_name() if self.cuda else processor(),
        }
        head |= {"python": platform.python_version(), "torch": torch.__version__, "threads": torch.get_num_threads()}
        head["clock"] = args.clock
        head |= {"products": self.products(), "cudnn_benchmark": torch.backends.cudnn.benchmark if self.cuda else None}
        return head | {"commit": commit(), "arguments": {k: v for k, v in vars(args).items() if v and k not in PATHS}}

    def products(self) -> str:
        """The precision of matrix products and convolutions in float32, the same on every side."""
        return str(self.args.precision) if self.cuda else "float32"

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.head | {"bars": self.bars, "cases": self.cases}, indent=0, default=float)
        self.path.write_text(text + "\n", encoding="utf-8")

    # -- one case -------------------------------------------------------------------------------------
    def case(self, case: Case, share_s: float) -> None:
        """Builds, compares, times and judges all variants of a case, in about `share_s` seconds."""
        end, args = time.monotonic() + share_s, self.args
        values = values_of(case)
        variants: list[Variant] = [*torch_variants(case, values, args.device, args.no_compile)]
        variants = [v for v in variants if v.name not in MODES_SECONDS] + [*our_variants(case, values, args.device)]
        if case.jax and not args.no_jax:
            precision = "default" if case.half else {"tf32": "tensorfloat32", "float32": "float32"}[self.products()]
            jax = JaxStep(case, values, args.device, python=args.jax_python, precision=precision, threads=args.threads)
            variants.append(jax)
        # torch.compile last: it takes the longest, and is what a short budget can do without
        slow = [v for v in torch_variants(case, values, args.device, args.no_compile) if v.name in MODES_SECONDS]
        variants += sorted(slow, key=lambda v: v.name != COMPILE_GRAPH)
        if case.half:  # the memory that JAX has taken it keeps
            variants.sort(key=lambda v: isinstance(v, JaxStep))
        products = "bfloat16 over float32 parameters" if case.half else self.products()
        print(
            f"\n{case.name}   {scale_of(values)}, products in {products}, {torch.get_num_threads()} threads", flush=True
        )

        for v in variants:
            v.clock = args.clock

        def seconds(variant: Variant) -> float:
            left: float = end - time.monotonic() - args.seconds
            return left - MODES_SECONDS.get(variant.name, (0.0, 0.0))[self.cuda]

        tolerance = None if case.random else max(case.tolerance, 5e-3 if self.products() == "tf32" else 0.0)
        results = prepare(variants, tolerance, seconds)
        for variant, result in zip(variants, results, strict=True):
            if isinstance(variant, JaxStep) and not result.why:
                result.peak_mib, self.head["jax"] = variant.peak_mib, variant.version
            elif isinstance(variant, Ours) and result.why and result.why != NO_TIME:
                self.wrong.append(f"{case.name}: {variant.name}: {result.why}")
        measure(variants, results, visit_s=case.visit_s, seconds=args.seconds, rounds=args.rounds)
        for line in table(results):
            print(line, flush=True)
        bars = judge(case.bars, results, COMPILED)
        entry: dict[str, Any] = {"case": case.name, "parameters": sum(a.size for a in values.values())}
        entry |= {"products": products, "rows": [r.row() for r in results]}
        working = {r.variant for r in results if r.us and not r.why}
        entry["traces"] = {v.name: v.traces for v in variants if isinstance(v, Ours) and v.name in working}
        self.wrong += [f"{case.name}: {n} was traced {k} times" for n, k in entry["traces"].items() if (k or 1) > 1]
        mine = [v for v in variants if isinstance(v, Ours) and v.name == COMPILED and v.name in working]
        if not self.cuda and case.visit_s < 0.1:
            shown = [v for v in variants if v.name in {results[0].variant, COMPILED} & working]
            entry["shares"] = extras.shares(shown, 3 if args.tiny else 30)
            print("\n".join(extras.shares_table(entry["shares"])))
        if self.cuda and args.profile:
            for variant in variants:
                if variant.name in {GRAPH, COMPILED, *(() if GRAPH in case.rivals else case.rivals[:1])} & working:
                    lines, reason = extras.told(lambda: extras.gpu_kernels(variant, 5 if case.half else 20))
                    print("\n".join(lines or [f"  {variant.name}: no profile: {reason}"]))
        if case.judged_trace:
            bars.append(self._trace(case, mine[0] if mine else None))
        for bar in bars:
            print("  " + said(bar))
        self.bars += [{"case": case.name, **bar} for bar in bars]
        self.cases.append(entry)
        self.write()
        for variant in variants:
            close(variant)
        gc.collect()
        torch._dynamo.reset()
        if self.cuda:
            torch.cuda.empty_cache()

    def _trace(self, case: Case, mine: Ours | None) -> dict[str, Any]:
        bar: dict[str, Any] = {"of": "trace_ms", "ours": COMPILED, "rival": "", "at_most": TRACE_MS, "goal": False}
        if mine is None:
            return bar | {"ratio": None, "verdict": "not measured", "why": f"no {COMPILED}"}
        times, reason = extras.told(lambda: mine.trace_ms(5))
        cold, cold_reason = extras.told(
            lambda: extras.cold_trace_ms(Path(__file__), case.name, self.args.device, self.args.clock)
        )
        if times is None:
            return bar | {"ratio": None, "verdict": "not measured", "why": reason}
        value = sorted(times)[len(times) // 2]
        verdict = "pass" if value <= TRACE_MS else "FAIL"
        return bar | {"value": value, "all": times, "cold_ms": cold, "why": cold_reason, "verdict": verdict}

    # -- the host -------------------------------------------------------------------------------------
    def host(self) -> None:
        """The bar of the host's time."""
        print(f"\nhost time of a compiled call, {extras.COUNT} parameters and {2 * extras.COUNT} moments", flush=True)
        bar: dict[str, Any] = {"of": "host_us", "ours": COMPILED, "rival": "", "at_most": HOST_US, "goal": False}
        rows, reason = extras.told(lambda: extras.host_us(self.args.device, Adam(1e-3, decay=0.01)))
        if rows is None:
            bar |= {"ratio": None, "verdict": "not measured", "why": reason}
        else:
            for name, row in rows.items():
                print(f"  {name:<10}{row['median_us']:>9.1f} us  low {row['low_decile_us']:.1f}")
            value = rows["step" if self.cuda else "through"]["median_us"]
            bar |= {"value": value, "rows": rows, "verdict": "pass" if value <= HOST_US else "FAIL"}
        print("  " + said(bar))
        self.bars.append({"case": "host", **bar})
        self.write()


def said(bar: dict[str, Any]) -> str:
    """A bar in words."""
    kind = "goal" if bar["goal"] else "bar"
    against = f" / {bar['rival']}" if bar["rival"] else ""
    number = bar.get("ratio") if bar["rival"] else bar.get("value")
    shown = "-" if number is None else f"{number:.3g}"
    low = f" (low deciles {bar['low_ratio']:.3g})" if bar.get("low_ratio") else ""
    cold = f" (fresh process: {bar['cold_ms']:.1f})" if bar.get("cold_ms") else ""
    verdict = (
        bar["verdict"]
        if not bar["goal"]
        else {"pass": "reached", "FAIL": "not yet"}.get(bar["verdict"], bar["verdict"])
    )
    reason = f": {bar['why']}" if bar.get("why") else ""
    return f"{kind} {bar['of']}{against} <= {bar['at_most']:.3g}: {shown}{low}{cold}  {verdict}{reason}"


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {os.cpu_count()} cores" if names else platform.machine()


def commit() -> str:
    process = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return process.stdout.strip()


def settings(arguments: argparse.Namespace) -> None:
    """The same precision of products on every side."""
    torch.manual_seed(0)
    if arguments.device == "cuda":
        tf32 = arguments.precision == "tf32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = arguments.cudnn_benchmark
    else:
        torch.set_num_threads(arguments.threads)
    torch._dynamo.config.cache_size_limit = 64
    warnings.filterwarnings("ignore", module=r"torch\._(inductor|dynamo).*")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="groups, separated by commas: mnist, mlp, gpt2, sequence, host")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch on the CPU")
    parser.add_argument("--budget-s", type=float, default=900, help="leave out what does not fit into so many seconds")
    parser.add_argument("--seconds", type=float, default=8, help="time for the turns of a case, building not counted")
    parser.add_argument("--rounds", type=int, default=101, help="at most so many turns")
    parser.add_argument(
        "--tiny", action="store_true", help="small shapes and few turns: a dry run, GPT-2 on the CPU too"
    )
    parser.add_argument("--precision", choices=("tf32", "float32"), default="tf32", help="of products on a GPU")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="let cuDNN search for its convolutions")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-jax", action="store_true", help="leave JAX out")
    parser.add_argument("--jax-python", default="", help="an interpreter that has jax, where this one has none")
    parser.add_argument("--profile", action="store_true", help="on a GPU, the kernels of ours and of the hand capture")
    parser.add_argument("--out", default="", help="the file for the rows")
    parser.add_argument("--clock", choices=("wall", "process"), help="process by itself on a CPU with one thread")
    parser.add_argument("--first-call", default="", help=argparse.SUPPRESS)
    parsed = parser.parse_args(argv)
    if parsed.clock is None:
        parsed.clock = "process" if parsed.device == "cpu" and parsed.threads == 1 else "wall"
    return parsed


def main(argv: list[str] | None = None) -> int:
    """1 where one of our variants failed or computed something else, else 0: bars are shown, not enforced."""
    arguments = parse(argv)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks/steps.py --device cuda: torch finds no CUDA device here", file=sys.stderr)
        return 2
    groups = all_cases(arguments.device, arguments.tiny)
    wanted = [g for g in arguments.only.split(",") if g] or [*groups, "host"]
    unknown = sorted(set(wanted) - {*groups, "host"})
    if unknown:
        print(f"--only: {', '.join(unknown)} is no group; there are {', '.join([*groups, 'host'])}", file=sys.stderr)
        return 2
    settings(arguments)
    if arguments.first_call:
        named = {case.name: case for cases in groups.values() for case in cases}
        print(extras.first_call(named[arguments.first_call], arguments.device, arguments.clock))
        return 0
    if arguments.tiny:
        arguments.seconds, arguments.rounds = 0.2, 5
    run = Run(arguments)
    print(" ".join(f"{k}={v}" for k, v in run.head.items() if k != "arguments"), flush=True)
    if "host" in wanted:
        run.host()
    cases = [case for name in groups if name in wanted for case in groups[name]]
    for at, case in enumerate(cases):
        if arguments.tiny:
            case = replace(case, visit_s=0.001)
        share = run.left() / (len(cases) - at) * (1.0 if at == len(cases) - 1 else 1.3)
        if share < arguments.seconds:
            print(f"\n{case.name}: left out, the budget of {arguments.budget_s:.0f} s is spent")
            continue
        try:
            run.case(case, share)
        except Exception as error:
            print(f"\n{case.name}: {why(error)}")
            run.wrong.append(f"{case.name}: {why(error)}")
    print(f"\n{len(run.cases)} cases in {time.monotonic() - run.begun:.0f} s: {os.path.relpath(run.path)}")
    for bar in run.bars:
        if not bar["goal"]:
            print(f"{bar['case']:<36} {said(bar)}")
    for line in run.wrong:
        print(f"WRONG  {line}")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
