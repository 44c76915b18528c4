"""Recomputation lowers the planned peak, or does nothing; it never changes a bit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings

from burn_torch import ops
from burn_torch.core.data import TensorData
from burn_torch.core.spec import INT_NUMBER, TensorSpec
from burn_torch.graph import Graph, Node, Origin, verify
from burn_torch.graph.passes import memory_plan, peak_bytes, recompute
from burn_torch.ops import REGISTRY, Value
from tests.graph.passes.checks import LEAVES, check_signature, names, run, spec, traced
from tests.graph.random_graphs import Program, assert_same_bits, differentiated, programs


def lowered(program: Program, donated: tuple[int, ...] = ()) -> Graph:
    """Recomputes, and fails where a bit changes, the peak does not fall, or something else changes."""
    graph = program.graph
    after = verify(recompute(graph, donated))
    check_signature(graph, after)
    for leaf in LEAVES:
        assert_same_bits(run(after, program, leaf), run(graph, program, leaf))
    assert after is graph or peak_bytes(after, donated) < peak_bytes(graph, donated)
    assert recompute(graph, donated) == after
    return after


@settings(max_examples=60, deadline=None)
@given(program=programs(backward=True, max_nodes=10))
def test_gradients_keep_their_bits(program: Program) -> None:
    lowered(program)


@settings(max_examples=40, deadline=None)
@given(program=programs(max_nodes=20))
def test_random_graphs_keep_their_bits(program: Program) -> None:
    lowered(program)


def chain(depth: int, width: int = 64) -> Graph:
    """The gradients of linear, GELU, scale and dropout, many times: three of four values can be made again."""

    def function(x: Value, w: Value, key: Value) -> Value:
        for stream in range(depth):
            x = ops.dropout(ops.gelu(ops.linear(x, w, None)) * 2.0, 0.5, key, stream)
        return x

    s = spec(width, width)
    return differentiated(traced(function, s, s, INT_NUMBER))


def data(graph: Graph) -> Program:
    rng = np.random.default_rng(2)
    return Program(
        graph,
        tuple(
            TensorData.of(rng.normal(size=s.shape) / 8).convert(s.dtype) if isinstance(s, TensorSpec) else 5
            for _, s in graph.inputs
        ),
    )


def test_a_training_step_keeps_one_value_a_layer_instead_of_two() -> None:
    graph = chain(12)
    after = lowered(data(graph))
    layer = 64 * 64 * 4
    assert peak_bytes(after) <= peak_bytes(graph) - 10 * layer
    added = Counter(names(after)) - Counter(names(graph))
    assert {"dropout", "gelu"} <= set(added), "draws run again too"
    assert {REGISTRY[name].cost for name in added} == {"cheap"}


def test_it_stops_at_the_target() -> None:
    graph = chain(6)
    peak, least = peak_bytes(graph), peak_bytes(recompute(graph))
    assert recompute(graph, target_bytes=peak) is graph
    between = recompute(graph, target_bytes=(peak + least) // 2)
    assert least <= peak_bytes(between) <= (peak + least) // 2
    assert len(graph.nodes) < len(between.nodes) < len(recompute(graph).nodes)


def test_what_runs_again_stands_right_before_its_reader_and_knows_its_origin() -> None:
    big = spec(100, 100)

    def function(x: Any, w: Any) -> Any:
        y = ops.exp(x)  # cheap, and x is there anyway
        z = ops.matmul(ops.matmul(y, w), ops.matmul(w, w))  # the peak
        return ops.sum(ops.matmul(z, z), dims=(0, 1)) + ops.sum(y, dims=(0, 1))

    graph = traced(function, big, big)
    marked = [Node(n.call, n.inputs, n.outputs, Origin("model.py", i, "step")) for i, n in enumerate(graph.nodes)]
    after = recompute(Graph(graph.inputs, marked, graph.outputs))
    assert names(after).count("exp") == 2
    second = len(after.nodes) - 1 - names(after)[::-1].index("exp")
    assert names(after)[second + 1] == "sum"
    assert after.nodes[second].origin == Origin("model.py", 0, "step")
    assert memory_plan(after).peak_bytes == memory_plan(graph).peak_bytes - 40_000


def test_expensive_rows_and_reductions_are_kept() -> None:
    big = spec(100, 100)

    def function(x: Any, w: Any) -> Any:
        y = ops.softmax(x, dim=1)
        z = ops.matmul(ops.matmul(y, w), ops.matmul(w, w))
        return ops.sum(ops.matmul(z, z), dims=(0, 1)) + ops.sum(y, dims=(0, 1))

    graph = traced(function, big, big)
    assert recompute(graph) is graph


def test_nothing_runs_again_where_its_inputs_would_have_to_be_kept() -> None:
    big = spec(100, 100)

    def function(x: Any, w: Any) -> Any:
        y = ops.exp(ops.matmul(x, w))  # its input is as large
        z = ops.matmul(ops.matmul(y, w), ops.matmul(w, w))
        return ops.sum(ops.matmul(z, z), dims=(0, 1)) + ops.sum(y, dims=(0, 1))

    graph = traced(function, big, big)
    assert recompute(graph) is graph
