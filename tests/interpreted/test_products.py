"""Kernels around matrix products in the interpreter: against float64, chosen and not, with all that may join."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec
from burn_torch.fusion import explain, plan_of
from burn_torch.fusion.rows.product_row import product
from burn_torch.fusion.triton.products import ProductTiles
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.verifier import verify
from tests.fusion.checking import TOLERANCE, in_float64, made
from tests.fusion.choosing import choosing
from tests.fusion.programs import gelu, row, tensor, traced

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning")

TILES = ProductTiles(16, 16, 16, 2, 1, 1)


@pytest.fixture
def always() -> Iterator[None]:
    """Whatever can join a product does."""
    with choosing(product=lambda product, around: TILES):
        yield


def mlp(x: Any, w: Any, b: Any, r: Any) -> Any:
    return gelu(row("matmul")(x, w) + b) + r


def layer(x: Any, w: Any, b: Any) -> Any:
    return row("relu")(row("linear")(x, w, b)) * 0.5


def both_kept(x: Any, w: Any, b: Any) -> Any:
    z = row("linear")(x, w, b)
    return row("tanh")(z) * z, z


def before_and_after(x: Any, y: Any, w: Any) -> Any:
    return row("sigmoid")(row("matmul")(row("exp")(x) * y, row("permute")(w, axes=(1, 0))))


def cast_first(x: Any, w: Any) -> Any:
    return row("relu")(row("matmul")(row("cast")(x, dtype=DType.F16), w))


def flattened(x: Any, w: Any, r: Any) -> Any:
    return row("reshape")(row("matmul")(x, w), shape=(6, 21)) * r


def dropped(x: Any, w: Any, b: Any, key: Any, stream: Any) -> Any:
    return row("dropout")(row("linear")(x, w, b), 0.4, key, stream)


def by_a_number(x: Any, w: Any, scale: Any) -> Any:
    return row("exp")(row("matmul")(x, w)) * scale


X, W, B = tensor(35, 19), tensor(19, 21), tensor(21)
CASES: dict[str, tuple[Callable[..., Any], list[Spec], int]] = {
    "bias, gelu, residual": (mlp, [X, W, B, tensor(35, 21)], 1),
    "layer": (layer, [X, W, B], 1),
    "batch": (layer, [tensor(2, 3, 19), W, B], 1),
    "kept": (both_kept, [X, W, B], 1),
    "before and after": (before_and_after, [X, X, tensor(21, 19)], 1),
    "cast": (cast_first, [X, tensor(19, 21, dtype=DType.F16)], 1),
    "reshaped": (flattened, [tensor(2, 3, 19), W, tensor(6, 21)], 1),
    "a number": (by_a_number, [X, W, FLOAT_NUMBER], 1),
    "halves": (mlp, [tensor(35, 19, dtype=DType.F16), tensor(19, 21, dtype=DType.F16),
                     tensor(21, dtype=DType.F16), tensor(35, 21, dtype=DType.F16)], 1),
    "dropout": (dropped, [X, W, B, INT_NUMBER, INT_NUMBER], 1),
    "row of ones": (lambda x, w: row("exp")(row("matmul")(x, w)), [tensor(1, 7), tensor(7, 1)], 1),
}  # fmt: skip


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", CASES)
def test_what_joins_a_product_computes_the_same(name: str) -> None:
    function, specs, kernels = CASES[name]
    graph = traced(function, specs)
    plan = plan_of(graph, LibTorch().capabilities.choices)
    verify(plan.graph)
    assert plan.kernels == kernels, plan.graph.text()
    assert [node.call.op for node in plan.graph.nodes if not node.call.aliases] == [product]
    inputs = made(specs, np.random.default_rng(3), scale=0.5)
    exact = in_float64(graph, inputs)
    outputs = interpret(plan.graph, LibTorch(), inputs)
    unit = max(TOLERANCE[node.call.result.dtype] for node in graph.nodes if node.call.results)
    for y, z in zip(outputs, exact, strict=True):
        torch.testing.assert_close(y.double(), z.double(), rtol=4 * unit, atol=4 * unit)
    assert explain(plan).boundaries == ()
    (report,) = explain(plan).kernels
    assert report.generated
    assert {"matmul", "linear"} & set(report.rows)
    strict = plan_of(graph, LibTorch().capabilities.choices, strict=True)
    for y, z in zip(interpret(strict.graph, LibTorch(), inputs), exact, strict=True):
        torch.testing.assert_close(y.double(), z.double(), rtol=4 * unit, atol=4 * unit)


@pytest.mark.usefixtures("always")
def test_operands_that_lie_in_any_order() -> None:
    graph = traced(mlp, CASES["bias, gelu, residual"][1])
    inputs = made(CASES["bias, gelu, residual"][1], np.random.default_rng(4), scale=0.5)
    expected = interpret(graph, LibTorch(), inputs)
    turned = [x.T.contiguous().T if x.ndim == 2 else x for x in inputs]
    torch.testing.assert_close(
        interpret(plan_of(graph, LibTorch().capabilities.choices).graph, LibTorch(), turned),
        expected,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.usefixtures("always")
def test_what_lies_beyond_an_edge_of_an_operand_adds_nothing() -> None:
    def reciprocal(x: Any, w: Any) -> Any:
        return row("matmul")(1.0 / x, w) + 1.0  # 1 / 0 beyond the edge

    specs = [tensor(5, 7), tensor(7, 3)]
    graph = traced(reciprocal, specs)
    inputs = [torch.rand(5, 7) + 1.0, torch.rand(7, 3)]
    plan = plan_of(graph, LibTorch().capabilities.choices)
    assert plan.kernels == 1
    torch.testing.assert_close(interpret(plan.graph, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))
