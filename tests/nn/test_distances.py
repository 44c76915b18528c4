"""Cosines and distances where squares overflow, vanish, or are those of zero vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, nn

DEVICES = {"torch": Device.cpu, "numpy": Device.ndarray}


def cosine_of(x1: Tensor, x2: Tensor) -> np.ndarray:
    return np.asarray(nn.CosineSimilarityConfig().init().forward(x1, x2))


@pytest.mark.parametrize("make", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 16.0, 6e4, 1e10, 1e25, 3e38])
def test_cosine_does_not_depend_on_the_lengths(make, dtype: str, scale: float, seed: np.random.Generator) -> None:
    if scale > {"f16": 6e4, "f32": 3e38, "f64": 1e300}[dtype] or (dtype == "f16" and scale < 1e-3):
        pytest.skip("beyond the type")
    x1, x2 = seed.uniform(0.2, 1.0, (2, 4, 7)) * seed.choice([-1.0, 1.0], (2, 4, 7))
    tensors = [Tensor.from_data(x * scale, make(), dtype) for x in (x1, x2)]
    exact = [np.asarray(x.into_data().values, np.float64) / scale for x in tensors]
    expected = (exact[0] * exact[1]).sum(1) / np.sqrt((exact[0] ** 2).sum(1) * (exact[1] ** 2).sum(1))
    unit = {"f16": 2.0**-11, "f32": 2.0**-21, "f64": 2.0**-50}[dtype]
    np.testing.assert_allclose(cosine_of(*tensors), expected, rtol=0, atol=unit * 2)


def test_cosine_and_its_gradients_are_those_of_the_formula_also_of_short_and_zero_vectors(
    seed: np.random.Generator,
) -> None:
    for x1 in (seed.normal(size=(5, 3)), seed.normal(size=(5, 3)) * 1e-9, np.zeros((5, 3))):
        x2, g = seed.normal(size=(5, 3)), seed.normal(size=5)
        theirs = [torch.tensor(x, requires_grad=True) for x in (x1, x2)]
        # torch's own cosine_similarity clamps behind its tape's back, so its slopes of short vectors are others
        dot, lengths = (theirs[0] * theirs[1]).sum(1), [x.norm(dim=1).clamp_min(1e-8) for x in theirs]
        y = dot / lengths[0] / lengths[1]
        y.backward(torch.from_numpy(g))
        ours = [Tensor.from_data(x, Device.cpu().autodiff()).require_grad() for x in (x1, x2)]
        z = nn.CosineSimilarityConfig().init().forward(*ours)
        grads = (z * Tensor.from_data(g, z.device)).sum().backward()
        np.testing.assert_allclose(z.tolist(), y.tolist(), rtol=1e-12, atol=1e-15)
        for a, b in zip(ours, theirs, strict=True):
            assert b.grad is not None
            np.testing.assert_allclose(np.asarray(a.grad(grads)), b.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_distances_of_half_types_are_summed_in_f32(p: float, seed: np.random.Generator) -> None:
    x1, x2 = (seed.uniform(200, 600, (4, 3)).astype(np.float16) for _ in range(2))
    tensors = [Tensor.from_data(x, Device.cpu()) for x in (x1, -x2)]
    apart = np.abs(x1.astype(np.float64) + x2 + 1e-6)
    expected = apart.max(1) if math.isinf(p) else (apart**p).sum(1) ** (1 / p)
    np.testing.assert_allclose(nn.PairwiseDistance(p, 1e-6).forward(*tensors).tolist(), expected, rtol=1e-3)
    loss = nn.TripletMarginLoss(1.0, p).forward_no_reduction(tensors[0], tensors[1], tensors[0])
    np.testing.assert_allclose(loss.tolist(), expected + 1.0, rtol=1e-3)


@pytest.mark.parametrize("make", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4), (2, 0, 4, 4), (2, 3, 1, 5)])
def test_local_response_norm_takes_empty_inputs(make, shape: tuple[int, ...], seed: np.random.Generator) -> None:
    x = seed.normal(size=shape)
    y = nn.LocalResponseNormConfig(2, alpha=0.5).init().forward(Tensor.from_data(x, make()))
    assert y.shape == shape
    if x.size:
        expected = torch.nn.LocalResponseNorm(2, alpha=0.5)(torch.from_numpy(x))
        np.testing.assert_allclose(np.asarray(y), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_local_response_norm_of_large_halves_does_not_overflow(dtype: str, seed: np.random.Generator) -> None:
    """Squares of numbers from 256 on are no f16: the result was 0."""
    x = Tensor.from_data(seed.normal(size=(2, 4, 3)) * 2000, Device.cpu(), dtype)
    layer = nn.LocalResponseNormConfig(3).init()
    expected = layer.forward(x.cast("f64")).into_data().values
    np.testing.assert_allclose(layer.forward(x).into_data().values, expected, rtol=2.0**-7)
