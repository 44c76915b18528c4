"""Origins: what they say, and that nothing depends on them."""

from __future__ import annotations

import inspect

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Graph, Node, Origin, Trace, dead_code

SPEC = TensorSpec.of((2, 3), DType.F32, "cpu")


def traced() -> Graph:
    trace = Trace()
    x = trace.input(SPEC)
    return trace.graph([ops.exp(x)])


def with_origin(graph: Graph, origin: Origin | None) -> Graph:
    nodes = [Node(node.call, node.inputs, node.outputs, origin) for node in graph.nodes]
    return Graph(graph.inputs, nodes, graph.outputs)


def test_nodes_and_graphs_are_equal_whatever_their_origin() -> None:
    plain = traced()
    located = with_origin(plain, Origin("model.py", 12, "forward"))
    assert plain.nodes[0].origin is None
    assert plain == located
    assert hash(plain) == hash(located)
    assert plain.nodes[0] == located.nodes[0]
    assert hash(plain.nodes[0]) == hash(located.nodes[0])


def test_origin_reads_its_source_line_when_asked() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    origin = Origin(__file__, frame.f_lineno, "f")  # this very line
    assert origin.source == 'origin = Origin(__file__, frame.f_lineno, "f")  # this very line'
    assert str(origin) == f"{__file__}:{origin.line} in f: {origin.source}"


def test_origin_without_a_file_has_no_source() -> None:
    origin = Origin("absent.py", 3, "f", "encoder.layers.0", True)
    assert origin.source == ""
    assert str(origin) == "gradient of encoder.layers.0 at absent.py:3 in f"


def test_dead_code_keeps_origins() -> None:
    trace = Trace()
    g, x = trace.input(SPEC), trace.input(SPEC)
    mean, rstd = (trace.input(TensorSpec.of((2, 1), DType.F32, "cpu")) for _ in range(2))
    gradient, _, _ = ops.layer_norm_backward(g, x, mean, rstd, None)  # a row that is told what is read of it
    origin = Origin("model.py", 12, "forward")
    kept = dead_code(with_origin(trace.graph([gradient]), origin))
    assert [node.call.attrs["live"] for node in kept.nodes] == [(True, False, False)]
    assert [node.origin for node in kept.nodes] == [origin]
