"""Values that wait for the backward are made again there: which, the same values, a lower peak."""

from __future__ import annotations

from typing import Any

import torch

from burn_torch.backend import LibTorch
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import explain, plan_of
from burn_torch.fusion.planning.again import kept_less
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.memory import peak_bytes
from burn_torch.graph.verifier import verify
from tests.fusion.checking import made
from tests.fusion.programs import row, tensor, traced

LAYERS, ROWS, WIDTH = 4, 192, 8


def layers(x: Any, *weights: Any) -> Any:
    """norm, linear, GELU, linear, residual; then the gradients of the weights, all of it by hand."""
    turned = lambda y: row("permute")(y, axes=(1, 0))  # noqa: E731
    kept = []
    for number in range(LAYERS):
        gamma, beta, up, down = weights[4 * number : 4 * number + 4]
        y, mean, rstd = row("layer_norm")(x, gamma, beta, 1e-5)
        h = row("matmul")(y, up)
        z = row("gelu_approximate")(h)
        kept.append((x, y, mean, rstd, gamma, h, z, up, down))
        x = x + row("matmul")(z, down)
    g, grads = x * 0.5, []
    for x, y, mean, rstd, gamma, h, z, up, down in reversed(kept):
        dz, dh = row("matmul")(g, turned(down)), None
        grads.append(row("matmul")(turned(z), g))
        dh = row("gelu_approximate_backward")(dz, h)
        grads.append(row("matmul")(turned(y), dh))
        dx, dgamma, dbeta = row("layer_norm_backward")(row("matmul")(dh, turned(up)), x, mean, rstd, gamma)
        grads += [dgamma, dbeta, row("sum_to_shape")(dh, shape=dh.shape[1:])]
        g = g + dx
    return (g, *grads)


def graph_of(function: Any = layers) -> Graph:
    shapes = [(ROWS, WIDTH), *[(WIDTH,), (WIDTH,), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)] * LAYERS]
    return traced(function, [tensor(*shape) for shape in shapes])


def values(graph: Graph) -> list[Any]:
    import numpy as np

    return made([spec for _, spec in graph.inputs if isinstance(spec, TensorSpec)], np.random.default_rng(1))


def test_gelu_and_norm_do_not_wait_for_the_backward() -> None:
    graph = graph_of()
    before = plan_of(graph)
    after = kept_less(before)
    verify(after.graph)
    inputs = values(graph)
    waiting, planned, expected = (interpret(g, LibTorch(), inputs) for g in (after.graph, before.graph, graph))
    torch.testing.assert_close(waiting, planned)
    # sums in another order, which the gradients of this stack magnify: some 1e-5 of the largest
    torch.testing.assert_close(waiting, expected, rtol=1e-3, atol=1e-2)
    assert peak_bytes(after.graph) < peak_bytes(before.graph) - 2 * 4 * ROWS * 4 * WIDTH
    again = [group for group in after.groups if {"gelu_approximate", "gelu_approximate_backward"} <= {*group.rows}]
    assert len(again) == LAYERS - 1  # the last layer's is read where the peak is
    assert len(explain(after).kernels) == len(explain(before).kernels)
    assert sum(k.bytes_written for k in explain(after).kernels) > sum(k.bytes_written for k in explain(before).kernels)


def test_norms_wait_unless_a_limit_is_lower() -> None:
    """Their backward holds whole rows: only a limit makes it write them again, and only as many as it takes."""
    graph = graph_of()
    before = plan_of(graph)
    gelus = kept_less(before)
    one = ROWS * WIDTH * 4
    lower = kept_less(before, peak_bytes(gelus.graph) - one)
    assert peak_bytes(gelus.graph) - 2 * one <= peak_bytes(lower.graph) <= peak_bytes(gelus.graph) - one
    assert kept_less(before, peak_bytes(before.graph)) is before
    inputs = values(graph)
    torch.testing.assert_close(interpret(lower.graph, LibTorch(), inputs), interpret(before.graph, LibTorch(), inputs))


def test_a_value_that_is_returned_waits() -> None:
    def returned(x: Any, *weights: Any) -> Any:
        y, _, _ = row("layer_norm")(x, *weights[:2], 1e-5)
        return (*layers(x, *weights), y)

    graph = graph_of(returned)
    before = plan_of(graph)
    after, inputs = kept_less(before), values(graph)
    torch.testing.assert_close(interpret(after.graph, LibTorch(), inputs), interpret(before.graph, LibTorch(), inputs))


def test_a_forward_alone_is_left_as_it_is() -> None:
    def forward(x: Any, *weights: Any) -> Any:
        return row("gelu_approximate")(row("matmul")(x, weights[2]))

    plan = plan_of(graph_of(forward))
    assert kept_less(plan) is plan
