"""Initializers: bounds, statistics, seeds, leaves, and their JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import burn_torch
from burn_torch import Device, StepScope, nn
from burn_torch.core.errors import ConfigError
from burn_torch.module.initializer import Initializer
from tests.nn.twins import AD, CPU, array

FANS = (50, 30)
SHAPE = (50, 400)


def drawn(initializer: Initializer, shape: tuple[int, ...] = SHAPE, device: Device = CPU) -> np.ndarray:
    return array(initializer.init_with(shape, *FANS, device).val())


def test_constants() -> None:
    assert (drawn(Initializer.Constant(2.5)) == 2.5).all()
    assert (drawn(Initializer.Zeros) == 0).all()
    assert (drawn(Initializer.Ones) == 1).all()


UNIFORM = [
    (Initializer.Uniform(min=-0.5, max=2.0), -0.5, 2.0),
    (Initializer.KaimingUniform(gain=2.0, fan_out_only=False), -2 * (3 / 50) ** 0.5, 2 * (3 / 50) ** 0.5),
    (Initializer.KaimingUniform(gain=2.0, fan_out_only=True), -2 * (3 / 30) ** 0.5, 2 * (3 / 30) ** 0.5),
    (Initializer.XavierUniform(gain=1.5), -1.5 * (6 / 80) ** 0.5, 1.5 * (6 / 80) ** 0.5),
]


@pytest.mark.parametrize(("initializer", "low", "high"), UNIFORM)
def test_even_ones_fill_their_range(initializer: Initializer, low: float, high: float) -> None:
    burn_torch.seed(3)
    values, width = drawn(initializer), high - low
    assert low <= values.min() < low + width / 1000
    assert high - width / 1000 < values.max() <= high
    assert abs(values.mean() - (low + high) / 2) < 5 * width / 12**0.5 / values.size**0.5
    counts = np.histogram(values, 10, (low, high))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 40  # chi-squared of 9 degrees: above 40 once in 100,000


NORMAL = [
    (Initializer.Normal(mean=1.0, std=0.3), 1.0, 0.3),
    (Initializer.KaimingNormal(gain=2.0, fan_out_only=False), 0.0, 2 / 50**0.5),
    (Initializer.KaimingNormal(gain=2.0, fan_out_only=True), 0.0, 2 / 30**0.5),
    (Initializer.XavierNormal(gain=1.5), 0.0, 1.5 * (2 / 80) ** 0.5),
]


@pytest.mark.parametrize(("initializer", "mean", "std"), NORMAL)
def test_normal_ones_have_their_mean_and_deviation(initializer: Initializer, mean: float, std: float) -> None:
    burn_torch.seed(4)
    values = drawn(initializer)
    assert abs(values.mean() - mean) < 5 * std / values.size**0.5
    assert abs(values.std() - std) < 5 * std / (2 * values.size) ** 0.5
    assert abs((np.abs(values - mean) < std).mean() - 0.6827) < 0.02


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5), (3, 2, 4), (8, 2, 2), (1, 3), (0, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    burn_torch.seed(5)
    values = drawn(Initializer.Orthogonal(gain=2.0), shape).astype(np.float64)
    matrix = values.reshape(shape[0], math.prod(shape[1:]))
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), rtol=0, atol=1e-6)  # elements are float32


def test_orthogonal_takes_no_side() -> None:
    burn_torch.seed(6)
    corners = [float(drawn(Initializer.Orthogonal(gain=1.0), (3, 3))[0, 0]) for _ in range(200)]
    assert 60 < sum(value > 0 for value in corners) < 140  # without the signs of R, all are negative
    assert abs(np.mean(np.square(corners)) - 1 / 3) < 0.12


def test_a_parameter_is_settled_when_it_is_asked_for() -> None:
    def two(first: bool) -> list[np.ndarray]:
        burn_torch.seed(11)
        params = [Initializer.Normal(mean=0.0, std=1.0).init((5,), CPU) for _ in range(2)]
        assert not any(param.is_initialized() for param in params)
        order = (0, 1) if first else (1, 0)
        read = {i: array(params[i].val()) for i in order}
        return [read[0], read[1]]

    np.testing.assert_array_equal(two(True), two(False))
    assert (two(True)[0] != two(True)[1]).any()


def test_the_same_seed_gives_the_same_model_on_both_leaves() -> None:
    models = []
    for device in (CPU, Device.ndarray(), AD):
        burn_torch.seed(42)
        model = nn.Conv2dConfig((3, 4), (2, 2), initializer=Initializer.XavierNormal(gain=1.0)).init(device)
        models.append({path: array(param.val()) for path, param in model.named_params()})
    for other in models[1:]:
        assert other.keys() == models[0].keys()
        for path, value in other.items():
            np.testing.assert_array_equal(value, models[0][path])
    burn_torch.seed(43)
    changed = nn.Conv2dConfig((3, 4), (2, 2), initializer=Initializer.XavierNormal(gain=1.0)).init(CPU)
    assert (array(changed.weight.val()) != models[0]["weight"]).any()


def test_a_scope_gives_the_key() -> None:
    def made(key: int) -> np.ndarray:
        with StepScope(key):
            return array(nn.LinearConfig(3, 4).init(CPU).weight.val())

    np.testing.assert_array_equal(made(1), made(1))
    assert (made(1) != made(2)).any()


def test_layers_start_as_torch_layers_do() -> None:
    burn_torch.seed(8)
    weight = array(nn.Conv2dConfig((4, 600), (3, 3)).init(CPU).weight.val())
    bound = 1 / (4 * 9) ** 0.5
    assert bound * 0.999 < np.abs(weight).max() <= bound
    bias = nn.LinearConfig(16, 4000).init(CPU).bias
    assert bias is not None
    assert 0.249 < np.abs(array(bias.val())).max() <= 0.25


JSON: list[tuple[Initializer, Any]] = [
    (Initializer.Zeros, "Zeros"),
    (Initializer.Ones, "Ones"),
    (Initializer.Constant(0.5), {"Constant": {"value": 0.5}}),
    (Initializer.Uniform(min=0.0, max=1.0), {"Uniform": {"min": 0.0, "max": 1.0}}),
    (Initializer.Normal(mean=0.0, std=1.0), {"Normal": {"mean": 0.0, "std": 1.0}}),
    (
        Initializer.KaimingUniform(gain=1 / math.sqrt(3), fan_out_only=False),
        {"KaimingUniform": {"gain": 0.5773502691896258, "fan_out_only": False}},
    ),
    (Initializer.KaimingNormal(gain=1.0, fan_out_only=True), {"KaimingNormal": {"gain": 1.0, "fan_out_only": True}}),
    (Initializer.XavierUniform(gain=1.0), {"XavierUniform": {"gain": 1.0}}),
    (Initializer.XavierNormal(gain=1.0), {"XavierNormal": {"gain": 1.0}}),
    (Initializer.Orthogonal(gain=2.0), {"Orthogonal": {"gain": 2.0}}),
]


@pytest.mark.parametrize(("initializer", "written"), JSON)
def test_json_is_burns(initializer: Initializer, written: Any) -> None:
    assert json.loads(initializer.to_json()) == written
    assert Initializer.from_json(json.dumps(written)) == initializer


def test_what_an_initializer_cannot_do_it_says() -> None:
    with pytest.raises(ConfigError, match=r"(?s)XavierNormal.*needs fan_in.*knows no fans.*init_with"):
        Initializer.XavierNormal(gain=1.0).init((3, 4), CPU)
    with pytest.raises(ConfigError, match=r"(?s)Orthogonal.*needs a matrix.*shape \(4,\)"):
        nn.LinearConfig(3, 4, initializer=Initializer.Orthogonal(gain=1.0)).init(CPU)
    with pytest.raises(ConfigError, match="the range is empty"):
        Initializer.Uniform(min=1.0, max=1.0)
    with pytest.raises(ConfigError, match="the standard deviation is negative"):
        Initializer.Normal(mean=0.0, std=-1.0)
