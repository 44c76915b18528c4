"""Graphs as text, and as values: equality, dense ids, pickling."""

from __future__ import annotations

import inspect
import pickle

from hypothesis import given, settings

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.graph import Graph, Literal, Node, Origin, Trace, dead_code
from burn_torch.graph.printer import spec_text
from tests.graph.random_graphs import Program, programs

SPEC = TensorSpec.of((3, 4), DType.F32, "cpu")


def example() -> Graph:
    trace = Trace()
    x, rate = trace.input(SPEC), trace.input(FLOAT_NUMBER)
    largest, where = ops.max_with_indices(x * (rate + 1.0), dim=1)
    return trace.graph([largest, None, where, rate])


def with_origins(graph: Graph, *origins: Origin | None) -> Graph:
    nodes = [Node(n.call, n.inputs, n.outputs, o) for n, o in zip(graph.nodes, origins, strict=True)]
    return Graph(graph.inputs, nodes, graph.outputs)


def test_text_of_a_graph() -> None:
    assert str(example()) == inspect.cleandoc(
        """
        graph on cpu
          %0: f32[3, 4]                  input
          %1: float                      input
          %2: float                    = add(%1, 1.0)
          %3: f32[3, 4]                = mul(%0, %2)
          %4, %5: f32[3, 1], i64[3, 1] = max_with_indices(%3, dim=1)
          return %4, None, %5, %1
        """
    )


def test_text_groups_nodes_by_module() -> None:
    line = Origin("absent.py", 3, "forward", "encoder.norm")
    located = with_origins(example(), line, line._replace(path=""), line._replace(backward=True))
    text = located.text(origins=True)
    assert "\n  # encoder.norm\n  %2" in text
    assert "\n  # no module\n  %3" in text
    assert "\n  # gradient of encoder.norm\n  %4" in text
    assert text.count("  # absent.py:3 in forward\n") == 3
    assert "absent.py" not in located.text()


def test_text_names_places_where_there_are_several() -> None:
    trace = Trace()
    trace.input(TensorSpec.of((), DType.F32, "cpu"))
    trace.input(TensorSpec.of((2,), DType.BF16, "cuda:0"))
    assert str(trace.graph([])).splitlines()[:3] == [
        "graph",
        "  %0: f32[]@cpu        input",
        "  %1: bf16[2]@cuda:0   input",
    ]


def test_text_of_an_unknown_shape_and_of_no_output() -> None:
    trace = Trace()
    x = trace.input(SPEC)
    call = ops.nonzero.bind([SPEC], {})
    trace.execute(call, [x.primitive])
    graph = trace.graph([])
    assert str(graph).splitlines()[-2:] == ["  %1: ?         = nonzero(%0)", "  return"]
    assert spec_text(None) == "?"


def test_node_is_written_in_one_line() -> None:
    assert repr(example().nodes[2]) == "%4, %5 = max_with_indices(%3, dim=1)"
    split = ops.split.bind([SPEC], {"sizes": (1, 3), "dim": 1})
    assert repr(Node(split, [0], [None, 2])) == "_, %2 = split(%0, sizes=(1, 3), dim=1)"


@settings(max_examples=30, deadline=None)
@given(programs())
def test_text_has_a_line_for_each_input_and_node(program: Program) -> None:
    graph = program.graph
    assert len(str(graph).splitlines()) == len(graph.inputs) + len(graph.nodes) + 2


def test_dense_graphs_that_do_the_same_are_equal() -> None:
    graph = example()
    moved = Graph(
        [(i + 7, spec) for i, spec in graph.inputs],
        [
            Node(
                n.call,
                [i + 7 if isinstance(i, int) else i for i in n.inputs],
                [7 + i for i in n.outputs if i is not None],
            )
            for n in graph.nodes
        ],
        [None if i is None else i + 7 for i in graph.outputs],
    )
    assert moved != graph
    assert moved.dense() == graph.dense() == graph
    assert hash(moved.dense()) == hash(graph)


def test_dense_keeps_origins_and_absent_inputs() -> None:
    trace = Trace(origins=True)
    x = trace.input(SPEC)
    ops.exp(x)
    y, _ = ops.rms_norm(x, None, 0.5)
    graph = dead_code(trace.graph([y]))
    dense = graph.dense()
    assert dense.nodes[0].inputs == (0, None, Literal(0.5))
    assert dense.nodes[0].outputs == (1, 2)
    assert dense.nodes[0].origin is not None
    assert dense.nodes[0].origin == graph.nodes[0].origin


def test_graph_is_equal_after_pickling() -> None:
    graph = with_origins(example(), None, Origin("a.py", 1, "f"), None)
    again = pickle.loads(pickle.dumps(graph))
    assert again == graph
    assert hash(again) == hash(graph)
    assert [n.origin for n in again.nodes] == [n.origin for n in graph.nodes]
