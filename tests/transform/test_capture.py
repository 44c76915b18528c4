"""capture: a program with a handle."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, seed
from burn_torch.core.distribution import Distribution
from burn_torch.core.errors import ArgumentError
from burn_torch.nn import LinearConfig
from burn_torch.transform import CapturedGraph, capture


@pytest.mark.parametrize("device", [Device.cpu(), Device.ndarray(), Device.cpu(fused=True)], ids=repr)
def test_a_function_is_replayed_on_the_same_and_on_other_inputs(device: Device) -> None:
    def double(x: Tensor, n: float) -> Tensor:
        return x * 2.0 + n

    x = Tensor.from_data([1.0, -2.0], Device.cpu())
    graph = capture(device, double, x, 0.5)
    first = graph.output()
    assert first.device.place == device.place
    assert graph.replay().tolist() == first.tolist() == [2.5, -3.5]
    assert graph.replay(x + 1.0, 1.5).tolist() == graph.output().tolist() == [5.5, -0.5]
    assert graph.replay().tolist() == [5.5, -0.5]
    assert first.tolist() == [2.5, -3.5]  # results are values
    assert not graph.is_hardware()


def test_modules_are_inputs_and_random_rows_draw_anew() -> None:
    seed(3)
    model = LinearConfig(3, 2).init(Device.cpu())
    x = Tensor.random((4, 3), Distribution.Default, Device.cpu())
    graph = capture(Device.cpu(), lambda model, x: model.forward(x), model, x)
    assert np.array_equal(np.asarray(graph.output()), np.asarray(model.forward(x)))
    drawn = capture(Device.cpu(), lambda: Tensor.random((5,), Distribution.Default, Device.cpu()))
    assert drawn.output().tolist() != drawn.replay().tolist()


def test_no_device_is_refused() -> None:
    with pytest.raises(ArgumentError, match="device"):
        capture("cpu", lambda: None)  # type: ignore[arg-type]  # on purpose


@pytest.mark.gpu
def test_a_gpu_replays_by_itself() -> None:
    x = torch.randn(64, dtype=torch.float64)
    graph: CapturedGraph[Tensor] = capture(Device.cuda(0), lambda x: (x * x).exp(), Tensor.from_torch(x))
    assert graph.is_hardware()
    np.testing.assert_allclose(np.asarray(graph.replay().to_device(Device.cpu())), np.exp(x.numpy() ** 2))
