"""Two processes that tune the same keys at once, with a clock that only counts: no lost rows, no lock errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import burn_kernels
from burn_kernels.autotune.store import FILE, Store

HERE = Path(__file__).parent
TUNER = """
import importlib.util, sys, warnings
warnings.simplefilter("error")
from pathlib import Path
import torch
from burn_kernels.autotune import selection, using
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.store import Store
spec = importlib.util.spec_from_file_location("fakes", sys.argv[1])
sys.modules["fakes"] = fakes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fakes)
me = int(sys.argv[3])
fake = fakes.Fake()
fake.times = {config: 1.0 + me + number for number, config in enumerate(reversed(fake.configs))}
selector = fake.selector(Store(Path(sys.argv[2])))
tunable = fake.tunable()
chosen = []
print("ready", flush=True)
sys.stdin.readline()
with selection.selecting(selector), using("full"):
    for cols in range(1, 41):
        tunable.run_on(0, Facts((8,), (cols,), torch.float32), chosen.append)
assert chosen == [fake.configs[-1]] * 40, chosen
assert not selector.store.in_memory
"""


def test_two_processes_that_tune_at_once(tmp_path: Path) -> None:
    path = tmp_path / FILE
    kernels = str(Path(burn_kernels.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": kernels, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TUNER, str(HERE / "conftest.py"), str(path), str(me)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for me in range(2)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:  # both at once
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    timings = Store(path).all_timings()
    keys = [f"double rows<=8 cols={cols} float32 packed align=16" for cols in range(1, 41)]
    assert Counter(timing.place.key for timing in timings) == Counter(3 * keys)
    by_key: dict[str, set[float]] = {}
    for timing in timings:  # all rows of a key are of one process: medians of two are never mixed
        number = {"block=256 warps=8": 0, "block=128 warps=4": 1, "block=64 warps=4": 2}[timing.candidate]
        by_key.setdefault(timing.place.key, set()).add(timing.median_ms - number)
    assert all(found in ({1.0}, {2.0}) for found in by_key.values())
