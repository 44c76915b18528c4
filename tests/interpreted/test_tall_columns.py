"""Reductions along columns in steps, tiles of what is turned, and deviations in one pass: the kernels' values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.dtype import DType
from burn_torch.fusion import plan_of
from burn_torch.fusion.body import tiles as tile_needs
from burn_torch.fusion.rewrites import deviations
from burn_torch.fusion.triton.configs import Tiles
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.ir import Graph
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.programs import row, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets long reductions begin at sizes that the interpreter computes."""
    monkeypatch.setattr(tile_needs, "SHORT_COLUMN", 4)
    monkeypatch.setattr(tile_needs, "LONGEST_COLUMN", 4)
    monkeypatch.setattr(tile_needs, "_SHORTEST_SIDE", 4)
    monkeypatch.setattr(tile_needs, "_SHORTEST_ROW", 8)
    monkeypatch.setattr(tile_needs, "_FEWEST_PROGRAMS", 1)


def ran(graph: Graph, tiles: Tiles, inputs: list[Any], over: dict[int, int] | None = None) -> list[torch.Tensor]:
    """Runs the kernel of a whole graph with these tiles."""
    kernel = FusedKernel(graph, strict=False, over=over)
    operands = [x.clone() if over and i in over.values() else x for i, x in enumerate(inputs)]
    return kernel.variant((None,) * len(inputs))._tried(operands, tiles)


def activation_and_bias(g: Any, x: Any) -> Any:
    """The backward of an activation, and of the bias that was added before it."""
    d = row("gelu_approximate_backward")(g, x)
    return d, row("sum")(d, dims=(-2 % d.ndim,))


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("over", [None, {0: 0}, {0: 1}], ids=str)
@pytest.mark.parametrize("shape", [(13, 10), (2, 13, 10)], ids=str)
def test_columns_in_steps_in_place_too(
    shape: tuple[int, ...], over: dict[int, int] | None, stages: int, seed: np.random.Generator
) -> None:
    specs = [tensor(*shape), tensor(*shape)]
    graph = traced(activation_and_bias, specs)
    kernel = lower(graph)
    assert (kernel.rows_together, kernel.whole_rows, kernel.steps) == (True, False, True)
    assert set(kernel.over) == {(0, 0), (0, 1)}
    inputs = made(specs, seed)
    for x, r in ((8, 4), (4, 16), (32, 2)):
        agree(ran(graph, Tiles(x, r, 4, stages), inputs, over), in_float64(graph, inputs), 2.0)


def test_columns_that_are_needed_twice_are_read_twice(seed: np.random.Generator) -> None:
    specs = [tensor(13, 10)]
    graph = traced(lambda x: row("softmax")(x * 2.0, dim=0), specs)
    (body,) = (group.body for group in plan_of(graph).groups)
    kernel = lower(body)
    assert (kernel.rows_together, kernel.whole_rows, kernel.over) == (True, False, ())
    inputs = made(specs, seed)
    agree(ran(body, Tiles(8, 4, 4), inputs), in_float64(graph, inputs), 2.0)


def test_rows_that_statistics_come_with_are_no_columns() -> None:
    """The means and deviations of rows lie side by side along the rows, but they are few."""
    specs = [tensor(64, 128), tensor(64, 1), tensor(64, 1)]
    kernel = lower(traced(lambda x, m, s: row("sum")((x - m) * s, dims=(1,)), specs))
    assert not kernel.rows_together


def turned(x: Any, y: Any) -> Any:
    return row("permute")(x, axes=(1, 0)) + y


@pytest.mark.parametrize("sizes", [(40, 12), (12, 40)], ids=str)
@pytest.mark.parametrize("over", [None, {0: 1}], ids=str)
def test_what_is_turned_is_read_in_tiles(
    sizes: tuple[int, int], over: dict[int, int] | None, seed: np.random.Generator
) -> None:
    specs = [tensor(*sizes), tensor(*reversed(sizes))]
    graph = traced(turned, specs)
    kernel = lower(graph)
    assert kernel.turned
    assert kernel.steps
    assert kernel.domain.rows == 40
    inputs = made(specs, seed)
    for tiles in (Tiles(16, 8, 4), Tiles(4, 4, 4, 3)):
        agree(ran(graph, tiles, inputs, over), in_float64(graph, inputs))
    (strided,) = FusedKernel(traced(lambda x, y: x * y, [tensor(*sizes)] * 2), strict=False)(inputs[0], inputs[1].mT)
    torch.testing.assert_close(strided, inputs[0] * inputs[1].mT)


def test_what_hangs_on_a_channel_is_computed_once_a_row(seed: np.random.Generator) -> None:
    specs = [tensor(3, 5, 4, 4), tensor(5, 1, 1), tensor(5, 1, 1)]
    graph = traced(lambda x, a, b: row("relu")(x * row("exp")(a) + b), specs)
    kernel = lower(graph)
    assert (kernel.domain.rows, kernel.domain.length, kernel.whole_rows) == (15, 16, True)
    assert kernel.source.count("% 5") == 2
    inputs = made(specs, seed)
    agree(LibTorch().program(plan_of(graph).graph).run(*inputs), in_float64(graph, inputs))


# -- deviations ------------------------------------------------------------------------------------------
SHAPES = {"channels": ((32, 2, 16, 64), (0, 2, 3)), "columns": ((16384, 3), (0,)), "a row": ((1, 20000), (1,))}


@pytest.mark.parametrize("name", SHAPES)
def test_deviations_are_summed_in_the_pass_of_the_mean(
    name: str, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mean a thousand times the deviation costs no digit; torch on a CPU sums in double precision."""
    monkeypatch.setattr(deviations, "HELD", 1024)
    shape, dims = SHAPES[name]

    def variance(x: Any) -> Any:
        count = float(x.spec.numel // (row("sum")(x, dims=dims)).spec.numel)
        mean = row("sum")(x, dims=dims) / count
        off = x - mean
        return row("sum")(off * off, dims=dims) / count, mean

    graph = traced(variance, [tensor(*shape)])
    planned = plan_of(graph)
    assert sum(group.bytes_read > 4 * 16384 for group in planned.groups) == 1, "x is read once"
    x = torch.from_numpy(np.asarray(seed.standard_normal(shape) + 1000.0)).float()
    outputs = LibTorch().program(planned.graph).run(x)
    exact = torch.var(x.double(), dims, correction=0, keepdim=True)
    theirs = float(((torch.var(x, dims, correction=0, keepdim=True).double() - exact) / exact).abs().max())
    ours = float(((outputs[0].double() - exact) / exact).abs().max())
    assert ours <= 1.1 * theirs + 4 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(outputs[1].double(), x.double().mean(dims, keepdim=True), rtol=2e-7, atol=0)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
def test_a_batch_norm_reads_its_input_twice(
    dtype: DType, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deviations, "HELD", 1024)
    specs = [tensor(32, 2, 16, 64, dtype=dtype), tensor(2, dtype=dtype), tensor(2, dtype=dtype)]
    graph = traced(lambda x, a, b: row("relu")(row("batch_norm")(x, a, b, 1e-5)[0]), specs)
    planned = plan_of(graph)
    size = 65536 * dtype.itemsize
    assert planned.kernels == 3
    assert sum(group.bytes_read >= size for group in planned.groups) == 2
    inputs = made(specs, seed)
    agree(LibTorch().program(planned.graph).run(*inputs), in_float64(graph, inputs), 2.0)
