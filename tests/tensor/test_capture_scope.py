"""Device.capture and capture_scope: operations become a graph, and nothing is computed."""

from __future__ import annotations

import numpy as np
import pytest

from burn_torch import Device, Tensor, compile, nn
from burn_torch.backend import NdArray
from burn_torch.core.errors import DeviceError, TraceError
from burn_torch.graph.interpreter import interpret
from burn_torch.tensor.capturing import CapturedOperations, CaptureScope

X = np.random.default_rng(5).normal(size=(3, 4))


def run(captured: CapturedOperations, *inputs: np.ndarray) -> list[np.ndarray]:
    leaf = NdArray()
    values = [captured.values[i].values for i, _ in captured.graph.inputs[len(inputs) :]]
    return [np.asarray(x) for x in interpret(captured.graph, leaf, [*inputs, *values])]


@pytest.mark.parametrize(
    "device", [Device.capture(), Device.capture().autodiff(), Device.cpu(), Device.ndarray()], ids=str
)
def test_a_model_becomes_a_graph_of_declared_inputs_and_constants(device: Device) -> None:
    model = nn.LinearConfig(4, 2).init(Device.cpu())
    x = X.astype(np.float32)
    expected = model.forward(Tensor.from_data(x, Device.cpu())).tanh() * Tensor.from_data([2.0, 3.0], Device.cpu())

    def written(scope: CaptureScope) -> CapturedOperations:
        scale = Tensor.from_data([2.0, 3.0], device)
        x = Tensor.from_data(np.zeros((3, 4), np.float32), device)
        return scope.complete([x], [model.forward(x).tanh() * scale])

    captured = device.capture_scope(written)
    assert captured.graph.inputs[0][1].shape == (3, 4)
    assert len(captured.graph.inputs) == len(captured.values) == 4
    np.testing.assert_allclose(run(captured, x)[0], np.asarray(expected), rtol=1e-5)


def test_gradients_are_operations_as_well() -> None:
    device = Device.capture().autodiff()

    def written(scope: CaptureScope) -> CapturedOperations:
        x = Tensor.from_data(X, device).require_grad()
        y = (x.sin() * x).sum()
        slope = x.grad(y.backward())
        assert slope is not None
        return scope.complete([x], [y, slope])

    y, slope = run(device.capture_scope(written), X)
    np.testing.assert_allclose(y.item(), (np.sin(X) * X).sum(), rtol=1e-12)
    np.testing.assert_allclose(slope, np.cos(X) * X + np.sin(X), rtol=1e-12)


def test_scopes_follow_one_another_and_values_do_not_leave_them() -> None:
    device, kept = Device.capture(), []

    def written(scope: CaptureScope) -> CapturedOperations:
        x = Tensor.from_data([1.0, 2.0], device)
        kept.append(-x)
        return scope.complete([x], [kept[-1]])

    first, second = device.capture_scope(written), device.capture_scope(written)
    assert first.graph == second.graph
    with pytest.raises(TraceError, match="after the tracing had ended"):
        kept[0].exp()

    def stale(scope: CaptureScope) -> CapturedOperations:
        return scope.complete([], [kept[0]])

    with pytest.raises(TraceError, match="no tensor of this scope"):
        device.capture_scope(stale)


def test_mistakes_are_worded() -> None:
    device = Device.capture()
    x = Tensor.from_data([1.0], device)
    assert x.tolist() == [1.0]
    with pytest.raises(DeviceError, match=r"computes nothing\n  given: +exp of(.|\n)*mend"):
        x.exp()

    def twice(scope: CaptureScope) -> CapturedOperations:
        x = Tensor.from_data([1.0], device)
        return scope.complete([x], [x, x])

    def computed(scope: CaptureScope) -> CapturedOperations:
        y = Tensor.from_data([1.0], device).exp()
        return scope.complete([y], [y])

    def read(scope: CaptureScope) -> CapturedOperations:
        return scope.complete(
            [], [Tensor.from_data([1.0], device).exp() * Tensor.from_data([1.0], device).exp().item()]
        )

    def nested(scope: CaptureScope) -> CapturedOperations:
        return device.capture_scope(twice)

    cases = (
        (twice, "named twice"),
        (computed, "is computed in it"),
        (read, "was read"),
        (nested, "something is traced"),
    )
    for function, words in cases:
        with pytest.raises(TraceError, match=words):
            device.capture_scope(function)
    with pytest.raises(TraceError, match="says what its graph is"):
        device.capture_scope(lambda scope: None)  # type: ignore[arg-type, return-value]  # a wrong one
    with pytest.raises(TraceError, match="something is traced"):
        compile(lambda x: (device.capture_scope(twice), x)[1])(Tensor.from_data([1.0], Device.cpu()))
