"""A leaf that the library does not know: 40 rows by a table of its own, all others by what they are made of."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Autodiff, Device, Fusion, Module, NdArray, Tensor, compile
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DeviceError
from burn_torch.nn import LayerNorm, LayerNormConfig, Linear, LinearConfig
from burn_torch.ops import REGISTRY
from burn_torch.ops.samples import normalise
from burn_torch.tensor import activation
from tests.backend.lists import TABLE, Lists
from tests.ops.twins import run

DEVICE = Device(Lists())


class Net(Module):
    linear: Linear
    norm: LayerNorm
    last: Linear

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm.forward(activation.tanh(self.linear.forward(x)))
        return activation.log_softmax(self.last.forward(x), 1)


def net() -> Net:
    host = Device.cpu()
    return Net(LinearConfig(4, 5).init(host), LayerNormConfig(5).init(host), LinearConfig(5, 3, bias=False).init(host))


@pytest.mark.parametrize("name", sorted(set(TABLE) - {"cast", "full"}))
def test_a_row_of_the_table_computes_as_numpy(name: str, seed: np.random.Generator) -> None:
    sample = next(s for s in normalise(REGISTRY[name].samples) if all(np.size(x) for x in s.draw(seed)))
    inputs = sample.draw(seed)
    ours, numpys = run(Lists(), name, *inputs, **sample.attrs), run(NdArray(), name, *inputs, **sample.attrs)
    assert ours.dtype == numpys.dtype
    np.testing.assert_allclose(ours, numpys, rtol=1e-12, atol=1e-12)


def test_constants_and_casts() -> None:
    x = Tensor.full((2, 2), 1.5, DEVICE)
    assert x.tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert x.int().tolist() == [[1, 1], [1, 1]]
    assert x.bool().tolist() == [[True, True], [True, True]]


def test_the_table_has_thirty_rows_and_more() -> None:
    assert len(TABLE) >= 30
    assert set(TABLE) <= set(REGISTRY)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "var"])
def test_a_row_without_a_function_is_what_it_is_made_of(name: str, seed: np.random.Generator) -> None:
    assert name not in TABLE
    sample = next(s for s in normalise(REGISTRY[name].samples) if all(np.size(x) for x in s.draw(seed)))
    inputs = sample.draw(seed)
    ours, numpys = run(Lists(), name, *inputs, **sample.attrs), run(NdArray(), name, *inputs, **sample.attrs)
    np.testing.assert_allclose(ours, numpys, rtol=1e-12, atol=1e-12)


def test_a_row_with_neither_is_refused_in_three_parts() -> None:
    x = Tensor.from_data([1.0, 2.0], DEVICE)
    with pytest.raises(DeviceError) as caught:
        x.asin()
    text = str(caught.value)
    assert text.startswith("Lists cannot compute asin\n  given:    ")
    assert "a row without a decomposition\n  expected: one of the " in text
    assert '\n  mend:     add "asin" to the table of Lists, or move the values' in text


@pytest.mark.parametrize("lazy", [False, True])
def test_forward_and_backward_of_a_model_are_numpys(lazy: bool, seed: np.random.Generator) -> None:
    x = seed.normal(size=(3, 4)).astype(np.float32)
    model, results = net(), []
    for device in (DEVICE.fused() if lazy else DEVICE, Device.ndarray()):
        here = model.to_device(device.autodiff()).train()
        loss = here.forward(Tensor.from_data(x, device.autodiff())).square().mean()
        gradients = loss.backward()
        results.append([loss.item(), *(p.val().grad(gradients).into_data().values for p in _params(here))])
    for ours, numpys in zip(*results, strict=True):
        np.testing.assert_allclose(ours, numpys, rtol=2e-5, atol=1e-6)


def _params(model: Net) -> list[Any]:
    return [param for _, param in model.named_params()]


def test_second_derivatives_and_compile(seed: np.random.Generator) -> None:
    inner = Tensor.from_data([0.5, -1.5], DEVICE.autodiff().autodiff()).require_grad()
    first = inner.tanh().sum().backward()
    assert inner.grad(first) is not None
    double = compile(lambda x: x.exp() * 2.0)
    ours = double(Tensor.from_data([0.0, 1.0], DEVICE))
    np.testing.assert_allclose(ours.into_data().values, [2.0, 2.0 * np.e], rtol=1e-6)


def test_devices_data_and_text_know_it_without_its_name() -> None:
    tape = DEVICE.autodiff("balanced")
    assert repr(tape) == "Device(cpu, Autodiff(Lists, 'balanced'))"
    assert pickle.loads(pickle.dumps(tape)) is tape
    assert tape.fused().backend is Autodiff(Fusion(Lists()), "balanced")
    assert DEVICE.supports_dtype(DType.F32)
    with pytest.raises(DeviceError, match="Lists computes on the host only"):
        Device(Lists(), "cuda:0")
    x = Tensor.from_data([[1.0, 2.0], [3.0, 4.5]], DEVICE)
    assert "4.5" in repr(x)
    assert "Lists" in repr(x)
    assert np.asarray(x).tolist() == x.tolist() == [[1.0, 2.0], [3.0, 4.5]]
    with pytest.raises(Exception, match="numpy cannot share this memory"):
        np.array(x, copy=False)
    assert torch.equal(x.into_torch(), torch.tensor([[1.0, 2.0], [3.0, 4.5]]))
    assert x.to_device(Device.cpu()).to_device(DEVICE).tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
