"""Times the kernel library on one GPU beside PyTorch, eager and compiled, and beside Liger and JAX where they are.

    python benchmarks/kernels.py                     every case; rows to benchmarks/data/kernels-<device>.json
    python benchmarks/kernels.py --only softmax      operations whose name begins so
    python benchmarks/kernels.py --tuned             beside the defaults, the configs that are fastest here
    python benchmarks/kernels.py --tune              every candidate config instead of rivals
    python benchmarks/kernels.py --judged            all cases with a bar or a goal and a few of every family, beside
                                                     every rival, in 600 s; and which bars hold
    python benchmarks/kernels.py --judged --part I/N every N-th of them, so that N GPUs share them
    python benchmarks/kernels.py --judged --missing  those that its file of rows lacks
    python benchmarks/kernels.py --judged --merge FILE ...   rows of other runs into that file, with the verdicts on all
                                                     of them; needs no GPU (`make measured` writes the docs from it)
    python benchmarks/kernels.py --judged --answers  times nothing: does JAX compute what it is asked for?
    python benchmarks/kernels.py --judged --tiny     few rows, on a CPU where there is no GPU: does everything run?
    python benchmarks/kernels.py --rivals            the few of every family alone, without a torch.compile that
                                                     searches, in 120 s; --part, --missing, --merge as above

How: all variants of a case in one process, in turns (A B C, C B A, ...), the L2 cache overwritten before each, time
between two events on the device, median of the rounds.  Calls are captured into CUDA graphs where they can be, so that
a rival's host time does not count against it.  `copy` is the better of a copy and a negation that move as many bytes as
the case must; `share` is its time over the variant's.  `peak` is what a call allocates beyond its inputs.  `error` is
the relative root mean square against float64, on 256 rows: of the output, or of the worst gradient.
f: forward.  fb: forward and backward.  Gradients of the upstream are random, of a loss one.  `apart` is by how much a
variant's results differ from eager torch's, all of them together; who differs by a twentieth is no rival.
What torch.compile makes is compiled before anything is timed, by --workers beside each other for --patience-s; what was
not ready by then is left out, and told of.  JAX runs in a process of its own, its calls in a queue behind a cold cache.
Rows go to benchmarks/data, to $OUT where that is set, or to --out, after each case.  The file is one for all runs: one
times what it lacks first, and replaces the rows of what it timed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import triton

from benchmarks._kernels.bars import BARS, passes_in_order
from benchmarks._kernels.calls import wanted
from benchmarks._kernels.candidates import tuning_cases
from benchmarks._kernels.cases import cases, chosen, chosen_cases, in_this_run, jax_tasks
from benchmarks._kernels.judged import Verdict, judge, table
from benchmarks._kernels.preparing import FAILED, Queue, in_order_of_length, measuring_alone, prepared
from benchmarks._kernels.problems import SIZES
from benchmarks._kernels.rivals import CHOSEN, Jax
from benchmarks._kernels.rows import Case, merged, timed
from benchmarks._kernels.timing import Timer

JUDGED_S, RIVALS_S = 600.0, 120.0
"""Limits on the machine's time: for all bars, and for all rivals."""


