"""How good the first choice is on a machine that measured nothing: its speed beside the fastest candidate's.

    python -m burn_kernels tune && python -m burn_kernels export timings.json      on the GPU, and then anywhere:
    python benchmarks/first_choice.py timings.json                                 shipped table, then cost model
    python benchmarks/first_choice.py --no-table timings.json                      the cost model alone
    python benchmarks/first_choice.py --misses FILE timings.json                   what the model alone misses, as JSON

All candidates of a key were timed in turns in one race, so the first choice's time is among them.  Nothing is measured
here and no GPU is needed.  A share of 1 is the fastest; the bar is 0.9.  Exit status 1 where a key is below it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed

import burn_kernels  # noqa: F401  # every family, so that every tunable is registered
from burn_kernels.autotune import shipped
from burn_kernels.autotune.key import Candidate, Device
from burn_kernels.autotune.selection import Selector
from burn_kernels.autotune.store import Store
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.launch import Machine

BAR = 0.9


@dataclass(frozen=True)
class Choice:
    """Holds what a fresh machine would take for one key, beside what is fastest there."""

    op: str
    key: str
    source: str
    """shipped, model or default."""
    taken: str
    best: str
    share: float
    """The fastest candidate's time over that of the one taken."""


def choices(timings: Iterable[Mapping[str, Any]], *, table: bool) -> list[Choice]:
    """One for each key of an export, of kernels as they are now, that has the candidate which would be taken."""
    by_key: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    kernels = {tunable.kernel for tunable in TUNABLES.values()}
    for row in timings:
        if row["kernel"] not in kernels:  # of a kernel that has changed since
            continue
        # the least sample: what a busy host adds, while others compile beside the measurement, is not the kernel's
        by_key[row["device"], row["key"]][row["candidate"]] = min(row.get("samples_ms") or [row["median_ms"]])
    listed = []
    for (device, key), medians in by_key.items():
        machine, named = shipped._machine(device), shipped._facts(key, TUNABLES)
        if machine is None or named is None:
            continue
        op, facts = named
        plan = _selector(device, machine, table).plan(TUNABLES[op], 0, facts)
        taken = next((Candidate.of(config).name for config in plan.ranking.values()
                      if TUNABLES[op].supports(config, facts)), "")  # fmt: skip
        if taken in medians:
            best = min(medians, key=lambda name: medians[name])
            listed.append(Choice(op, key, plan.source, taken, best, medians[best] / medians[taken]))
    return listed


def _selector(device: str, machine: Machine, table: bool) -> Selector:
    name = device.partition(" sm_")[0].partition(" gfx")[0]
    more: dict[str, Any] = {} if table else {"table": lambda *_: []}
    return Selector(Store(None), devices=lambda index: Device(name, machine), **more)


def told(choices_of_run: Iterable[Choice]) -> str:
    """A line for each op, and one for each key below the bar."""
    by_op: dict[str, list[Choice]] = defaultdict(list)
    for one in choices_of_run:
        by_op[one.op].append(one)
    lines = [f"{'op':<32}{'keys':>5}{'worst':>8}{'median':>8}{'below 0.9':>11}  sources"]
    for op, group in sorted(by_op.items()):
        shares = sorted(one.share for one in group)
        below = sum(share < BAR for share in shares)
        sources = ", ".join(sorted({one.source for one in group}))
        lines.append(f"{op:<32}{len(group):>5}{shares[0]:>8.3f}{shares[len(shares) // 2]:>8.3f}{below:>11}  {sources}")
    slow = [one for group in by_op.values() for one in group if one.share < BAR]
    lines += [
        f"  {one.share:.3f} {one.key}: {one.taken} ({one.source}), fastest {one.best}"
        for one in sorted(slow, key=lambda one: one.share)
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="what python -m burn_kernels export wrote")
    parser.add_argument("--no-table", action="store_true", help="as if no timings came with the package")
    parser.add_argument("--misses", type=Path, metavar="FILE", help="write the keys below the bar and their shares")
    arguments = parser.parse_args()
    rows = [row for file in arguments.files for row in json.loads(file.read_text(encoding="utf-8"))["timings"]]
    choices_of_run = choices(rows, table=not (arguments.no_table or arguments.misses))
    print(told(choices_of_run))
    if arguments.misses:
        below = {one.key: round(one.share, 3) for one in choices_of_run if one.share < BAR}
        arguments.misses.write_text(json.dumps(below, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    return int(any(one.share < BAR for one in choices_of_run))


if __name__ == "__main__":
    sys.exit(main())
