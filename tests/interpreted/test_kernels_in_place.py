"""Results of generated kernels over inputs that die in them: where it is legal, and what it must not spoil."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_torch.backend import LibTorch  # after the check for triton
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.dtype import DType
from burn_torch.fusion import plan_of
from burn_torch.fusion.body import needs
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.ir import Graph
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.programs import row, softmax, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked

SQUARE = tensor(6, 6)


def turned(x: Any) -> Any:
    return row("permute")(x, axes=(1, 0))


LEGAL: dict[str, tuple[Callable[..., Any], int, set[tuple[int, int]]]] = {
    "element-wise": (lambda x: x * 2.0 + 1.0, 1, {(0, 0)}),
    "either of two": (lambda x, y: x * y, 2, {(0, 0), (0, 1)}),
    "both of two": (lambda x, y: (x * y, x + y), 2, {(0, 0), (0, 1), (1, 0), (1, 1)}),
    "whole rows": (softmax, 1, {(0, 0)}),
    "read turned": (lambda x: turned(x) * 2.0, 1, set()),
    "read as it is and turned": (lambda x: x + turned(x), 1, set()),
    "the other way round": (lambda x: row("flip")(x, axes=(0,)) + x, 1, set()),
    "one of them turned": (lambda x, y: x + turned(y), 2, {(0, 0)}),
    "a row for all rows": (lambda x: x - row("slice")(x, ranges=((0, 1, 1), (0, 6, 1))), 1, set()),
    "sums of columns": (lambda x: row("sum")(x * 2.0, dims=(0,)), 1, set()),
    "another type": (lambda x: row("cast")(x * 2.0, dtype=DType.BF16), 1, set()),
}


@pytest.mark.parametrize("name", LEGAL)
def test_where_it_is_legal(name: str) -> None:
    function, count, legal = LEGAL[name]
    graph = traced(function, [SQUARE] * count)
    assert set(lower(plan_body(graph)).over) == legal


def plan_body(graph: Graph) -> Graph:
    """Composite operations opened, so that the whole is one body."""
    planned = plan_of(graph)
    return planned.groups[0].body if planned.groups else graph


def test_rows_in_steps_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = plan_body(traced(softmax, [tensor(3, 40)]))
    assert lower(graph).over == ((0, 0),)
    monkeypatch.setattr(needs, "LONGEST_ROW", 8)
    assert lower(graph).over == ()


@pytest.mark.parametrize("name", [name for name, (_, _, legal) in LEGAL.items() if legal])
def test_the_same_values_over_the_input(name: str, seed: np.random.Generator) -> None:
    function, count, legal = LEGAL[name]
    graph = plan_body(traced(function, [SQUARE] * count))
    inputs = made([SQUARE] * count, seed)
    plain = FusedKernel(graph, strict=False)(*[x.clone() for x in inputs])
    for output, position in sorted(legal):
        operands = [x.clone() for x in inputs]
        outputs = FusedKernel(graph, strict=False).written_over({output: position})(*operands)
        assert outputs[output] is operands[position]
        assert all(torch.equal(y, z) for y, z in zip(outputs, plain, strict=True)), "all is read before one is written"


def test_two_results_over_two_inputs(seed: np.random.Generator) -> None:
    """Crossed over: the first result lies where the second still has to read."""
    graph = traced(lambda x, y: (x * 2.0, y + x), [SQUARE] * 2)
    x, y = made([SQUARE] * 2, seed)
    kernel = FusedKernel(graph, strict=False).written_over({0: 1, 1: 0})
    wanted = x * 2.0, y + x
    outputs = kernel(x, y)
    assert outputs[0] is y
    assert outputs[1] is x
    assert all(torch.equal(a, b) for a, b in zip(outputs, wanted, strict=True))


def test_an_input_with_gaps_is_left_alone(seed: np.random.Generator) -> None:
    graph = traced(lambda x: x * 2.0, [SQUARE])
    (x,) = made([SQUARE], seed)
    before = x.clone()
    (output,) = FusedKernel(graph, strict=False).written_over({0: 0})(x.mT)
    assert torch.equal(x, before)
    assert torch.equal(output, before.mT * 2.0)


def test_a_barrier_before_threads_write_what_others_read() -> None:
    small = traced(lambda x: x * 2.0, [tensor(100)])
    large = traced(lambda x: x * 2.0, [tensor(5000)])
    assert "debug_barrier" in lower(small, over=True).source
    assert "debug_barrier" not in lower(large, over=True).source, "each thread has its own elements"
    rows = plan_body(traced(softmax, [tensor(8, 128)]))
    assert "debug_barrier" in lower(rows, over=True).source
    assert "debug_barrier" not in lower(rows).source


# -- programs ------------------------------------------------------------------------------------------------
def run(function: Callable[..., Any], shapes: list[tuple[int, ...]], seed: np.random.Generator) -> Any:
    """Runs what is planned; inputs stay as they are, results are right.  Gives what kernels wrote over something."""
    specs = [tensor(*shape) for shape in shapes]
    graph = traced(function, specs)
    inputs = made(specs, seed)
    before = [x.clone() for x in inputs]
    planned = plan_of(graph).graph
    program = LibTorch().program(planned)
    outputs = program.run(*inputs)
    agree(outputs, in_float64(graph, before), 4.0)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True)), "an argument was written to"
    written = {i for node in planned.nodes if node.call.op.name == "fusion::kernel" for i in node.outputs}
    assert written
    return [i for i, _ in program.reused if i in written]


def test_a_value_that_dies_is_written_over(seed: np.random.Generator) -> None:
    assert len(run(lambda x, w: row("relu")(row("matmul")(x, w) + 1.0), [(6, 4), (4, 6)], seed)) == 1


HELD: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "an argument": (lambda x: row("relu")(x + 1.0), [(6, 6)]),
    "read later": (lambda x, w: (lambda h: row("matmul")(row("relu")(h + 1.0), h))(row("matmul")(x, w)), [(6, 6)] * 2),
    "returned": (lambda x, w: (lambda h: (row("relu")(h + 1.0), h))(row("matmul")(x, w)), [(6, 6)] * 2),
    "a view is returned": (
        lambda x, w: (lambda h: (row("relu")(h + 1.0), turned(h)))(row("matmul")(x, w)),
        [(6, 6)] * 2,
    ),
    "a view is read later": (
        lambda x, w: (lambda h, v: row("matmul")(row("relu")(h + 1.0), v))(
            *(lambda h: (h, turned(h)))(row("matmul")(x, w))
        ),
        [(6, 6)] * 2,
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_what_is_needed_is_not_written_over(name: str, seed: np.random.Generator) -> None:
    function, shapes = HELD[name]
    assert run(function, shapes, seed) == []


def test_two_views_of_one_value_are_not_written_over(seed: np.random.Generator) -> None:
    """The kernel reads halves of what it would write over."""

    def halves(x: Any, w: Any) -> Any:
        h = row("matmul")(x, w)
        first, second = row("split")(h, sizes=(3, 3), dim=0)
        return row("tanh")(first * second)

    assert run(halves, [(6, 6), (6, 6)], seed) == []


def test_chains_of_kernels_reuse_one_piece_of_memory(seed: np.random.Generator) -> None:
    def chain(x: Any, w: Any) -> Any:
        h = x
        for _ in range(4):
            h = row("tanh")(row("matmul")(h, w) * 0.5) + 0.1
        return h

    assert len(run(chain, [(6, 6), (6, 6)], seed)) == 4


def test_donated_arguments_are_written_over(seed: np.random.Generator) -> None:
    graph = traced(lambda x: row("tanh")(x * 2.0), [SQUARE])
    (x,) = made([SQUARE], seed)
    wanted = torch.tanh(x * 2.0)
    address = x.data_ptr()
    (output,) = LibTorch().program(plan_of(graph).graph, donate=frozenset([0])).run(x)
    assert output.data_ptr() == address
    torch.testing.assert_close(output, wanted)
