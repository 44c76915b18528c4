"""The verifier: each fault of a hand-broken graph is told, and graphs that are right pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from burn_torch import graph as graph_package
from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import GraphError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.graph import Graph, Literal, Node, Origin, dead_code, verify
from burn_torch.ops import REGISTRY, Call, Op, op
from tests.graph.random_graphs import Program, programs

A = TensorSpec.of((2, 3), DType.F32, "cpu")
B = TensorSpec.of((3, 2), DType.F32, "cpu")
STATISTIC = TensorSpec.of((2, 1), DType.F32, "cpu")


@op(torch=lambda x: x, namespace="nowhere")
def made_up(x: TensorSpec) -> TensorSpec:
    """A row that is taken out of the table at once."""
    return x


del REGISTRY[made_up.name]


def call(row: Op, *specs: Spec | None, **attrs: Any) -> Call:
    return row.bind(specs, attrs)


EXP, ADD = call(ops.exp, A), call(ops.add, A, A)
SCALED = call(ops.mul, A, FLOAT_NUMBER)
BACKWARD = call(ops.layer_norm_backward, A, A, STATISTIC, STATISTIC, None, live=(True, False, False))


def graph(
    *nodes: Node, outputs: Sequence[int | None] = (), inputs: Sequence[tuple[int, Any]] = ((0, A), (1, B))
) -> Graph:
    return Graph(inputs, nodes, outputs)


BROKEN = {
    "input without a spec": (graph(inputs=[(0, None)]), "it has no spec", "input 0: %0"),
    "id that is no number": (graph(inputs=[("a", A)]), "'a' is no id", "input 0"),  # type: ignore[list-item]
    "id that is a truth value": (graph(inputs=[(True, A)]), "True is no id", "input 0"),
    "negative id": (graph(Node(EXP, [0], [-1])), "-1 is no id", "node 0, %-1 = exp(%0)"),
    "input made twice": (graph(inputs=[(0, A), (0, B)]), "%0 is made twice", "input 1: %0"),
    "output with an input's id": (graph(Node(EXP, [0], [1])), "%1 is made twice", "node 0"),
    "two nodes make one id": (graph(Node(EXP, [0], [2]), Node(EXP, [0], [2])), "%2 is made twice", "node 1"),
    "read before it is made": (
        graph(Node(EXP, [3], [2]), Node(EXP, [0], [3])), "input 0 reads %3 before it is made", "node 0, %2 = exp(%3)"),
    "node reads itself": (graph(Node(EXP, [2], [2])), "input 0 reads %2 before it is made", "node 0"),
    "read and never made": (graph(Node(EXP, [9], [2])), "input 0: nothing makes %9", "node 0, %2 = exp(%9)"),
    "too few inputs": (graph(Node(ADD, [0], [2])), "it reads 1 inputs", "2, as its Call has specs: f32[2, 3]@cpu, f32"),
    "too many inputs": (graph(Node(EXP, [0, 0], [2])), "it reads 2 inputs", "1, as its Call"),
    "another shape": (graph(Node(EXP, [1], [2])), "input 0 is %1, f32[3, 2]@cpu", "f32[2, 3]@cpu, as its Call says"),
    "a tensor where None is bound": (
        graph(Node(call(ops.rms_norm, A, None, FLOAT_NUMBER), [0, 1, Literal(0.1)], [2, 3])),
        "input 1 is %1", "None, as"),
    "None where a tensor is bound": (graph(Node(ADD, [0, None], [2])), "input 1 is absent", "f32[2, 3]@cpu, as"),
    "a literal where a tensor is bound": (
        graph(Node(ADD, [0, Literal(1.0)], [2])), "input 1 is the float 1.0", "f32[2, 3]@cpu, as"),
    "a literal of another kind": (
        graph(Node(SCALED, [0, Literal(1)], [2])), "input 1 is the int 1", "float, as its Call says"),
    "a truth value for an int": (
        graph(Node(call(ops.mul, A, INT_NUMBER), [0, Literal(True)], [2])), "input 1 is the bool True", "int, as"),
    "a run-time number of another kind": (
        graph(Node(SCALED, [0, 1], [2]), inputs=[(0, A), (1, INT_NUMBER)]), "input 1 is %1, int", "float, as"),
    "a tensor where a number is bound": (graph(Node(SCALED, [0, 0], [2])), "input 1 is %0, f32[2, 3]@cpu", "float, as"),
    "an input of no kind": (graph(Node(EXP, ["x"], [2])), "input 0 is a str", "f32[2, 3]@cpu, as"),  # type: ignore[list-item]
    "too few outputs": (
        graph(Node(call(ops.split, A, sizes=(1, 2), dim=1), [0], [2])), "it makes 1 outputs", "2, as the row has"),
    "too many outputs": (graph(Node(EXP, [0], [2, 3])), "it makes 2 outputs", "1, as the row has: f32[2, 3]@cpu"),
    "an output that is not live": (
        graph(Node(BACKWARD, [0, 0, 1, 1, None], [2, 3, None]), inputs=[(0, A), (1, STATISTIC)]),
        "output 1 is %3, and live=(True, False, False)", "an id exactly where `live` is true"),
    "a live output without id": (
        graph(Node(BACKWARD, [0, 0, 1, 1, None], [None, None, None]), inputs=[(0, A), (1, STATISTIC)]),
        "output 0 is absent, and live=(True, False, False)", "an id exactly where `live` is true"),
    "a dead output that is read": (
        graph(Node(BACKWARD, [0, 0, 1, 1, None], [2, None, None]), Node(EXP, [3], [4]),
              inputs=[(0, A), (1, STATISTIC)]),
        "input 0: nothing makes %3", "node 1"),
    "results that are not the row's": (
        graph(Node(Call(ops.exp, (A,), {}, (B,), False), [0], [2])), "its results are f32[3, 2]@cpu",
        "f32[2, 3]@cpu, as the row's rule says"),
    "inputs that the row refuses": (
        graph(Node(Call(ops.add, (A, B), {}, (A,), False), [0, 1], [2])),
        "the row does not take these inputs: add: the shapes do not broadcast", "add(x, y)"),
    "attributes that the row lacks": (
        graph(Node(Call(ops.exp, (A,), {"dim": 1}, (A,), False), [0], [2])),
        "the row does not take these inputs: exp(x): unknown attributes ['dim']", "exp(x)"),
    "a row that is not in the table": (
        graph(Node(Call(made_up, (A,), {}, (A,), False), [0], [2])), "the row nowhere::made_up is not in the table",
        "a row of the table"),
    "an output that nothing makes": (graph(outputs=[0, 7]), "nothing makes %7", "output 1"),
}  # fmt: skip


def test_the_package_gives_the_verifier_and_none_of_its_words() -> None:
    assert "verify" in graph_package.__all__
    assert "spec_list" not in graph_package.__all__


@pytest.mark.parametrize("name", BROKEN)
def test_fault_is_reported(name: str) -> None:
    broken, what, detail = BROKEN[name]
    with pytest.raises(GraphError, match=re.escape(what)) as caught:
        verify(broken)
    parts = str(caught.value).splitlines()
    assert len(parts) == 4, "one fault, in three parts"
    assert detail in str(caught.value)


def test_all_faults_are_reported_with_node_and_origin() -> None:
    nodes = [Node(EXP, [1], [2], Origin("model.py", 12, "forward", "encoder")), Node(EXP, [8], [3])]
    with pytest.raises(GraphError, match="graph: 3 faults") as caught:
        verify(graph(*nodes, outputs=[9]))
    text = str(caught.value)
    assert "[1] node 0, %2 = exp(%1), from encoder at model.py:12 in forward: input 0 is %1" in text
    assert "[2] node 1, %3 = exp(%8): input 0: nothing makes %8" in text
    assert "[3] output 0: nothing makes %9" in text


def test_a_value_that_is_missing_is_reported_once() -> None:
    with pytest.raises(GraphError, match="graph: input 0: nothing makes %9"):
        verify(graph(Node(EXP, [9], [2]), Node(EXP, [9], [3])))


def test_gaps_are_faults_only_where_ids_shall_be_dense() -> None:
    gappy = graph(Node(EXP, [0], [5]), outputs=[5])
    assert verify(gappy) is gappy
    with pytest.raises(GraphError, match=r"(?s)the ids have gaps.*no %2, %3, %4.*all ids from 0 to 2.*graph.dense"):
        verify(gappy, dense=True)
    assert verify(gappy.dense(), dense=True).nodes[0].outputs == (2,)


def test_output_without_id_is_no_fault_where_the_row_has_no_live() -> None:
    verify(graph(Node(call(ops.split, A, sizes=(1, 2), dim=1), [0], [None, 2]), outputs=[2, None, 0, 0]))


def test_value_of_unknown_shape_fits_any_tensor() -> None:
    mask = TensorSpec.of((2, 3), DType.BOOL, "cpu")
    chosen = call(ops.mask_select, A, mask)
    assert chosen.results == (None,)
    valid = graph(Node(chosen, [0, 1], [2]), Node(EXP, [2], [3]), outputs=[3], inputs=[(0, A), (1, mask)])
    assert verify(valid) is valid


@settings(max_examples=100, deadline=None)
@given(programs(backward=True))
def test_traced_graphs_are_right_and_stay_so(program: Program) -> None:
    verify(program.graph, dense=True)
    kept = verify(dead_code(program.graph))
    dense = verify(kept.dense(), dense=True)
    assert dense.dense() == dense
    assert len(dense.nodes) == len(kept.nodes)
