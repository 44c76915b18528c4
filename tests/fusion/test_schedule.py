"""What becomes one kernel, and why not what does not."""

from __future__ import annotations

import gc
import threading

import pytest

from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER
from burn_torch.fusion import Plan, Reason, plan_of
from burn_torch.graph.ir import Graph
from burn_torch.graph.verifier import verify
from tests.fusion.programs import MATRIX, PROGRAMS, row, softmax, tensor, traced


def plan(name: str) -> Plan:
    function, specs, _ = PROGRAMS[name]
    return plan_of(traced(function, specs))


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels(name: str) -> None:
    found = plan(name)
    verify(found.graph)
    assert found.kernels == PROGRAMS[name][2], found.graph.text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_groups_say_what_they_hold(name: str) -> None:
    for group in plan(name).groups:
        assert len(group.rows) > 1
        assert group.bytes_saved >= 0
        assert group.bytes_written > 0


def test_a_composite_alone_keeps_its_own_kernel() -> None:
    found = plan_of(traced(lambda x: row("softmax")(x, dim=1), [MATRIX]))
    assert [node.call.op.name for node in found.graph.nodes] == ["softmax"]
    assert found.groups == ()
    assert found.boundaries == ()


def test_a_value_that_is_returned_is_written_and_the_others_are_not() -> None:
    found = plan_of(traced(lambda x: (lambda h: (h, row("tanh")(h) + 1.0))(x * 2.0), [MATRIX]))
    (group,) = found.groups
    assert group.bytes_written == 2 * 6 * 10 * 4
    assert group.bytes_saved == 3 * 6 * 10 * 4  # tanh stays inside, and the product is not read again


# -- boundaries ----------------------------------------------------------------------------------------
def reasons(plan: Plan) -> set[tuple[str, str, Reason]]:
    return {(boundary.producer, boundary.consumer, boundary.reason) for boundary in plan.boundaries}


def test_a_library_function_is_a_boundary() -> None:
    def mlp(x, w, v):
        return row("matmul")(row("relu")(row("matmul")(x, w) + 1.0), v)

    found = plan_of(traced(mlp, [MATRIX, tensor(10, 8), tensor(8, 4)]))
    assert found.kernels == 3
    assert reasons(found) == {("matmul", "add", Reason.LIBRARY), ("relu", "matmul", Reason.LIBRARY)}


def test_reductions_over_other_axes_are_a_boundary() -> None:
    def both(x):
        h = row("exp")(x)
        return h / row("sum")(h, dims=(1,)), h / row("sum")(h, dims=(0,))

    found = plan_of(traced(both, [MATRIX]))
    assert Reason.REDUCTION_ORDER in {reason for _, _, reason in reasons(found)}


def test_nothing_needs_what_needs_it() -> None:
    def between(x, w):
        h = x * 2.0
        return h + row("matmul")(h, w)  # one kernel would need the product before it makes what the product needs

    found = plan_of(traced(between, [MATRIX, tensor(10, 10)]))
    verify(found.graph)
    assert found.kernels == 3
    assert ("mul", "add", Reason.BARRIER) in reasons(found)


def test_types_that_kernels_do_not_take() -> None:
    found = plan_of(traced(lambda x: row("tanh")(x) * 2.0, [tensor(3, 4, dtype=DType.F64)]))
    assert ("tanh", "mul", Reason.UNSUPPORTED) in reasons(found)


def test_every_reason_has_words() -> None:
    for name in PROGRAMS:
        for boundary in plan(name).boundaries:
            assert boundary.detail
            assert boundary.bytes > 0


