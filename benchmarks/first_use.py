"""Measures first uses in fresh processes: the import and a first tensor, the first fused read on a CPU, `--help`.

    python -m benchmarks.first_use [RUNS]

Each is the median of RUNS processes (7).  A tensor and a fused read are also shown beyond what they stand on.
"""

from __future__ import annotations

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


def main(runs: int) -> None:
    """Prints seconds, and those beyond what each use stands on."""
    times: dict[str, list[float]] = {name: [] for name in USES}
    for _ in range(runs):  # in turns, so that a busy machine is as busy for each
        for name, arguments in USES.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(each) for name, each in times.items()}
    beneath = {"tensor": "torch", "fused tensor": "torch", "fused read": "fused tensor"}
    for name, seconds in medians.items():
        beyond = f", {seconds - medians[beneath[name]]:.3f} s beyond {beneath[name]}" if name in beneath else ""
        print(f"{name}: {seconds:.3f} s{beyond}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
