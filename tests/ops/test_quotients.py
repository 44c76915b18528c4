"""Remainders just below multiples, and weights, positions and scales that are no usual numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from burn_torch import ArgumentError, Device, Tensor, compile, nn
from burn_torch.tensor import functional as F
from burn_torch.tensor.options import AttentionModuleOptions

DEVICES = {"torch": lambda: Device.cpu(fused=False), "numpy": Device.ndarray}
each_device = pytest.mark.parametrize("make", DEVICES.values(), ids=DEVICES)


@each_device
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["remainder", "fmod"])
def test_gradient_of_a_remainder_for_its_divisor_counts_whole_times(
    make, name: str, dtype: type, seed: np.random.Generator
) -> None:
    y = (seed.uniform(0.1, 5, 5000) * seed.choice([-1, 1], 5000)).astype(dtype)
    x = np.nextafter((y * seed.integers(-100, 100, 5000)).astype(dtype), dtype(0))  # just below multiples
    g = seed.normal(size=5000).astype(dtype)
    leaves = [Tensor.from_data(v, make().autodiff()).require_grad() for v in (x, y)]
    z = getattr(leaves[0], name)(leaves[1])
    grads = (z * Tensor.from_data(g, z.device)).sum().backward()
    exact = np.remainder if name == "remainder" else np.fmod
    wide = x.astype(np.float64), y.astype(np.float64)
    times = np.rint((wide[0] - exact(*wide)) / wide[1])
    np.testing.assert_allclose(np.asarray(leaves[1].grad(grads)), -g * times, rtol=4 * np.finfo(dtype).eps)


@each_device
@pytest.mark.parametrize(
    "weights", [[np.nan, 1.0], [-1.0, 2.0], [0.0, 0.0], [np.inf, 1.0]], ids=["nan", "negative", "zero", "infinite"]
)
def test_categorical_refuses_weights_that_are_no_distribution(make, weights: list[float]) -> None:
    x = Tensor.from_data([[1.0, 1.0], weights], make())
    for draw in (lambda x: x.categorical(3), compile(lambda x: x.categorical(3))):
        with pytest.raises(ArgumentError, match=r"(?s)categorical: .*given: +weights .*expected: +finite.*mend:"):
            draw(x)


@each_device
@pytest.mark.parametrize(("scale", "dtype"), [(6e4, "f16"), (3e38, "f32"), (1e-40, "f32"), (1.0, "bf16")])
def test_categorical_draws_by_weights_of_any_size(make, scale: float, dtype: str) -> None:
    device = make()
    if dtype == "bf16" and device == Device.ndarray():
        pytest.skip("numpy has no bfloat16")
    x = Tensor.from_data([[scale, scale, 0.0, scale / 2]], device, dtype).categorical(4000)
    shares = np.bincount(np.asarray(x)[0], minlength=4) / 4000
    np.testing.assert_allclose(shares, [0.4, 0.4, 0.0, 0.2], atol=5 * np.sqrt(0.24 / 4000))  # five deviations
    assert shares[2] == 0.0


@each_device
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_grid_sample_at_a_position_that_is_not_finite_is_nan(
    make, mode: str, padding_mode: str, seed: np.random.Generator
) -> None:
    grid = seed.uniform(-1, 1, (2, 3, 4, 2))
    grid[0, 0, 0], grid[0, 1, 1, 0], grid[1, 2, 3, 1] = np.nan, np.nan, np.inf
    x = seed.normal(size=(2, 3, 5, 4))
    from burn_torch import ops

    tensors = [Tensor.from_data(v, make()) for v in (x, grid)]
    y = np.asarray(ops.grid_sample_2d(*tensors, mode=mode, padding_mode=padding_mode, align_corners=False))
    nowhere = ~np.isfinite(grid).all(-1)
    assert np.isnan(y.transpose(0, 2, 3, 1)[nowhere]).all()
    assert np.isfinite(y.transpose(0, 2, 3, 1)[~nowhere]).all()


@each_device
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_grid_sample_takes_no_gradient_at_a_position_that_is_not_finite(
    make, mode: str, padding_mode: str, seed: np.random.Generator
) -> None:
    from burn_torch import ops

    grid, g, x = seed.uniform(-1, 1, (2, 3, 4, 2)), seed.normal(size=(2, 3, 3, 4)), seed.normal(size=(2, 3, 5, 4))
    grid[0, 0, 0], grid[0, 1, 1, 0], grid[1, 2, 3, 1] = np.nan, np.nan, np.inf
    nowhere = ~np.isfinite(grid).all(-1)
    elsewhere, without = np.where(nowhere[..., None], 0.3, grid), np.where(nowhere[:, None], 0, g)
    settings = {"mode": mode, "padding_mode": padding_mode, "align_corners": False}

    def gradients(g: np.ndarray, grid: np.ndarray) -> list[np.ndarray]:  # torch's own ended the process at NaN
        tensors = [Tensor.from_data(v, make()) for v in (g, x, grid)]
        return [np.asarray(d) for d in ops.grid_sample_2d_backward(*tensors, live=(True, True), **settings)]

    for upstream in (g, np.where(nowhere[:, None], np.nan, g)):  # of a y that is NaN it mostly is NaN
        for grad, expected in zip(gradients(upstream, grid), gradients(without, elsewhere), strict=True):
            np.testing.assert_allclose(grad, expected, atol=1e-14)
    x = np.full_like(x, -np.inf)  # 0 times these is NaN
    assert not any(d.any() for d in gradients(g, np.full_like(grid, np.nan)))
    partials = ops.grid_sample_2d_derivative(*(Tensor.from_data(v, make()) for v in (x, grid)), order=1, **settings)
    assert not np.asarray(partials).transpose(0, 2, 3, 1, 4)[nowhere].any()


@each_device
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [True, False])
def test_grid_sample_is_reflected_far_away_as_it_is_near(make, mode: str, align_corners: bool, seed) -> None:
    """Pixel coordinates of 1e9 have no fraction in float32; positions repeat every 4."""
    from burn_torch import ops

    x, g = seed.normal(size=(1, 2, 5, 3)).astype(np.float32), seed.normal(size=(1, 2, 2, 3)).astype(np.float32)
    grid = np.float32(seed.integers(-128, 128, (1, 2, 3, 2)) / 64)
    settings = {"mode": mode, "padding_mode": "reflection", "align_corners": align_corners}
    results = []
    for shift in (0, 2**17):
        tensors = [Tensor.from_data(v, make()) for v in (g, x, grid + np.float32(shift))]
        results.append([ops.grid_sample_2d(*tensors[1:], **settings)])
        results[-1] += ops.grid_sample_2d_backward(*tensors, live=(True, True), **settings)
    for far, near in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(np.asarray(far), np.asarray(near), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_with_a_negative_scale_hides_what_is_hidden(causal: bool, seed: np.random.Generator) -> None:
    q, k, v = (torch.from_numpy(seed.normal(size=(2, 3, 5, 8))) for _ in range(3))
    hidden = torch.from_numpy(seed.random((5, 5)) < 0.3) & ~torch.eye(5, dtype=torch.bool)
    device = Device.cpu(fused=False).autodiff()
    tensors = [Tensor.from_torch(x).to_device(device).require_grad() for x in (q, k, v)]
    mask = Tensor.from_torch(hidden).to_device(device).reshape(1, 1, 5, 5)
    y = F.attention(*tensors, mask, None, AttentionModuleOptions(scale=-0.7, is_causal=causal))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    scores = leaves[0] @ leaves[1].transpose(-1, -2) * -0.7
    scores = scores.masked_fill(hidden | (torch.ones(5, 5).triu(1).bool() if causal else hidden), -torch.inf)
    expected = scores.softmax(-1) @ leaves[2]
    g = torch.from_numpy(seed.normal(size=expected.shape))
    expected.backward(g)
    np.testing.assert_allclose(np.asarray(y.inner()), expected.detach().numpy(), rtol=1e-10)
    grads = (y * Tensor.from_torch(g).to_device(device)).sum().backward()
    for ours, theirs in zip(tensors, leaves, strict=True):
        assert theirs.grad is not None
        np.testing.assert_allclose(np.asarray(ours.grad(grads)), theirs.grad.numpy(), rtol=1e-8, atol=1e-12)


def test_ndarray_leaks_no_warning_of_numpy() -> None:
    nd = Device.ndarray()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Tensor.full((4,), 60_000.0, (nd, "f16")).sum().tolist() == [np.inf]
        assert F.layer_norm(Tensor.zeros((3, 0), nd), None).shape == (3, 0)
        for layer in (nn.GroupNormConfig(2, 4), nn.InstanceNormConfig(4), nn.BatchNormConfig(4)):
            assert layer.init(nd).forward(Tensor.zeros((2, 4, 0), nd)).shape == (2, 4, 0)
