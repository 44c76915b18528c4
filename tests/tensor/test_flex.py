"""Attention whose scores functions change and hide, beside formulas in float64 and torch's flex_attention."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.attention.flex_attention import flex_attention as torchs

import burn_torch as bt
from burn_torch import Device, Tensor
from burn_torch.core.errors import ArgumentError, BurnTorchError, DTypeError, ShapeError, TraceError
from burn_torch.tensor import flex

DEVICES = {"cpu": Device.cpu, "ndarray": Device.ndarray, "fused": lambda: Device.cpu().fused()}
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def _tensor(x: torch.Tensor, device: Device) -> Tensor:
    return Tensor.from_torch(x.clone()).to_device(device)


class Problem:
    """Drawn sizes and functions, in torch and in burn_torch, and what the formula gives in float64."""

    def __init__(self, seed: int, dtype: torch.dtype = torch.float64) -> None:
        draw = self.draw = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        self.batch, shared, group = draw.randint(1, 3), draw.randint(1, 2), draw.randint(1, 3)
        self.heads, self.seq_q, self.seq_k = shared * group, draw.randint(1, 19), draw.randint(1, 19)
        dim, width = draw.randint(1, 9), draw.randint(1, 9)
        self.q, self.k = normal(self.batch, self.heads, self.seq_q, dim), normal(self.batch, shared, self.seq_k, dim)
        self.v, self.g = (
            normal(self.batch, shared, self.seq_k, width),
            normal(self.batch, self.heads, self.seq_q, width),
        )
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        self.table = normal(self.heads, self.seq_q + self.seq_k).to(wide)
        self.slopes = normal(self.heads).to(wide)
        self.numbers = torch.randint(0, 3, (self.batch, max(self.seq_q, self.seq_k)), generator=generator)
        self.sinks = normal(self.heads) if draw.random() < 0.5 else None
        self.limit, self.left, self.right = draw.uniform(0.5, 3.0), draw.randint(0, 6), draw.randint(0, 6)
        self.score = draw.choice(["none", "softcap", "alibi", "table", "square"])
        self.mask = draw.choice(["none", "causal", "window", "documents", "both", "either"])

    def exact(self, learned: bool = False) -> list[torch.Tensor]:
        """y, and the gradients of q, k, v, of sinks if there are some, and of the table."""
        leaves = [x.detach().double().requires_grad_() for x in (self.q, self.k, self.v, self.table)]
        q, k, v, table = leaves
        sinks = None if self.sinks is None else self.sinks.double().requires_grad_()
        k, v = (x.repeat_interleave(self.heads // x.shape[1], 1) for x in (k, v))
        s = q @ k.mT / max(q.shape[3], 1) ** 0.5
        rows, cols = torch.arange(self.seq_q)[:, None], torch.arange(self.seq_k)[None]
        if self.score == "softcap":
            s = torch.tanh(s / self.limit) * self.limit
        elif self.score == "alibi":
            s = s + (cols - rows) * self.slopes.double()[:, None, None]
        elif self.score == "table":
            s = s + table[:, rows - cols + self.seq_k - 1]
        elif self.score == "square":
            s = s * s * 0.1 - s
        numbers = self.numbers
        same = (numbers[:, : self.seq_q, None] == numbers[:, None, : self.seq_k])[:, None]
        near = (cols >= rows - self.left) & (cols <= rows + self.right)
        seen = {
            "none": torch.ones(1, 1, dtype=torch.bool), "causal": cols <= rows, "window": near, "documents": same,
            "both": same & near, "either": same | (cols <= rows),
        }[self.mask].expand(s.shape)  # fmt: skip
        s = s.masked_fill(~seen, -torch.inf)
        extra = (
            torch.full_like(s[..., :1], -torch.inf) if sinks is None else sinks[:, None, None].expand(s[..., :1].shape)
        )
        top = torch.cat([s, extra], 3).amax(3, keepdim=True).nan_to_num(neginf=0.0).detach()
        weights = torch.where(seen, torch.exp(s.masked_fill(~seen, 0.0) - top), 0.0)
        total = weights.sum(3, keepdim=True) + torch.exp(extra - top)
        y = weights @ v / torch.where(total == 0, 1.0, total)
        wanted = [*leaves[:3], *([] if sinks is None else [sinks]), *([table] if learned else [])]
        grads = torch.autograd.grad(y, wanted, self.g.double(), allow_unused=True)
        return [y.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(wanted, grads, strict=True))]

    def functions(self, table: Any, slopes: Any, numbers: Any) -> tuple[Any, Any]:
        """The score function and the mask function; they take tensors of either library."""
        rules: dict[str, Any] = {
            "none": None,
            "softcap": lambda s, b, h, q, k: (s / self.limit).tanh() * self.limit,
            "alibi": lambda s, b, h, q, k: s + (k - q) * slopes[h],
            "table": lambda s, b, h, q, k: s + table[h, q - k + self.seq_k - 1],
            "square": lambda s, b, h, q, k: s * s * 0.1 - s,
        }
        masks: dict[str, Any] = {
            "none": None,
            "causal": lambda b, h, q, k: q >= k,
            "window": lambda b, h, q, k: (k >= q - self.left) & (k <= q + self.right),
            "documents": lambda b, h, q, k: numbers[b, q] == numbers[b, k],
            "both": lambda b, h, q, k: (numbers[b, q] == numbers[b, k]) & (k >= q - self.left) & (k <= q + self.right),
            "either": lambda b, h, q, k: (numbers[b, q] == numbers[b, k]) | (k <= q),
        }
        return rules[self.score], masks[self.mask]

    def ours(self, device: Device, learned: bool = False) -> tuple[list[Tensor], Callable[..., Tensor]]:
        """The tensors that gradients are asked of, and y as a function of them."""
        tensors = [self.q, self.k, self.v, *([] if self.sinks is None else [self.sinks])]
        tensors += [self.table] if learned else []
        asked = [_tensor(x, device) for x in tensors]
        asked = [x.require_grad() for x in asked] if device.is_autodiff() else asked
        slopes, numbers = (_tensor(x, device) for x in (self.slopes, self.numbers))
        constant = _tensor(self.table, device)

        def attend(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensor:
            left = list(rest)
            sinks = None if self.sinks is None else left.pop(0)
            table = left.pop(0) if learned else constant
            tables = {
                "none": None,
                "softcap": flex.softcap(self.limit),
                "alibi": flex.alibi(slopes),
                "table": lambda s, b, h, q, k: s + table[h, q - k + (self.seq_k - 1)],
                "square": lambda s, b, h, q, k: s * s * 0.1 - s,
            }
            near, same = flex.window(self.left, self.right), flex.documents(numbers)
            masks = {
                "none": None, "causal": flex.causal(), "window": near, "documents": same,
                "both": flex.all_of(same, near), "either": flex.any_of(same, flex.causal()),
            }  # fmt: skip
            return flex.flex_attention(q, k, v, tables[self.score], masks[self.mask], sinks=sinks)

        return asked, attend

    def check(self, device: Device, dtype: torch.dtype, learned: bool = False) -> None:
        asked, attend = self.ours(device, learned)
        y = attend(*asked)
        grads = (y * _tensor(self.g, device)).sum().backward()
        results = [y, *(x.grad(grads) if x.grad(grads) is not None else x.zeros_like() for x in asked)]
        self.compare(results, dtype, learned)

    def compare(self, results: list[Any], dtype: torch.dtype, learned: bool = False) -> None:
        size = TOLERANCES[dtype]
        for one, other in zip(results, self.exact(learned), strict=True):
            actual = torch.as_tensor(
                one.into_data().values if dtype == torch.float64 else one.float().into_data().values
            )
            torch.testing.assert_close(actual.double(), other, rtol=size, atol=4 * size, msg=f"{vars(self)}")


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("seed", range(5))
def test_values_and_gradients_are_those_of_the_formula(where: str, seed: int) -> None:
    problem = Problem(100 * seed + sum(map(ord, where)))
    problem.check(DEVICES[where]().autodiff(), torch.float64, learned=problem.score == "table" and seed % 2 == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_other_types(dtype: torch.dtype, seed: int) -> None:
    Problem(7 + seed, dtype).check(Device.cpu().autodiff(), dtype)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("seed", range(4))
def test_torchs_flex_attention_gives_the_same(seed: int) -> None:
    problem = Problem(1000 + seed)
    problem.sinks = None
    score, mask = problem.functions(problem.table, problem.slopes, problem.numbers)
    sizes = (problem.batch, problem.heads, problem.seq_q, problem.seq_k)
    blocks = None if mask is None else create_block_mask(mask, *sizes, device="cpu")
    y = torchs(problem.q, problem.k, problem.v.expand(-1, -1, -1, -1), score_mod=score, block_mask=blocks,
               enable_gqa=True)  # fmt: skip
    asked, attend = problem.ours(Device.cpu())
    torch.testing.assert_close(torch.as_tensor(attend(*asked).into_data().values), y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_compiled_and_mapped(seed: int) -> None:
    problem = Problem(50 + seed)
    device = Device.cpu().autodiff()
    asked, attend = problem.ours(device)
    slopes, numbers = (Tensor.from_torch(x, device) for x in (problem.slopes, problem.numbers))

    def step(tensors: list[Tensor], g: Tensor, slopes: Tensor, numbers: Tensor) -> list[Any]:
        score = lambda s, b, h, q, k: s + (k - q).cast(s.dtype) * slopes[h]  # noqa: E731
        sinks = tensors[3] if len(tensors) > 3 else None
        y = flex.flex_attention(*tensors[:3], score, flex.documents(numbers), sinks=sinks)
        grads = (y * g).sum().backward()
        return [y, *(x.grad(grads) for x in tensors)]

    problem.score, problem.mask = "alibi", "documents"
    g = Tensor.from_torch(problem.g, device)
    problem.compare(bt.compile(step)(asked, g, slopes, numbers), torch.float64)
    del attend
    many = [Tensor.stack([x.inner(), x.inner() * 0.5], 0) for x in asked]
    run = bt.vmap(lambda *xs: flex.flex_attention(
        xs[0], xs[1], xs[2], flex.alibi(slopes.inner()), flex.documents(numbers.inner()),
        sinks=xs[3] if len(xs) > 3 else None,
    ))  # fmt: skip
    both = run(*many)
    torch.testing.assert_close(torch.as_tensor(both.into_data().values[0]), problem.exact()[0], rtol=1e-12, atol=1e-12)


def test_a_block_mask_lists_what_the_function_sees_whole_and_in_part() -> None:
    mask = flex.block_mask(flex.window(9, 0), 23, 40, Device.cpu(), block=8)
    truth = torch.zeros(24, 40, dtype=torch.int64)
    for q in range(23):
        truth[q, max(0, q - 9) : q + 1] = 1
    tiles = truth.reshape(3, 8, 5, 8).sum((1, 3))
    whole = torch.tensor([64, 64, 56])[:, None]
    for lines, counts, full in ((mask.lines, tiles, whole.expand(3, 5)), (mask.columns, tiles.T, whole.T.expand(5, 3))):
        for line, count, most in zip(torch.as_tensor(lines.into_data().values)[0, 0], counts, full, strict=True):
            all_of_them = [i for i, n in enumerate(count.tolist()) if n == most[i]]
            some = [i for i, n in enumerate(count.tolist()) if 0 < n < most[i]]
            assert line[:2].tolist() == [len(all_of_them), len(some)]
            assert line[2 : 2 + len(all_of_them) + len(some)].tolist() == all_of_them + some


def test_packed_sequences_are_those_one_by_one() -> None:
    draw = random.Random(3)
    lengths, key_lengths = [3, 0, 7, 1], [5, 2, 7, 1]
    device = Device.cpu()
    q = torch.randn(sum(lengths), 4, 5, dtype=torch.float64)
    k, v = (torch.randn(sum(key_lengths), 2, 5, dtype=torch.float64) for _ in "kv")
    starts = [torch.tensor([0, *each]).cumsum(0) for each in (lengths, key_lengths)]
    left = draw.randint(0, 3)
    tensors = [Tensor.from_torch(x, device) for x in (q, k, v, *starts)]
    y = flex.packed_attention(*tensors, is_causal=True, window_size=(left, None))
    for at in range(4):
        own = slice(starts[0][at], starts[0][at + 1]), slice(starts[1][at], starts[1][at + 1])
        parts = [
            Tensor.from_torch(x.transpose(0, 1)[None].contiguous(), device) for x in (q[own[0]], k[own[1]], v[own[1]])
        ]
        alone = flex.flex_attention(*parts, mask=flex.window(left, 0))
        torch.testing.assert_close(
            torch.as_tensor(y.into_data().values)[own[0]], torch.as_tensor(alone.into_data().values)[0].transpose(0, 1)
        )


def test_a_query_that_sees_nothing_reads_zeros_and_a_sink_takes_its_weight() -> None:
    device = Device.cpu().autodiff()
    q, k, v = (Tensor.ones((1, 1, 2, 3), device).require_grad() for _ in "qkv")
    sinks = Tensor.zeros((1,), device).require_grad()
    y = flex.flex_attention(q, k, v, mask=lambda b, h, q, k: (q == 0) & (k == 0), sinks=sinks)
    weight = 1.0 / (1.0 + torch.exp(torch.tensor(-(3.0**0.5)))).item()
    assert y.into_data().values[0, 0].tolist() == [pytest.approx([weight] * 3), [0.0] * 3]
    grads = y.sum().backward()
    assert sinks.grad(grads).into_data().values == pytest.approx(-3.0 * weight * (1.0 - weight))
    assert q.grad(grads).into_data().values[0, 0, 1].tolist() == [0.0] * 3


REFUSED: dict[str, tuple[type[BurnTorchError], str, Any]] = {
    "sum": (
        TraceError,
        r"(?s)functions? of scores.*sum.*element-wise.*outside",
        lambda x: {"score": lambda s, b, h, q, k: x.sum() + s[None].sum()},
    ),
    "whole numbers": (
        DTypeError,
        r"(?s)mask function did not return.*i32.*compare",
        lambda x: {"mask": lambda b, h, q, k: q - k},
    ),
    "a number": (
        ArgumentError,
        r"(?s)score function did not return.*a float.*cast",
        lambda x: {"score": lambda s, b, h, q, k: 1.0},
    ),
    "a whole tensor": (
        DTypeError,
        r"(?s)score function did not return one f32.*\(24,\)",
        lambda x: {"score": lambda s, b, h, q, k: s + x.reshape((-1,))},
    ),
    "sinks": (ShapeError, r"(?s)sinks.*\(2,\).*each head", lambda x: {"sinks": x}),
    "layout": (
        ShapeError,
        r"(?s)block mask is one of other sizes.*\(1, 1, 9, 5\).*block_mask\(mask, 4, 5",
        lambda x: {"mask": flex.block_mask(flex.causal(), 9, 5, Device.cpu())},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_said(case: str) -> None:
    kind, words, options = REFUSED[case]
    q, k = Tensor.ones((1, 2, 4, 3), Device.cpu()), Tensor.ones((1, 2, 5, 3), Device.cpu())
    with pytest.raises(kind, match=words):
        flex.flex_attention(q, k, k, **options(q))
