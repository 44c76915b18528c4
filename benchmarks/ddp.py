"""Tokens a second of GPT-2 124M on 1, 2 and 4 processes, one GPU each: 16 x 1024 tokens a GPU, bf16 products.

    python benchmarks/ddp.py                           all counts of GPUs that this machine has, one after the other
    python benchmarks/ddp.py --processes 1 2 --tiny    a small model, on the CPU too (gloo)
    torchrun --nproc-per-node 4 benchmarks/ddp.py      that many alone

Each count is a world of its own, started by torchrun, that is ended after --timeout-s.  A row is one line of JSON:
tokens/s of all processes (median of rounds, and the slowest and fastest), how many times that of one process, and how
much memory a GPU needs; of a world that fails it says so, and the others are measured.  Nothing is written but what is
printed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of this world; every process calls it."""
    import numpy as np
    import torch

    import burn_torch.distributed as distributed
    from burn_torch import Device, Module, Tensor, compile, seed
    from burn_torch.core.share import Share
    from burn_torch.optim import AdamWConfig
    from burn_torch.train import Ddp, Learner, LossInput, TrainOutput, fold

    example = gpt2()

    @dataclass(frozen=True)
    class Batch:
        tokens: Tensor
        targets: Tensor

    class Model(Module):
        gpt2: Any

        def train_step(self, batch: Batch) -> TrainOutput[LossInput]:
            """See TrainStep."""
            loss = self.gpt2.loss(batch.tokens, batch.targets)
            count = batch.tokens.shape[0] * batch.tokens.shape[1]
            return TrainOutput.new(self, loss.backward(), LossInput(loss.detach(), count))

    distributed.init()
    gpu = torch.cuda.is_available()
    seed(1)
    device = (Device.cuda(distributed.local_rank()) if gpu else Device.cpu()).autodiff()
    layers, d_model, heads, vocab, context, batch = (
        (2, 64, 2, 512, 64, 4) if options.tiny else (12, 768, 12, 50304, 1024, 16)
    )
    config = example.Gpt2Config(
        vocab_size=vocab, context=context, d_model=d_model, n_heads=heads, n_layers=layers, dropout=options.dropout
    )
    strategy = Ddp(device, sharded=options.sharded, bucket_bytes=int(options.bucket_mib * 2**20))
    optim = AdamWConfig(beta_2=0.95, weight_decay=0.1).init()
    learner, device = strategy.prepare(Learner(Model(config.init(device)), optim, 3e-4))
    step = compile(
        strategy.functions.step, donate=("model", "optim"), static="share", precision="bfloat16" if gpu else "float32"
    )
    rank, world = distributed.rank(), distributed.world_size()
    rng = np.random.default_rng(rank)
    text = [rng.integers(0, vocab, (batch, context + 1)) for _ in range(4)]
    batches = [
        Batch(Tensor.from_data(x[:, :-1].copy(), device), Tensor.from_data(x[:, 1:].copy(), device)) for x in text
    ]
    share = Share(rank * batch, batch, world * batch) if world > 1 else None
    model, optim = learner.model, learner.optim

    def run(first: int, count: int) -> float:
        nonlocal model, optim
        for number in range(first, first + count):
            model, optim, item = step(model, optim, batches[number % 4], 3e-4, fold(1, number), share)
        return float(item.loss.into_scalar())  # waits for the device

    begun = time.perf_counter()
    run(0, options.warm_up)
    warm_s = time.perf_counter() - begun
    rates, loss = [], 0.0
    for number in range(options.rounds):
        distributed.barrier()
        begun = time.perf_counter()
        loss = run(options.warm_up + number * options.steps, options.steps)
        distributed.barrier()
        rates.append(world * batch * context * options.steps / (time.perf_counter() - begun))
    return {
        "processes": world,
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "torch": torch.__version__,
        "model": f"GPT-2 {'tiny' if options.tiny else '124M'}, {batch} x {context} tokens a process",
        "sharded": options.sharded,
        "bucket_mib": options.bucket_mib,
        "tokens_per_s": round(statistics.median(rates)),
        "slowest_fastest": [round(min(rates)), round(max(rates))],
        "warm_up_s": round(warm_s, 1),
        "loss": round(loss, 4),
        "peak_mib": round(torch.cuda.max_memory_allocated() / 2**20) if gpu else None,
    }


def gpt2() -> Any:
    """The example, found by its file: another package named `examples` may be installed."""
    path = ROOT / "examples" / "gpt2" / "gpt2.py"
    spec = importlib.util.spec_from_file_location("burn_torch_example_gpt2", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def start(count: int, arguments: list[str], timeout_s: float) -> dict[str, Any]:
    """The figures of a world of `count` processes.  Raises: RuntimeError where it failed, or took too long."""
    # the processes are all here, and the name of this machine may lead nowhere
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": paths}
    torchrun = subprocess.Popen(
        [*command, f"--nproc-per-node={count}", str(Path(__file__).resolve()), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, _ = torchrun.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{count} processes were not done in {timeout_s:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):  # a world that hangs must not keep the GPUs
            os.killpg(torchrun.pid, signal.SIGKILL)
        torchrun.wait()
    if torchrun.returncode:
        raise RuntimeError(f"{count} processes ended with code {torchrun.returncode}")
    reply: dict[str, Any] = json.loads(next(line for line in out.splitlines() if line.startswith('{"processes"')))
    return reply


def main() -> None:
    """Reads the command line; measures here if torchrun started this process, else starts it for each count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", help="worlds to measure (default: 1, 2, 4 as GPUs allow)")
    parser.add_argument("--tiny", action="store_true", help="a model that a CPU can train")
    parser.add_argument("--sharded", action="store_true", help="the optimizer in shards")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--bucket-mib", type=float, default=25.0)
    parser.add_argument("--warm-up", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20, help="a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout-s", type=float, default=280.0, help="for each world, its start included")
    options = parser.parse_args()
    if "RANK" in os.environ:
        import burn_torch.distributed as distributed

        row = measure(options)
        if distributed.is_main():
            print(json.dumps(row), flush=True)
        distributed.shutdown()
        return
    if options.processes is None:
        import torch

        options.processes = [count for count in (1, 2, 4) if count <= max(torch.cuda.device_count(), 1)]
    plain = {"tiny": options.tiny, "sharded": options.sharded}
    arguments = [f"--{name}" for name, flag in plain.items() if flag]
    for name in ("dropout", "bucket_mib", "warm_up", "steps", "rounds"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    alone, failed = None, False
    for count in options.processes:
        try:
            row = start(count, arguments, options.timeout_s)
        except RuntimeError as err:  # the rows of the others are worth having all the same
            print(json.dumps({"processes": count, "failed": str(err)}), flush=True)
            failed = True
            continue
        alone = row["tokens_per_s"] if count == 1 else alone
        times = None if alone is None else round(row["tokens_per_s"] / alone, 2)
        print(json.dumps({**row, "times_one": times}), flush=True)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
