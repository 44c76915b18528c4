"""Functions of torch.nn.functional that were layers here only: beside torch in float64, on both leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch import Device, Tensor, compile, vmap
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.module import StepScope
from burn_torch.nn import Identity
from burn_torch.tensor import activation, functional

Rng = np.random.Generator
SHAPE = (2, 4, 3, 6)

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "instance_norm": (
        functional.instance_norm, lambda x, g, b: F.instance_norm(x, None, None, g, b), (SHAPE, (4,), (4,))),
    "local_response_norm": (
        lambda x: functional.local_response_norm(x, 3, 0.5, 0.6, 2.0),
        lambda x: F.local_response_norm(x, 3, 0.5, 0.6, 2.0), (SHAPE,)),
    "local_response_norm, even": (
        lambda x: functional.local_response_norm(x, 4, 0.5), lambda x: F.local_response_norm(x, 4, 0.5), (SHAPE[:3],)),
    "normalize": (functional.normalize, F.normalize, (SHAPE,)),
    "normalize, p": (lambda x: functional.normalize(x, 3.0, -1), lambda x: F.normalize(x, 3.0, -1), (SHAPE,)),
    "cosine_similarity": (functional.cosine_similarity, F.cosine_similarity, (SHAPE, SHAPE)),
    "cosine_similarity, last": (
        lambda x, y: functional.cosine_similarity(x, y, -1), lambda x, y: F.cosine_similarity(x, y, -1),
        ((5, 3), (3,))),
    "pairwise_distance": (functional.pairwise_distance, F.pairwise_distance, ((5, 3), (5, 3))),
    "pairwise_distance, p": (
        lambda x, y: functional.pairwise_distance(x, y, 1.0, 0.0), lambda x, y: F.pairwise_distance(x, y, 1.0, 0.0),
        ((5, 3), (5, 3))),
    "pdist": (functional.pdist, F.pdist, ((5, 3),)),
    "pdist, p": (lambda x: functional.pdist(x, 3.0), lambda x: F.pdist(x, 3.0), ((4, 2),)),
    "pdist, one row": (functional.pdist, lambda x: x.sum() * x.new_zeros(0), ((1, 2),)),
    "bilinear": (functional.bilinear, F.bilinear, ((2, 3, 4), (2, 3, 5), (2, 4, 5), (2,))),
    "pixel_shuffle": (lambda x: functional.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), (SHAPE,)),
    "pixel_unshuffle": (lambda x: functional.pixel_unshuffle(x, 3), lambda x: F.pixel_unshuffle(x, 3), (SHAPE,)),
    "channel_shuffle": (lambda x: functional.channel_shuffle(x, 2), lambda x: F.channel_shuffle(x, 2), (SHAPE,)),
    **{
        f"affine_grid, {size}, {aligned}": (
            lambda t, size=size, aligned=aligned: functional.affine_grid(t, size, aligned),
            lambda t, size=size, aligned=aligned: F.affine_grid(t, size, aligned),
            ((size[0], len(size) - 2, len(size) - 1),),
        )
        for size in ((2, 1, 3, 4), (1, 2, 2, 3, 5), (2, 1, 1, 4))
        for aligned in (False, True)
        if not (aligned and 1 in size[2:])  # an axis of one pixel is at 0 here, as in Burn
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_torch(name: str, seed: Rng) -> None:
    ours, theirs, shapes = CASES[name]
    data = [seed.normal(size=shape) for shape in shapes]
    wanted = [torch.tensor(x, requires_grad=True) for x in data]
    expected = theirs(*wanted)
    upstream = seed.normal(size=tuple(expected.shape))
    gradients = torch.autograd.grad(expected, wanted, torch.from_numpy(upstream))
    for device in (Device.cpu().autodiff(), Device.ndarray().autodiff()):
        xs = [Tensor.from_data(x, device).require_grad() for x in data]
        y = ours(*xs)
        np.testing.assert_allclose(y.into_data().array, expected.detach().numpy(), rtol=1e-11, atol=1e-13)
        grads = (y * Tensor.from_data(upstream, device)).sum().backward()
        for x, gradient in zip(xs, gradients, strict=True):
            np.testing.assert_allclose(np.asarray(x.grad(grads)), gradient.numpy(), rtol=1e-10, atol=1e-12)
    plain = [Tensor.from_data(x, Device.cpu()) for x in data]
    np.testing.assert_allclose(
        compile(ours)(*plain).into_data().array, expected.detach().numpy(), rtol=1e-11, atol=1e-13
    )
    stacked = [Tensor.stack([x, x * 0.5], 0) for x in plain]
    each = [ours(*(x[i] for x in stacked)) for i in range(2)]
    np.testing.assert_allclose(
        vmap(ours)(*stacked).into_data().array, np.stack([np.asarray(y) for y in each]), rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(
    "name", ["local_response_norm", "normalize", "pairwise_distance", "pdist", "bilinear", "instance_norm"]
)
def test_narrow_types_keep_their_type_and_come_near(name: str, dtype: str, seed: Rng) -> None:
    ours, theirs, shapes = CASES[name]
    xs = [Tensor.from_data(seed.normal(size=shape), Device.cpu()).cast(dtype) for shape in shapes]
    exact = theirs(*(torch.from_numpy(np.asarray(x.cast("f64").into_data().array)) for x in xs)).numpy()
    y = ours(*xs)
    assert y.dtype.name == dtype
    unit = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[dtype]
    error = np.abs(np.asarray(y.cast("f64").into_data().array) - exact).max()
    assert error <= 4 * unit * max(1.0, np.abs(exact).max())  # bilinear rounds its first product too


# -- a draw that has a gradient -----------------------------------------------------------------------------
def test_the_noise_is_that_of_gumbel(seed: Rng) -> None:
    """The largest of logits and noise is distributed as softmax says, and a key draws once."""
    logits = Tensor.from_data(np.tile(np.array([0.0, 1.0, 2.0], "f4"), (20000, 1)), Device.cpu())
    with StepScope(5, Identity()):
        hard = activation.gumbel_softmax(logits, hard=True)
    with StepScope(5, Identity()):
        soft = activation.gumbel_softmax(logits, tau=0.5)
    shares = np.asarray(hard).mean(0)
    expected = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    assert np.abs(shares - expected).max() < 5 * np.sqrt(0.25 / 20000)
    np.testing.assert_array_equal(np.asarray(hard).argmax(1), np.asarray(soft).argmax(1))
    np.testing.assert_allclose(np.asarray(soft).sum(1), 1.0, rtol=1e-6)
    assert set(np.unique(np.asarray(hard).round(6))) == {0.0, 1.0}


@pytest.mark.parametrize("dim", [0, -1])
def test_a_hard_draw_has_the_gradient_of_the_soft_one(dim: int, seed: Rng) -> None:
    device = Device.cpu().autodiff()
    data, upstream = seed.normal(size=(4, 5)), Tensor.from_data(seed.normal(size=(4, 5)), device)
    slopes = []
    for hard in (False, True):
        x = Tensor.from_data(data, device).require_grad()
        with StepScope(1, Identity()):
            y = activation.gumbel_softmax(x, 0.7, hard, dim)
        slopes.append(np.asarray(x.grad((y * upstream).sum().backward())))
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-12)
    assert np.abs(slopes[0]).max() > 0


def test_mistakes_are_told() -> None:
    x = Tensor.ones((2, 3), Device.cpu())
    with pytest.raises(ArgumentError, match=r"tau is no temperature\n  given: +tau 0\n  expected: .*\n  mend: "):
        activation.gumbel_softmax(x, 0)
    with pytest.raises(ArgumentError, match=r"no channels are neighbours\n  given: +size 0"):
        functional.local_response_norm(Tensor.ones((1, 2, 3), Device.cpu()), 0)
    for call in (
        lambda: functional.pdist(Tensor.ones((3,), Device.cpu())),
        lambda: functional.local_response_norm(x, 3),
        lambda: functional.channel_shuffle(x, 2),
        lambda: functional.affine_grid(x, (2, 1, 3, 4)),
    ):
        with pytest.raises(ShapeError, match=r"given: .*\n  expected: .*\n  mend: "):
            call()
