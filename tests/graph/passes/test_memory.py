"""Memory plans are followed by a simulator: every value is put where the plan says, and the outputs must be right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch import ops
from burn_torch.backend.ndarray import NdArray
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Graph, Literal
from burn_torch.graph.passes import MemoryPlan, isolate_outputs, memory_plan, peak_bytes
from tests.graph.passes.checks import made, names, run, spec, traced
from tests.graph.passes.example_graphs import deep_mlp, mnist_step
from tests.graph.random_graphs import Program, assert_same_bits, on_host, programs


def simulated(program: Program, plan: MemoryPlan) -> list[Any]:
    """Runs a graph with every value in the bytes that the plan gives it, which hold rubbish before."""
    leaf = NdArray()
    graph = program.graph
    rng = np.random.default_rng(3)
    arenas = {key: rng.integers(0, 256, size, dtype=np.uint8) for key, size in plan.arena_bytes.items()}
    values: dict[int, Any] = {i: x for (i, _), x in zip(graph.inputs, program.inputs(leaf), strict=True)}
    over = {position: dict(pairs) for position, pairs in plan.in_place.items()}
    for position, node in enumerate(graph.nodes):
        read = [values[i] if isinstance(i, int) else i.value if isinstance(i, Literal) else None for i in node.inputs]
        if node.call.is_number:
            assert node.call.op.scalar is not None
            values[node.outputs[0]] = node.call.op.scalar(*read)  # type: ignore[index]  # numbers are computed
            continue
        with np.errstate(all="ignore"):
            results = leaf.execute(node.call, read)
        for j, (i, x) in enumerate(zip(node.outputs, results, strict=True)):
            if i is None:
                continue
            if node.call.aliases:
                # a view of where its input lies; numpy lets nobody write through one that expands nothing
                values[i] = read[0] if node.call.is_input else x
                continue
            buffer = plan.buffers[plan.buffer_of[i]]
            place: Any
            if j in over.get(position, {}):
                place = read[over[position][j]]
            elif buffer.offset is not None:
                arena = arenas[buffer.region, buffer.place]
                assert buffer.offset % 64 == 0
                assert buffer.offset + buffer.bytes <= arena.size
                place = arena[buffer.offset : buffer.offset + x.nbytes].view(x.dtype).reshape(x.shape)
            else:
                assert buffer.region == "constant"
                place = np.empty_like(x)
            place[...] = x
            values[i] = place
    return on_host(leaf, [None if i is None else values[i] for i in graph.outputs])


def check_plan(graph: Graph, donated: tuple[int, ...]) -> MemoryPlan:
    """Fails where two buffers of one arena overlap in life and place, or the plan counts wrongly."""
    plan = memory_plan(graph, donated)
    assert plan == memory_plan(graph, donated)
    ours = [b for b in plan.buffers if b.offset is not None]
    for n, a in enumerate(ours):
        assert a.offset is not None
        for b in ours[:n]:
            assert b.offset is not None
            together = a.first <= b.last and b.first <= a.last and (a.region, a.place) == (b.region, b.place)
            if together and a.bytes and b.bytes:
                assert a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset, (a, b)
    for position in range(-1, len(graph.nodes) + 1):
        in_use = sum(b.bytes for b in plan.buffers if b.first <= position <= b.last)
        assert in_use <= plan.peak_bytes
        if position == plan.peak_at:
            assert in_use == plan.peak_bytes
    assert peak_bytes(graph, donated) == plan.peak_bytes
    return plan


@settings(max_examples=150, deadline=None)
@given(program=programs(exact=True), donated=st.sets(st.integers(0, 6)))
def test_values_put_where_the_plan_says_are_right(program: Program, donated: set[int]) -> None:
    tensors = tuple(p for p, (_, s) in enumerate(program.graph.inputs) if p in donated and isinstance(s, TensorSpec))
    graph = isolate_outputs(program.graph, tensors)
    plan = check_plan(graph, tensors)
    expected = run(program.graph, program, NdArray())
    assert_same_bits(simulated(Program(graph, program.data), plan), expected)


@settings(max_examples=40, deadline=None)
@given(program=programs(backward=True, max_nodes=8))
def test_plans_of_gradients_are_consistent(program: Program) -> None:
    check_plan(isolate_outputs(program.graph), ())


@pytest.mark.parametrize("example", [mnist_step(4), deep_mlp(3)], ids=["mnist", "mlp"])
def test_new_parameters_lie_in_the_memory_of_the_old_ones(example: tuple[Graph, tuple[int, ...]]) -> None:
    graph, donated = example
    plan = check_plan(graph, donated)
    # outputs: the loss, then parameters and moments in the order of the inputs
    moved = [
        graph.inputs[i][1]
        for i in donated
        if plan.buffer_of[graph.outputs[i + 1] or 0] != plan.buffer_of[graph.inputs[i][0]]
    ]
    # strides of an axis of one element mean nothing, so an update of such a tensor might lie otherwise
    assert all(isinstance(x, TensorSpec) and 1 in x.shape for x in moved)
    assert len(moved) <= 3


# -- in place ---------------------------------------------------------------------------------------
X = spec(4, 3)


def in_place(graph: Graph, donated: tuple[int, ...] = ()) -> list[str]:
    return [names(graph)[position] for position in memory_plan(graph, donated).in_place]


def test_a_dying_value_of_ours_is_written_over() -> None:
    graph = traced(lambda x: ops.tanh(ops.sqrt(ops.exp(x))), X)
    assert in_place(graph) == ["sqrt", "tanh"]
    plan = memory_plan(graph)
    assert [b.region for b in plan.buffers] == ["input", "output"]
    assert plan.peak_bytes == 2 * X.numel * 4


KEPT: dict[str, tuple[Any, list[TensorSpec]]] = {
    "an input is not ours": (lambda x: ops.sqrt(x), [X]),
    "it is read later": (lambda x: (lambda y: ops.matmul(ops.sqrt(y), y))(ops.exp(x)), [spec(3, 3)]),
    "it is an output": (lambda x: (lambda y: (y, ops.sqrt(y)))(ops.matmul(x, x)), [spec(3, 3)]),
    "a view of it is an output": (
        lambda x: (lambda y: (ops.reshape(y, shape=(9,)), ops.sqrt(y)))(ops.matmul(x, x)),
        [spec(3, 3)],
    ),
    "it occurs twice": (lambda x: (lambda y: y * y)(ops.matmul(x, x)), [spec(3, 3)]),
    "a view of it occurs too": (
        lambda x: (lambda y: y * ops.permute(y, axes=(1, 0)))(ops.matmul(x, x)),
        [spec(3, 3)],
    ),
    "the result is larger": (lambda x, y: ops.exp(x) + y, [spec(3), X]),
    "the type differs": (lambda x: ops.cast(ops.exp(x), dtype=DType.F64), [X]),
    "it repeats elements": (lambda x: ops.sqrt(ops.expand(ops.exp(x), shape=(4, 3))), [spec(3)]),
    "it has gaps": (lambda x: ops.sqrt(ops.slice(ops.exp(x), ranges=((0, 4, 1), (0, 2, 1)))), [X]),
    "the result lies in memory as the mask does": (
        lambda x, m: ops.mask_where(ops.permute(ops.exp(x), axes=(1, 0)), m, 0.0),
        [X, spec(3, 4, dtype=DType.BOOL)],
    ),
    "it is a constant": (
        lambda x: x + ops.sqrt(made(ops.full, x, 2.0, shape=(4, 3), dtype=DType.F32, place="cpu")),
        [X],
    ),
}


@pytest.mark.parametrize("why", KEPT)
def test_nothing_is_written_in_place_where(why: str) -> None:
    function, specs = KEPT[why]
    assert in_place(traced(function, *specs)) == []


def test_a_donated_input_is_written_over_at_its_last_use() -> None:
    graph = traced(lambda x, y: (x + y, y), X, X)
    assert in_place(graph, (0,)) == ["add"]
    assert in_place(graph, (1,)) == []
    plan = memory_plan(graph, (0,))
    assert plan.buffer_of[graph.outputs[0] or 0] == plan.buffer_of[graph.inputs[0][0]]
    assert plan.buffers[plan.buffer_of[graph.inputs[0][0]]].region == "state"


def test_alignment_and_regions() -> None:
    graph = traced(lambda x: ops.sum(ops.square(x) + ops.exp(x), dims=(0,)), spec(5, 3))
    plan = memory_plan(graph)
    assert plan.arena_bytes == {("activation", "cpu"): 128, ("output", "cpu"): 64}
    on_gpu = traced(
        lambda x: ops.sum(ops.square(x) + ops.exp(x), dims=(0,)), TensorSpec.of((5, 3), DType.F32, "cuda:0")
    )
    assert memory_plan(on_gpu).arena_bytes == {("activation", "cuda:0"): 1024, ("output", "cuda:0"): 512}
