"""The norm of many tensors and Lion: what the launchers refuse, and their edges."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import burn_kernels.torch  # noqa: F401  # registers the operators
from burn_kernels import (
    KernelArgumentError,
    KernelDeviceError,
    KernelDTypeError,
    KernelError,
    KernelShapeError,
    lion,
    optimizer,
    tensor_norm,
)
from burn_kernels.autotune.tunable import Tunable
from burn_kernels.launch import H200, recording
from burn_kernels.spec import Draw

X = torch.ones(4, 6)


def test_factors_clip_as_torch_does() -> None:
    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(5, 3, generator=generator), torch.randn(7, generator=generator)]
    for most in (0.1, 100.0):
        leaves = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
        for leaf, g in zip(leaves, grads, strict=True):
            leaf.grad = g.clone()
        expected = torch.nn.utils.clip_grad_norm_(leaves, most)
        norm, factor = tensor_norm.clip_factor(grads, most)
        torch.testing.assert_close(norm, expected)
        for leaf, g in zip(leaves, grads, strict=True):
            torch.testing.assert_close(g * factor, leaf.grad)


def test_a_table_serves_while_its_tensors_change() -> None:
    x = torch.ones(4)
    table = tensor_norm.table([x, torch.ones(3, dtype=torch.bfloat16)])
    assert tensor_norm.norm(table, order=1.0).item() == 7.0
    x.fill_(2.0)
    assert tensor_norm.norm(table, order=1.0).item() == 11.0


def test_nothing_has_norm_zero_and_clips_nothing() -> None:
    for tensors in ([], [torch.ones(0)]):
        norm, factor = tensor_norm.clip_factor(tensors, 1.0)
        assert (norm.item(), factor.item()) == (0.0, 1.0)


def test_adam_adds_the_decay_to_the_gradients() -> None:
    p, g, zero = torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([0.0])
    new, means, squares = optimizer.adamw([p], [g], [zero], [zero], lr=0.1, step=1, decay=0.5, coupled=True)
    assert means[0].item() == pytest.approx(0.1)
    assert squares[0].item() == pytest.approx(0.001)
    assert new[0].item() == pytest.approx(1.9)
    table = optimizer.table([p], [g], [zero], [zero.clone()], in_place=True)
    optimizer.adamw_(table, lr=0.1, step=1, decay=0.5, coupled=True)
    assert p.item() == pytest.approx(1.9)


def test_a_step_of_lion_in_place() -> None:
    p, g, m = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([2.0, -2.0, 0.0]), torch.zeros(3)
    copies = [torch.empty(3, dtype=torch.bfloat16)]
    lion.lion_(optimizer.table([p], [g], [m], copies=copies, in_place=True), lr=0.25, decay=0.4)
    torch.testing.assert_close(p, torch.tensor([0.65, 1.15, 0.9]))
    torch.testing.assert_close(m, torch.tensor([0.02, -0.02, 0.0]))
    assert torch.equal(copies[0], p.bfloat16())


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelArgumentError,
            r"norm: an option is outside.*order 3.*order 1, 2 or inf.*choose",
            lambda: tensor_norm.norm([X], order=3),
        ),
        (
            KernelArgumentError,
            r"clip_factor: an option is outside.*most 0.0.*most above 0",
            lambda: tensor_norm.clip_factor([X], 0.0),
        ),
        (
            KernelDTypeError,
            r"tensor_norm: the element types.*tensors\[1\] \(2,\) int64.*floats.*leave these",
            lambda: tensor_norm.norm([X, torch.tensor([1, 2])]),
        ),
        (
            KernelArgumentError,
            r"tensor_norm: tensors that do not lie in order.*tensors\[0\] with strides \(1, 6\).*call norm",
            lambda: tensor_norm.table([X.T]),
        ),
        (
            KernelDeviceError,
            r"tensor_norm: the tensors lie on different devices.*tensors\[1\] \(2,\) float32 meta.*all on cpu",
            lambda: tensor_norm.norm([X, torch.empty(2, device="meta")]),
        ),
        (
            KernelArgumentError,
            r"lion: an option is outside.*betas \(1.0, 0.5\).*up to, not including, 1.*usual",
            lambda: lion.lion([X], [X], [X], lr=0.1, betas=(1.0, 0.5)),
        ),
        (
            KernelShapeError,
            r"lion_: the table is of another optimizer.*2 states.*expected: 1.*make the table",
            lambda: lion.lion_(optimizer.table([X], [X], [X], [X]), lr=0.1),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()


# -- operators and keys --------------------------------------------------------------------------------
def leaves() -> list[torch.Tensor]:
    return [Draw(number).normal(*shape).requires_grad_() for number, shape in enumerate(((4, 7), (3,)))]


@pytest.mark.parametrize("order", tensor_norm.ORDERS)
def test_gradients_of_the_operator(order: float) -> None:
    def norm(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.ops.burn_kernels.tensor_norm(list(tensors), order)  # type: ignore[no-any-return]  # an operator

    assert gradcheck(norm, leaves())
    if order == 2.0:
        assert gradgradcheck(norm, leaves())


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_what_torch_asks_of_the_operator(order: float) -> None:
    statuses = torch.library.opcheck(torch.ops.burn_kernels.tensor_norm.default, (leaves(), order))
    assert set(statuses.values()) == {"SUCCESS"}


def test_a_config_is_asked_for_each_element_type(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, run = list[str](), Tunable.run

    def asking(self: Tunable, x: Any, config: Any, facts: Any, launch: Any) -> Any:
        keys.append(self.key(self.facts(*facts)))
        return run(self, x, config, facts, launch)

    monkeypatch.setattr(Tunable, "run", asking)
    with recording(H200):
        tensor_norm.norm([torch.zeros(10_000), torch.zeros(3, 4), torch.zeros(9, dtype=torch.bfloat16)], order=1.0)
    assert keys == [
        "tensor_norm chunks<=4 chunk=8192 float32 packed align=16 order=1",
        "tensor_norm chunks<=1 chunk=8192 bfloat16 packed align=16 order=1",
    ]


@pytest.mark.gpu
def test_a_graph_can_hold_it() -> None:
    table = tensor_norm.table([torch.randn(64, 1000, device="cuda"), torch.randn(1000, device="cuda")])
    tensor_norm.clip_factor(table, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = tensor_norm.clip_factor(table, 1.0)
    graph.replay()
    torch.testing.assert_close(captured, tensor_norm.clip_factor(table, 1.0))


def test_examples_in_docstrings() -> None:
    ran = doctest.testmod(tensor_norm)
    assert ran.attempted > 0
    assert ran.failed == 0


def test_the_largest_of_all_is_nan_where_there_is_one() -> None:
    assert tensor_norm.norm([X, torch.tensor([math.nan, 3.0])], order=math.inf).isnan()
