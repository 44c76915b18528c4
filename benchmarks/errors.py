"""The errors of every operation beside those of torch, in each element type, against float64.

    python benchmarks/errors.py                                  all of them, on the GPU
    python benchmarks/errors.py --ops softmax,linear --dtypes float32 --seeds 1 --device cpu
    python benchmarks/errors.py --jobs 14 --budget-s 240 --out benchmarks/data/errors-h200-2026-11-22.json

Each problem of `benchmarks/_kernels/large.py` is drawn with five seeds; outputs, and gradients for random upstream
gradients, are held against float64 by `burn_kernels.verify`: their relative RMS, and the largest.  On a GPU each may be
1.1 times that of torch in the same type plus half a unit in the last place.  A row is the difference that takes most of
what it may, of all seeds and problems: `share` is its error over that.  Exit status 1 where one takes more than it may.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks._kernels.large import large
from burn_kernels import REGISTRY
from burn_kernels.spec import Draw
from burn_kernels.verification import Difference, verify

DTYPES = ("float32", "float16", "bfloat16")
LONGEST = ("linear", "attention", "convolution", "group_norm", "batch_norm", "residual_layer_norm", "residual_rms_norm")
"""The operation that takes longest begins first."""

Row = dict[str, Any]


def rows_of(op: str, dtype: str, seeds: int, device: str) -> list[Row]:
    """The worst difference of each kind, and what else is wrong."""
    torch.set_num_threads(1)
    worst: dict[tuple[str, str], Row] = {}
    for seed in range(seeds):
        for problem in large(op, Draw(seed)):
            place: Row = {
                "seed": seed,
                "shapes": [list(x.shape) for x in problem.inputs if isinstance(x, torch.Tensor)],
            }

            def seen(difference: Difference, place: Row = place) -> None:
                share = (
                    difference.error / difference.allowed
                    if difference.allowed
                    else 0.0
                    if difference.holds
                    else float("inf")
                )
                row: Row = {"op": op, "dtype": dtype, "share": share, **difference._asdict(), **place}
                row["what"] = "gradients" if difference.what.startswith("gradient") else "outputs"
                row["of"] = difference.what
                place_of = (row["what"], difference.kind)
                if place_of not in worst or not worst[place_of]["share"] >= share:  # NaN is the worst
                    worst[place_of] = row

            faults = verify(REGISTRY[op], problem, dtype=getattr(torch, dtype), device=device, seed=seed, seen=seen)
            for fault in faults:
                if " error " not in fault:  # no number is off, but a shape, an integer or an input
                    worst[fault, "wrong"] = {"op": op, "dtype": dtype, "share": float("inf"), "what": fault, **place}
    return list(worst.values())


def measured(jobs: Iterable[tuple[str, str]], seeds: int, device: str, workers: int, budget_s: float) -> list[Row]:
    """The rows of these operations and types, as many as the time allows; each is printed when it is there."""
    jobs, end, rows = list(jobs), time.monotonic() + budget_s, []
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    todo = {pool.submit(rows_of, op, dtype, seeds, device): (op, dtype) for op, dtype in jobs}
    try:
        for done in as_completed(todo, timeout=max(0.0, end - time.monotonic())):
            rows_of_case = done.result()
            rows += rows_of_case
            share = max((row["share"] for row in rows_of_case), default=0.0)
            print(f"{todo[done][0]:22s} {todo[done][1]:9s} {share:7.3f}", flush=True)
    except TimeoutError:
        print(f"time is up: {sum(future.done() for future in todo)} of {len(jobs)}", flush=True)
        workers_left = list(pool._processes.values())  # shutdown forgets them
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers_left:
            worker.kill()
    return sorted(rows, key=lambda row: (row["op"], DTYPES.index(row["dtype"]), row["what"], row.get("kind", "")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints what is beyond the rule, and writes the rows.  Returns 1 where one is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(sorted(REGISTRY)))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=1, help="processes; each holds tensors of its own on the GPU")
    parser.add_argument("--budget-s", type=float, default=3600.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    ops = sorted(asked.ops.split(","), key=lambda op: LONGEST.index(op) if op in LONGEST else len(LONGEST))
    jobs = [(op, dtype) for dtype in asked.dtypes.split(",") for op in ops]
    rows = measured(jobs, asked.seeds, asked.device, asked.jobs, asked.budget_s)
    beyond = [row for row in rows if not row["share"] <= 1.0]
    for row in beyond:
        print("beyond the rule:", json.dumps(row))
    print(f"{len(rows) - len(beyond)} of {len(rows)} rows hold")
    if asked.out is not None:
        import triton

        name = torch.cuda.get_device_name() if asked.device.startswith("cuda") else "CPU"
        run = {"device": name, "date": str(datetime.datetime.now(datetime.UTC).date()), "torch": torch.__version__,
               "triton": triton.__version__, "seeds": asked.seeds}  # fmt: skip
        lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
        head = json.dumps(run)[:-1]
        asked.out.write_text(f'{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
