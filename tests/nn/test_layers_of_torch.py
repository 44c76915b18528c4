"""Layers beside those of PyTorch with the same name: padding, pools, dropout of channels, shapes, softmaxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ConfigError, Device, ShapeError, Tensor, compile, nn
from burn_torch.module import StepScope

CPU = Device.cpu()
SHAPES = {1: (2, 3, 7), 2: (2, 3, 5, 6), 3: (1, 2, 4, 3, 5)}


def beside_torch(layer: Any, twin: torch.nn.Module, shape: tuple[int, ...], seed: int = 0) -> None:
    """Values and gradients are those of the twin, in f64, on both leaves."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=shape)
    expected_x = torch.tensor(data, requires_grad=True)
    expected = twin.to(torch.float64)(expected_x)
    upstream = rng.normal(size=tuple(expected.shape))
    (expected_gradient,) = torch.autograd.grad(expected, expected_x, torch.tensor(upstream))
    for device in (CPU, Device.ndarray()):
        x = Tensor.from_data(data, device.autodiff()).require_grad()
        y = layer.forward(x)
        gradient = x.grad((y * Tensor.from_data(upstream, device.autodiff())).sum().backward())
        assert gradient is not None
        np.testing.assert_allclose(y.into_data().array, expected.detach().numpy(), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(gradient.into_data().array, expected_gradient.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["ConstantPad", "ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"])
def test_padding(kind: str, axes: int) -> None:
    amounts = tuple(int(n) for n in np.random.default_rng(axes).integers(0, 3, 2 * axes))
    name, more = f"{kind}{axes}d", (1.5,) if kind == "ConstantPad" else ()
    layer = getattr(nn, f"{name}Config")(amounts, *more).init()
    beside_torch(layer, getattr(torch.nn, name)(amounts, *more), SHAPES[axes])


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["AdaptiveMaxPool", "AdaptiveAvgPool"])
@pytest.mark.parametrize("seed", range(3))
def test_pools_of_a_given_output(kind: str, axes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = tuple(int(n) for n in rng.integers(1, 6, axes))
    shape = (2, 1, *(int(n) for n in rng.integers(3, 9, axes)))
    name, size_or_number = f"{kind}{axes}d", size[0] if axes == 1 else size
    layer = getattr(nn, f"{name}Config")(size_or_number).init()
    beside_torch(layer, getattr(torch.nn, name)(size_or_number), shape)


def test_the_first_of_equal_maxima_has_the_gradient() -> None:
    x = torch.zeros(1, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.nn.functional.adaptive_max_pool2d(x, (3, 2)).sum(), x)
    ours = Tensor.zeros((1, 1, 4, 4), CPU.autodiff()).require_grad()
    gradient = ours.grad(nn.AdaptiveMaxPool2dConfig((3, 2)).init().forward(ours).sum().backward())
    assert gradient is not None
    np.testing.assert_array_equal(gradient.into_data().array, expected.numpy())


@pytest.mark.parametrize("kernel", [(2, 2, 2), (1, 3, 2)])
def test_pools_of_volumes(kernel: tuple[int, int, int]) -> None:
    beside_torch(nn.MaxPool3dConfig(kernel).init(), torch.nn.MaxPool3d(kernel), SHAPES[3])
    beside_torch(nn.AvgPool3dConfig(kernel).init(), torch.nn.AvgPool3d(kernel), SHAPES[3])
    explicit = nn.PaddingConfig3d.Explicit(0, 1, 1, 1, 0, 1)
    padded = torch.nn.Sequential(torch.nn.ConstantPad3d((1, 1, 1, 0, 0, 1), 0.0), torch.nn.AvgPool3d(kernel, 1))
    beside_torch(nn.AvgPool3dConfig(kernel, strides=(1, 1, 1), padding=explicit).init(), padded, SHAPES[3])


def test_shapes_and_softmaxes() -> None:
    beside_torch(nn.FlattenConfig().init(), torch.nn.Flatten(), (2, 3, 4))
    beside_torch(nn.Flatten(0, 1), torch.nn.Flatten(0, 1), (2, 3, 4))
    beside_torch(nn.UnflattenConfig(-1, (2, -1, 3)).init(), torch.nn.Unflatten(-1, (2, -1, 3)), (2, 12))
    beside_torch(nn.ChannelShuffleConfig(3).init(), torch.nn.ChannelShuffle(3), (2, 6, 2, 3))
    beside_torch(nn.SoftmaxConfig(-2).init(), torch.nn.Softmax(-2), (2, 3, 4))
    beside_torch(nn.LogSoftmaxConfig(1).init(), torch.nn.LogSoftmax(1), (2, 3, 4))
    beside_torch(nn.SoftminConfig(0).init(), torch.nn.Softmin(0), (2, 3, 4))
    beside_torch(nn.Softmax2d(), torch.nn.Softmax2d(), (2, 3, 4, 1))


def test_empty_batches() -> None:
    x = Tensor.zeros((0, 3, 4, 4), CPU)
    assert nn.AdaptiveMaxPool2dConfig((2, 2)).init().forward(x).shape == (0, 3, 2, 2)
    assert nn.CircularPad2dConfig((1, 0, 2, 1)).init().forward(x).shape == (0, 3, 7, 5)
    assert nn.UnflattenConfig(1, (3, -1)).init().forward(x).shape == (0, 3, 1, 4, 4)
    assert nn.FlattenConfig().init().forward(x).shape == (0, 48)


# -- dropout ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_whole_channels_are_dropped(axes: int) -> None:
    layer = getattr(nn, f"Dropout{axes}dConfig")(0.3).init()
    x = Tensor.ones((40, 50, *(2,) * axes), CPU.autodiff())
    with StepScope(0, layer):
        y = layer.forward(x).into_data().array.reshape(2000, -1)
    assert np.all(y == y[:, :1])
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((y[:, 0] == 0).mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 2000)
    assert layer.valid().forward(x.inner()) is x.inner() or np.all(layer.forward(x.inner()).into_data().array == 1)


@pytest.mark.parametrize("kind", ["AlphaDropout", "FeatureAlphaDropout"])
def test_mean_and_variance_stay(kind: str) -> None:
    data = np.random.default_rng(0).normal(size=(400, 400, 2))
    layer = getattr(nn, f"{kind}Config")(0.4).init()
    with StepScope(0, layer):
        y = layer.forward(Tensor.from_data(data, CPU.autodiff())).into_data().array
    assert abs(y.mean()) < 0.02
    assert abs(y.var() - 1) < 0.05
    scale = (0.6 * (1 + 0.4 * 1.7580993408473766**2)) ** -0.5
    dropped = np.isclose(y, scale * -1.7580993408473766 * 0.6, rtol=1e-12, atol=0)
    assert abs(dropped.mean() - 0.4) < 0.01
    assert np.array_equal(dropped[..., 0], dropped[..., 1]) == (kind == "FeatureAlphaDropout")
    np.testing.assert_allclose(y[~dropped], (data * scale + scale * 0.4 * 1.7580993408473766)[~dropped], rtol=1e-12)


def test_all_is_dropped_at_probability_one() -> None:
    x = Tensor.ones((2, 3), CPU.autodiff())
    expected = torch.nn.functional.alpha_dropout(torch.ones(2, 3), 1.0, training=True).tolist()
    for layer in (nn.AlphaDropout(1.0), nn.FeatureAlphaDropout(1.0)):
        with StepScope(0, layer):
            assert layer.forward(x).tolist() == expected


# -- mistakes, and inside a step ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layer", "shape", "words"),
    [
        (
            nn.ZeroPad2d((1, 1, 1, 1)),
            (2, 3, 4),
            r"ZeroPad2d: the input has 3 axes[\s\S]*\(batch, channels, height, width\)",
        ),
        (nn.CircularPad1d((5, 0)), (2, 3, 4), r"goes round more than once[\s\S]*at most 4"),
        (nn.ReflectionPad1d((4, 0)), (2, 3, 4), r"expected"),
        (nn.ChannelShuffle(4), (2, 6, 2, 2), r"the sizes do not divide[\s\S]*multiple of 4"),
        (nn.Unflatten(1, (2, 4)), (2, 6), r"the sizes do not make the axis"),
        (nn.Unflatten(3, (2, 3)), (2, 6), r"the sizes do not make the axis"),
        (nn.FeatureAlphaDropout(0.5), (3,), r"FeatureAlphaDropout: the input has 1 ax"),
        (nn.AdaptiveMaxPool1d(2), (2, 3), r"AdaptiveMaxPool1d: the input has 2 axes"),
    ],
)
def test_inputs_that_do_not_fit(layer: Any, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        layer.forward(Tensor.ones(shape, CPU.autodiff()))


def test_configurations_that_do_not_fit() -> None:
    for config, settings in (
        (nn.ZeroPad1dConfig, ((-1, 0),)),
        (nn.Dropout2dConfig, (1.5,)),
        (nn.AdaptiveMaxPool2dConfig, ((0, 1),)),
        (nn.UnflattenConfig, (0, (-1, -1))),
        (nn.ChannelShuffleConfig, (0,)),
        (nn.MaxPool3dConfig, ((0, 1, 1),)),
    ):
        with pytest.raises(ConfigError, match="expected"):
            config(*settings)


def test_a_compiled_chain_is_the_chain() -> None:
    layers = [nn.CircularPad2d((1, 2, 0, 1)), nn.AdaptiveMaxPool2d((3, 2)), nn.Flatten(), nn.LogSoftmax(1)]

    def chain(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer.forward(x)
        return x

    x = Tensor.from_data(np.random.default_rng(1).normal(size=(2, 3, 5, 4)), CPU)
    np.testing.assert_array_equal(compile(chain)(x).into_data().array, chain(x).into_data().array)
