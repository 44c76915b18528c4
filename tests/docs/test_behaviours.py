"""Choices of Burn that a user of PyTorch does not expect; docs/parity.md points here."""

from __future__ import annotations

import numpy as np
import pytest

from burn_torch import Device, Distribution, Tensor, nn, optim
from burn_torch.tensor import Gradients, GridSampleOptions, InterpolateOptions

CPU = Device.cpu()


@pytest.mark.parametrize("name", ["sum_dim", "mean_dim", "max_dim", "argmax", "argmin", "median", "var", "prod_dim"])
def test_reductions_over_a_dim_keep_it(name: str) -> None:
    x = Tensor.random((2, 3, 4), Distribution.Normal(0.0, 1.0), CPU)
    assert getattr(x, name)(1).shape == (2, 1, 4)


def test_a_weight_is_inputs_by_outputs() -> None:
    assert nn.LinearConfig(2, 5).init(CPU).weight.shape == (2, 5)


def test_defaults_of_optimizers() -> None:
    assert (optim.AdamConfig().epsilon, optim.AdamWConfig().epsilon) == (1e-5, 1e-5)
    assert (optim.AdamWConfig().weight_decay, optim.MomentumConfig().dampening) == (1e-4, 0.1)


def test_gradients_are_clipped_each_by_itself() -> None:
    clip = optim.GradientClippingConfig.Norm(1.0).init()
    parts = [clip.clip_gradient(Tensor.from_floats(values, CPU)).tolist() for values in ([3.0, 4.0], [0.0, 9.0])]
    np.testing.assert_allclose(parts, [[0.6, 0.8], [0.0, 1.0]], rtol=1e-6)


def test_where_corners_lie() -> None:
    assert (InterpolateOptions().align_corners, GridSampleOptions().align_corners) == (True, False)


def test_hard_sigmoid_has_slope_a_fifth() -> None:
    y = nn.HardSigmoidConfig().init().forward(Tensor.from_floats([-3.0, 0.0, 1.0], CPU))
    np.testing.assert_allclose(y.tolist(), [0.0, 0.5, 0.7], rtol=1e-6)


def test_recurrent_layers_take_batches_first() -> None:
    config = nn.LstmConfig(2, 3, True)
    y, _ = config.init(CPU).forward(Tensor.zeros((4, 5, 2), CPU), None)
    assert (config.batch_first, y.shape) == (True, (4, 5, 3))


def test_gradients_are_values() -> None:
    x = Tensor.from_floats([2.0], CPU.autodiff()).require_grad()
    gradients = (x * x).sum().backward()
    assert isinstance(gradients, Gradients)
    grad = x.grad(gradients)
    assert grad is not None
    assert grad.tolist() == [4.0]


def test_valid_gives_another_module() -> None:
    layer = nn.LinearConfig(2, 3).init(CPU.autodiff())
    assert layer.valid() is not layer
    assert layer.devices()[0].is_autodiff()
    assert not layer.valid().devices()[0].is_autodiff()


def test_true_is_masked_out() -> None:
    assert Tensor.tril_mask((2, 2), 0, CPU).tolist() == [[False, True], [False, False]]


def test_defaults_of_attention() -> None:
    config = nn.MultiHeadAttentionConfig(4, 2)
    assert (config.min_float, config.quiet_softmax) == (-1e4, False)


def test_remainders() -> None:
    x = Tensor.from_floats([-3.0], CPU)
    assert (x.remainder(2.0).tolist(), x.fmod(2.0).tolist()) == ([1.0], [-1.0])