# -- plans are functions of the program ----------------------------------------------------------------
def test_the_same_program_gives_the_same_plan() -> None:
    function, specs, _ = PROGRAMS["norm_backward"]
    graph = traced(function, specs)
    first = plan_of(graph).graph
    busy = threading.Event()
    threads = [threading.Thread(target=_until, args=(busy,)) for _ in range(1)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(20):
            (gc.disable if turn % 2 else gc.enable)()
            again = Graph.from_json(graph.to_json())
            assert plan_of(again).graph == first
    finally:
        gc.enable()
        busy.set()
        for thread in threads:
            thread.join()


def _until(event: threading.Event) -> None:
    while not event.wait(0.01):
        plan_of(traced(softmax, [MATRIX]))


def test_a_graph_without_anything_to_fuse_stays() -> None:
    graph = traced(lambda x, w: row("matmul")(x, w), [MATRIX, tensor(10, 3)])
    assert plan_of(graph).graph == graph


def test_numbers_stay_numbers() -> None:
    found = plan_of(traced(lambda x, rate: x * rate + rate, [MATRIX, FLOAT_NUMBER]))
    (node,) = found.graph.nodes
    assert node.call.specs[1] is FLOAT_NUMBER


# -- reductions in two steps -----------------------------------------------------------------------------
def test_a_long_reduction_of_few_results_becomes_two_kernels() -> None:
    def loss(x):
        return row("sum")(x * x, dims=(0, 1))

    found = plan_of(traced(loss, [tensor(4096, 4096)]))
    assert found.kernels == 2
    assert found.groups[0].bytes_written <= 4 * 512

    def bias(g, x):
        h = row("relu_backward")(g, x)
        return h, row("sum")(h, dims=(0,))

    found = plan_of(traced(bias, [tensor(8192, 768), tensor(8192, 768)]))
    assert found.kernels == 2
    assert found.groups[0].rows[0] == "relu_backward"


def test_a_reduction_that_is_alone_keeps_its_own_kernel() -> None:
    found = plan_of(traced(lambda x: row("sum")(x, dims=(0, 1)), [tensor(4096, 4096)]))
    assert [node.call.op.name for node in found.graph.nodes] == ["sum"]


# -- composite operations ---------------------------------------------------------------------------------
def test_parts_that_nobody_reads_are_no_part_of_a_plan() -> None:
    def deviation(x):
        _, _, rstd = row("layer_norm")(x, x, x, 0.001)
        return row("expand")(rstd, shape=(1, 4)), row("gelu")(x)

    found = plan_of(traced(deviation, [tensor(16)]))
    verify(found.graph)
    assert all("mul" in group.rows for group in found.groups)

    def offset_gradient(g, x, gamma, beta):
        _, mean, rstd = row("layer_norm")(x, gamma, beta, 0.001)
        return row("layer_norm_backward")(g * g, x, mean, rstd, gamma)[2] * 2.0

    found = plan_of(traced(offset_gradient, [MATRIX, MATRIX, tensor(10), tensor(10)]))
    verify(found.graph)
    assert "var" not in found.graph.text()
    assert len(found.graph.nodes) == 1


def test_what_lies_inside_of_a_composite_operation_is_made_by_its_parts() -> None:
    def shifted(x):
        line = row("sum_to_shape")(x, shape=(4,))
        return row("logsumexp")(row("permute")(line, axes=(0,)) * 0.5, dims=(0,)) + 1.0

    found = plan_of(traced(shifted, [tensor(3, 4)]))
    verify(found.graph)
    assert "sum_to_shape" not in found.graph.text(), "the kernel after it reads the sum, not its other shape"


def test_groups_do_not_wait_for_each_other() -> None:
    """Ways that lead through other groups, whose members come before and after."""

    def crossed(x, w):
        line = row("sum")(x, dims=(0, 1))
        mask = row("equal")(x, row("sum")(row("matmul")(line, w), dims=(0, 1)))
        there = row("mask_where")(x, mask, 0.1)
        peak = row("amax")(row("amax")(x * 0.5, dims=(0,)), dims=(1,))
        moved = row("exp")(x - row("reshape")(row("matmul")(peak, w), shape=(1,)))
        return there, row("clamp")(there, 0.25, 0.5), moved, row("sum")(moved, dims=(0, 1))

    verify(plan_of(traced(crossed, [tensor(4, 5), tensor(1, 1)])).graph)
