"""Times attention whose scores functions change or hide, beside torch's compiled flex_attention, on a GPU.

Each case has a drawn length, bfloat16, and block masks that both libraries work out before.  Forward, and forward with
backward, by three ways: `step`, layers behind each other in one function under `burn_torch.compile`; `kernel`, the
launches of as many layers alone; and torch's layers.  They take turns in one process; medians of milliseconds between
CUDA events, and the ratio torch / ours, so above 1 ours is faster.  Both are compared with each other first.

Run: `python benchmarks/flex_attention.py [--seed 0] [--rounds 12] [--cases causal,alibi] [--save]`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import burn_torch as bt
from burn_torch import Device, Tensor
from burn_torch.tensor import flex

SIZES = {
    "causal": (4, 16, 16, 64),
    "window": (4, 16, 16, 64),
    "softcap": (4, 16, 16, 64),
    "documents": (1, 16, 16, 64),
    "alibi": (4, 16, 16, 64),
    "causal, grouped": (2, 32, 8, 128),
    "alibi of 128": (2, 16, 16, 128),
    "documents of 128": (1, 16, 16, 128),
}
"""Batch entries, heads, heads of keys, columns of a head."""

LAYERS = 4
"""Each reads with what the one before gave; a compiled step copies its arguments once."""


def functions(case: str, seq: int, slopes: Any, numbers: Any, *, ours: bool) -> tuple[Any, Any]:
    """The score function and the mask function of a case, or None."""
    causal = flex.causal() if ours else (lambda b, h, q, k: q >= k)
    if case.startswith("causal"):
        return None, causal
    if case == "window":
        return None, flex.window(512, 0) if ours else (lambda b, h, q, k: (q >= k) & (q - k <= 512))
    if case == "softcap":
        return (flex.softcap(20.0) if ours else (lambda s, b, h, q, k: torch.tanh(s / 20.0) * 20.0)), causal
    if case.startswith("documents"):
        if ours:
            return None, flex.all_of(flex.documents(numbers), causal)
        return None, lambda b, h, q, k: (numbers[q] == numbers[k]) & (q >= k)
    return (flex.alibi(slopes) if ours else (lambda s, b, h, q, k: s + (k - q) * slopes[h])), causal


def of_torch(x: torch.Tensor, device: Device) -> Tensor:
    """A tensor that shares memory."""
    return Tensor.from_torch(x, device)


def measure(ways: dict[str, Callable[[], object]], rounds: int, repeats: int = 3) -> dict[str, float]:
    """The median milliseconds of each way, in turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        for _ in range(3):
            run()
    names = list(ways)
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
            begin.record()
            for _ in range(repeats):
                ways[name]()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / repeats)
    return {name: statistics.median(each) for name, each in times.items()}


