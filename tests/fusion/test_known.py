"""Known patterns: found in each of their usual forms, with the same values and gradients, and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from burn_torch import Device, Tensor, compile, explain
from burn_torch.backend import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, Spec
from burn_torch.fusion import explain as explained
from burn_torch.fusion import plan_of
from burn_torch.fusion.rewrites.known import forms
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.verifier import verify
from tests.fusion.checking import made
from tests.fusion.programs import row, tensor, traced

FORMS = [pytest.param(*form, id=f"{form[0]}-{number}") for number, form in enumerate(forms())]


def named(graph: Any) -> list[str]:
    return [node.call.op.name for node in graph.nodes if not node.call.aliases]


# -- each form -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "function", "by", "like"), FORMS)
def test_a_form_becomes_its_row_and_computes_the_same(
    name: str, function: Callable[..., Any], by: Callable[..., Any], like: list[Spec]
) -> None:
    graph = traced(function, like)
    plan = plan_of(graph)
    verify(plan.graph)
    assert named(plan.graph) == [name]
    (report,) = explained(plan).kernels
    assert report.name == name
    import numpy as np

    inputs = made(like, np.random.default_rng(len(like)))
    inputs = [x.abs().long() % 6 if isinstance(x, torch.Tensor) and not x.is_floating_point() else x for x in inputs]
    torch.testing.assert_close(interpret(plan.graph, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))


@pytest.mark.parametrize(("name", "function", "by", "like"), FORMS)
def test_in_strict_mode_nothing_is_replaced(
    name: str, function: Callable[..., Any], by: Callable[..., Any], like: list[Spec]
) -> None:
    before = {node.call.op.name for node in traced(function, like).nodes}
    if name not in before:
        assert name not in named(plan_of(traced(function, like), strict=True).graph)


def test_other_shapes_and_half_types_fit_too() -> None:
    def norm(x: Any, gamma: Any, beta: Any, eps: Any) -> Any:
        away = x - row("mean")(x, dims=(x.ndim - 1,))
        return gamma * (away / row("sqrt")(row("mean")(away * away, dims=(x.ndim - 1,)) + eps)) + beta

    for dtype in (DType.F32, DType.BF16):
        for shape in ((8,), (2, 3, 8)):
            x, w = tensor(*shape, dtype=dtype), tensor(8, dtype=dtype)
            assert "layer_norm" in named(plan_of(traced(norm, [x, w, w, FLOAT_NUMBER])).graph)
    matrix = tensor(3, 8)  # a scale that is no row is none of a layer norm's
    plan = plan_of(traced(norm, [matrix, matrix, tensor(8), FLOAT_NUMBER]))
    assert "fusion::kernel" in named(plan.graph)
    assert plan.kernels <= 2


def test_a_value_that_somebody_reads_keeps_the_pattern() -> None:
    def program(x: Any) -> Any:
        e = row("exp")(x - row("amax")(x, dims=(1,)))
        return e / row("sum")(e, dims=(1,)), e

    assert "softmax" not in named(plan_of(traced(program, [tensor(4, 6)])).graph)


def test_along_another_axis_it_is_another_thing() -> None:
    def program(x: Any) -> Any:
        e = row("exp")(x - row("amax")(x, dims=(0,)))
        return e / row("sum")(e, dims=(0,))

    assert "softmax" not in named(plan_of(traced(program, [tensor(4, 6)])).graph)


def test_what_lies_around_still_joins_a_row_that_was_found() -> None:
    def program(x: Any) -> Any:
        y = x * 2.0
        e = row("exp")(y - row("amax")(y, dims=(1,)))
        return e / row("sum")(e, dims=(1,)) + 1.0

    plan = plan_of(traced(program, [tensor(4, 6)]))
    assert plan.kernels == 1


# -- through tensors, with gradients -----------------------------------------------------------------------
def written_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    away = x - x.mean_dim(1)
    return away / (away.square().mean_dim(1) + 1e-5).sqrt() * gamma + beta


def written_loss(x: Tensor, targets: Tensor) -> Tensor:
    shifted = x - x.max_dim(1)
    logs = shifted - shifted.exp().sum_dim(1).log()
    return (-logs.gather(1, targets)).mean()


def written_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.swap_dims(2, 3)) * 0.5
    e = (scores - scores.max_dim(3)).exp()
    return (e / e.sum_dim(3)) @ v


def floats(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return Tensor.from_torch(torch.randn(shape, generator=generator), Device.cpu())


INDEX = Tensor.from_ints([[1], [0], [4], [2]], Device.cpu())
WRITTEN: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "layer_norm": (written_norm, (floats(4, 6), floats(6), floats(1, 6).reshape([6]))),
    "cross_entropy": (written_loss, (floats(4, 6), INDEX)),
    "attention": (written_attention, (floats(2, 3, 4, 6), floats(2, 3, 5, 6), floats(2, 3, 5, 7))),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_people_write_is_found_and_named(name: str) -> None:
    function, inputs = WRITTEN[name]
    compiled = compile(function, fuse=True)
    torch.testing.assert_close(compiled(*inputs).into_torch(), function(*inputs).into_torch())
    whole = explain(compiled, *inputs).fusion
    assert whole is not None
    assert name in str(whole)
    assert name in {report.name for report in whole.kernels} | {r for report in whole.kernels for r in report.rows}


@pytest.mark.parametrize("name", WRITTEN)
def test_gradients_agree(name: str) -> None:
    function, inputs = WRITTEN[name]
    device = Device.cpu().autodiff()
    weights = floats(*function(*inputs).shape).to_device(device)
    moved = [x.to_device(device) for x in inputs]

    def gradients(weights: Tensor, *xs: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.require_grad() if x.dtype.is_float else x for x in xs]
        grads = (function(*leaves) * weights).sum().backward()
        return tuple(g for x in leaves if x.dtype.is_float for g in [x.grad(grads)] if g is not None)

    actual, expected = compile(gradients, fuse=True)(weights, *moved), gradients(weights, *moved)
    assert len(actual) == len(expected) > 0
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.into_torch(), other.into_torch(), rtol=1e-4, atol=1e-5)
