"""Equal optimizer rows become one call, and no bit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER
from burn_torch.graph import Graph
from burn_torch.graph.passes import dead_code, group_updates
from tests.graph.passes.checks import check, names, spec, traced
from tests.graph.passes.example_graphs import deep_mlp
from tests.graph.random_graphs import Program, _data, programs


def data(graph: Graph) -> Program:
    rng = np.random.default_rng(5)
    drawn = [_data(rng, s, special=False) for _, s in graph.inputs]
    return Program(graph, tuple(abs(x) + 1 if isinstance(x, int) else x for x in drawn))  # a step counts from 1


@settings(max_examples=100, deadline=None)
@given(program=programs(max_nodes=24))
def test_grouping_changes_no_bit(program: Program) -> None:
    check(group_updates, program)


X, Y = spec(2, 3), spec(4)


@pytest.mark.parametrize(
    ("row", "kinds", "settings"),
    [
        (ops.sgd_update, 2, {}),
        (ops.momentum_update, 3, {"nesterov": True}),
        (ops.lion_update, 3, {}),
        (ops.adam_update, 4, {"amsgrad": False, "cautious": True}),
        (ops.adam_update, 5, {"amsgrad": True, "cautious": False}),
    ],
)
def test_updates_of_all_kinds_are_joined_run_by_run(row: Any, kinds: int, settings: dict[str, Any]) -> None:
    numbers = {2: (0.1, 0.01), 3: (0.1, 0.0, 0.9, 1.0)}.get(kinds, (0.1, 0.9, 0.99, 1e-8, 0.0, 0.1, 3))

    def step(*tensors: Any) -> Any:
        squares = [ops.square(t) for t in tensors]  # no moment is below 0
        first = row(*numbers, *squares[0:kinds], **settings)
        second = row(*numbers, *squares[kinds : 3 * kinds], **settings)
        return (*first, *second)

    specs = [X] * kinds + [s for _ in range(kinds) for s in (Y, X)]
    graph = traced(step, *specs)
    after = check(group_updates, data(graph))
    assert names(after).count(row.name) == 1
    assert len(after.nodes[-1].outputs) == 3 * (kinds - 1)


def test_a_step_has_one_update_in_the_end() -> None:
    graph, _ = deep_mlp(3)
    after = group_updates(graph)
    assert names(graph).count("adam_update") == 6
    assert names(after).count("adam_update") == 1
    check(group_updates, data(graph))


def test_updates_stay_apart_that_differ_or_need_each_other() -> None:
    def step(lr: Any, other: Any, p: Any, g: Any, wide: Any) -> Any:
        (a,) = ops.sgd_update(lr, 0.0, p, g)
        (b,) = ops.sgd_update(other, 0.0, p, g)  # another rate
        (c,) = ops.sgd_update(lr, 0.0, a, g)  # after the first
        (d,) = ops.sgd_update(lr, 0.0, wide, wide)  # another type
        (e,) = ops.sgd_update(lr, 0.0, g, g)  # joins the first, though it stands behind what reads it
        return a, b, c, d, e

    graph = traced(step, FLOAT_NUMBER, FLOAT_NUMBER, X, X, spec(2, 3, dtype=DType.F64))
    after = check(group_updates, data(graph))
    assert sorted(len(node.outputs) for node in after.nodes) == [1, 1, 1, 2]


def test_groups_that_cross_make_no_circle() -> None:
    def step(p: Any, q: Any) -> Any:
        (a,) = ops.sgd_update(0.1, 0.0, p, p)
        (b,) = ops.sgd_update(0.2, 0.0, a, p)  # needs a
        (c,) = ops.sgd_update(0.2, 0.0, q, q)
        (d,) = ops.sgd_update(0.1, 0.0, c, q)  # needs c: with a in one call, and b with c, there would be no order
        return a, b, c, d

    graph = traced(step, X, X)
    after = check(lambda g: dead_code(group_updates(g)), data(graph))
    assert len(after.nodes) == 4
