"""Every entry of torch's operator database that has a twin here, beside that twin: python -m tests.conformance.

    python -m tests.conformance                                   all entries, f64, every leaf
    python -m tests.conformance --entries add,linalg.svd --leaf ndarray --dtype f64,f32
    python -m tests.conformance --processes 8 --list              a line for each entry
    python -m tests.conformance --leaf c --share 12               one sample in twelve, each a program in C
    python -m tests.conformance --missing                         entries without a twin

Prints the samples, those that pass, those that differ as documented, and each mismatch; exit status 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.conformance.running import DTYPES, LEAVES, Outcome, database, differences, dtypes_of, run
from tests.conformance.twins import table


def work(job: tuple[str, str, str, int]) -> Outcome:
    entry, leaf, dtype, share = job
    return run(entry, table()[entry], leaf, dtype, only=lambda number: not number % share)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", default="", help="names with commas between (all)")
    parser.add_argument("--leaf", default="libtorch,ndarray,fused", help=f"of {', '.join(LEAVES)} (all but c)")
    parser.add_argument("--dtype", default="f64,i64,bool", help=f"of {', '.join(DTYPES)} (f64,i64,bool)")
    parser.add_argument("--processes", type=int, default=1, help="side by side (1)")
    parser.add_argument("--share", type=int, default=1, help="takes one sample in so many (1)")
    parser.add_argument("--list", action="store_true", help="prints a line for each entry")
    parser.add_argument("--missing", action="store_true", help="prints the entries without a twin, and stops")
    options = parser.parse_args()
    twins = table()
    unknown = sorted(set(twins) - set(database()))
    if unknown:
        parser.error(f"torch has no entries {', '.join(unknown)}")
    if options.missing:
        print(*sorted(set(database()) - set(twins)), sep="\n")
        return 0
    entries = options.entries.split(",") if options.entries else sorted(twins)
    began = time.perf_counter()
    jobs = [
        (entry, leaf, dtype, options.share)
        for entry in entries
        for leaf in options.leaf.split(",")
        for dtype in dtypes_of(entry, twins[entry], options.dtype.split(","))
    ]
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for outcome in pool.map(work, jobs) if options.processes > 1 else map(work, jobs):
            outcomes.append(outcome)
            if options.list or outcome.mismatches:
                print(
                    f"{outcome.entry:44} {outcome.leaf:8} {outcome.dtype:4} {outcome.samples:5} samples"
                    f" {outcome.passed:5} pass {outcome.documented.total():4} documented"
                    f" {len(outcome.mismatches):4} mismatches",
                    flush=True,
                )
                for words in outcome.mismatches[: None if options.entries else 3]:
                    print(f"    {words}", flush=True)
    met = sum((outcome.documented for outcome in outcomes), Counter())
    for number, line in enumerate(differences()):
        if met[number]:
            print(f"{met[number]:6} documented: {' '.join(line.entries)}: {line.reason}")
        elif not options.entries:
            print(f"       not met: {' '.join(line.entries)} | {line.condition} | {line.reason}")
    print(
        f"{len({x.entry for x in outcomes})} entries of {len(database())}, {sum(x.samples for x in outcomes)} samples,"
        f" {sum(x.passed for x in outcomes)} pass, {met.total()} documented,"
        f" {sum(len(x.mismatches) for x in outcomes)} mismatches, {time.perf_counter() - began:.0f} s"
    )
    return 1 if any(x.mismatches for x in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
