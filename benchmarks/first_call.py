"""Measures what the first call takes on a GPU where nothing was measured, timed beside the fastest candidate of an
export.

    python benchmarks/first_call.py timings.json [--out rows.json]

For each key of the benchmark set that the export has: with a store that is empty, the kernel is called as users call
it, without a config; nothing may be measured by that, no file be made.  Then that call and the fastest config of the
export are timed in turns, by the clock that times candidates.  `first_choice.py` says it without a GPU, of one race.
Exit status 1 where a call failed, measured, made a file, or took a config below the bar.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed

import torch

import burn_kernels  # noqa: F401  # every family, so that every tunable is registered
from burn_kernels.autotune.clock import GpuClock
from burn_kernels.autotune.compiling import Compilers, variants
from burn_kernels.autotune.key import device_of
from burn_kernels.autotune.selection import Selector, selecting
from burn_kernels.autotune.store import FILE, Store
from burn_kernels.autotune.tunable import TUNABLES, Inputs, Tunable
from burn_kernels.launch import unobserved

ROUNDS = 7
BAR = 0.9


def fastest(timings: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """The config of the least sample of each key, of kernels as they are now."""
    best: dict[str, tuple[float, dict[str, int]]] = {}
    kernels = {tunable.kernel for tunable in TUNABLES.values()}
    for row in timings:
        ms = min(row["samples_ms"])
        if row["kernel"] in kernels and ms < best.get(row["key"], (float("inf"), {}))[0]:
            best[row["key"]] = ms, row["config"]
    return {key: config for key, (_, config) in best.items()}


def keys(shapes_of: dict[str, Tunable]) -> dict[str, tuple[Tunable, Any]]:
    """The benchmark set: every operation at its usual shapes."""
    return {
        tunable.key(facts): (tunable, facts)
        for tunable in shapes_of.values()
        for rows, cols in tunable.shapes
        for facts in tunable.problems(rows, cols, tunable.dtype)
    }


def first_call(tunable: Tunable, facts: Any, tuned: dict[str, int], clock: GpuClock, folder: Path) -> dict[str, Any]:
    """Calls a kernel with an empty store, and times what that took beside the tuned config."""
    selector = Selector(Store(folder / FILE), clocks=_no_clock)
    with selecting(selector), torch.no_grad(), unobserved(), clock.aside():
        trial = tunable.trial(facts, Inputs(clock.device, seed=2))
        run, config = trial.timed or trial.run, tunable.parse(tuned)
        began = time.perf_counter()
        trial.run(trial.inputs, None)
        clock.settle()
        took_s = time.perf_counter() - began
        mine = [d for d in selector.decisions.values() if d.tunable.name == tunable.name]
        calls = {"first": lambda: run(trial.inputs, None), "tuned": lambda: run(trial.inputs, config)}
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(ROUNDS + 1):
            for name in list(calls) if number % 2 else reversed(list(calls)):
                samples[name].append(clock.milliseconds(calls[name]))
    first, best = (statistics.median(samples[name][1:]) for name in ("first", "tuned"))
    return {
        "op": tunable.name,
        "key": tunable.key(facts),
        "source": ", ".join(sorted({decision.source for decision in mine})),
        "first_ms": first,
        "tuned_ms": best,
        "share": best / first,
        "first_call_s": took_s,
        "wrote": selector.store.there,
    }


def ready(wanted: dict[str, tuple[Tunable, Any, dict[str, int]]], workers: int) -> Iterator[str]:
    """These keys, as kernels of their first choice and their tuned config are compiled by processes beside."""
    machine = device_of(0).machine
    chooser = Selector(Store(None))
    with Compilers(machine, workers, launchers=True) as compilers:
        for key, (tunable, facts, tuned) in wanted.items():
            configs = dict.fromkeys((chooser.plan(tunable, 0, facts).config, tunable.parse(tuned)))
            try:
                compilers.ask(key, variants(tunable, facts, list(configs), machine))
            except Exception as error:  # the call itself meets it again
                compilers.skip(key, f"{type(error).__name__}: {error}")
        left = list(wanted)
        while left:
            key = compilers.wait(left) or left[0]
            left.remove(key)
            yield key


def _no_clock(index: int) -> Any:
    raise AssertionError("a first call began to measure")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what python -m burn_kernels export wrote")
    parser.add_argument("--out", type=Path, help="write all rows as JSON")
    parser.add_argument("--budget-s", type=float, default=600.0, help="seconds after which no other key is begun")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="that compile ahead")
    asked = parser.parse_args()
    tuned = fastest(json.loads(asked.file.read_text(encoding="utf-8"))["timings"])
    clock, rows, failed, until = GpuClock(0), list[dict[str, Any]](), 0, time.monotonic() + asked.budget_s
    wanted = {key: (*entry, tuned[key]) for key, entry in keys(TUNABLES).items() if key in tuned}
    with tempfile.TemporaryDirectory() as folder:
        for key in ready(wanted, asked.workers):
            tunable, facts, _ = wanted[key]
            if time.monotonic() > until:
                break
            try:
                rows.append(first_call(tunable, facts, tuned[key], clock, Path(folder)))
            except Exception as error:  # the other keys can still be timed
                print(f"{key}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}")
                failed += 1
                continue
            row = rows[-1]
            if row["share"] < BAR or row["wrote"]:
                print(f"  {row['share']:.3f} {key} ({row['source']}){' wrote a file' if row['wrote'] else ''}")
    by_op = defaultdict(list)
    for row in rows:
        by_op[row["op"]].append(row)
    print(f"{'op':<32}{'keys':>5}{'worst':>8}{'median':>8}{'below 0.9':>11}  sources")
    for op, group in sorted(by_op.items()):
        shares = sorted(row["share"] for row in group)
        sources = ", ".join(sorted({row["source"] for row in group}))
        below = sum(share < BAR for share in shares)
        print(f"{op:<32}{len(group):>5}{shares[0]:>8.3f}{statistics.median(shares):>8.3f}{below:>11}  {sources}")
    below, wrote = sum(row["share"] < BAR for row in rows), sum(row["wrote"] for row in rows)
    left = len(wanted) - len(rows) - failed  # the time was up
    print(f"{len(rows)} keys, {below} below {BAR}; {wrote} wrote a file; {failed} failed, {left} left out")
    if asked.out:
        about = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}
        asked.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 1 if below or wrote or failed else 0


if __name__ == "__main__":
    sys.exit(main())
