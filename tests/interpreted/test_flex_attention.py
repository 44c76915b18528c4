"""Attention with functions of scores by its kernels, beside the formula in float64, and the lists of blocks."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels.launch import observing  # after the check for triton
from burn_torch import Device, Tensor
from burn_torch.tensor import flex

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning",
    "ignore:burn_kernels changes Triton's interpreter:RuntimeWarning",
)
KERNELS = [
    "kinds_of_blocks",
    "lists_of_kinds",
    "lists_of_kinds",
    "attention_forward",
    "queries_backward",
    "keys_backward",
]


def formula(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, change: Any, seen: torch.Tensor
) -> torch.Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = change(q @ k.mT / q.shape[3] ** 0.5)
    extra = torch.zeros_like(s[..., :1]) if sinks is None else sinks[:, None, None].expand(s[..., :1].shape)
    weights = torch.where(seen, torch.exp(torch.where(seen, s, 0.0)), 0.0)
    total = weights.sum(3, keepdim=True) + (0.0 if sinks is None else torch.exp(extra))
    return weights @ v / torch.where(total == 0, 1.0, total)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_kernels_give_what_the_formula_gives(seed: int, dtype: torch.dtype) -> None:
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    batch, shared, group = draw.randint(1, 2), draw.randint(1, 2), draw.randint(1, 2)
    heads, rows, cols, dim = shared * group, draw.randint(1, 45), draw.randint(1, 45), draw.randint(1, 20)
    tensors = [normal(batch, heads, rows, dim), *(normal(batch, shared, cols, dim) for _ in "kv")]
    tensors += [normal(heads)] if seed % 2 else []
    g, table = normal(batch, heads, rows, dim), normal(heads, rows + cols).float()
    numbers = torch.randint(0, 4, (batch, max(rows, cols)), generator=generator).int()
    i, j, left = torch.arange(rows)[:, None], torch.arange(cols)[None], draw.randint(0, 30)

    device = Device.cpu().autodiff()
    asked = [Tensor.from_torch(x.clone(), device).require_grad() for x in tensors]
    own_table, own_numbers = (Tensor.from_torch(x, Device.cpu()) for x in (table, numbers))
    kind = ("softcap", "table", "cube")[seed % 3]
    rule: Any = {
        "softcap": flex.softcap(1.5),
        "table": lambda s, b, h, q, k: s + own_table[h, q - k + (cols - 1)],
        "cube": lambda s, b, h, q, k: s - s * s * s * 0.05 + (k % 3).float() * 0.1,
    }[kind]
    change: Any = {
        "softcap": lambda s: torch.tanh(s / 1.5) * 1.5,
        "table": lambda s: s + table.double()[:, i - j + cols - 1],
        "cube": lambda s: s - s**3 * 0.05 + (j % 3) * 0.1,
    }[kind]
    hiding = flex.any_of(flex.documents(own_numbers), flex.window(left, 0))
    near = (j >= i - left) & (j <= i)
    seen = ((numbers[:, :rows, None] == numbers[:, None, :cols]) | near)[:, None].expand(batch, heads, rows, cols)

    exact = [x.double().requires_grad_() for x in tensors]
    expected = formula(*exact[:3], exact[3] if len(exact) > 3 else None, change, seen)
    slopes = torch.autograd.grad(expected, exact, g.double())
    with observing() as launches:
        mask = flex.block_mask(hiding, rows, cols, Device.cpu(), batch=batch, block=16)
        y = flex.flex_attention(*asked[:3], rule, mask, sinks=asked[3] if len(asked) > 3 else None)
        grads = (y * Tensor.from_torch(g, device)).sum().backward()
    names = [each.kernel.fn.__name__ for each in launches]
    assert [name for name in names if name in KERNELS] == KERNELS
    size = 3e-5 if dtype == torch.float32 else 8e-3  # sums of up to 45 products of order 1 to 10; half types round p
    for one, other in zip([y, *(x.grad(grads) for x in asked)], [expected, *slopes], strict=True):
        assert one is not None
        actual = torch.as_tensor(one.float().into_data().values).double()
        torch.testing.assert_close(actual, other, rtol=size, atol=size, msg=f"{kind} {dim} {rows} {cols}")


def test_lists_of_the_kernels_are_those_of_the_decomposition() -> None:
    numbers = Tensor.from_torch(torch.randint(0, 3, (2, 70)).int(), Device.cpu())
    rules = (flex.causal(), flex.window(20, 5), flex.documents(numbers), lambda b, h, q, k: (q + h) % 2 == k % 2)
    for rule in rules:
        ours, plain = (
            flex.block_mask(rule, 70, 41, device, batch=2, heads=2, block=16)
            for device in (Device.cpu(), Device.ndarray() if rule is not rules[2] else Device.cpu())
        )
        for one, other in ((ours.lines, plain.lines), (ours.columns, plain.columns)):
            assert one.into_data().values.tolist() == other.into_data().values.tolist()
