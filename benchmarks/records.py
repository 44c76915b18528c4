"""Measures what saving and loading a GiB costs beside the safetensors library: into a model, as tensors, warm and cold.

Interleaved runs in one process, medians.  The library flushes nothing to the disk and checks nothing, so each case
says what its column does.  Run: `python benchmarks/records.py [--mib 1024] [--rounds 7] [--folder .] [results.json]`;
the bar is a ratio of at most 1.2 for a durable save and for a load into a model.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, load_model, save_file

from burn_torch import Device, Module, Param
from burn_torch.module import ModuleRecord

BAR = 1.2
JUDGED = ("save, flushed to the disk", "load into a model")
SHAPE = (2048, 4096)  # 32 MiB of f32


class Ours(Module):
    """Matrices in a list."""

    weights: list[Param]


class Theirs(torch.nn.Module):
    """The same matrices."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(tensor, requires_grad=False) for tensor in tensors])


Case = tuple[Callable[[], Any], Callable[[], Any]]


def cases(folder: Path, mib: int) -> dict[str, Case]:
    """For each case what the library does, then what burn_torch does."""
    count = max(1, mib // 32)
    tensors = [torch.randn(SHAPE) for _ in range(count)]
    named = {f"weights.{i}": tensor for i, tensor in enumerate(tensors)}
    theirs = Theirs([torch.zeros(SHAPE) for _ in range(count)])
    device = Device.cpu()
    ours = Ours([Param.from_data(tensor.numpy(), device) for tensor in tensors])
    their_path, our_path, our_bpk = folder / "theirs.safetensors", folder / "ours.safetensors", folder / "ours.bpk"
    save_file(named, their_path)
    for path in (our_path, our_bpk):
        ours.save_file(path)
    os.sync()

    def save_theirs(flushed: bool) -> None:
        part = their_path.with_suffix(".part")
        save_file(named, part)
        if flushed:
            for place in (part, folder):
                descriptor = os.open(place, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
        part.replace(their_path)

    def load_theirs() -> None:
        load_model(theirs, their_path)

    def read_theirs() -> list[float]:
        return [float(tensor.sum()) for tensor in load_file(their_path).values()]

    def read_ours() -> list[float]:
        loaded = ours.load_file(our_path)
        return [float(param.val().into_torch().sum()) for param in loaded.weights]

    return {
        "save, flushed to the disk": (lambda: save_theirs(True), lambda: ours.save_file(our_path)),
        "save, burnpack, flushed to the disk": (lambda: save_theirs(True), lambda: ours.save_file(our_bpk)),
        "save, theirs not flushed": (lambda: save_theirs(False), lambda: ours.save_file(our_path)),
        "load into a model": (load_theirs, lambda: ours.load_file(our_path)),
        "load into a model, burnpack": (load_theirs, lambda: ours.load_file(our_bpk)),
        "load, then read every value once": (read_theirs, read_ours),
        "open: theirs reads nothing, ours checks all": (
            lambda: load_file(their_path),
            lambda: ModuleRecord.load(our_path),
        ),
        "cold: load into a model": (
            load_theirs,
            lambda: ours.load_file(our_path),
        ),
    }


def forget(folder: Path) -> None:
    """Takes the files out of the system's memory, as far as it lets us."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(folder: Path, mib: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Median seconds of each case for both, with every run; the two take turns, the first of each pair too."""
    fields_by_name: dict[str, dict[str, Any]] = {}
    for name, (theirs, ours) in cases(folder, mib).items():
        times: dict[str, list[float]] = {"safetensors": [], "burn_torch": []}
        pair = [("safetensors", theirs), ("burn_torch", ours)]
        for i in range(rounds + 1):
            for who, run in pair if i % 2 else pair[::-1]:
                if name.startswith("cold"):
                    forget(folder)
                elif name.startswith("save"):
                    os.sync()
                begin = time.perf_counter()
                kept = run()
                taken = time.perf_counter() - begin
                del kept
                gc.collect()
                if i:  # the first round warms up
                    times[who].append(taken)
        medians = {who: statistics.median(runs) for who, runs in times.items()}
        ratios = [b / a for a, b in zip(times["safetensors"], times["burn_torch"], strict=True)]
        fields_by_name[name] = {
            "median_s": medians,
            "ratio": medians["burn_torch"] / medians["safetensors"],
            "median_of_ratios": statistics.median(ratios),
            "runs_s": times,
        }
        shown = "   ".join(f"{who} {1e3 * taken:8.1f} ms" for who, taken in medians.items())
        print(f"{name:46s} {shown}   ratio {fields_by_name[name]['ratio']:6.2f}", flush=True)
    return fields_by_name


def main() -> None:
    """Prints a line a case, writes the rows, and fails above the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, help="where the rows go, as JSON")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the file system that is to be measured")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        cases = measure(Path(folder), args.mib, args.rounds)
    if args.results is not None:
        row = {
            "date": date.today().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
            "versions": {
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "numpy": np.__version__,
                "safetensors": metadata.version("safetensors"),
            },
            "mib": args.mib,
            "cases": cases,
        }
        args.results.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    slow = [f"{name}: {cases[name]['ratio']:.2f}" for name in JUDGED if cases[name]["ratio"] > BAR]
    if slow:
        sys.exit(f"above the bar of {BAR}: {', '.join(slow)}")


if __name__ == "__main__":
    main()
