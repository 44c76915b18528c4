"""Layers that train: dropout and noise by key and place, batch norm whose statistics leave a step as values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn as tnn

from burn_torch import DType, StepScope, nn, ops
from burn_torch.core.errors import ShapeError
from tests.nn.twins import AD, CPU, array, close, compare, double, same, tensor

Rng = np.random.Generator


# -- dropout and noise -------------------------------------------------------------------------------------------
def test_dropout_repeats_its_mask_for_the_same_key_and_place(seed: Rng) -> None:
    first, second = nn.DropoutConfig(0.4).init(), nn.DropoutConfig(0.4).init()
    x = tensor(np.ones((50, 40)))
    drawn = []
    for key in (5, 5, 6):
        with StepScope(key, {"a": first, "b": second}):
            drawn.append([array(layer.forward(x)) for layer in (first, first, second)])
    np.testing.assert_array_equal(drawn[0], drawn[1])  # same key: the same masks
    masks = [*drawn[0], *drawn[2]]
    for i, mask in enumerate(masks):
        assert set(np.unique(mask)) == {0.0, 1 / 0.6}
        assert abs((mask == 0).mean() - 0.4) < 5 * (0.24 / mask.size) ** 0.5
        assert not any((mask == other).all() for other in masks[:i])  # another call, place or key: another mask


def test_dropout_is_the_identity_where_nothing_trains(seed: Rng) -> None:
    x = seed.standard_normal((3, 4))
    for layer in (nn.DropoutConfig(0.5).init(), nn.GaussianNoiseConfig(0.5).init(), nn.Identity.new()):
        held = tensor(x, CPU)
        assert layer.forward(held) is held
    for layer in (nn.DropoutConfig(0.0).init(), nn.GaussianNoiseConfig(0.0).init()):
        held = tensor(x)
        assert layer.forward(held) is held


def test_dropout_gradient_has_the_mask_of_the_forward(seed: Rng) -> None:
    x = tensor(seed.standard_normal((20, 30))).require_grad()
    y = nn.DropoutConfig(0.3).init().forward(x)
    grad = x.grad(y.sum().backward())
    assert grad is not None
    np.testing.assert_allclose(array(grad) * array(x), array(y), rtol=1e-14)


def test_gaussian_noise_has_the_deviation_asked_for() -> None:
    x = tensor(np.full(10_000, 3.0)).require_grad()
    y = nn.GaussianNoiseConfig(0.5).init().forward(x)
    noise = array(y) - 3.0
    assert abs(noise.mean()) < 5 * 0.5 / 100
    assert abs(noise.std() - 0.5) < 5 * 0.5 / (2 * 10_000) ** 0.5
    grad = x.grad(y.sum().backward())
    assert grad is not None
    assert array(grad).tolist() == [1.0] * 10_000


# -- batch norm --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 6), (2, 3, 4, 5), (2, 3, 2, 3, 2)])
def test_batch_norm_trains_as_torch_does(seed: Rng, shape: tuple[int, ...]) -> None:
    kinds: dict[int, Any] = {2: tnn.BatchNorm1d, 3: tnn.BatchNorm1d, 4: tnn.BatchNorm2d, 5: tnn.BatchNorm3d}
    twin = kinds[len(shape)](3, eps=1e-3, momentum=0.3).double()
    for value in twin.parameters():
        value.data = torch.from_numpy(seed.standard_normal(3))
    params = {"gamma": (twin.weight, same), "beta": (twin.bias, same)}
    layer = nn.BatchNormConfig(3, epsilon=1e-3, momentum=0.3).init(AD)
    layer = compare(seed, layer, twin, seed.standard_normal(shape) * 2 + 1, params=params)
    for _ in range(3):
        x = seed.standard_normal(shape) * 3 - 1
        close(layer.forward(tensor(x)), twin(torch.from_numpy(x)))
    close(layer.running_mean.value(), twin.running_mean)
    close(layer.running_var.value(), twin.running_var)
    twin.eval()
    x = seed.standard_normal(shape)
    close(layer.valid().forward(tensor(x, CPU)), twin(torch.from_numpy(x)))


def test_batch_norm_statistics_leave_a_step_as_values(seed: Rng) -> None:
    model = double(nn.BatchNormConfig(3).init(AD))
    before = array(model.running_mean.value())
    x = tensor(seed.standard_normal((4, 3)) + 2)
    with StepScope(1, model) as scope:
        model.forward(x)
        model.forward(x)  # a shared layer sees its own first update
    assert array(model.running_mean.value()).tolist() == before.tolist()
    moved = model.with_states(scope.states)
    mean = array(x).mean(0)
    close(moved.running_mean.value(), 0.1 * mean + 0.9 * 0.1 * mean)
    assert not moved.running_mean.value().device.is_autodiff()
    with StepScope(1, model) as scope:
        model.valid().forward(tensor(array(x), CPU))
    assert not scope.states


def test_batch_norm_refuses_one_element_a_channel() -> None:
    layer = nn.BatchNormConfig(3).init(AD)
    with pytest.raises(
        ShapeError, match=r"one element a channel has no variance(?s:.*)mend: .*drop the last"
    ) as caught:
        layer.forward(tensor(np.zeros((1, 3), np.float32)))
    assert any("in BatchNorm(num_features=3" in note for note in caught.value.__notes__)
    assert layer.valid().forward(tensor(np.zeros((1, 3), np.float32), CPU)).shape == (1, 3)


def test_batch_norm_of_an_empty_batch_changes_nothing() -> None:
    layer = nn.BatchNormConfig(3).init(AD)
    assert layer.forward(tensor(np.zeros((0, 3), np.float32))).shape == (0, 3)
    assert array(layer.running_var.value()).tolist() == [1.0] * 3


def test_batch_norm_keeps_its_statistics_in_records() -> None:
    layer = nn.BatchNormConfig(3).init(AD)
    layer.forward(tensor(np.arange(6, dtype=np.float32).reshape(2, 3)))
    record = layer.into_record()
    assert sorted(record.entries) == ["beta", "gamma", "running_mean", "running_var"]
    other = nn.BatchNormConfig(3).init(AD).load_record(record)
    close(other.running_mean.value(), array(layer.running_mean.value()), 0)


def test_half_types_keep_float32_statistics() -> None:
    layer = nn.BatchNormConfig(2).init(AD)
    half = layer.map_params(lambda p: p.map(lambda t: ops.cast(t.detach(), dtype=DType.F16)))
    x = ops.cast(tensor(np.arange(8, dtype=np.float32).reshape(4, 2)), dtype=DType.F16)
    assert half.forward(x).dtype is DType.F16
    assert half.running_mean.value().dtype is DType.F32
    close(half.running_mean.value(), np.array([0.3, 0.4], np.float32), 1e-6)
