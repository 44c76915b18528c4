"""The lazy stream with generated kernels: values, gradients and whole models as unfused, and how many kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, assert_fused
from burn_torch.backend.lazy import fusion_of
from burn_torch.backend.lazy.stream import Stream
from burn_torch.tensor import activation
from tests.transform import test_compile_models as models

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked

PLAIN, FUSED = Device.cpu().autodiff(), Device.cpu().fused().autodiff()


@pytest.fixture
def stream() -> Iterator[Stream]:
    fusion = fusion_of(FUSED.backend)
    assert fusion is not None
    opened = fusion.stream("cpu")
    opened.flush()
    opened.history.clear()
    fusion.planner._recent.clear()
    yield opened
    opened.flush()


def gelu(x: Tensor) -> Tensor:
    return x * ((x / 1.4142135623730951).erf() + 1.0) / 2.0


def softmax(x: Tensor) -> Tensor:
    return activation.softmax(x * 0.5, 1)


def norm(x: Tensor) -> Tensor:
    centred = x - x.mean_dim(1)
    return centred / (centred.square().mean_dim(1) + 1e-5).sqrt()


def chain(x: Tensor) -> Tensor:
    y = (x * x + 0.5).tanh() - activation.sigmoid(x)
    return (y.abs().neg().exp() * x + y.relu()).square()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "softmax": softmax, "norm": norm, "chain": chain}


def value_and_gradient(function: Callable[[Tensor], Tensor], data: Any, upstream: Any, device: Device) -> list[Any]:
    x = Tensor.from_data(data, device).require_grad()
    y = function(x)
    gradient = x.grad((y * Tensor.from_data(upstream, device)).sum().backward())
    assert gradient is not None
    return [y.inner().into_torch(), gradient.into_torch()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str, stream: Stream, seed: np.random.Generator) -> None:
    data, upstream = seed.standard_normal((2, 5, 12))
    exact = value_and_gradient(FUNCTIONS[name], data, upstream, PLAIN)
    single = data.astype(np.float32), upstream.astype(np.float32)
    actual = value_and_gradient(FUNCTIONS[name], single[0], single[1], FUSED)
    assert all(ready.fused for ready in stream.history)
    for y, z in zip(actual, exact, strict=True):
        torch.testing.assert_close(y.double(), z, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_kernel(name: str, stream: Stream, seed: np.random.Generator) -> None:
    x = Tensor.from_data(seed.standard_normal((5, 12)).astype(np.float32), FUSED.inner())
    FUNCTIONS[name](x).into_data()
    (ready,) = stream.history
    assert ready.plan.kernels == 1, ready.plan.graph
    assert_fused(FUNCTIONS[name], max_kernels=1)(x)


@pytest.mark.parametrize("checkpoint", ["none", "balanced"])
@pytest.mark.parametrize("name", models.MODELS)
def test_a_model_trains_as_unfused(name: str, checkpoint: str, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(tape: Device) -> list[torch.Tensor]:
        monkeypatch.setattr(models, "TAPE", tape)
        run = models.trained(models.training_step, name, "sgd, decay, clipped by value", "constant", 2)
        values = [*run.losses, *run.params.values(), *run.states.values()]
        return [torch.frombuffer(bytearray(value), dtype=torch.float32) for value in values]

    wanted = trained(PLAIN)
    losses = trained(FUSED.inner().autodiff(checkpoint))
    assert any(ready.fused and ready.plan.groups for ready in stream.history)
    for y, z in zip(losses, wanted, strict=True):
        torch.testing.assert_close(y, z, rtol=1e-3, atol=1e-4)
