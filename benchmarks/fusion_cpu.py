"""Generated C kernels on the CPU beside op by op, torch eager and torch.compile: groups, and whole training steps.

One process, variants in a new order each round, medians.  "op by op" is `burn_torch.compile(f)`, "C" is
`burn_torch.compile(f, fuse=True)`; both are called as a user would, so the host's work is in all figures.

Run: `python benchmarks/fusion_cpu.py [--threads N] [--rounds N] [--no-compile] [--only NAME,...] [--save]`; `--save`
appends the row to benchmarks/data/fusion_cpu.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

import burn_torch
from burn_torch import Device, Module, StepScope, Tensor, nn
from burn_torch.optim import AdamWConfig, GradientsParams
from burn_torch.tensor import activation

SIZES: Final = ((16, 32), (64, 256), (512, 768), (8192, 768))
BAR: Final = 1.3
"""Times faster than op by op, or the operations are better left alone."""


# -- groups ----------------------------------------------------------------------------------------------
def gelu(x: Any) -> Any:
    return x * ((x / 1.4142135623730951).erf() + 1.0) / 2.0


def chain12(x: Any, y: Any) -> Any:
    z = (x * y + 0.5).tanh() - _sigmoid(y)
    z = (-z.abs()).exp() * x + y.relu()
    return (z * z + 1.0).sqrt()


def _sigmoid(x: Any) -> Any:
    return activation.sigmoid(x) if isinstance(x, Tensor) else x.sigmoid()


def softmax(x: Any) -> Any:
    return activation.softmax(x * 0.5, 1) if isinstance(x, Tensor) else torch.softmax(x * 0.5, 1)


def rotated(x: Any, y: Any) -> Any:
    half = x.shape[1] // 2
    a, b, c, s = x[:, :half], x[:, half:], y[:, :half], y[:, half:]
    return a * c - b * s, b * c + a * s


def scaled(x: Any) -> Any:
    return (x * 2.0).relu()


def standardised(x: Any) -> Any:
    """(x - mean) / deviation of each column, rectified."""
    if isinstance(x, Tensor):
        d = x - x.mean_dim(0)
        return (d * (d.square().mean_dim(0) + 1e-5).sqrt().recip()).relu()
    d = x - x.mean(0, keepdim=True)
    return (d * (d.square().mean(0, keepdim=True) + 1e-5).rsqrt()).relu()


class DropoutNorm(Module):
    """norm(y + dropout(x))"""

    norm: nn.LayerNorm
    dropout: nn.Dropout

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.norm.forward(y + self.dropout.forward(x))


def dropout_norm(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return model.forward(x, y)  # type: ignore[no-any-return]


def dropout_norm_twin(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    cols = (x.shape[1],)
    return functional.layer_norm(y + functional.dropout(x, 0.1), cols, torch.ones(cols), torch.zeros(cols))


GROUPS: Final[dict[str, tuple[Callable[..., Any], int]]] = {
    "scale + ReLU": (scaled, 1),
    "GELU from primitives": (gelu, 1),
    "chain of 12": (chain12, 2),
    "scale + softmax": (softmax, 1),
    "rotary": (rotated, 2),
    "batch norm + ReLU": (standardised, 1),
    "dropout + residual + norm": (dropout_norm, 2),
}


def group(name: str, shape: tuple[int, int], rounds: int, inductor: bool) -> dict[str, Any]:
    function, count = GROUPS[name]
    drawn = [torch.randn(shape) for _ in range(count)]
    twin, device = function, Device.cpu()
    arguments: list[Any] = []
    if function is dropout_norm:
        device = device.autodiff()  # where dropout drops
        twin = dropout_norm_twin
        arguments.append(DropoutNorm(nn.LayerNormConfig(shape[1]).init(device), nn.Dropout(0.1)))
    arguments += [Tensor.from_torch(x, device) for x in drawn]
    variants: dict[str, Callable[[], Any]] = {
        "op by op": partial(burn_torch.compile(function), *arguments),
        "C": partial(burn_torch.compile(function, fuse=True), *arguments),
        "torch eager": partial(twin, *drawn),
    }
    if inductor:
        torch.compiler.reset()
        variants["torch.compile"] = partial(torch.compile(twin, dynamic=False), *drawn)
    return measured(variants, rounds)


# -- steps -----------------------------------------------------------------------------------------------
class Block(Module):
    """A gated perceptron behind a norm."""

    norm: nn.LayerNorm
    up: nn.Linear
    gate: nn.Linear
    down: nn.Linear
    dropout: nn.Dropout

    def loss(self, x: Tensor) -> Tensor:
        h = self.norm.forward(x)
        h = activation.silu(self.gate.forward(h)) * self.up.forward(h)
        return (self.dropout.forward(self.down.forward(h)) + x).square().mean()


def step_of(batch: int, width: int, fuse: bool) -> Callable[[], Any]:
    burn_torch.seed(1)
    device = Device.cpu().autodiff()
    linear = nn.LinearConfig(width, width)
    parts = [linear.init(device) for _ in range(3)]
    model: Any = Block(nn.LayerNormConfig(width).init(device), *parts, nn.Dropout(0.1))
    state = [model, AdamWConfig().init(), 0]
    numbers = np.random.default_rng(1).standard_normal((batch, width)).astype(np.float32)
    x = Tensor.from_data(numbers, device)

    @burn_torch.compile(donate=(0, 1), fuse=fuse or None)
    def step(model: Any, optim: Any, x: Tensor, lr: float) -> Any:
        loss = model.loss(x)
        model, optim = optim.step(lr, model, GradientsParams.from_grads(loss.backward(), model))
        return model, optim, loss.detach()

    def run() -> None:
        state[2] += 1
        with StepScope(state[2]):
            state[0], state[1], loss = step(state[0], state[1], x, 1e-3)
        float(loss)

    return run


def measured(variants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Medians in microseconds."""
    for run in variants.values():
        for _ in range(3):
            run()
    begin = time.perf_counter()
    for run in variants.values():
        run()
    rounds = max(5, min(rounds, int(3.0 / (time.perf_counter() - begin))))
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name in random.sample(list(variants), len(variants)):
            start = time.perf_counter_ns()
            variants[name]()
            times[name].append((time.perf_counter_ns() - start) / 1e3)
    return {name: round(statistics.median(samples), 1) for name, samples in times.items()}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])  # type: ignore[union-attr]  # it is above
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--only", help="names of groups, or 'steps', with commas between")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, which takes minutes to start")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chosen = options.only.split(",") if options.only else [*GROUPS, "steps"]
    rows: dict[str, dict[str, Any]] = {}
    print(f"{'us':44}{'op by op':>12}{'C':>12}{'torch':>12}{'compile':>12}  op by op / C")
    for name in (name for name in chosen if name != "steps"):
        for shape in SIZES:
            told(rows, f"{name}, {shape[0]} x {shape[1]}", group(name, shape, options.rounds, not options.no_compile))
    if "steps" in chosen:
        for batch, width in ((16, 32), (64, 256), (512, 512)):
            variants = {"op by op": step_of(batch, width, fuse=False), "C": step_of(batch, width, fuse=True)}
            told(rows, f"training step, {batch} x {width}", measured(variants, options.rounds))
    if options.save:
        row = {
            "date": date.today().isoformat(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": platform.machine(),
            "threads": options.threads,
            "load": round(os.getloadavg()[0], 1),
            "us": rows,
        }
        with (Path(__file__).parent / "data" / "fusion_cpu.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def told(rows: dict[str, dict[str, Any]], name: str, times: dict[str, Any]) -> None:
    """Prints and keeps a row."""
    rows[name] = times
    ratio = times["op by op"] / times["C"]
    cells = "".join(
        f"{times.get(key, float('nan')):12.1f}" for key in ("op by op", "C", "torch eager", "torch.compile")
    )
    print(f"{name:44}{cells}{ratio:8.2f}{'' if ratio >= BAR else '  below ' + str(BAR)}", flush=True)


if __name__ == "__main__":
    main()
