"""Normalisation against PyTorch: gradients of first and second order, statistics as outputs, odd shapes, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch.nn import functional

from burn_torch import Tensor
from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.ops import REGISTRY, Value
from tests.ops.twins import LEAVES, close, compare, gradients, read, run, values

EPS: Final = 1e-5
AFFINE: Final = [(True, True), (True, False), (False, False), (False, True)]
Twin = Callable[..., Any]


def _layer(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    return functional.layer_norm(x, x.shape[-1:], gamma, beta, eps)


def _rms(x: Any, gamma: Any, eps: float) -> Any:
    return functional.rms_norm(x, x.shape[-1:], gamma, eps)


def _batch(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    return functional.batch_norm(x, None, None, gamma, beta, training=True, eps=eps)


def _parameters(seed: np.random.Generator, size: int, present: tuple[bool, bool]) -> list[Any]:
    return [seed.uniform(0.5, 1.5, size) if p else None for p in present]


@pytest.mark.parametrize("affine", AFFINE)
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 5), (4,), (2, 1), (0, 4)])
def test_layer_norm_is_the_twin(shape: tuple[int, ...], affine: tuple[bool, bool], seed: np.random.Generator) -> None:
    compare(seed, "layer_norm", _layer, seed.uniform(-3, 5, shape), *_parameters(seed, shape[-1], affine), 0.1)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 5), (4,), (0, 4)])
def test_rms_norm_is_the_twin(shape: tuple[int, ...], affine: bool, seed: np.random.Generator) -> None:
    gamma = seed.uniform(0.5, 1.5, shape[-1]) if affine else None
    compare(seed, "rms_norm", _rms, seed.uniform(-3, 5, shape), gamma, EPS)


@pytest.mark.parametrize("affine", AFFINE)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 4, 3, 2), (3, 4), (0, 4, 2)])
def test_group_norm_is_the_twin(
    shape: tuple[int, ...], groups: int, affine: tuple[bool, bool], seed: np.random.Generator
) -> None:
    def twin(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
        # written out: torch refuses one element a group
        lines = x.reshape(x.shape[0], groups, math.prod(shape[1:]) // groups)
        centred = lines - lines.mean(2, keepdim=True)
        y = (centred / (centred.square().mean(2, keepdim=True) + eps).sqrt()).reshape(x.shape)
        beside = (1, -1, *[1] * (x.ndim - 2))
        y = y if gamma is None else y * gamma.reshape(beside)
        return y if beta is None else y + beta.reshape(beside)

    compare(seed, "group_norm", twin, seed.uniform(-3, 5, shape), *_parameters(seed, 4, affine), 0.1, groups=groups)


def test_group_norm_is_torchs(seed: np.random.Generator) -> None:
    def twin(x: Any, gamma: Any, beta: Any, eps: float) -> Any:
        return functional.group_norm(x, 2, gamma, beta, eps)

    compare(
        seed, "group_norm", twin, seed.uniform(-3, 5, (3, 4, 5)), *_parameters(seed, 4, (True, True)), EPS, groups=2
    )


@pytest.mark.parametrize("affine", AFFINE)
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 5), (2, 3, 4, 2), (2, 3, 2, 2, 2)])
def test_batch_norm_is_the_twin(shape: tuple[int, ...], affine: tuple[bool, bool], seed: np.random.Generator) -> None:
    x = seed.uniform(-3, 5, shape)
    compare(seed, "batch_norm", _batch, x, *_parameters(seed, 3, affine), EPS)
    over = (0, *range(2, x.ndim))
    for leaf in LEAVES:
        _, mean, var = run(leaf, "batch_norm", x, None, None, EPS)
        close("mean", mean, x.mean(over))
        close("biased variance", var, x.var(over))


@pytest.mark.parametrize("affine", AFFINE)
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4, 2), (0, 3, 2)])
def test_batch_norm_inference_is_the_twin(
    shape: tuple[int, ...], affine: tuple[bool, bool], seed: np.random.Generator
) -> None:
    def twin(x: Any, gamma: Any, beta: Any, mean: Any, var: Any, eps: float) -> Any:
        # written out: torch gives the statistics no gradient
        beside = (1, -1, *[1] * (x.ndim - 2))
        y = (x - mean.reshape(beside)) / (var.reshape(beside) + eps).sqrt()
        y = y if gamma is None else y * gamma.reshape(beside)
        return y if beta is None else y + beta.reshape(beside)

    parameters = _parameters(seed, 3, affine)
    compare(
        seed,
        "batch_norm_inference",
        twin,
        seed.uniform(-3, 5, shape),
        *parameters,
        seed.uniform(-1, 1, 3),
        seed.uniform(0.5, 2, 3),
        EPS,
    )


# -- statistics carry gradients -----------------------------------------------------------------------
def _with_statistics(name: str, **attrs: Any) -> Twin:
    def twin(x: Any, *rest: Any) -> Any:
        gamma, eps = rest[0], rest[-1]
        if name == "rms_norm":
            rstd = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
            return x * rstd * gamma, rstd
        if name == "batch_norm":
            mean, var = x.mean((0, 2), keepdim=True), x.var((0, 2), correction=0, keepdim=True)
            y = (x - mean) * (var + eps).rsqrt() * gamma.reshape(1, -1, 1) + rest[1].reshape(1, -1, 1)
            return y, mean.reshape(-1), var.reshape(-1)
        lines = x if name == "layer_norm" else x.reshape(x.shape[0], attrs["groups"], -1)
        mean = lines.mean(-1, keepdim=True)
        rstd = (lines.var(-1, correction=0, keepdim=True) + eps).rsqrt()
        y = ((lines - mean) * rstd).reshape(x.shape)
        if name == "layer_norm":
            return y * gamma + rest[1], mean, rstd
        return y * gamma.reshape(1, -1, 1) + rest[1].reshape(1, -1, 1), mean.squeeze(-1), rstd.squeeze(-1)

    return twin


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm", "batch_norm"])
def test_statistics_carry_gradients(name: str, seed: np.random.Generator) -> None:
    attrs: dict[str, Any] = {"groups": 2} if name == "group_norm" else {}
    parameters = _parameters(seed, 4, (True, True))[: 1 if name == "rms_norm" else 2]
    compare(seed, name, _with_statistics(name, **attrs), seed.uniform(-2, 3, (3, 4, 4)), *parameters, EPS, **attrs)


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm", "batch_norm"])
def test_second_gradient(name: str, leaf: Any, seed: np.random.Generator) -> None:
    attrs: dict[str, Any] = {"groups": 2} if name == "group_norm" else {}
    x, gamma, beta = seed.uniform(-2, 3, (3, 4, 4)), seed.uniform(0.5, 1.5, 4), seed.uniform(-1, 1, 4)
    g, h = seed.standard_normal((2, 3, 4, 4))
    parameters = [gamma] if name == "rms_norm" else [gamma, beta]

    xt, gt = torch.from_numpy(x).requires_grad_(), torch.from_numpy(gamma).requires_grad_()
    y = _with_statistics(name, **attrs)(xt, gt, *map(torch.from_numpy, parameters[1:]), EPS)[0]
    (dx,) = torch.autograd.grad(y, xt, torch.from_numpy(g), create_graph=True)
    expected = torch.autograd.grad(dx, [xt, gt], torch.from_numpy(h))

    inner = Autodiff(leaf)
    outer = Autodiff(inner)
    below = [
        Value(inner, inner.track(v.primitive, v.spec), v.spec) if isinstance(v, Value) else v
        for v in values(leaf, [x, *parameters])
    ]
    above = [Value(outer, outer.track(below[0].primitive, below[0].spec), below[0].spec), *below[1:]]
    first = REGISTRY[name](*above, EPS, **attrs)[0]
    upstream = values(leaf, [g])[0].primitive
    slope = outer.backward([(first.primitive, upstream)])[above[0].primitive.node.id]
    slots = inner.backward([(slope, values(leaf, [h])[0].primitive)])
    for value, e in zip(below, expected, strict=False):
        close(f"second gradient of {name}", leaf.into_data(slots[value.primitive.node.id]).values, e.numpy())


# -- edges ------------------------------------------------------------------------------------------------
def test_a_constant_line_gives_beta() -> None:
    for leaf in LEAVES:
        y, mean, rstd = run(leaf, "layer_norm", np.full((2, 4), 3.0), np.full(4, 2.0), np.arange(4.0), EPS)
        np.testing.assert_array_equal(y, [np.arange(4.0)] * 2)
        np.testing.assert_array_equal(mean, np.full((2, 1), 3.0))
        np.testing.assert_allclose(rstd, np.full((2, 1), EPS**-0.5), rtol=2.0**-50)


def test_one_element_a_channel_has_variance_zero() -> None:
    for leaf in LEAVES:
        y, mean, var = run(leaf, "batch_norm", np.array([[5.0, -2.0]]), None, np.array([1.0, 2.0]), EPS)
        np.testing.assert_array_equal(y, [[1.0, 2.0]])
        np.testing.assert_array_equal(mean, [5.0, -2.0])
        np.testing.assert_array_equal(var, [0.0, 0.0])


def test_an_empty_batch_gives_zero_parameter_gradients() -> None:
    for leaf in LEAVES:
        cases: list[tuple[str, Any, dict[str, Any]]] = [
            ("layer_norm", np.zeros((0, 3)), {}),
            ("group_norm", np.zeros((0, 3, 2)), {"groups": 3}),
            ("batch_norm", np.zeros((0, 3, 2)), {}),
        ]
        for name, x, attrs in cases:
            y, *_ = run(leaf, name, x, np.ones(3), np.ones(3), EPS, **attrs)
            assert y.shape == x.shape
            grads = gradients(leaf, name, [x, np.ones(3), np.ones(3), EPS], [x, None, None], attrs)
            assert [g is not None and g.shape for g in grads] == [x.shape, (3,), (3,)]
            assert not any(g.any() for g in grads if g is not None)


def test_batch_norm_of_nothing_has_finite_statistics() -> None:
    for leaf in LEAVES:
        _, mean, var = run(leaf, "batch_norm", np.zeros((0, 2)), None, None, EPS)
        np.testing.assert_array_equal([mean, var], np.zeros((2, 2)))


def test_a_far_mean_does_not_cancel(seed: np.random.Generator) -> None:
    x = seed.standard_normal((4, 64)) + 1e6  # var computed as mean(x^2) - mean(x)^2 would lose all digits in f32
    exact = x.astype(np.float32).astype(np.float64)
    expected = (exact - exact.mean(1, keepdims=True)) / exact.std(1, keepdims=True)
    for leaf in LEAVES:
        y, *_ = run(leaf, "layer_norm", x, None, None, 0.0, dtype=DType.F32)
        np.testing.assert_allclose(y, expected, atol=0.1)  # the mean itself rounds to 1/16 in f32


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm", "batch_norm"])
def test_statistics_of_half_types_are_float32(name: str, dtype: DType, seed: np.random.Generator) -> None:
    attrs: dict[str, Any] = {"groups": 2} if name == "group_norm" else {}
    inputs: list[Any] = [seed.uniform(-2, 3, (3, 4, 8)), *_parameters(seed, 8 if name[0] in "lr" else 4, (True, True))]
    inputs = [*(inputs[:2] if name == "rms_norm" else inputs), EPS]
    leaf = LEAVES[0]
    results = REGISTRY[name](*values(leaf, inputs, dtype), **attrs)
    assert [y.dtype for y in results] == [dtype] + [DType.F32] * (len(results) - 1)
    rounded = [read(x).astype(np.float64) if isinstance(x, Value) else x for x in values(leaf, inputs, dtype)]
    expected = run(leaf, name, *rounded, **attrs)
    outputs = run(leaf, name, *inputs, dtype=dtype, **attrs)
    unit = 2.0**-11 if dtype is DType.F16 else 2.0**-8
    np.testing.assert_allclose(outputs[0], expected[0], rtol=1.01 * unit, atol=1e-5)  # one rounding, float32 steps
    for a, e in zip(outputs[1:], expected[1:], strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


# -- errors --------------------------------------------------------------------------------------------------
def test_parameters_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ShapeError,
        match=r"(?s)layer_norm: gamma does not fit the input.*given:    x \(2, 3\) f64, gamma \(4,\) f64"
        r".*expected: gamma \(3,\).*mend:     make the layer for 3 features",
    ):
        run(LEAVES[0], "layer_norm", np.zeros((2, 3)), np.ones(4), None, EPS)


def test_groups_that_do_not_divide_are_refused() -> None:
    with pytest.raises(
        ShapeError,
        match=r"(?s)group_norm: 4 channels do not divide into 3 groups.*given: .*expected: groups that.*mend: ",
    ):
        run(LEAVES[0], "group_norm", np.zeros((2, 4)), None, None, EPS, groups=3)


def test_an_input_without_channels_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"(?s)batch_norm: the input has no axis of channels.*given:    x \(3,\).*expected: .*mend: "
    ):
        run(LEAVES[0], "batch_norm", np.zeros(3), None, None, EPS)


def test_statistics_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ShapeError,
        match=r"(?s)batch_norm_inference: the statistics do not fit.*given: .*expected: mean and var \(3,\).*mend: ",
    ):
        run(LEAVES[0], "batch_norm_inference", np.zeros((2, 3)), None, None, np.zeros(2), np.ones(2), EPS)


def test_integers_are_refused() -> None:
    with pytest.raises(DTypeError, match=r"(?s)rms_norm: x has an element type.*given:    x \(2, 3\) i64.*mend: "):
        run(LEAVES[0], "rms_norm", np.zeros((2, 3), np.int64), None, EPS)


@pytest.mark.parametrize("strided", [(1,), (2,), (3,), (1, 2, 3)])
def test_batch_norm_backward_reads_strided_statistics_where_they_are(
    strided: tuple[int, ...], seed: np.random.Generator
) -> None:
    """torch's own function takes the statistics and gamma for contiguous where x is: it read their neighbours."""
    x, g = (torch.from_numpy(seed.normal(size=(5, 3))) for _ in range(2))
    kept = [torch.from_numpy(seed.uniform(0.5, 1.5, (3,))) for _ in range(3)]
    statistics = [torch.full((3, 2), float("nan"), dtype=torch.float64)[:, 0].copy_(y) if i + 1 in strided else y
             for i, y in enumerate(kept)]  # fmt: skip
    wanted, actual = (
        [y.into_torch() for y in REGISTRY["batch_norm_backward"](*map(Tensor.from_torch, (g, x, *ys)), 1e-5)]
        for ys in (kept, statistics)
    )
    for y, z in zip(actual, wanted, strict=True):
        torch.testing.assert_close(y, z, rtol=1e-13, atol=1e-14)