def parsed() -> Any:
    """Returns what the command line says, with what follows from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", default="", help="families, separated by commas")
    add("--tune", action="store_true", help="time every candidate config instead of rivals")
    add("--no-compile", action="store_true", help="leave torch.compile out")
    add("--best-mode", action="store_true", help="torch.compile that searches, too; bars that name all rivals have it")
    add("--tuned", action="store_true", help="beside the default, the config that is fastest here")
    add("--widths", default="", help="columns of the row-wise operations")
    add("--judged", action="store_true", help="the cases that have a bar, and whether they clear it")
    add("--rivals", action="store_true", help="a few cases of every family beside every rival")
    add("--part", default="", metavar="I/N", help="of --rivals or --judged every N-th case, from the I-th")
    add("--missing", action="store_true", help="of --rivals those that the file of rows lacks")
    add("--merge", nargs="+", default=[], metavar="FILE", help="time nothing: merge rows of --rivals into the file")
    add("--workers", type=int, default=8, help="processes that compile for --rivals and --judged before they time")
    add("--patience-s", type=float, default=0.0, help="for which they may; 0.4 of the budget")
    add("--warm", default="", metavar="FOLDER", help="one of them: call what the queue there holds, and time nothing")
    add("--answers", action="store_true", help="time nothing: hold what JAX computes of the cases against float64")
    add("--jax-python", default="", help="an interpreter that has jax, where this one has none")
    add("--tiny", action="store_true", help="few rows and no clock worth reading: does everything run?")
    add("--rounds", type=int, default=0, help="of turns; 31, in a tiny run 2")
    add("--budget-s", type=float, default=0.0, help="begin no case after so many seconds")
    add("--out", default="", help="the file for the rows")
    arguments = parser.parse_args()
    if arguments.tiny:
        SIZES.rows, SIZES.few, SIZES.tiny = 4, 2, True
        SIZES.device = "cuda" if torch.cuda.is_available() else "cpu"
    elif not (torch.cuda.is_available() or arguments.merge):
        raise SystemExit("benchmarks/kernels.py times GPU kernels, and torch finds no CUDA device here; --tiny runs")
    if arguments.widths:
        SIZES.widths = tuple(int(n) for n in arguments.widths.split(","))
    arguments.rounds = arguments.rounds or (2 if SIZES.tiny else 15 if arguments.rivals else 31)
    usual = JUDGED_S if arguments.judged else RIVALS_S if arguments.rivals else 1e9
    arguments.budget_s = arguments.budget_s or usual
    arguments.patience_s = arguments.patience_s or 0.4 * arguments.budget_s
    arguments.there = timed_before(arguments) if arguments.rivals or arguments.judged else set()
    return arguments


def main() -> None:
    arguments = parsed()
    gc.freeze()  # a collection goes through what was made since, not through all of torch
    if arguments.merge:
        merge([Path(name) for name in arguments.merge], file_of(arguments), arguments)
    elif arguments.warm:
        warm(arguments)
    elif arguments.answers:
        answers(arguments)
    else:
        run(arguments)


# -- files -------------------------------------------------------------------------------------------
def device_name() -> str:
    return "cpu" if SIZES.device == "cpu" else torch.cuda.get_device_name()


def file_of(arguments: Any) -> Path:
    """Returns where rows go."""
    if arguments.out:
        return Path(arguments.out)
    folder = Path(os.environ.get("OUT") or Path(__file__).parent / "data")
    kind = "tune-" if arguments.tune else "judged-" if arguments.judged else "rivals-" if arguments.rivals else ""
    device = "h200" if arguments.merge and not torch.cuda.is_available() else device_name().split()[-1].lower()
    kind += "answers-" if arguments.answers else ""
    part = f"-{arguments.part.replace('/', 'of')}" if arguments.part else ""
    return folder / f"kernels-{kind}{'tiny' if SIZES.tiny else device}{part}.json"


def timed_before(arguments: Any) -> set[tuple[str, str]]:
    """Cases and passes of which the file of rows has ours."""
    rows = (held(file_of(arguments)) or {"rows": []})["rows"]
    return {(row["case"], row["pass"]) for row in rows if row["variant"] == "ours"}


def with_those_of(before: Mapping[str, Any] | None, report: Mapping[str, Any]) -> dict[str, Any]:
    """A run of some cases merged into what its file held."""
    order = [in_this_run(case) for case in dict.fromkeys([case for case, _ in passes_in_order()] + list(CHOSEN))]
    return dict(report) if before is None else merged(before, report, order)


def verdicts(arguments: Any, rows: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """Returns the verdicts on the bars whose cases were asked for."""
    starts = wanted(arguments)
    return judge((replace(bar, case=in_this_run(bar.case)) for bar in BARS if bar.case.startswith(starts)), rows)


def whole(arguments: Any, report: Mapping[str, Any]) -> dict[str, Any]:
    """A file's rows, with the verdicts on the bars where they are asked for."""
    judged = {"bars": [asdict(v) for v in verdicts(arguments, report["rows"])]} if arguments.judged else {}
    return {**report, **judged}


def held(file: Path) -> dict[str, Any] | None:
    """Returns what a file of rows holds; None where there is none."""
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def merge(files: list[Path], out: Path, arguments: Any) -> None:
    """Merges rows of other runs into a file, the later ones over the earlier ones."""
    report = held(out)
    for file in files:
        report = with_those_of(report, json.loads(file.read_text(encoding="utf-8")))
    assert report is not None
    write(out, whole(arguments, report))
    print(f"{len(report['rows'])} rows: {os.path.relpath(out)}")
    if arguments.judged:
        print(table(verdicts(arguments, report["rows"])))


def write(file: Path, report: Mapping[str, Any]) -> None:
    """A row's fields on lines of their own; whole, or not at all."""
    beside = file.with_name(file.name + ".new")
    beside.write_text(json.dumps(report, indent=0) + "\n", encoding="utf-8")
    beside.replace(file)


# -- timing ------------------------------------------------------------------------------------------
def measure(case: Case, timer: Timer, tuning: bool, queue: Queue | None) -> list[dict[str, Any]]:
    """The rows of one case, without what was not prepared in time."""
    variants = dict(case.variants)
    for name in case.variants:
        if queue is not None and not queue.ready(case.name, case.passed, name):
            print(f"    {case.name} {case.passed} {name}: not compiled before, so left out", flush=True)
            del variants[name]
    return timed(
        case.name,
        case.passed,
        case.floor_bytes,
        variants,
        timer,
        errors=dict if tuning else case.errors,
        peaks=not tuning,
        compared=case.passed != "step" and "dropout" not in case.name and not case.name.startswith("attention_packed"),
        width=132 if tuning else 71,
    )


