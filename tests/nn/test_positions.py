"""PositionalEncoding and RotaryEncoding: formulas in float64, what they are for, tables that move, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Tensor
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ConfigError, ShapeError
from burn_torch.nn import PositionalEncodingConfig, RotaryEncodingConfig, generate_sinusoids
from tests.nn.twin_modules import CPU, TRAINING, Array, array, tensor


# -- sinusoids ----------------------------------------------------------------------------------------------
def test_sinusoids_are_those_of_the_paper() -> None:
    sinusoids = array(generate_sinusoids(50, 6, 10_000, CPU))
    assert sinusoids.dtype == np.float32
    for t in (0, 1, 17, 49):
        for k in range(3):
            angle = t / 10_000 ** (2 * k / 6)
            assert sinusoids[t, 2 * k] == np.float32(math.sin(angle))
            assert sinusoids[t, 2 * k + 1] == np.float32(math.cos(angle))


def test_positional_encoding_adds_them(seed: np.random.Generator) -> None:
    layer = PositionalEncodingConfig(6, max_sequence_size=20, max_timescale=100).init(TRAINING)
    x = seed.standard_normal((2, 5, 6))
    tracked = tensor(x)
    output = layer.forward(tracked)
    wanted = x + array(generate_sinusoids(20, 6, 100, CPU))[:5].astype(np.float64)
    np.testing.assert_array_equal(array(output), wanted)
    g = seed.standard_normal(x.shape)
    gradient = tracked.grad((output * Tensor.from_data(g, TRAINING)).sum().backward())
    assert gradient is not None
    np.testing.assert_array_equal(array(gradient), g)
    assert layer.num_params() == 0


def test_positional_encoding_keeps_half_types() -> None:
    layer = PositionalEncodingConfig(4).init(CPU)
    assert layer.forward(Tensor.ones((1, 3, 4), (CPU, DType.F16))).dtype is DType.F16


@pytest.mark.parametrize(("length", "d_model", "max_timescale"), [(5, 3, 100), (5, 4, 4)])
def test_sizes_that_make_no_sinusoids_are_refused(length: int, d_model: int, max_timescale: int) -> None:
    with pytest.raises(
        ArgumentError,
        match=rf"sizes make no encoding\n  given:    length {length}, d_model {d_model}.*\n  expected: an even",
    ):
        generate_sinusoids(length, d_model, max_timescale, CPU)
    with pytest.raises(ConfigError, match=r"odd|too small"):
        PositionalEncodingConfig(d_model, max_sequence_size=length, max_timescale=max_timescale)


@pytest.mark.parametrize("shape", [(1, 7, 4), (1, 3, 6), (1, 3, 1)])
def test_sequences_that_do_not_fit_the_sinusoids_are_refused(shape: tuple[int, ...]) -> None:
    layer = PositionalEncodingConfig(4, max_sequence_size=6).init(CPU)
    with pytest.raises(
        ShapeError,
        match=r"sequence does not fit\n  given: .*\n  expected: \(batch, seq, 4\) with seq of at most 6\n  mend: ",
    ) as caught:
        layer.forward(Tensor.ones(shape, CPU))
    assert caught.value.__notes__ == ["in PositionalEncoding(d_model=4, max_sequence_size=6, max_timescale=10000)"]


# -- rotations ------------------------------------------------------------------------------------------------
def rotated(x: Array, start: int, theta: float = 10_000.0) -> Array:
    """Each pair as a complex number times exp(i angle); frequencies are rounded to float32, as the layer's are."""
    d_model = x.shape[-1]
    rates = np.float32(theta ** (-np.arange(0, d_model, 2) / d_model)).astype(np.float64)
    angles = np.outer(np.arange(start, start + x.shape[-2]), rates)
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (2, 3, 5, 8), (0, 5, 8)])
@pytest.mark.parametrize("start", [0, 4])
def test_rotation_equals_complex_multiplication(shape: tuple[int, ...], start: int, seed: np.random.Generator) -> None:
    layer = RotaryEncodingConfig(12, 8, theta=500.0).init(TRAINING)
    x = seed.standard_normal(shape)
    tracked = tensor(x)
    output = layer.apply(tracked, start)
    # the table holds cosine and sine in float32
    np.testing.assert_allclose(array(output), rotated(x, start, 500.0), rtol=0, atol=4 * 2.0**-24 * 4)
    if start == 0:
        np.testing.assert_array_equal(array(layer.forward(tracked)), array(output))
    g = seed.standard_normal(shape)
    gradient = tracked.grad((output * Tensor.from_data(g, TRAINING)).sum().backward())
    assert gradient is not None
    leaf = torch.from_numpy(x).requires_grad_()
    pairs = leaf.reshape(*shape[:-1], 4, 2)
    table = torch.from_numpy(array(layer.freq_complex)[start : start + 5, ::2].astype(np.float64))
    wanted = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(table)).reshape(shape)
    np.testing.assert_allclose(array(output), wanted.detach().numpy(), rtol=0, atol=1e-14)
    (wanted_gradient,) = torch.autograd.grad(wanted, leaf, torch.from_numpy(g))
    np.testing.assert_allclose(array(gradient), wanted_gradient.numpy(), rtol=0, atol=1e-14)


