"""Measures what loading safetensors into a fresh model costs through each door, beside safetensors and torch.

Each row is a process of its own: it builds a model of linear layers whose parameters are not made yet, loads a file
that is in the page cache, and reports the processor time of both and the growth of its peak memory.  Processor time,
since the machine may be shared; medians of several processes, in turns.  torch's model is built with `skip_init`, so
neither side draws weights.  The bars are 1.2 times the time of torch for a file without a checksum, and 2 times for one
with.  The adapter turns each matrix, and its rival does so too: torch's own model would have the matrices of the file.
Run: `python benchmarks/loading.py [--mib 2048] [--rounds 5] [--folder .] [results.json]`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from burn_torch import Device, Module
from burn_torch.nn import Linear, LinearConfig
from burn_torch.record.stores import PyTorchToBurnAdapter, SafetensorsStore

SHAPE = (2048, 4096)  # 32 MiB of f32
RIVAL, TURNING = "safetensors + torch", "safetensors + torch, each matrix turned"
BARS = {"load_file, with a checksum": 2.0}  # all others 1.2
RIVALS = {"SafetensorsStore, PyTorchToBurnAdapter": TURNING}  # of all others RIVAL


class Ours(Module):
    """Layers in a list."""

    layers: list[Linear]


def ours(count: int) -> Ours:
    """A model whose parameters are not made yet."""
    config = LinearConfig(*SHAPE, bias=False)
    return Ours([config.init(Device.cpu()) for _ in range(count)])


class Theirs(torch.nn.Module):
    """The same layers in torch."""

    def __init__(self, count: int) -> None:
        super().__init__()
        linear = torch.nn.Linear
        self.layers = torch.nn.ModuleList(torch.nn.utils.skip_init(linear, *SHAPE, bias=False) for _ in range(count))


def load_theirs(folder: Path, count: int) -> Any:
    """safetensors into a module of torch."""
    from safetensors.torch import load_file

    model = Theirs(count)
    model.load_state_dict(load_file(folder / "torch.safetensors"))
    return model


def load_turned(folder: Path, count: int) -> Any:
    """safetensors into parameters of torch that lie as ours do."""
    from safetensors.torch import load_file

    weights = load_file(folder / "torch.safetensors")
    return torch.nn.ParameterList(weights[f"layers.{i}.weight"].t().contiguous() for i in range(count))


DOORS: dict[str, Callable[[Path, int], Any]] = {
    RIVAL: load_theirs,
    TURNING: load_turned,
    "load_file, no checksum": lambda folder, count: ours(count).load_file(folder / "plain.safetensors"),
    "load_file, with a checksum": lambda folder, count: ours(count).load_file(folder / "ours.safetensors"),
    "SafetensorsStore": lambda folder, count: ours(count).load_from(
        SafetensorsStore.from_file(folder / "plain.safetensors")
    ),
    "SafetensorsStore, PyTorchToBurnAdapter": lambda folder, count: ours(count).load_from(
        SafetensorsStore.from_file(folder / "torch.safetensors").with_from_adapter(PyTorchToBurnAdapter())
    ),
}


def write_files(folder: Path, count: int) -> None:
    """The same weights as torch has them, as Burn has them, and as we save them."""
    from safetensors.torch import save_file

    drawn = torch.randn(SHAPE)
    save_file({f"layers.{i}.weight": drawn + i for i in range(count)}, folder / "plain.safetensors")
    turned = drawn.T.contiguous()
    save_file({f"layers.{i}.weight": turned + i for i in range(count)}, folder / "torch.safetensors")
    del turned
    ours(count).load_file(folder / "plain.safetensors").save_file(folder / "ours.safetensors")


def peak_kib() -> int:
    """The most memory that this process had so far, the mapped parts of files included."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def measure_door(name: str, folder: Path, count: int) -> dict[str, float]:
    """Processor seconds and MiB of one load, in this process."""
    from safetensors import torch as _  # noqa: F401  # its import is not what is measured

    before, start = os.times(), peak_kib()
    kept = DOORS[name](folder, count)
    after = os.times()
    grown = peak_kib() - start
    del kept
    return {"seconds": after.user + after.system - before.user - before.system, "mib": grown / 1024}


def main() -> None:
    """Prints a line a door, writes the rows, and fails above the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, help="where the rows go, as JSON")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(), help="where the files are written")
    parser.add_argument("--door", help=argparse.SUPPRESS)
    args = parser.parse_args()
    count = max(1, args.mib // 32)
    if args.door:
        print(json.dumps(measure_door(args.door, args.folder, count)))
        return
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in DOORS}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        write_files(Path(folder), count)
        for _ in range(args.rounds):
            for name, runs in rows.items():
                command = [sys.executable, __file__, "--door", name, "--folder", folder, "--mib", str(args.mib)]
                runs.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    medians = {name: statistics.median(run["seconds"] for run in runs) for name, runs in rows.items()}
    slow = []
    for name, seconds in medians.items():
        ratio, plain = seconds / medians[RIVALS.get(name, RIVAL)], seconds / medians[RIVAL]
        peak = max(run["mib"] for run in rows[name])
        print(f"{name:40s} {seconds:7.2f} s   ratio {ratio:5.2f}   to {RIVAL} {plain:5.2f}   {peak:6.0f} MiB")
        slow += [name] if ratio > BARS.get(name, 1.2) and name != TURNING else []
    if args.results is not None:
        versions = {name: metadata.version(name) for name in ("torch", "numpy", "safetensors")}
        row = {
            "date": date.today().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
            "versions": versions, "mib": args.mib, "doors": rows,
        }  # fmt: skip
        args.results.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    if slow:
        sys.exit(f"above the bar: {', '.join(slow)}")


if __name__ == "__main__":
    main()
