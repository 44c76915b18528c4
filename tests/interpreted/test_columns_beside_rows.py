"""Sums of columns in the kernel that goes over the rows: the backward of norms in one pass and a small finish."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.body import columns
from burn_torch.fusion.rewrites import splitting
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.programs import row, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several programs of several rows, in sizes that the interpreter computes."""
    monkeypatch.setattr(splitting, "ROWS_OF_A_PART", 3)
    for module in (splitting, columns):
        monkeypatch.setattr(module, "FEWEST_PARTS", 2)


def norm_and_bias(g: Any, x: Any, mean: Any, rstd: Any, gamma: Any) -> Any:
    """Computes the backward of a residual branch: three sums of columns and the rows' gradient."""
    dx, dgamma, dbeta = row("layer_norm_backward")(g * 0.5, x, mean, rstd, gamma)
    total = dx + g
    return total, dgamma, dbeta, row("sum_to_shape")(total, shape=gamma.shape)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16], ids=str)
@pytest.mark.parametrize(("leading", "parts"), [((12,), 4), ((2, 6), 4), ((15,), 5), ((6,), 2)])
def test_one_pass_and_a_finish(leading: tuple[int, ...], parts: int, dtype: DType, seed: np.random.Generator) -> None:
    matrix, statistics = tensor(*leading, 10, dtype=dtype), tensor(*leading, 1)
    specs = [matrix, matrix, statistics, statistics, tensor(10, dtype=dtype)]
    graph = traced(norm_and_bias, specs)
    planned = plan_of(graph)
    first, second = planned.groups
    assert planned.kernels == 2
    assert {spec.shape for spec in body_results(first.body)} == {matrix.shape, (parts, 1, 10)}
    assert second.bytes_read == 3 * parts * 10 * 4, "what the parts give stays in float32 between the kernels"
    inputs = made(specs, seed)
    agree(LibTorch().program(planned.graph).run(*inputs), in_float64(graph, inputs), 4.0)


def body_results(body: Any) -> list[TensorSpec]:
    specs = body.specs()
    return [specs[i] for i in body.outputs]


@pytest.mark.parametrize(("most", "kernels"), [(32, 1), (8, 2)])
def test_rows_without_parts(
    most: int, kernels: int, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """13 rows have no parts: one program goes over all of them, or the sums of columns are a kernel of their own."""
    monkeypatch.setattr(columns, "MOST_ROWS", most)
    specs = [tensor(13, 10)]

    def both(x: Any) -> Any:
        h = x * 2.0
        return row("softmax")(h, dim=1), row("sum")(row("tanh")(h), dims=(0,))

    graph = traced(both, specs)
    inputs = made(specs, seed)
    planned = plan_of(graph)
    assert planned.kernels == kernels
    agree(LibTorch().program(planned.graph).run(*inputs), in_float64(graph, inputs), 2.0)


def test_masked_rows_add_nothing(seed: np.random.Generator) -> None:
    """Values that a tile computes beyond its part (1 / 0 there) are not added."""

    def inverse(x: Any) -> Any:
        y = 1.0 / (row("exp")(x) - row("mean")(x, dims=(1,)))
        return y - row("amax")(y, dims=(1,)), row("sum")(y, dims=(0,))

    graph = traced(inverse, [tensor(9, 5)])
    (x,) = made([tensor(9, 5)], seed)
    x = x.abs() * 0.1 + torch.arange(9.0)[:, None]
    planned = plan_of(graph)
    assert planned.kernels == 2
    agree(LibTorch().program(planned.graph).run(x), in_float64(graph, [x]), 4.0)


def test_a_draw_lies_where_it_lies_in_memory(seed: np.random.Generator) -> None:
    """The masks of dropout do not depend on how rows are dealt out to programs."""
    from burn_torch.core.spec import INT_NUMBER
    from burn_torch.graph.interpreter import interpret

    def dropped(x: Any, key: Any, stream: Any) -> Any:
        h = x * row("dropout_mask")(0.4, key, stream, shape=(12, 8), dtype=DType.F32, place="cpu")
        return h - row("mean")(h, dims=(1,)), row("sum")(h, dims=(0,))

    specs = [tensor(12, 8), INT_NUMBER, INT_NUMBER]
    graph = traced(dropped, specs)
    inputs = made(specs, seed)
    planned = plan_of(graph)
    assert planned.kernels == 2
    agree(LibTorch().program(planned.graph).run(*inputs), interpret(graph, LibTorch(), inputs))
