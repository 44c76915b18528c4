"""make fuzz: random programs through every door, until a number of programs or of seconds is reached.

    python -m tests.fuzz --seconds 60                 or --count 2000
    python -m tests.fuzz --seed 7 --only 1234         one program again
    python -m tests.fuzz --phases eager --doors compile,donate
    python -m tests.fuzz --faults all                 plants faults: is each found?

The seed comes from the clock unless it is named, and is printed.  Failures are shrunk and printed as programs; the exit
status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.phases import PHASES
from tests.fuzz.running import run_phases

_BEGAN = time.time()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--count", type=int, help="programs through the first of the phases; others take their part of it"
    )
    parser.add_argument("--seconds", type=float, help="wall time for everything (60, unless --count is given)")
    parser.add_argument("--seed", type=int, help="of the programs (from the clock)")
    parser.add_argument("--only", type=int, help="the number of one program of the seed")
    parser.add_argument("--processes", type=int, default=1, help="side by side (1)")
    parser.add_argument("--phases", default=",".join(PHASES), help=f"of {', '.join(PHASES)} (all)")
    parser.add_argument("--doors", default="", help="names of doors, with commas between (all)")
    parser.add_argument("--first", action="store_true", help="stops at the first failure, which is not shrunk")
    parser.add_argument("--faults", metavar="NAMES", help='plants faults instead: names with commas between, or "all"')
    parser.add_argument("--keep", metavar="FOLDER", help="where shrunk programs are written for the corpus")
    options = parser.parse_args()
    unknown = [name for name in options.phases.split(",") if name not in PHASES]
    if unknown:
        parser.error(f"unknown phases {', '.join(unknown)}; there are {', '.join(PHASES)}")
    if options.seed is None:
        options.seed = time.time_ns() // 1_000_000 % 1_000_000_000
    if options.count is None and options.seconds is None:
        options.seconds = 60.0
    print(f"seed {options.seed}", flush=True)
    if options.faults is not None:
        from tests.fuzz.faults import FAULTS
        from tests.fuzz.hunting import run_faults

        names = list(FAULTS) if options.faults == "all" else options.faults.split(",")
        return 1 if run_faults(names, options.seed) else 0
    return run_phases(options, _BEGAN)


if __name__ == "__main__":
    sys.exit(main())
