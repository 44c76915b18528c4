"""Rows of an embedding's gradient are added to the other gradient of a tied table."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch.backend import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.rewrites.tables import add_rows
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.memory import memory_plan
from burn_torch.graph.verifier import verify
from tests.fusion.programs import row, tensor, traced

ROWS, WIDTH = 7, 3


def graph_of(function: Any) -> Graph:
    indices = TensorSpec.of((2, 5), DType.I64, "cpu")
    return traced(function, [tensor(WIDTH, ROWS), tensor(2, 5, WIDTH), indices])


def summed(x: Any, g: Any, indices: Any, *, turned: bool = False) -> Any:
    table = row("matmul")(row("permute")(x, axes=(1, 0)), row("matmul")(x, row("permute")(x, axes=(1, 0))))
    rows = row("embedding_backward")(g, indices, rows=ROWS)
    return rows + table if turned else table + rows


def names(graph: Graph) -> list[str]:
    return [node.call.op.name for node in graph.nodes if not node.call.aliases]


@pytest.mark.parametrize("turned", [False, True])
def test_rows_are_added_to_the_table_that_is_there(turned: bool) -> None:
    graph = graph_of(lambda *xs: summed(*xs, turned=turned))
    after = add_rows(graph)
    verify(after)
    assert names(after) == ["matmul", "matmul", "embedding_onto_backward"]
    generator = torch.Generator().manual_seed(3)
    x, g = torch.randn(WIDTH, ROWS, generator=generator), torch.randn(2, 5, WIDTH, generator=generator)
    inputs = [x, g, torch.randint(0, ROWS - 1, (2, 5), generator=generator)]
    torch.testing.assert_close(interpret(after, LibTorch(), inputs), interpret(graph, LibTorch(), inputs))
    assert [len(pairs) for pairs in memory_plan(after).in_place.values()] == [1]
    run = LibTorch().program(after, ()).run
    torch.testing.assert_close(list(run(*inputs)), interpret(graph, LibTorch(), inputs))


def test_rows_that_others_read_stay() -> None:
    def both(x: Any, g: Any, indices: Any) -> Any:
        rows = row("embedding_backward")(g, indices, rows=ROWS)
        return row("permute")(x, axes=(1, 0)) + rows, rows * 2.0

    graph = graph_of(both)
    assert add_rows(graph) is graph


def test_a_sum_that_broadcasts_stays() -> None:
    def spread(x: Any, g: Any, indices: Any) -> Any:
        line = row("sum")(row("permute")(x, axes=(1, 0)), dims=(0,))
        return line + row("embedding_backward")(g, indices, rows=ROWS)

    graph = graph_of(spread)
    assert add_rows(graph) is graph
