"""A view of a graph: makers, readers, free ids, and the graph that it writes."""

from __future__ import annotations

from hypothesis import given, settings

from burn_torch import ops
from burn_torch.graph import Graph, Literal, Node, verify
from burn_torch.graph.view import GraphView, first_free_id, inlined
from tests.graph.passes.checks import spec, traced
from tests.graph.random_graphs import Program, programs

X = spec(4, 3)


def graph() -> Graph:
    def function(x, y):
        z = ops.exp(x)
        return z * z + y, ops.sin(z)

    return traced(function, X, X)


@settings(max_examples=30, deadline=None)
@given(program=programs(max_nodes=10))
def test_makers_and_readers_are_those_of_the_nodes(program: Program) -> None:
    view = GraphView(program.graph)
    for n, node in enumerate(program.graph.nodes):
        assert all(view.maker[i] == n and view.made_by(i) is node for i in node.outputs if i is not None)
        assert all(node in view.read_by(i) for i in node.inputs if isinstance(i, int))
    assert all(readers == sorted(set(readers)) for readers in view.readers.values())
    assert all(view.made_by(i) is None for i, _ in program.graph.inputs)
    fresh = view.fresh()
    assert fresh == first_free_id(program.graph)
    assert fresh not in program.graph.specs()
    assert view.done() is program.graph, "nothing was changed"


def test_nothing_makes_or_reads_a_number() -> None:
    view = GraphView(graph())
    assert view.made_by(Literal(1.0)) is None
    assert view.read_by(None) == []
    assert view.spec(Literal(1.0)) is None


def test_a_value_is_read_outside_of_what_does_not_hold_all_its_readers() -> None:
    view = GraphView(graph())
    exp, mul, *_ = view.graph.nodes
    (z,) = exp.outputs
    assert view.is_read_outside(z, [mul])
    assert not view.is_read_outside(z, view.read_by(z))
    assert view.is_read_outside(view.graph.outputs[0], view.graph.nodes), "it is returned"


def test_what_replaces_a_node_may_not_be_replaced_again() -> None:
    view = GraphView(graph())
    exp, mul, *_ = view.graph.nodes
    square = Node(ops.square.bind([X], {}), exp.outputs, mul.outputs)
    assert view.replace([], [square], at=mul)
    assert not view.replace([exp], [], at=mul)
    assert view.is_gone(mul)
    assert not view.is_gone(exp), "what could not be replaced is as it was"
    after = verify(view.done())
    assert [node.call.op.name for node in after.nodes] == ["exp", "square", "add", "sin"]


def test_a_value_of_another_name_is_read_and_returned_by_it() -> None:
    view = GraphView(graph())
    (x, _), _ = view.graph.inputs
    exp, sin = view.graph.nodes[0], view.graph.nodes[-1]
    view.replace([], [], at=exp)
    view.rename(exp.outputs[0], x)
    view.rename(sin.outputs[0], x)
    after = verify(view.done())
    assert after.outputs[1] == x
    assert all(exp.outputs[0] not in node.inputs for node in after.nodes)


def test_made_values_come_before_their_readers() -> None:
    view = GraphView(graph())
    exp, *_, sin = view.graph.nodes
    view.replace([], [], at=exp)
    view.replace([], [sin, exp], at=sin)
    names = [node.call.op.name for node in verify(view.done()).nodes]
    assert names.index("exp") < min(names.index("mul"), names.index("sin"))


def test_a_body_is_written_with_ids_of_its_own() -> None:
    body, whole = traced(lambda x: ops.exp(x) * 2.0 + 1.0, X), graph()
    view = GraphView(whole)
    sin = whole.nodes[-1]
    view.replace([], inlined(body, sin.inputs, sin.outputs, view.fresh), at=sin)
    after = verify(view.done())
    assert after.outputs == whole.outputs
    assert [node.call.op.name for node in after.nodes[-3:]] == ["exp", "mul", "add"]
