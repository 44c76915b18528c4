"""Defines what the processes of the tests run: `python program.py PART OPTIONS`, with RANK and WORLD_SIZE set."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np

import burn_torch.distributed as distributed
from burn_torch import Device, Tensor, compile
from burn_torch.ops.collectives import rehearsal


def collectives(options: dict[str, Any]) -> Any:
    """Values and gradients of every collective, with the loss of each process weighted by its own numbers."""
    rank, world = distributed.rank(), distributed.world_size()
    rng = np.random.default_rng(3)
    every = rng.normal(size=(world, 4, 6))
    weights = rng.normal(size=(world, 8, 12))
    device = Device.cpu().autodiff()
    cases = {
        "sum": lambda x: distributed.all_reduce(x),
        "mean": lambda x: distributed.all_reduce(x, "mean"),
        "max": lambda x: distributed.all_reduce(x, "max"),
        "gather": lambda x: distributed.all_gather(x, dim=1),
        "scatter": lambda x: distributed.reduce_scatter(x, dim=0),
        "broadcast": lambda x: distributed.broadcast(x, source=1),
    }

    def step(x: Tensor, weight: Tensor, name: str) -> tuple[Tensor, Tensor]:
        y = cases[name](x)
        part = tuple(slice(0, size) for size in y.shape)
        grads = (y * weight.slice(part)).sum().backward()
        gradient = x.grad(grads)
        assert gradient is not None
        return y.inner(), gradient

    compiled = compile(step, static="name")
    said = {"rank": rank, "text": "é" * (1 + rank), "array": np.full((2, 1 + rank), 0.5)}
    heard = distributed.gather(said)
    results: dict[str, Any] = {"words": [[one["rank"], one["text"], one["array"].tolist()] for one in heard]}
    for name in cases:
        x = Tensor.from_data(every[rank], device).require_grad()
        weight = Tensor.from_data(weights[rank], device)
        y, gradient = step(x, weight, name)
        z, other = compiled(x, weight, name)
        for one, two in ((y, z), (gradient, other)):
            np.testing.assert_array_equal(one.into_data().array, two.into_data().array)
        results[name] = [y.into_data().array.tolist(), gradient.into_data().array.tolist()]
    return results


def normalised(options: dict[str, Any]) -> Any:
    """A SyncBatchNorm trains on a part of a batch: outputs, gradients of the sum of losses, states; eager, compiled."""
    from burn_torch import StepScope, nn
    from tests.nn.twins import double, with_arrays

    rank = distributed.rank()
    rng = np.random.default_rng(4)
    device = Device.cpu().autodiff()
    layer = double(nn.SyncBatchNormConfig(3, momentum=0.3).init(device))
    layer = with_arrays(layer, {"gamma": rng.normal(size=3), "beta": rng.normal(size=3)})

    def step(layer: nn.SyncBatchNorm, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        y = layer.forward(x)
        grads = (y * weight).sum().backward()
        leaves = (x, layer.gamma.val(), layer.beta.val())
        return y.inner(), *(leaf.grad(grads) for leaf in leaves)  # type: ignore[return-value]  # each has one

    results, compiled = [], compile(step)
    for counts in options["counts"]:
        data = rng.normal(size=(2, sum(counts), 3, 2)) * 2 + 5
        own = data[:, sum(counts[:rank]) : sum(counts[: rank + 1])]
        for run in (step, compiled):
            x, weight = (Tensor.from_data(part, device) for part in own)
            with StepScope(0, layer) as scope:
                outputs = run(layer, x.require_grad(), weight)
            states = layer.with_states(scope.states)
            outputs += (states.running_mean.value(), states.running_var.value())
            results.append([output.into_data().array.tolist() for output in outputs])
    return results


def rehearsed(options: dict[str, Any]) -> Any:
    """Process 0 alone computes every collective in a rehearsal, then both compute one."""
    rank = distributed.rank()
    x = Tensor.from_data(np.arange(4.0).reshape(2, 2) + rank, Device.cpu())
    outputs = []
    if rank == 0:
        with rehearsal():
            ys = (
                distributed.all_reduce(x), distributed.all_reduce(x, "max"), distributed.all_gather(x, dim=0),
                distributed.reduce_scatter(x, dim=0), distributed.broadcast(x, source=1),
            )  # fmt: skip
            outputs = [y.into_data().array.tolist() for y in ys]
    return [outputs, distributed.all_reduce(x).into_data().array.tolist()]


def ending(options: dict[str, Any]) -> Any:
    """One process, 1 unless `who` says so, comes to its end in some way while another waits for it."""
    x = Tensor.from_data(np.ones(3), Device.cpu())
    distributed.all_reduce(x)
    if distributed.rank() == options.get("who", 1):
        how = options["how"]
        print(time.time(), flush=True)
        if how == "raises":
            raise ZeroDivisionError("mine")
        if how == "exits":
            raise SystemExit(7)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "launcher killed":
            os.kill(os.getppid(), signal.SIGKILL)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(300)
    distributed.all_reduce(x)
    return None


def training(options: dict[str, Any]) -> Any:
    """A run of the small training, by all processes or by one alone."""
    from tests.distributed import small

    return small.run(options)


def main() -> None:
    part, options = sys.argv[1], json.loads(sys.argv[2])
    if part != "training":
        distributed.init(
            timeout_s=options.get("timeout_s", 60.0),
            silence_s=options.get("silence_s", 15.0),
            join_s=options.get("join_s"),
        )
    result = globals()[part](options)
    distributed.shutdown()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
