"""Attention as functions and operators: torch's parameters, layouts, compile, export, autocast, dropout by a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import burn_kernels.torch as bk
from burn_kernels import KernelError
from burn_kernels.spec import Draw
from burn_kernels.torch import defining
from burn_kernels.torch import functional as F

SEED = torch.tensor([3, -4])


Q = torch.ones(1, 2, 3, 8)


def heads(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return Draw(seed).normal(*shape).to(dtype).requires_grad_()


class Attending(nn.Module):
    """Attention of a fused projection, with every thing that torch's has no words for, and packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(8, 24), nn.Parameter(Draw(1).normal(2, 5, 5).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y, lse = F.attention(q, k, v, None, self.bias, causal=True, softcap=3.0, window=4)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        starts = torch.tensor([0, 3, 10])
        flat = [t.transpose(1, 2).flatten(0, 1) for t in (q, k, v)]
        packed, _ = F.attention_packed(flat[0], flat[1], flat[2], starts, starts, longest_query=7, longest_key=7)
        return (y + z).transpose(1, 2).flatten(2) + lse.sum() + packed.reshape(x.shape)


def step(model: Callable[..., torch.Tensor], parameters: list[nn.Parameter]) -> tuple[torch.Tensor, ...]:
    y = model(Draw(2).normal(2, 5, 8).float())
    return y, *torch.autograd.grad(y.square().sum(), parameters)


@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")  # of torch about itself
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_without_a_break(backend: str) -> None:
    torch._dynamo.reset()
    model = Attending()
    compiled: Any = torch.compile(model, backend=backend, fullgraph=True)
    grads, expected = (step(net, list(model.parameters())) for net in (compiled, model))
    # inductor sums in another order: a float32 gradient of order 10 differs by units of 1e-6 of it
    torch.testing.assert_close(grads, expected, rtol=1e-4, atol=1e-4)


def test_exported() -> None:
    model, x = Attending().eval(), Draw(2).normal(2, 5, 8).float()
    program = torch.export.export(model, (x,))
    names = {node.target._opname for node in program.graph.nodes if "burn_kernels" in str(node.target)}
    assert names == {"attention", "attention_packed"}
    torch.testing.assert_close(program.module()(x), model(x))


def test_a_model_is_checked() -> None:
    report = bk.check(Attending(), Draw(2).normal(2, 5, 8).float(), offsets=False)
    assert report.ok, report
    assert {finding.op for finding in report.findings} == {"attention", "attention_packed"}


@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (3, 5, 8), (5, 8)])
@pytest.mark.parametrize("causal", [False, True])
def test_the_function_of_torch(shape: tuple[int, ...], causal: bool) -> None:
    q, k, v = (heads(*shape, seed=n) for n in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril(2)
    bias = heads(5, 5, seed=4)
    for added in (None, mask, bias) if not causal else (None,):
        output = F.scaled_dot_product_attention(q, k, v, added, is_causal=causal, scale=0.3)
        expected = nn.functional.scaled_dot_product_attention(q, k, v, added, is_causal=causal, scale=0.3)
        torch.testing.assert_close(output, expected)
        leaves = [x for x in (q, k, v, added) if x is not None and x.requires_grad]
        dy = torch.randn_like(output)
        torch.testing.assert_close(torch.autograd.grad(output, leaves, dy), torch.autograd.grad(expected, leaves, dy))


def test_shared_heads_of_torch() -> None:
    q, k = heads(2, 4, 5, 8), heads(2, 2, 6, 8)
    expected = nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    torch.testing.assert_close(F.scaled_dot_product_attention(q, k, k, enable_gqa=True), expected)


def test_results_and_gradients_lie_as_their_operands() -> None:
    fused = heads(2, 5, 3, 4, 8)
    q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in fused.unbind(2))
    y, lse = F.attention(q, k, v, causal=True)
    assert y.transpose(1, 2).is_contiguous()
    assert not lse.requires_grad
    grads = torch.autograd.grad(y, (q, k, v), torch.randn_like(y))
    assert all(grad.transpose(1, 2).is_contiguous() for grad in grads)
    for fake, real in zip(fake_of(q, k, v), (y, lse), strict=True):
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def fake_of(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    meta = [x.detach().to("meta") for x in operands]
    return torch.ops.burn_kernels.attention(*meta, *(None,) * 4, False, "top_left", None, None, 0.0, True)  # type: ignore[no-any-return]  # an operator


def test_a_query_that_sees_nothing_reads_zeros_and_gives_no_gradient() -> None:
    q, k = heads(1, 1, 4, 8), heads(1, 1, 2, 8)
    y, lse = F.attention(q, k, k, causal=True, align="bottom_right")
    assert y[0, 0, :2].abs().max() == 0.0
    assert (lse[0, 0, :2] == -torch.inf).all()
    (dq,) = torch.autograd.grad(y, q, torch.randn_like(y))
    assert dq[0, 0, :2].abs().max() == 0.0
    assert dq.isfinite().all()


def test_dropout_is_a_function_of_its_seed() -> None:
    q = heads(1, 2, 16, 8).detach()
    one, _ = F.attention(q, q, q, dropout=0.5, seed=SEED)
    same, _ = F.attention(q, q, q, dropout=0.5, seed=SEED)
    assert torch.equal(one, same)
    torch.manual_seed(5)
    first, second = (F.scaled_dot_product_attention(q, q, q, dropout_p=0.5) for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), first)
    many = torch.stack([F.scaled_dot_product_attention(q, q, q, dropout_p=0.5) for _ in range(200)]).mean(0)
    expected = F.scaled_dot_product_attention(q, q, q)
    assert float((many - expected).norm() / expected.norm()) < 0.15  # 200 masks leave a fourteenth of their spread


def test_autocast_gives_the_type_of_torch() -> None:
    q = heads(1, 2, 4, 8)
    bias = heads(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for added in (None, bias):
            y = F.scaled_dot_product_attention(q, q, q, added)
            assert y.dtype == torch.bfloat16
    (grad,) = torch.autograd.grad(y, bias, torch.randn_like(y))
    assert grad.dtype == torch.float32


def test_values_of_another_width_go_to_torch_and_that_is_said() -> None:
    defining._FALLBACKS.clear()
    q, v = heads(1, 2, 4, 8), heads(1, 2, 4, 6)
    with pytest.warns(RuntimeWarning, match="plain torch computes attention: of values of another width"):
        y = F.scaled_dot_product_attention(q, q, v)
    torch.testing.assert_close(y, nn.functional.scaled_dot_product_attention(q, q, v))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            r"query and key have other numbers of heads.*query \(1, 4, 3, 8\).*enable_gqa is False.*enable_gqa=True",
            lambda: F.scaled_dot_product_attention(heads(1, 4, 3, 8), Q, Q),
        ),
        (
            r"attention: the probability is outside its range.*dropout 1.5.*from 0 to 1.*share",
            lambda: F.attention(Q, Q, Q, dropout=1.5),
        ),
    ],
)
def test_refusals(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(KernelError, match=f"(?s){message}"):
        call()
