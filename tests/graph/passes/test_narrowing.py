"""Gradients reach an update in the type in which they were made, and no bit changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch import ops
from burn_torch.backend import LibTorch, NdArray
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ShapeError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Graph, interpret
from burn_torch.graph.decomposition import decomposed
from burn_torch.graph.passes import narrow_gradients
from burn_torch.graph.trace import Trace
from burn_torch.graph.verifier import verify

NUMBERS = {
    "sgd_update": (0.1, 0.5),
    "momentum_update": (0.1, 0.5, 0.9, 0.9),
    "lion_update": (0.1, 0.9, 0.99, 0.1),
    "adam_update": (0.1, 0.9, 0.99, 1e-5, 0.0, 0.1, 3),
}
ATTRS: dict[str, dict[str, Any]] = {
    "sgd_update": {},
    "momentum_update": {"nesterov": True},
    "lion_update": {},
    "adam_update": {"amsgrad": False, "cautious": False},
}
STATES = {"sgd_update": 0, "momentum_update": 1, "lion_update": 1, "adam_update": 2}


def graph_of(name: str, half: DType = DType.BF16) -> Graph:
    """Two parameters; the gradient of one comes out of a product in half precision."""
    trace = Trace()
    wide, narrow = TensorSpec.of((3, 2), DType.F32, "cpu"), TensorSpec.of((3, 2), half, "cpu")
    params = [trace.input(wide) for _ in range(2)]
    grads = [trace.input(wide), ops.cast(trace.input(narrow), dtype=DType.F32)]
    states = [trace.input(wide) for _ in range(2 * STATES[name])]
    output = getattr(ops, name)(*NUMBERS[name], *params, *grads, *states, **ATTRS[name])
    return trace.graph(list(output) if isinstance(output, tuple | list) else [output])


def values(graph: Graph) -> list[Any]:
    generator = torch.Generator().manual_seed(2)
    kinds = {DType.F32: torch.float32, DType.BF16: torch.bfloat16, DType.F16: torch.float16}
    specs = [spec for _, spec in graph.inputs if isinstance(spec, TensorSpec)]
    return [torch.rand(spec.shape, generator=generator).to(kinds[spec.dtype]) for spec in specs]


@pytest.mark.parametrize("half", [DType.BF16, DType.F16])
@pytest.mark.parametrize("name", NUMBERS)
def test_an_update_reads_half_gradients_as_they_are(name: str, half: DType) -> None:
    graph = graph_of(name, half)
    after = narrow_gradients(graph)
    verify(after)
    assert [node.call.op.name for node in after.nodes] == [name]
    inputs = values(graph)
    for x, y in zip(interpret(after, LibTorch(), inputs), interpret(graph, LibTorch(), inputs), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_reference_and_the_decomposition_widen_too(name: str) -> None:
    graph = narrow_gradients(graph_of(name, DType.F16))
    inputs = values(graph)
    expected = interpret(graph, LibTorch(), inputs)
    leaf = NdArray()
    arrays = [leaf.from_data(LibTorch().into_data(x), "cpu") for x in inputs]
    for x, y in zip(interpret(graph, leaf, arrays), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(leaf.into_data(x).array), y, rtol=1e-5, atol=1e-6)
    outputs = interpret(decomposed(graph.nodes[0].call), LibTorch(), [*NUMBERS[name], *inputs])
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-6)


def test_a_gradient_that_is_float32_stays_as_it_is() -> None:
    trace = Trace()
    spec = TensorSpec.of((3,), DType.F32, "cpu")
    p, g = trace.input(spec), trace.input(spec)
    graph = trace.graph([*ops.sgd_update(0.1, 0.0, p, g * 2.0)])
    assert narrow_gradients(graph) is graph


def test_a_half_gradient_of_another_shape_is_refused() -> None:
    trace = Trace()
    p = trace.input(TensorSpec.of((3, 2), DType.F32, "cpu"))
    g = trace.input(TensorSpec.of((2, 3), DType.BF16, "cpu"))
    with pytest.raises(
        ShapeError, match=r"(?s)does not fit its parameter.*a gradient of float32 may be of a half type"
    ):
        ops.sgd_update(0.1, 0.0, p, g)
