"""The cost of planning: in proportion to the program, within a budget, and never more than the search is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device
from burn_torch.backend import Autodiff
from burn_torch.fusion.planning import groups, planner
from burn_torch.fusion.planning.bodies import Source
from burn_torch.fusion.planning.groups import Grouping
from burn_torch.fusion.planning.legality import Legality
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes import dead_code
from burn_torch.graph.trace import Trace
from burn_torch.ops.value import Value
from tests.fusion.programs import row, tensor, traced

LEAF = Device.cpu().backend


def slices(x: Any, t: int, axis: int, size: int) -> Any:
    ranges = [(0, n, 1) for n in x.spec.shape]
    ranges[axis] = (t * size, (t + 1) * size, 1)
    return row("slice")(x, ranges=tuple(ranges))


def recurrence(steps: int) -> Graph:
    """A gated recurrence with the gradient of its weights."""
    trace = Trace()
    tape = Autodiff.over(trace)
    specs = [tensor(steps * 2, 8), tensor(4, 8), tensor(2, 4)]
    inputs = [trace.input(spec) for spec in specs]
    products, weights, cell = (
        Value(tape, tape.track(x.primitive, spec), spec) for x, spec in zip(inputs, specs, strict=True)
    )
    hidden, total = cell, cell * 0.0
    for t in range(steps):
        joint = slices(products, t, 0, 2) + row("matmul")(hidden, weights)
        keep, new = (slices(joint, n, 1, 4) for n in range(2))
        cell = row("sigmoid")(keep) * cell + row("sigmoid")(new * 0.5) * row("tanh")(new)
        hidden = row("sigmoid")(keep + new) * row("tanh")(cell)
        total = total + hidden * hidden
    one = trace.input(tensor(2, 4))
    leaves = tape.backward([(total.primitive, one.primitive)])
    return dead_code(trace.graph([Value(trace, x, None) for x in leaves.values()])).dense()


def agree(planned: Graph, graph: Graph, seed: np.random.Generator) -> None:
    inputs = [torch.from_numpy(seed.standard_normal(spec.shape)).float() for _, spec in graph.inputs]  # type: ignore[union-attr]
    for y, z in zip(interpret(planned, LEAF, inputs), interpret(graph, LEAF, inputs), strict=True):
        torch.testing.assert_close(y, z, rtol=1e-4, atol=1e-5)


def test_a_recurrence_costs_by_the_step() -> None:
    """Each step could compute all steps before it again: then work grows with the square of the steps."""
    work, again = [], []
    for steps in (5, 10, 20):
        grouping = Grouping(Source(recurrence(steps)))
        grouping.run()
        work.append(grouping.legality.work)
        again.append(max(map(len, grouping.again.values()), default=0))
    assert max(again) <= groups._MOST_AGAIN
    assert work[2] < 2.6 * work[1] < 2.6 * 2.6 * work[0], work


def test_a_plan_over_its_budget_is_plainer_and_right(
    seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = recurrence(4)
    whole = planner.plan_of(graph)
    assert not whole.notes
    monkeypatch.setattr(groups, "_WORK", 60)
    monkeypatch.setattr(groups, "_WORK_EACH", 0)
    spent = planner.plan_of(graph)
    assert spent.notes == ("limit: planning reached its limit of time for this number of operations",)
    assert spent.kernels > whole.kernels
    agree(spent.graph, graph, seed)
    assert planner.plan_of(graph).graph == spent.graph, "a budget is counted in operations, not in seconds"


def test_a_long_program_is_planned_in_pieces(seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = recurrence(6)
    monkeypatch.setattr(planner, "_LONGEST", 100)
    monkeypatch.setattr(planner, "_PIECE", 40)
    plan = planner.plan_of(graph)
    assert plan.notes == (f"planned in pieces of 40 operations: there are {len(graph.nodes)}",)
    assert plan.groups
    agree(plan.graph, graph, seed)


def test_bodies_that_begin_their_slices_elsewhere_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(t: int, other: int) -> Graph:
        def around(x: Any) -> Any:
            return row("tanh")(slices(x, t, 0, 2)) * slices(x, other, 0, 2)

        return traced(around, [tensor(12, 3)])

    legality = Legality(1000)
    assert legality.likely_fault(step(1, 2)) is None
    work = legality.work
    assert legality.likely_fault(step(3, 4)) is None
    assert legality.work == work
    assert legality.likely_fault(step(2, 2)) is None, "whether two begin at one place is another body"
    assert legality.work > work
    work = legality.work
    assert legality.fault(step(3, 4)) is None, "what is written is asked itself"
    assert legality.work > work
