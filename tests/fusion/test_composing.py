"""A fused device beside others, and with copies, states, gradients, compiled functions and optimizers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import burn_torch
from burn_torch import (
    Autodiff,
    Device,
    Fusion,
    LibTorch,
    MovedError,
    NdArray,
    Tensor,
    ops,
)
from burn_torch.module import RunningState

FUSED = Device.cpu().fused()


def given(seed: np.random.Generator, *shape: int) -> Tensor:
    return Tensor.from_data(seed.standard_normal(shape).astype(np.float32), FUSED)


# -- composing -------------------------------------------------------------------------------------------
def test_equal_compositions_are_one_device() -> None:
    assert Device(Fusion(LibTorch())) is FUSED
    assert Device(Autodiff(Fusion(LibTorch()))) is FUSED.autodiff()
    assert Device.cpu().autodiff().fused() is FUSED.autodiff()
    assert FUSED.fused() is FUSED
    assert FUSED.inner() is Device.cpu()
    assert FUSED.is_fused()
    assert FUSED.autodiff().is_fused()
    assert not Device.cpu().is_fused()
    assert pickle.loads(pickle.dumps(FUSED.autodiff("balanced"))) is FUSED.autodiff("balanced")


def test_values_of_the_inner_device_are_constants(seed: np.random.Generator) -> None:
    x = given(seed, 2, 3)
    plain = Tensor.from_torch(torch.ones(2, 3))
    assert ((x + plain).device, (plain + x).device) == (FUSED, FUSED)
    torch.testing.assert_close((plain - x).into_torch(), 1 - x.into_torch())


def test_over_numpy(seed: np.random.Generator) -> None:
    device = Device(Fusion(NdArray())).autodiff()
    data = seed.standard_normal((3, 4)).astype(np.float32)
    x = Tensor.from_data(data, device).require_grad()
    gradient = x.grad((x.tanh() * x).sum().backward())
    assert gradient is not None
    torch.testing.assert_close(
        gradient.into_torch(), torch.from_numpy(np.tanh(data) + data * (1 - np.tanh(data) ** 2)), rtol=1e-5, atol=1e-6
    )


# -- with everything else --------------------------------------------------------------------------------
def test_copies_and_pickles(seed: np.random.Generator) -> None:
    x = given(seed, 3) * 2.0
    assert copy.deepcopy(x) is x
    back = pickle.loads(pickle.dumps(x))
    assert back.device is FUSED
    assert back.tolist() == x.tolist()


def test_running_states(seed: np.random.Generator) -> None:
    state = RunningState(given(seed, 3))
    before = state.value().into_torch()
    state.update(state.value() * 0.5)
    torch.testing.assert_close(state.value().into_torch(), before * 0.5)


def test_gradients_of_gradients(seed: np.random.Generator) -> None:
    data = seed.standard_normal(4)
    x = Tensor.from_data(data, Device.cpu().fused())

    def cubed(x: Tensor) -> Tensor:
        return (x * x * x).sum()

    second = burn_torch.grad(lambda x: burn_torch.grad(cubed)(x).sum())(x)
    torch.testing.assert_close(second.into_torch(), torch.from_numpy(6 * data))


def test_a_captured_tensor_of_a_fused_device(seed: np.random.Generator) -> None:
    x, beside = given(seed, 3), given(seed, 3) * 2.0
    step = burn_torch.compile(lambda x: x + beside, captures=[beside])
    result = step(x)
    assert result.device is FUSED
    torch.testing.assert_close(result.into_torch(), x.into_torch() + beside.into_torch())


def test_a_donated_tensor_is_moved() -> None:
    x = Tensor.from_floats([1.0, 2.0], FUSED)
    burn_torch.compile(lambda x: x * 2.0, donate="x")(x)
    with pytest.raises(MovedError, match="a tensor was used after a compiled function had taken it over"):
        x + 1.0


def test_an_update_runs_at_once_after_what_is_recorded() -> None:
    device = Device.cpu().fused()
    x, g = (Tensor.from_data(values, device) for values in ([1.0, 2.0], [0.5, -0.5]))
    scaled = g * 2.0
    fusion: Any = device.backend
    flushes = fusion.planner.flushes
    (moved,) = ops.sgd_update(0.1, 0.0, x, scaled)
    assert fusion.planner.flushes == flushes + 1
    assert fusion.stream(device.place).pending == 0
    assert moved.primitive.tolist() == pytest.approx([0.9, 2.1]), "computed, not recorded"
