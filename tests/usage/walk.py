"""Calls every public callable with wrong arguments, each callable in a process of its own with limits.

    python -m tests.usage.walk --seed 7 [--only PATTERN] [--share 0.2] [--seconds 600] [--out faults.txt]

A process may allocate `MEMORY` bytes more, a call may last `CALL_S` seconds.  Prints the faults by callable, and counts
of callables that were reached (their right call succeeds), calls, raw errors, silent acceptances and hangs.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from tests.usage import examples, fuzzing
from tests.usage.fuzzing import Callee
from tests.usage.public import calls_of, public_callees

MEMORY: Final = 3 << 30
CALL_S = 5.0
START_S: Final = 30


@dataclass
class Walk:
    """Holds what became of the calls of one callable."""

    name: str
    reached: str | None = None
    calls: int = 0
    faults: list[tuple[str, str, str]] = field(default_factory=list)  # of which kind, the call, what happened


class Late(BaseException):
    """A call that lasts too long."""


def walk(callees: list[Callee], seed: int, share: float, seconds: float) -> Iterator[Walk]:
    end = time.monotonic() + seconds
    order = random.Random(seed)
    for callee in order.sample(callees, len(callees)):
        if time.monotonic() > end:
            return
        yield walk_one(callee, seed, share)


def walk_one(callee: Callee, seed: int, share: float) -> Walk:
    """Makes the calls of one callable in a forked process."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
                os.dup2(sys.stderr.fileno(), 2)
                _make_calls(callee, seed, share, writing)
        finally:
            os._exit(0)
    os.close(writing)
    result = Walk(callee.name)
    current, buffer, limit_s = "the right call", b"", START_S
    while True:
        if not select.select([reading], [], [], limit_s)[0]:
            os.kill(child, signal.SIGKILL)
            result.faults.append(("hang", current, f"no answer in {limit_s} s"))
            current = ""
            break
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            break
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            kind, call, what = json.loads(line)
            limit_s = 2 * CALL_S + 5
            if kind == "begin":
                current = call
            elif kind == "reached":
                result.reached, current = what, "the end of the process"
            elif kind == "end":
                current = ""
            else:
                result.calls += 1
                if kind != "fine":
                    result.faults.append((kind, call, what))
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    if current:
        result.faults.append(("crash", current, f"the process ended with status {status}"))
    return result


def _make_calls(callee: Callee, seed: int, share: float, writing: int) -> None:
    # beyond what the forked process has already: a worker that ran thousands of tests holds gigabytes
    limit = MEMORY + resource.getpagesize() * int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[5])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)  # the threads of the forking process are not here: a call that waits for them hangs

    def late(*_: Any) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)

    def tell(*words: str) -> None:
        os.write(writing, json.dumps(words).encode() + b"\n")

    def call(changed: fuzzing.Changed) -> tuple[str, Any]:
        signal.setitimer(signal.ITIMER_REAL, CALL_S)
        try:
            return fuzzing.outcome(callee, changed)
        except Late:
            return "hang", f"more than {CALL_S} s"
        except BaseException as err:  # an exit is a raw error too
            return "raw", fuzzing.described(err)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    outcome, what = call({})
    tell("reached", "", "" if outcome == "right" else f"{outcome} {what!s:.160}")
    if outcome == "right":
        rng = random.Random(f"{seed} {callee.name}")
        is_hook = any(re.match(pattern, callee.name) for pattern in examples.HOOKS)
        for text, changed, is_fit in calls_of(callee):
            if rng.random() >= share:
                continue
            tell("begin", text, "")
            outcome, what = call(changed)
            if outcome == "right" and not is_fit and not is_hook:
                outcome, what = "accepted", f"a {type(what).__name__}"
            is_fine = outcome in ("right", "refused", "binding")
            tell("fine" if is_fine else outcome, text, "" if is_fine else str(what)[:300])
    tell("end", "", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    callees = [callee for callee in public_callees() if re.search(options.only, callee.name)]
    out = options.out.open("w") if options.out else sys.stdout
    counts: collections.Counter[str] = collections.Counter()
    for one in walk(callees, options.seed, options.share, options.seconds):
        counts["walked"] += 1
        counts["calls"] += one.calls
        if one.reached != "":
            print(f"UNREACHED {one.name}: {one.reached}", file=out, flush=True)
            counts["unreached"] += 1
        for kind, call, what in one.faults:
            counts[kind] += 1
            print(f"{kind.upper()} {one.name}({call}): {what}", file=out, flush=True)
    print(f"{len(callees)} callables; {dict(counts)}")
    return int(sum(counts[kind] for kind in ("raw", "accepted", "hang", "crash", "binding")) > 0)


if __name__ == "__main__":
    sys.exit(main())
