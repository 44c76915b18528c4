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
import importlib.util, os, sys, traceback, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning)  # of forks where other threads may be
from pathlib import Path
import torch
from burn_kernels.autotune import selection, using
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.store import Store
spec = importlib.util.spec_from_file_location("fakes", sys.argv[1])
sys.modules["fakes"] = fakes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fakes)
mine, others = os.pipe(), os.pipe()
child = os.fork()
me = int(child == 0)
if me:
    mine, others = others, mine


def tune():
    fake = fakes.Fake()
    fake.times = {config: 1.0 + me + number for number, config in enumerate(reversed(fake.configs))}
    selector = fake.selector(Store(Path(sys.argv[2])))
    tunable = fake.tunable()
    chosen = []
    os.write(others[1], b"!")  # both at once
    assert os.read(mine[0], 1) == b"!"
    with selection.selecting(selector), using("full"):
        for cols in range(1, 41):
            tunable.run_on(0, Facts((8,), (cols,), torch.float32), chosen.append)
    assert chosen == [fake.configs[-1]] * 40, chosen
    assert not selector.store.in_memory


if me:
    try:
        tune()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
tune()
assert os.waitpid(child, 0)[1] == 0
"""


def test_two_processes_that_tune_at_once(tmp_path: Path) -> None:
    path = tmp_path / FILE
    kernels = str(Path(burn_kernels.__file__).parents[1])
    process = subprocess.run(
        [sys.executable, "-c", TUNER, str(HERE / "conftest.py"), str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": kernels, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    timings = Store(path).all_timings()
    keys = [f"double rows<=8 cols={cols} float32 packed align=16" for cols in range(1, 41)]
    assert Counter(timing.place.key for timing in timings) == Counter(3 * keys)
    by_key: dict[str, set[float]] = {}
    for timing in timings:  # all rows of a key are of one process: medians of two are never mixed
        number = {"block=256 warps=8": 0, "block=128 warps=4": 1, "block=64 warps=4": 2}[timing.candidate]
        by_key.setdefault(timing.place.key, set()).add(timing.median_ms - number)
    assert all(medians in ({1.0}, {2.0}) for medians in by_key.values())