def run_case(case: str, draw: random.Random, rounds: int) -> list[dict[str, Any]]:
    """Rows of a case."""
    from burn_kernels.attention import modified
    from burn_torch.backend.libtorch.generated.attention_kernels import flatten_captured, functions_of
    from burn_torch.tensor._score_functions import trace_mask, trace_score

    batch, heads, shared, dim = SIZES[case]
    seq = draw.randint(1500, 5000) if batch > 1 else draw.randint(6000, 12000)
    generator = torch.Generator(device="cuda").manual_seed(seq)

    def normal(count: int) -> torch.Tensor:
        return torch.randn(batch, count, seq, dim, device="cuda", dtype=torch.bfloat16, generator=generator)

    q, k, v, g = normal(heads), normal(shared), normal(shared), normal(heads)
    slopes = torch.tensor([2.0 ** -(8.0 * (i + 1) / heads) for i in range(heads)], device="cuda")
    ends = sorted(draw.sample(range(1, seq), 7))
    numbers = torch.bucketize(torch.arange(seq), torch.tensor(ends), right=True).int().cuda()

    score, mask = functions(case, seq, slopes, numbers, ours=False)
    blocks = create_block_mask(mask, None, None, seq, seq, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    grouped = heads != shared

    def torch_forward() -> torch.Tensor:
        with torch.no_grad():
            return chain(q, k, v)

    def chain(x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        for _ in range(LAYERS):
            x = compiled(x, k, v, score_mod=score, block_mask=blocks, enable_gqa=grouped)
        return x

    def torch_both() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(chain(*leaves), leaves, g)

    device = Device.cuda()
    tracked = device.autodiff()
    tensors = [of_torch(x, device) for x in (q, k, v, g, slopes, numbers)]
    own_score, own_mask = functions(case, seq, tensors[4], tensors[5], ours=True)
    listed = flex.block_mask(own_mask, seq, seq, device)

    def forward(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, mask: flex.BlockMask) -> Tensor:
        score = flex.softcap(20.0) if case == "softcap" else flex.alibi(slopes) if case.startswith("alibi") else None
        for _ in range(LAYERS):
            q = flex.flex_attention(q, k, v, score, mask)
        return q

    def both(q: Tensor, k: Tensor, v: Tensor, g: Tensor, slopes: Tensor, mask: flex.BlockMask) -> tuple[Tensor, ...]:
        grads = (forward(q, k, v, slopes, mask) * g).sum().backward()
        return tuple(x.grad(grads) for x in (q, k, v))

    asked = [of_torch(x, tracked).require_grad() for x in (q, k, v)]
    step_forward, step_both = bt.compile(forward), bt.compile(both)
    run_forward = lambda: step_forward(*tensors[:3], tensors[4], listed)  # noqa: E731
    run_both = lambda: step_both(*asked, tensors[3], tensors[4], listed)  # noqa: E731

    hidden = trace_mask(own_mask, tensors[0])
    changed = None if own_score is None else trace_score(own_score, tensors[0])
    count = len(changed.captured) if changed else 0
    written = functions_of(changed.body if changed else "", hidden.body, count, short=True)
    captured = flatten_captured([x.into_torch() for x in (*(changed.captured if changed else ()), *hidden.captured)])
    lists = modified.block_lists(written[2], captured, (1, 1, seq, seq), 128, like=q)
    body = modified.Body(*written, captured, *lists, 128)
    scale = dim**-0.5

    def kernel_both() -> object:
        for _ in range(LAYERS):
            y, lse = modified.forward_modified(q, k, v, None, body, scale=scale)
            modified.backward_modified(g, q, k, v, y, lse, body, scale=scale)
        return y

    def kernel_forward() -> object:
        return [modified.forward_modified(q, k, v, None, body, scale=scale) for _ in range(LAYERS)]

    rows = []
    pairs: list[tuple[str, dict[str, Callable[[], Any]]]] = [
        ("forward", {"torch": torch_forward, "step": run_forward, "kernel": kernel_forward}),
        ("forward and backward", {"torch": torch_both, "step": run_both, "kernel": kernel_both}),
    ]  # fmt: skip
    for what, ways in pairs:
        theirs, mine = ways["torch"](), ways["step"]()
        each = zip(theirs, mine, strict=True) if isinstance(theirs, tuple) else [(theirs, mine)]
        apart = max((a - b.into_torch()).abs().max().item() / a.abs().max().item() for a, b in each)
        times = measure(ways, rounds)
        row = {"case": case, "what": what, "sizes": [*SIZES[case], seq], "apart": round(apart, 5)}
        row |= {name: round(ms, 4) for name, ms in times.items()}
        row |= {"step ratio": round(times["torch"] / times["step"], 3)}
        row |= {"kernel ratio": round(times["torch"] / times["kernel"], 3)}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    """Measures all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--cases", default=",".join(SIZES).replace("causal, grouped", "causal; grouped"))
    parser.add_argument("--save", action="store_true", help="append to benchmarks/data/flex_attention.jsonl")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    about = {"date": str(date.today()), "device": torch.cuda.get_device_name(), "torch": torch.__version__}
    rows = []
    for case in options.cases.split(","):
        try:
            rows += run_case(case.replace(";", ","), draw, options.rounds)
        except Exception as err:
            print(case, type(err).__name__, str(err)[:2000], flush=True)
        torch._dynamo.reset()
    if options.save:
        path = Path(__file__).parent / "data" / "flex_attention.jsonl"
        with path.open("a") as file:
            file.writelines(json.dumps(about | row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
