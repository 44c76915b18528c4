"""Measures what a call costs beside torch: the eager tape on a small MLP, and one op at each level.

One process, shuffled order, medians and low deciles, one thread.  Run: `python benchmarks/overhead.py`.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import nn

from burn_torch import nn as layers
from burn_torch.module import Module, Param
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.functional import linear

LAYERS, WIDTH, BATCH, OPS = 8, 32, 16, 100


class _Mlp(Module):
    linears: tuple[layers.Linear, ...]
    activation: layers.Relu

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.linears:
            x = self.activation.forward(layer.forward(x))
        return x


def mlp_variants() -> dict[str, Callable[[], Any]]:
    """Forward and backward of an 8-layer 32-wide MLP on a batch of 16, five ways."""
    x = torch.randn(BATCH, WIDTH)
    model = nn.Sequential(*[m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])
    weights = [torch.randn(WIDTH, WIDTH) / WIDTH**0.5 for _ in range(LAYERS)]
    biases = [torch.zeros(WIDTH) for _ in range(LAYERS)]
    leaves = [t.clone().requires_grad_() for pair in zip(weights, biases, strict=True) for t in pair]
    device = Device.cpu().autodiff()
    ours = [Tensor.from_torch(t, device).require_grad() for pair in zip(weights, biases, strict=True) for t in pair]
    ours_x = Tensor.from_torch(x, device)

    def module() -> Any:
        model.zero_grad(set_to_none=True)
        model(x).sum().backward()

    def functional() -> Any:
        y = x
        for i in range(0, 2 * LAYERS, 2):
            y = torch.relu(torch.nn.functional.linear(y, leaves[i], leaves[i + 1]))
        return torch.autograd.grad(y.sum(), leaves)

    def same_kernels() -> Any:
        y = x
        for i in range(0, 2 * LAYERS, 2):
            y = torch.relu(torch.addmm(leaves[i + 1], y, leaves[i]))
        return torch.autograd.grad(y.sum(), leaves)

    def tape() -> Any:
        y = ours_x
        for i in range(0, 2 * LAYERS, 2):
            y = linear(y, ours[i], ours[i + 1]).relu()
        grads = y.sum_dims((0, 1)).backward()
        return [t.grad(grads) for t in ours]

    pairs = zip(ours[::2], ours[1::2], strict=True)
    mlp = _Mlp(tuple(layers.Linear(Param(w), Param(b)) for w, b in pairs), layers.Relu())
    params = [param for _, param in mlp.named_params()]

    def modules() -> Any:
        grads = mlp.forward(ours_x).sum_dims((0, 1)).backward()
        return [param.val().grad(grads) for param in params]

    return {"nn.Sequential + backward": module, "F.linear + autograd.grad": functional,
            "addmm + autograd.grad": same_kernels, "burn_torch tape": tape,
            "burn_torch.nn modules": modules}  # fmt: skip


def op_variants() -> dict[str, Callable[[], Any]]:
    """A chain of 100 relu on 16x32 at each level."""
    x = torch.randn(BATCH, WIDTH)
    x_grad = x.clone().requires_grad_()
    cpu = Device.cpu()
    levels = {
        "leaf": Tensor.from_torch(x, cpu),
        "untracked": Tensor.from_torch(x, cpu.autodiff()),
        "tracked": Tensor.from_torch(x, cpu.autodiff()).require_grad(),
        "twice tracked": Tensor.from_torch(x, cpu.autodiff().autodiff()).require_grad(),
    }
    twice = cpu.autodiff()
    inner = Tensor.from_torch(x, twice).require_grad()
    outer = cpu.autodiff().autodiff()
    levels["twice tracked"] = Tensor(outer.backend, outer.backend.track(inner.primitive, inner.spec), inner.spec)

    def raw(t: torch.Tensor) -> Callable[[], Any]:
        def run() -> Any:
            y = t
            for _ in range(OPS):
                y = torch.relu(y)
            return y

        return run

    def ours(t: Tensor) -> Callable[[], Any]:
        def run() -> Any:
            y = t
            for _ in range(OPS):
                y = y.relu()
            return y

        return run

    variants = {"torch, no gradients": raw(x), "torch, gradients": raw(x_grad)}
    return variants | {name: ours(t) for name, t in levels.items()}


def measure(variants: dict[str, Callable[[], Any]], rounds: int, inner: int) -> dict[str, tuple[float, float]]:
    """Microseconds a call: (median, low decile), the variants in a new order each round."""
    for run in variants.values():
        for _ in range(20):
            run()
    times: dict[str, list[float]] = {name: [] for name in variants}
    order = list(variants)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            run = variants[name]
            start = time.perf_counter_ns()
            for _ in range(inner):
                run()
            times[name].append((time.perf_counter_ns() - start) / inner / 1000)
    return {name: (statistics.median(t), statistics.quantiles(t, n=10)[0]) for name, t in times.items()}


def main() -> None:
    """Prints both tables; `--save` appends the raw rows to benchmarks/data/overhead.jsonl."""
    torch.set_num_threads(1)
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 200
    mlp = measure(mlp_variants(), rounds, 5)
    print(f"{'MLP, forward + backward':34s} {'median us':>10s} {'low decile':>11s} {'/ module':>9s} {'/ addmm':>8s}")
    for name, (median, low) in mlp.items():
        module, addmm = mlp["nn.Sequential + backward"], mlp["addmm + autograd.grad"]
        print(f"{name:34s} {median:10.1f} {low:11.1f} {median / module[0]:9.2f} {median / addmm[0]:8.2f}"
              f"   low: {low / module[1]:.2f} {low / addmm[1]:.2f}")  # fmt: skip
    per_op = {name: (m / OPS, low / OPS) for name, (m, low) in measure(op_variants(), rounds, 2).items()}
    base = per_op["torch, no gradients"]
    print(f"\n{'one relu on 16x32':34s} {'median us':>10s} {'low decile':>11s} {'over torch':>11s}")
    for name, (median, low) in per_op.items():
        print(f"{name:34s} {median:10.2f} {low:11.2f} {median - base[0]:11.2f}   low: {low - base[1]:.2f}")
    if "--save" in sys.argv:
        row = {"date": date.today().isoformat(), "python": platform.python_version(), "torch": torch.__version__,
               "machine": platform.machine(), "rounds": rounds, "mlp_us": mlp, "op_us": per_op}  # fmt: skip
        path = Path(__file__).parent / "data" / "overhead.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
