"""Measures first uses in fresh processes: the import and a first tensor, the first fused read on a CPU, `--help`.

    python -m benchmarks.first_use [RUNS]

Each is the median of RUNS processes (7), of CPU time too, since other work disturbs the clock.  A tensor and a fused
read are also shown beyond what they stand on: the median of the differences of neighbours.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Final

__all__ = ["main"]

ZEROS: Final = "from burn_torch import Device, Tensor; x = Tensor.zeros((2, 3), Device.cpu(fused={}))"
USES: Final = {
    "torch": ["-c", "import torch"],
    "tensor": ["-c", ZEROS.format(False)],
    "fused tensor": ["-c", ZEROS.format(True)],
    "fused read": ["-c", ZEROS.format(True) + "; (x * 2.0 + 1.0).exp().into_data()"],
    "help": ["-m", "burn_torch", "--help"],
}
BENEATH: Final = {"tensor": "torch", "fused tensor": "torch", "fused read": "fused tensor"}


def main(runs: int) -> None:
    """Prints seconds of CPU time and of the clock, and those beyond what each use stands on."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in USES}
    for number in range(runs + 1):  # in turns, so that a busy machine is as busy for each
        for name, arguments in USES.items():
            seconds = _seconds_of(arguments)
            if number > 0:  # the first run writes bytecode, as the installation of a package does
                times[name].append(seconds)
    for name, each in times.items():
        beneath = BENEATH.get(name)
        cpu, wall = map(statistics.median, zip(*each, strict=True))
        print(f"{name}: {cpu:.3f} s of CPU time, {wall:.3f} s")
        if beneath is not None:
            pairs = zip(each, times[beneath], strict=True)
            beyond = [(mine[0] - theirs[0], mine[1] - theirs[1]) for mine, theirs in pairs]
            cpu, wall = map(statistics.median, zip(*beyond, strict=True))
            print(f"    beyond {beneath}: {cpu:.3f} s of CPU time, {wall:.3f} s")


def _seconds_of(arguments: list[str]) -> tuple[float, float]:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with_bytecode = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=with_bytecode)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
