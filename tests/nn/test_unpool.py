"""LpPool, MaxUnpool, FractionalMaxPool, Bilinear and padded embeddings against torch in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ConfigError, Device, ShapeError, Tensor, compile, nn, vmap
from burn_torch.core.errors import ArgumentError, BoundsError, DTypeError
from burn_torch.module import StepScope
from burn_torch.tensor import functional
from tests.nn.test_layers_of_torch import SHAPES, beside_torch
from tests.nn.twins import AD, CPU, array, close, compare, same, tensor

Rng = np.random.Generator


# -- norms of windows -----------------------------------------------------------------------------------
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 1.5])
def test_norms_of_windows(axes: int, p: float, seed: Rng) -> None:
    kernel, stride = (tuple(int(n) for n in seed.integers(1, 4, axes)) for _ in range(2))
    ceil = bool(seed.integers(2))
    settings: Any = ({"stride": stride[0]} if axes == 1 else {"strides": stride}) | {"ceil_mode": ceil}
    layer = getattr(nn, f"LpPool{axes}dConfig")(p, kernel[0] if axes == 1 else kernel, **settings).init()
    twin = getattr(torch.nn, f"LPPool{axes}d")(p, kernel[0] if axes == 1 else kernel, stride, ceil)

    class Twin(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # torch takes no absolute value
            return twin(x.abs())  # type: ignore[no-any-return]

    beside_torch(layer, Twin(), SHAPES[axes], int(seed.integers(100)))


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0])
def test_a_window_of_zeros_has_no_gradient(p: float) -> None:
    x = Tensor.zeros((1, 1, 4), AD).require_grad()
    y = nn.LpPool1dConfig(p, 2).init().forward(x)
    gradient = x.grad(y.sum().backward())
    assert gradient is not None
    assert array(y).tolist() == [[[0.0, 0.0]]]
    assert array(gradient).tolist() == [[[0.0] * 4]]


def test_norms_of_half_types_do_not_overflow() -> None:
    x = Tensor.full((1, 1, 4), 300.0, CPU).cast("f16")
    y = nn.LpPool1dConfig(2.0, 4).init().forward(x)
    assert y.dtype.name == "f16"
    assert array(y).tolist() == [[[600.0]]]


# -- maxima put back --------------------------------------------------------------------------------------
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("sized", [False, True])
def test_maxima_put_back(axes: int, sized: bool, seed: Rng) -> None:
    kernel = tuple(int(n) for n in seed.integers(2, 4, axes))
    pads = tuple(int(seed.integers(0, k // 2 + 1)) for k in kernel)
    shape = (2, 3, *(int(n) for n in seed.integers(5, 9, axes)))
    data = torch.from_numpy(seed.permutation(math.prod(shape)).reshape(shape).astype("f8"))
    pool = getattr(torch.nn.functional, f"max_pool{axes}d")
    values, indices = pool(data, kernel, kernel, pads, return_indices=True)
    size = shape[2:] if sized else None
    fields = (kernel[0], None, pads[0]) if axes == 1 else (kernel, None, pads)
    name = "stride" if axes == 1 else "strides"
    layer = getattr(nn, f"MaxUnpool{axes}dConfig")(fields[0], **{name: None, "padding": fields[2]}).init()
    twin = getattr(torch.nn, f"MaxUnpool{axes}d")(kernel, None, pads)
    if not sized and int(indices.max()) >= math.prod(twin_sizes(values.shape[2:], kernel, pads)):
        with pytest.raises(BoundsError, match="an index is out of range"):
            layer.forward(tensor(values.numpy()), tensor(indices.numpy()))
        return
    ours = lambda layer, x, i: layer.forward(x, i, size)  # noqa: E731
    x = seed.normal(size=tuple(values.shape))
    compare(seed, layer, lambda x, i: twin(x, i, size), x, indices.numpy(), forward=ours)
    host = Device.ndarray()
    close(layer.forward(tensor(x, host), tensor(indices.numpy(), host), size), twin(torch.from_numpy(x), indices, size))
    pooled = getattr(functional, f"max_pool{axes}d_with_indices")(tensor(data.numpy()), kernel, None, pads)
    close(layer.forward(*pooled, size), twin(values, indices, size))


def twin_sizes(counts: Any, kernel: Any, pads: Any) -> list[int]:
    return [(count - 1) * k - 2 * pad + k for count, k, pad in zip(counts, kernel, pads, strict=True)]


def test_indices_that_do_not_fit() -> None:
    layer, x = nn.MaxUnpool1dConfig(2).init(), Tensor.ones((1, 1, 2), CPU)
    with pytest.raises(ShapeError, match=r"the indices do not fit the values\n  given: .*\(1, 1, 3\) i64"):
        layer.forward(x, Tensor.from_ints([[[0, 1, 2]]], CPU))
    with pytest.raises(DTypeError, match=r"the indices do not fit the values\n  given: .*expected|f32"):
        layer.forward(x, x)
    with pytest.raises(ShapeError, match=r"windows of this output have other counts\n  given: .*\(7,\)(.|\n)*\(4,\)"):
        layer.forward(x, Tensor.from_ints([[[0, 1]]], CPU), (7,))


# -- maxima at drawn places ---------------------------------------------------------------------------------
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("by_ratio", [False, True])
def test_maxima_at_drawn_places(axes: int, by_ratio: bool, seed: Rng) -> None:
    shape = (2, 3, *(int(n) for n in seed.integers(6, 10, axes)))
    kernel = tuple(int(n) for n in seed.integers(1, 4, axes))
    ratio = tuple(float(r) for r in seed.uniform(0.2, 0.6, axes))
    size = tuple(int(seed.integers(1, n - k + 1)) for n, k in zip(shape[2:], kernel, strict=True))
    settings: dict[str, Any] = {"output_ratio": ratio} if by_ratio else {"output_size": size}
    samples = seed.uniform(0, 1, (2, 3, axes))
    layer = getattr(nn, f"FractionalMaxPool{axes}dConfig")(kernel, **settings).init()
    kind = getattr(torch.nn, f"FractionalMaxPool{axes}d")
    twin = kind(kernel, **settings, return_indices=True, _random_samples=torch.from_numpy(samples))
    ours = lambda layer, x: layer.forward(x, tensor(samples))  # noqa: E731
    for data in (seed.normal(size=shape), seed.integers(0, 3, shape).astype("f8")):  # the first of equal ones wins
        compare(seed, layer, lambda x: twin(x)[0], data, forward=ours)
        values, indices = twin(torch.from_numpy(data))
        pool = getattr(functional, f"fractional_max_pool{axes}d_with_indices")
        got = pool(tensor(data), kernel, tuple(values.shape[2:]), tensor(samples))
        close(got[0], values)
        np.testing.assert_array_equal(array(got[1]), indices.numpy())


def test_places_are_drawn_by_the_step_while_training_and_fixed_elsewhere(seed: Rng) -> None:
    layer = nn.FractionalMaxPool2dConfig((2, 2), output_ratio=(0.6, 0.6)).init()
    x = tensor(seed.normal(size=(2, 3, 20, 20)))
    drawn = []
    for key in (0, 0, 1):
        with StepScope(key, layer):
            drawn.append(array(layer.forward(x)))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    assert all(value.shape == (2, 3, 12, 12) for value in drawn)
    half = layer.forward(x.inner(), Tensor.full((2, 3, 2), 0.5, CPU))
    np.testing.assert_array_equal(array(layer.valid().forward(x.inner())), array(half))
    np.testing.assert_array_equal(array(compile(lambda m, x: m.forward(x))(layer.valid(), x.inner())), array(half))


def test_windows_and_samples_that_do_not_fit() -> None:
    x = Tensor.ones((1, 2, 4, 4), CPU)
    with pytest.raises(ShapeError, match=r"the windows do not fit the input\n  given: .*\(3, 3\), x"):
        nn.FractionalMaxPool2dConfig((3, 3), output_size=(3, 3)).init().forward(x)
    with pytest.raises(ShapeError, match=r"the samples do not fit the channels(.|\n)*\(1, 2, 2\)"):
        functional.fractional_max_pool2d(x, 2, 2, Tensor.ones((1, 2, 3), CPU))
    for wrong in ({}, {"output_size": (2, 2), "output_ratio": (0.5, 0.5)}, {"output_ratio": (0.5, 1.0)}):
        with pytest.raises(ConfigError, match=r"expected"):
            nn.FractionalMaxPool2dConfig((2, 2), **wrong)  # type: ignore[arg-type]  # the fault under test
    with pytest.raises(ArgumentError, match=r"p is the power of no norm"):
        functional.lp_pool1d(Tensor.ones((1, 1, 4), CPU), math.inf, 2)


# -- bilinear, and padded embeddings -------------------------------------------------------------------------
@pytest.mark.parametrize("batch", [(), (4,), (2, 3), (0,)])
@pytest.mark.parametrize("bias", [False, True])
def test_bilinear(batch: tuple[int, ...], bias: bool, seed: Rng) -> None:
    twin = torch.nn.Bilinear(3, 4, 5, bias, dtype=torch.float64)
    params: dict[str, Any] = {"weight": (twin.weight, same)} | ({"bias": (twin.bias, same)} if bias else {})
    inputs = [seed.normal(size=(*batch, 3)), seed.normal(size=(*batch, 4))]
    compare(seed, nn.BilinearConfig(3, 4, 5, bias=bias).init(AD), twin, *inputs, params=params)
    layer = nn.BilinearConfig(3, 4, 5).init(CPU)
    with pytest.raises(
        ShapeError, match=r"the inputs do not fit the weight\n  given: .*\n  expected: x1 \(\*batch, d_in1\)"
    ):
        layer.forward(Tensor.ones((2, 4), CPU), Tensor.ones((2, 4), CPU))
    assert str(layer) == "Bilinear {d_input1: 3, d_input2: 4, d_output: 5, bias: true, params: 65}"


def test_the_row_of_padding_begins_as_zeros_and_has_no_gradient(seed: Rng) -> None:
    layer = nn.EmbeddingConfig(6, 3, padding_idx=2).init(AD)
    assert not array(layer.weight.val())[2].any()
    assert array(layer.weight.val())[[0, 1, 3, 4, 5]].all()
    twin = torch.nn.Embedding(6, 3, padding_idx=2, dtype=torch.float64)
    with torch.no_grad():
        twin.weight.copy_(torch.from_numpy(seed.normal(size=(6, 3))))  # a file's row of padding need not be zeros
    compare(seed, layer, twin, np.array([[0, 2, 2], [5, 2, 0]]), params={"weight": (twin.weight, same)})
    assert str(layer) == "Embedding {n_embedding: 6, d_model: 3, padding_idx: 2, params: 18}"
    with pytest.raises(ConfigError, match=r"no row\n  given: +padding_idx = 6\n  expected: 0 to 5"):
        nn.EmbeddingConfig(6, 3, padding_idx=6).init(CPU)
    with pytest.raises(ConfigError, match=r"padding_idx = -1"):
        nn.EmbeddingConfig(6, 3, padding_idx=-1)


def test_the_row_of_padding_has_no_gradient_of_any_sample(seed: Rng) -> None:
    """A function of one sample runs over a batch, in a compiled step too."""
    layer = nn.EmbeddingConfig(4, 2, padding_idx=0).init(AD)
    indices = Tensor.from_ints([[0, 1], [0, 2]], CPU)

    def loss(model: nn.Embedding, indices: Tensor) -> Tensor:
        return vmap(lambda one: model.forward(one).square().sum())(indices).sum()

    def step(model: nn.Embedding, indices: Tensor) -> Tensor:
        gradient = model.weight.val().grad(loss(model, indices).backward())
        assert gradient is not None
        return gradient

    expected = 2.0 * array(layer.weight.val())
    expected[[0, 3]] = 0.0
    np.testing.assert_allclose(array(step(layer, indices)), expected, rtol=1e-6)
    np.testing.assert_allclose(array(compile(step)(layer, indices)), expected, rtol=1e-6)