def warm(arguments: Any) -> None:
    """Calls what others will time once, until the queue is empty, so that what it compiles is known then."""
    queue, timer = Queue(arguments.warm), Timer(1, SIZES.device)
    measuring_alone(queue.folder)
    for searched in (False, True):
        for case, passed in in_order_of_length(chosen(arguments)):
            if queue.take(in_this_run(case), passed, searched=searched):
                try:
                    call_once(queue, arguments, timer, (case, passed), searched)
                except torch.OutOfMemoryError:  # others hold much; what is not ready is left out
                    print(f"{FAILED}{case} {passed}: no memory", file=sys.stderr, flush=True)
                cleaned()


def call_once(queue: Queue, arguments: Any, timer: Timer, pair: tuple[str, str], searched: bool) -> None:
    """Calls those variants of a case that compile something."""
    for case in chosen_cases(arguments, timer, [pair]):
        for name in queue.calls(list(case.variants), searched=searched):
            begun = time.monotonic()
            try:
                case.variants[name]()
                synchronized()
            except Exception as error:  # said where it is timed, too
                reason = (str(error).splitlines() or [""])[0]
                print(f"{FAILED}{case.name} {case.passed} {name}: {type(error).__name__}: {reason}", file=sys.stderr)
            else:
                queue.done(case.name, case.passed, name, time.monotonic() - begun)


def jax_row(jax: Jax, case: Case, ours: dict[str, Any] | None) -> dict[str, Any] | None:
    return jax.row(case.name, case.passed, 1 if SIZES.tiny else 10, ours, tiny=SIZES.tiny)


def synchronized() -> None:
    if SIZES.device != "cpu":
        torch.cuda.synchronize()


def cleaned() -> None:
    """Frees what a case held, on the device and in the compilers."""
    torch._dynamo.reset()
    gc.collect()
    gc.freeze()  # what is left belongs to compilers
    if SIZES.device != "cpu":
        torch.cuda.empty_cache()


def answers(arguments: Any) -> None:
    """Prints how far JAX's results are from float64, for each chosen case that JAX has."""
    jax = Jax(list(jax_tasks(arguments)), arguments.jax_python, SIZES.device, timed=False)
    rows = list[dict[str, Any]]()
    for case in chosen_cases(arguments, Timer(1, SIZES.device), chosen(arguments)):
        apart = None if case.exact is None else jax.apart(case.name, case.passed, *case.exact())
        if apart is not None:
            rows.append({"case": case.name, "pass": case.passed, "variant": "jax", "apart": apart})
            print(f"{case.name:<46} {case.passed:<5}{apart if isinstance(apart, str) else f'{apart:.2e}'}", flush=True)
        del case
        cleaned()
    jax.close()
    write(file_of(arguments), {"device": device_name(), "jax": jax.version, "rows": rows})


def run(arguments: Any) -> None:
    """Times the cases that were asked for and writes their rows, after each case."""
    begun, rows, timer = time.monotonic(), list[dict[str, Any]](), Timer(arguments.rounds, SIZES.device)
    head = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        "device": device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "rounds": arguments.rounds,
    } | ({"tiny": True} if SIZES.tiny else {})
    jax: Jax | None = None
    out = file_of(arguments)
    few = arguments.judged or arguments.rivals
    before = held(out) if few else None

    def spent_s() -> float:
        return time.monotonic() - begun

    def keep() -> None:
        write(out, whole(arguments, with_those_of(before, head | {"rows": rows})))

    queue: Queue | None = None
    if few:
        jax = Jax(list(jax_tasks(arguments)), arguments.jax_python, SIZES.device)
        head |= {"jax": jax.version}
    if few and not SIZES.tiny and arguments.workers:
        queue = prepared([sys.executable, *sys.argv], arguments.workers, arguments.patience_s)
        print(f"{queue.told()}; {spent_s():.0f} s", flush=True)
    if jax is not None:
        jax.settle(max(5.0, 0.5 * arguments.budget_s - spent_s()))
    torch.manual_seed(0)
    if few:
        chosen_ones = chosen_cases(arguments, timer, chosen(arguments))
    else:
        chosen_ones = tuning_cases() if arguments.tune else cases(arguments, timer)
    try:
        for case in chosen_ones:
            if not case.name.startswith(wanted(arguments)):
                continue
            new = measure(case, timer, arguments.tune, queue)
            ours = next((row for row in new if row["variant"] == "ours"), None)
            theirs_too = None if jax is None else jax_row(jax, case, ours)
            rows += [*new, *([] if theirs_too is None else [theirs_too])]
            keep()
            del case
            cleaned()
            print(f"    {spent_s():.0f} s", flush=True)
            if spent_s() > arguments.budget_s:
                print("the time is up; cases are left out")
                break
    except KeyboardInterrupt:
        print("interrupted; cases are left out")
    if jax is not None:
        jax.close()
    print(f"{len(rows)} rows in {spent_s():.0f} s: {os.path.relpath(out)}")
    if arguments.judged:
        print(table(verdicts(arguments, (held(out) or {"rows": []})["rows"])))


if __name__ == "__main__":
    main()