def test_products_depend_on_the_distance_alone(seed: np.random.Generator) -> None:
    layer = RotaryEncodingConfig(64, 16).init(CPU)
    query, key = (tensor(seed.standard_normal((1, 16)), device=CPU) for _ in range(2))

    def product(a: int, b: int) -> float:
        return float(array(layer.apply(query, a) * layer.apply(key, b)).sum())

    assert product(3, 7) == pytest.approx(product(50, 54), abs=1e-5)
    assert product(3, 7) != pytest.approx(product(3, 8), abs=1e-3)


def test_table_holds_cosine_and_sine_twice_for_each_pair() -> None:
    table = array(RotaryEncodingConfig(3, 4).init(CPU).freq_complex)
    assert table.shape == (3, 4, 2)
    wanted = [[[math.cos(a), math.sin(a)] for a in (t, t, t / 100, t / 100)] for t in range(3)]
    np.testing.assert_allclose(table, wanted, rtol=0, atol=2.0**-24)


@pytest.mark.parametrize("start", [2, 5, 100])
def test_shift_moves_the_table_and_reset_brings_it_back(start: int, seed: np.random.Generator) -> None:
    layer = RotaryEncodingConfig(5, 8).init(CPU)
    x = seed.standard_normal((2, 5, 8))
    moved = layer.shift(start)
    np.testing.assert_allclose(array(moved.forward(tensor(x, device=CPU))), rotated(x, start), rtol=0, atol=1e-6)
    further = moved.shift(start + 3)
    np.testing.assert_allclose(array(further.forward(tensor(x, device=CPU))), rotated(x, start + 3), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(array(moved.reset().freq_complex), array(layer.freq_complex))
    assert layer.reset() is layer
    assert layer.start_offset == 0
    with pytest.raises(
        ArgumentError, match=rf"table moves forwards only\n  given:    start {start}, while it begins at {start}\n"
    ):
        moved.shift(start)


def test_angles_of_far_positions_keep_float32_accuracy(seed: np.random.Generator) -> None:
    x = seed.standard_normal((3, 8))
    moved = RotaryEncodingConfig(3, 8).init(CPU).shift(1_000_000)
    np.testing.assert_allclose(array(moved.forward(tensor(x, device=CPU))), rotated(x, 1_000_000), rtol=0, atol=1e-6)


def test_frequency_scaling_replaces_the_frequencies(seed: np.random.Generator) -> None:
    layer = RotaryEncodingConfig(6, 8).init_with_frequency_scaling(lambda theta: theta * 0.25, CPU)
    x = seed.standard_normal((6, 8))
    rates = np.float32(10_000.0 ** (-np.arange(0, 8, 2) / 8)).astype(np.float64) * 0.25
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * np.outer(np.arange(6), rates))
    wanted = np.stack([turned.real, turned.imag], -1).reshape(x.shape)
    np.testing.assert_allclose(array(layer.forward(tensor(x, device=CPU))), wanted, rtol=0, atol=1e-6)
    with pytest.raises(ShapeError, match=r"scaled frequencies have another shape\n  given: .*\n  expected: \(4,\)"):
        RotaryEncodingConfig(6, 8).init_with_frequency_scaling(lambda theta: theta.narrow(0, 0, 2), CPU)


def test_rotation_keeps_half_types() -> None:
    layer = RotaryEncodingConfig(6, 8).init(CPU)
    assert layer.forward(Tensor.ones((3, 8), (CPU, DType.BF16))).dtype is DType.BF16


@pytest.mark.parametrize(("shape", "start"), [((8,), 0), ((3, 6), 0), ((7, 8), 0), ((3, 8), 4), ((3, 8), -1)])
def test_sequences_that_do_not_fit_the_table_are_refused(shape: tuple[int, ...], start: int) -> None:
    layer = RotaryEncodingConfig(6, 8).init(CPU)
    with pytest.raises(
        ShapeError,
        match=rf"sequence does not fit\n  given: .*from position {start}\n  expected: .*start \+ seq <= 6\n  mend: ",
    ) as caught:
        layer.apply(Tensor.ones(shape, CPU), start)
    assert caught.value.__notes__ == ["in RotaryEncoding(d_model=8, max_sequence_length=6)"]


# -- configurations, display ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "config",
    [PositionalEncodingConfig(4, max_sequence_size=9, max_timescale=50), RotaryEncodingConfig(9, 4, theta=5.0)],
)
def test_config_goes_through_json(config: Any) -> None:
    assert type(config).from_json(config.to_json()) == config


def test_defaults_and_display() -> None:
    shown = str(PositionalEncodingConfig(4).init(CPU))
    assert shown == "PositionalEncoding {d_model: 4, max_sequence_size: 5000, max_timescale: 10000}"
    assert RotaryEncodingConfig(10, 4).theta == 10_000.0
    assert str(RotaryEncodingConfig(10, 4).init(CPU)) == "RotaryEncoding {d_model: 4, max_sequence_length: 10}"


def test_config_names_all_its_faults() -> None:
    with pytest.raises(ConfigError) as caught:
        RotaryEncodingConfig(0, 15, theta=-1.0)
    for words in ("max_sequence_length = 0", "d_model = 15", "theta = -1.0"):
        assert words in str(caught.value)
