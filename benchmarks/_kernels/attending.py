"""Defines what is timed of attention: shapes of GPT-2 and Llama 3, a learned bias, packed sequences; ours beside
torch's.

Variants of a problem: `ours`, as a user gets it; `our kernel`, where `ours` takes one of torch's; `ours, any order`,
whose backward may be torch's; `eager`, torch's scaled_dot_product_attention; `cudnn` and `flash`, the same told which
kernels to take; `flex`, its compiled flex_attention.
Packed sequences stand beside the same ones padded to the longest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from burn_kernels import attention
from burn_kernels.launch import machine_of

__all__ = ["PROBLEMS", "Problem", "variants"]

Draw = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Problem:
    """Sizes, and what hides keys."""

    tag: str
    batch: int
    heads: int
    kv_heads: int
    seq: int
    dim: int
    options: dict[str, Any] = field(default_factory=dict)
    bias: bool = False
    packed: bool = False

    def small(self, seq: int) -> Problem:
        """The same with so many positions, and few heads."""
        heads = min(self.heads, 4)
        kv_heads = max(1, heads * self.kv_heads // self.heads)
        return Problem(self.tag, 2, heads, kv_heads, seq, self.dim, self.options, self.bias, self.packed)

    def inputs(self, draw: Draw) -> tuple[Any, ...]:
        """Returns what the registered operation takes."""
        if self.packed:
            starts = self.starts(draw(1).device)
            total = int(starts[-1])
            operands = draw(total, self.heads, self.dim), *(draw(total, self.kv_heads, self.dim) for _ in "kv")
            return *operands, starts, starts
        # as a projection leaves them: positions first
        operands = tuple(
            draw(self.batch, self.seq, heads, self.dim).transpose(1, 2)
            for heads in (self.heads, self.kv_heads, self.kv_heads)
        )
        bias = draw(1, self.heads, self.seq, self.seq) if self.bias else None
        return *operands, None, bias

    def drawn(self, draw: Draw, rows: int) -> tuple[Any, ...]:
        """The inputs, however many rows are asked for."""
        return self.inputs(draw)

    def starts(self, device: torch.device) -> torch.Tensor:
        """Returns the starts of sequences, from a quarter of the longest length to all of it."""
        lengths = [max(1, self.seq * (4 - at % 4) // 4) for at in range(self.batch)]
        return torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)

    def named(self) -> dict[str, Any]:
        """The options of the registered operation."""
        return self.options | ({"longest_q": self.seq, "longest_k": self.seq} if self.packed else {})


PROBLEMS = (
    Problem("16x12x1024x64 causal", 16, 12, 12, 1024, 64, {"causal": True}),
    Problem("8x32x4096x128 causal, 8 kv heads", 8, 32, 8, 4096, 128, {"causal": True}),
    Problem("8x16x2048x64", 8, 16, 16, 2048, 64),
    Problem("4x16x2048x64 bias", 4, 16, 16, 2048, 64, {}, bias=True),
    Problem("4x16x4096x128 causal, softcap, window 1024", 4, 16, 16, 4096, 128,
            {"causal": True, "softcap": 50.0, "window": 1024}),
    Problem("16x16 to 4096x64 causal, packed", 16, 16, 16, 4096, 64, {"causal": True}, packed=True),
)  # fmt: skip


def variants(
    problem: Problem, inputs: tuple[Any, ...], dy: Any, *, flex: bool
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and calls, forward or, with `dy`, forward and backward."""
    yield "ours", functools.partial(_ours, problem, inputs, dy)
    config = attention.default(problem.dim, 2, machine_of(inputs[0]), extras=int(problem.bias))
    yield "our kernel", functools.partial(_ours, problem, inputs, dy, config=config)
    if dy is not None and not problem.packed:
        yield "ours, any order", functools.partial(_ours, problem, inputs, dy, deterministic=False)
    if "softcap" not in problem.options:
        yield "eager", functools.partial(_run_both_passes, *_sdpa(problem, inputs), dy)
        if inputs[0].is_cuda:
            for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
                if not (problem.bias and name == "flash"):  # it takes none
                    run, tensors = _sdpa(problem, inputs)
                    yield (
                        name,
                        functools.partial(
                            _run_both_passes, functools.partial(_run_with_backend, backend, run), tensors, dy
                        ),
                    )
    if flex and not problem.packed:
        yield "flex", functools.partial(_run_both_passes, _flex(problem, inputs), inputs, dy)


def _ours(problem: Problem, inputs: tuple[Any, ...], dy: Any, *, config: Any = None, **more: Any) -> Any:
    named = problem.named()
    forward: Any = attention.forward_packed if problem.packed else attention.forward
    backward: Any = attention.backward_packed if problem.packed else attention.backward
    y, lse = forward(*inputs, config=config, **named)
    return y if dy is None else backward(dy, *inputs, y, lse, **named, **more)


def _run_both_passes(run: Callable[..., Any], inputs: tuple[Any, ...], dy: Any) -> Any:
    # leaves of their own: a node that another case keeps belongs to another stream, and a capture with it fails
    leaves = [x.detach().requires_grad_() if _is_float(x) else x for x in inputs]
    y = run(*leaves)
    if dy is None:
        return y
    upstream = dy if dy.shape == y.shape else torch.ones_like(y)
    return torch.autograd.grad(y, [x for x in leaves if _is_float(x)], upstream)


def _is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _sdpa(problem: Problem, inputs: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    causal, grouped = bool(problem.options.get("causal")), problem.heads != problem.kv_heads
    if problem.packed:  # what one does without: all as long as the longest
        shapes = [(problem.batch, x.shape[1], problem.seq, problem.dim) for x in inputs[:3]]
        inputs = (*(torch.randn(s, device=inputs[0].device).to(inputs[0].dtype) for s in shapes), None, None)

    def run(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, bias, is_causal=causal, enable_gqa=grouped)

    return run, inputs


def _run_with_backend(backend: SDPBackend, run: Callable[..., Any], *inputs: Any) -> Any:
    with sdpa_kernel(backend):
        return run(*inputs)


def _flex(problem: Problem, inputs: tuple[Any, ...]) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    options, seq, device = problem.options, problem.seq, str(inputs[0].device)
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    window, softcap = options.get("window", seq + 1), options.get("softcap")

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j < window)

    hidden = create_block_mask(seen, None, None, seq, seq, device=device) if options.get("causal") else None

    def run(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            s = s if softcap is None else softcap * torch.tanh(s / softcap)
            return s if bias is None else s + bias[0, h, i, j]

        plain = softcap is None and bias is None
        grouped = problem.heads != problem.kv_heads
        return compiled(q, k, v, score_mod=None if plain else score, block_mask=hidden, enable_gqa=grouped)

    return run
