"""Random graphs exported: onnxruntime computes what the interpreter does, or the export says what it cannot write."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hypothesis import HealthCheck, assume, given, settings

from burn_torch import Device, LibTorch, OnnxError, Tensor
from burn_torch.core.data import TensorData
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Graph, interpret
from burn_torch.onnx import export
from tests.graph.random_graphs import Program, programs


def is_plain(program):
    """Returns whether no value on the way is NaN, infinite or -0: ONNX leaves their order open, and runtimes drop the
    sign.
    """
    specs = program.graph.specs()
    every = [i for i, spec in specs.items() if isinstance(spec, TensorSpec) and spec.dtype.is_float]
    values = Program(Graph(program.graph.inputs, program.graph.nodes, every), program.data).run(LibTorch())
    return all(np.isfinite(x).all() and not np.any(np.signbit(x) & (x == 0)) for x in values)


def check(program, path):
    specs = program.graph.specs()
    outputs = [i for i in program.graph.outputs if i is not None and isinstance(specs[i], TensorSpec)]
    tensors = tuple(Tensor.from_data(x, Device.cpu()) for x in program.data if isinstance(x, TensorData))
    assume(outputs and tensors and is_plain(program))
    graph = Graph(program.graph.inputs, program.graph.nodes, outputs)

    def function(*tensors):
        left, backend = iter(tensors), tensors[0].backend
        inputs = [next(left).primitive if isinstance(x, TensorData) else x for x in program.data]
        return tuple(
            Tensor(backend, y, specs[i]) for y, i in zip(interpret(graph, backend, inputs), outputs, strict=True)
        )

    try:
        report = export(function, tensors, path)
        message = "compared" if report.comparisons else report.runtime
    except OnnxError as error:
        message = str(error)
    words = ("compared", "does not run it", "cannot be written in opset 18")
    assert any(word in message for word in words), f"{message}\n{graph.text()}"


@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(program=programs(special=False))
def test_a_random_graph(program, tmp_path_factory):
    check(program, tmp_path_factory.getbasetemp() / "random.onnx")


@pytest.mark.slow
@settings(max_examples=400, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(program=programs(special=False))
def test_many_random_graphs(program, tmp_path_factory):
    check(program, tmp_path_factory.getbasetemp() / "random.onnx")
