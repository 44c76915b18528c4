"""Operations that become one kernel, and the reasons of those that do not."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER
from burn_torch.fusion import Plan, Reason, plan_of
from burn_torch.fusion.planning import schedule
from burn_torch.fusion.planning.bodies import Source
from burn_torch.fusion.planning.composites import open_composites
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes.dead import dead_code
from burn_torch.graph.passes.memory import peak_bytes
from burn_torch.graph.verifier import verify
from tests.fusion.programs import MATRIX, PROGRAMS, row, softmax, tensor, traced
from tests.fusion.random_recipes import Recipe, cooked, recipes, specs_of


def plan(name: str) -> Plan:
    function, specs, _ = PROGRAMS[name]
    return plan_of(traced(function, specs))


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels(name: str) -> None:
    planned = plan(name)
    verify(planned.graph)
    assert planned.kernels == PROGRAMS[name][2], planned.graph.text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_groups_say_what_they_hold(name: str) -> None:
    for group in plan(name).groups:
        assert len(group.rows) > 1
        assert group.bytes_saved >= 0
        assert group.bytes_written > 0


def test_a_composite_alone_keeps_its_own_kernel() -> None:
    planned = plan_of(traced(lambda x: row("softmax")(x, dim=1), [MATRIX]))
    assert [node.call.op.name for node in planned.graph.nodes] == ["softmax"]
    assert planned.groups == ()
    assert planned.boundaries == ()


def test_a_value_that_is_returned_is_written_and_the_others_are_not() -> None:
    planned = plan_of(traced(lambda x: (lambda h: (h, row("tanh")(h) + 1.0))(x * 2.0), [MATRIX]))
    (group,) = planned.groups
    assert group.bytes_written == 2 * 6 * 10 * 4
    assert group.bytes_saved == 3 * 6 * 10 * 4  # tanh stays inside, and the product is not read again


# -- boundaries ----------------------------------------------------------------------------------------
def reasons(plan: Plan) -> set[tuple[str, str, Reason]]:
    return {(boundary.producer, boundary.consumer, boundary.reason) for boundary in plan.boundaries}


def test_a_library_function_is_a_boundary() -> None:
    def mlp(x, w, v):
        return row("matmul")(row("relu")(row("matmul")(x, w) + 1.0), v)

    planned = plan_of(traced(mlp, [MATRIX, tensor(10, 8), tensor(8, 4)]))
    assert planned.kernels == 3
    assert reasons(planned) == {("matmul", "add", Reason.LIBRARY), ("relu", "matmul", Reason.LIBRARY)}


def test_reductions_over_other_axes_are_a_boundary() -> None:
    def both(x):
        h = row("exp")(x)
        return h / row("sum")(h, dims=(1,)), h / row("sum")(h, dims=(0,))

    planned = plan_of(traced(both, [MATRIX]))
    assert Reason.REDUCTION_ORDER in {reason for _, _, reason in reasons(planned)}


def test_nothing_needs_what_needs_it() -> None:
    def between(x, w):
        h = x - row("mean")(x, dims=(1,))
        return h + row("matmul")(h, w)  # one kernel would need the product before it makes what the product needs

    planned = plan_of(traced(between, [MATRIX, tensor(10, 10)]))
    verify(planned.graph)
    assert planned.kernels == 3
    assert ("sub", "add", Reason.BARRIER) in reasons(planned)


def test_what_is_computed_again_is_no_boundary() -> None:
    def between(x, w):
        h = x * 2.0
        return h + row("matmul")(h, w)  # reads x instead of h

    planned = plan_of(traced(between, [MATRIX, tensor(10, 10)]))
    assert planned.groups[-1].rows == ("mul", "add")
    assert reasons(planned) == {("mul", "matmul", Reason.LIBRARY), ("matmul", "add", Reason.LIBRARY)}


def test_types_that_kernels_do_not_take() -> None:
    planned = plan_of(traced(lambda x: row("tanh")(x) * 2.0, [tensor(3, 4, dtype=DType.F64)]))
    assert ("tanh", "mul", Reason.UNSUPPORTED) in reasons(planned)


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
    planned = plan_of(traced(lambda x, rate: x * rate + rate, [MATRIX, FLOAT_NUMBER]))
    (node,) = planned.graph.nodes
    assert node.call.specs[1] is FLOAT_NUMBER


# -- reductions in two steps -----------------------------------------------------------------------------
def test_a_long_reduction_of_few_results_becomes_two_kernels() -> None:
    def loss(x):
        return row("sum")(x * x, dims=(0, 1))

    planned = plan_of(traced(loss, [tensor(4096, 4096)]))
    assert planned.kernels == 2
    assert planned.groups[0].bytes_written <= 4 * 4096

    def bias(g, x):
        h = row("relu_backward")(g, x)
        return h, row("sum")(h, dims=(0,))

    planned = plan_of(traced(bias, [tensor(8192, 768), tensor(8192, 768)]))
    assert planned.kernels == 2
    assert planned.groups[0].rows[0] == "relu_backward"


def test_a_reduction_that_is_alone_keeps_its_own_kernel() -> None:
    planned = plan_of(traced(lambda x: row("sum")(x, dims=(0, 1)), [tensor(4096, 4096)]))
    assert [node.call.op.name for node in planned.graph.nodes] == ["sum"]


# -- composite operations ---------------------------------------------------------------------------------
def test_parts_that_nobody_reads_are_no_part_of_a_plan() -> None:
    def deviation(x):
        _, _, rstd = row("layer_norm")(x, x, x, 0.001)
        return row("expand")(rstd, shape=(1, 4)), row("gelu")(x)

    planned = plan_of(traced(deviation, [tensor(16)]))
    verify(planned.graph)
    assert all("mul" in group.rows for group in planned.groups)

    def offset_gradient(g, x, gamma, beta):
        _, mean, rstd = row("layer_norm")(x, gamma, beta, 0.001)
        return row("layer_norm_backward")(g * g, x, mean, rstd, gamma)[2] * 2.0

    planned = plan_of(traced(offset_gradient, [MATRIX, MATRIX, tensor(10), tensor(10)]))
    verify(planned.graph)
    assert "var" not in planned.graph.text()
    assert len(planned.graph.nodes) == 1


def test_what_lies_inside_of_a_composite_operation_is_made_by_its_parts() -> None:
    def shifted(x):
        line = row("sum_to_shape")(x, shape=(4,))
        return row("logsumexp")(row("permute")(line, axes=(0,)) * 0.5, dims=(0,)) + 1.0

    planned = plan_of(traced(shifted, [tensor(3, 4)]))
    verify(planned.graph)
    assert "sum_to_shape" not in planned.graph.text(), "the kernel after it reads the sum, not its other shape"


def test_groups_do_not_wait_for_each_other() -> None:
    """Ways that lead through other groups, whose members come before and after."""

    def crossed(x):
        line = row("sum")(x, dims=(0, 1))
        chosen = row("mask_where")(x, row("equal")(x, line), 0.1)
        turned = row("softmax")(row("roll")(x, shifts=(5,), dims=(0,)), dim=0)
        return row("clamp")(chosen, 0.25, 0.25), row("softmax")(line, dim=0), turned

    verify(plan_of(traced(crossed, [tensor(512, 1)])).graph)


# -- memory ----------------------------------------------------------------------------------------------
def test_no_kernel_raises_the_peak_of_memory() -> None:
    def held_long(x, w):
        early, late = row("expand")(x, shape=(64, 64)) * 2.0, row("expand")(x, shape=(64, 64)) + 1.0
        peak = row("amax")(row("matmul")(early, w), dims=(0, 1))
        for _ in range(2):
            peak = row("amax")(row("matmul")(row("exp")(row("expand")(peak, shape=(64, 64))), w), dims=(0, 1))
        return late * peak

    graph = traced(held_long, [tensor(64, 1), tensor(64, 64)])
    planned = plan_of(graph)
    verify(planned.graph)
    assert peak_bytes(planned.graph) <= peak_bytes(graph) + 1024  # first steps of reductions


@pytest.mark.parametrize("number", range(8))
def test_peaks_of_random_chains(number: int) -> None:
    """Several results of several sizes, made early and late."""
    seed = random.Random(number)

    def chains(*given):
        values = list(given)
        for _ in range(14):
            x = seed.choice(values[-5:])
            kind = seed.randrange(5)
            if kind == 0:
                values.append(row("matmul")(x, row("permute")(x, axes=(1, 0))))
            elif kind == 1:
                values.append(row("softmax")(x, dim=seed.randrange(2)))
            elif kind == 2:
                values.append(row("sum")(x, dims=(seed.randrange(2),)))
            elif kind == 3:
                values.append(row("expand")(row("mean")(x, dims=(0, 1)), shape=(64, 32)) + 1.0)
            else:
                values.append(row("tanh")(x) * 0.5)
        return tuple(values[-1:] + seed.sample(values[len(given) : -1], 3))

    graph = traced(chains, [tensor(64, 64), tensor(64, 1)])
    planned = plan_of(graph)
    verify(planned.graph)
    assert peak_bytes(planned.graph) <= peak_bytes(graph) + 1024  # first steps of reductions


@settings(deadline=None, max_examples=60, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(recipes())
def test_no_plan_raises_the_peak_of_memory(recipe: Recipe) -> None:
    """Plans random programs with libraries between: no kernels side by side, no values that wait raise the peak."""
    inputs, steps = recipe
    graph = dead_code(traced(lambda *xs: cooked(steps, xs), specs_of(inputs)))
    planned = plan_of(graph)
    verify(planned.graph)
    opened, whole = open_composites(graph)
    first_steps = schedule._workspace(Source(opened), whole)
    assert peak_bytes(planned.graph) <= peak_bytes(graph) + first_steps


# -- large tensors ------------------------------------------------------------------------------------------
def test_indexes_have_64_bits_where_memory_is_long() -> None:
    graph = traced(lambda x: row("sum")(x * 2.0, dims=(0,)), [tensor(1024, 8)])
    narrow = lower(graph, layouts=[(1 << 20, 1)])
    wide = lower(graph, layouts=[(1 << 22, 1)])
    assert not narrow.wide
    assert "int64" not in narrow.source
    assert wide.wide
    assert "r = r0 + tl.arange(0, RB).to(tl.int64)" in wide.source
    assert "x = tl.program_id(0).to(tl.int64)" in wide.source
    last = traced(lambda x: x * 2.0, [tensor((1 << 31) - 8)])
    assert lower(last).wide, "the last tile would begin again below zero"


def test_a_composite_that_a_kernel_reads_within_is_opened() -> None:
    """The operation after a reduction's reshape reads the reduction itself, so that has to be there."""

    def clipped(x: Any, y: Any) -> Any:
        total = row("sum_to_shape")(x, shape=(24,))
        parts = row("split")(total, sizes=(6, 6, 6, 6), dim=0)
        return (*(row("clamp")(part, -1.0, 1.0) for part in parts), row("clamp")(y, -1.0, 1.0), row("matmul")(x, y))

    planned = plan_of(traced(clipped, [tensor(12, 24), tensor(24, 6)]))
    verify(planned.graph)


def test_a_way_through_another_member_of_a_group_is_a_way() -> None:
    """early -> late of another group, whose early member late reads: the two are not one kernel."""

    def crossed(x: Any, y: Any, v: Any, w: Any) -> Any:
        early = row("exp")(x)
        other = row("tanh")(y)
        late = x * row("matmul")(other, w)
        return late, row("sigmoid")(y) * row("matmul")(early, v)

    planned = plan_of(traced(crossed, [MATRIX, tensor(6, 40), tensor(10, 40), tensor(40, 10)]))
    verify(planned.graph)
    assert planned.kernels >= 5
