"""Tests what the table cannot state of reductions and creation: ties, NaN, zeros, nothing at all, element types,
messages.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.core.spec import NUMBER_SPECS, TensorSpec
from tests.ops.behaviour import Where, check_gradients, everywhere, gradients, one_message

NAN, INF = math.nan, math.inf


def spec(*shape: int, dtype: DType = DType.F32) -> TensorSpec:
    return TensorSpec.of(shape, dtype, "cpu")


# -- nothing at all ---------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize(
    ("row", "expected"), [("sum", 0), ("mean", NAN), ("prod", 1), ("any", False), ("all", True), ("logsumexp", -INF)]
)
def test_reduction_of_nothing(where: Where, row: str, expected: Any) -> None:
    y = where.run(ops.REGISTRY[row], np.zeros((2, 0)), dims=(1,))
    np.testing.assert_array_equal(y, np.full((2, 1), expected))


@everywhere
def test_variance_of_too_few_elements(where: Where) -> None:
    # torch gives these numbers too, with a warning
    assert np.isnan(where.run(ops.var, np.array([[3.0]]), dims=(1,), correction=1)).all()
    assert np.isnan(where.run(ops.var, np.zeros((1, 0)), dims=(1,), correction=0)).all()
    assert where.run(ops.var, np.array([[1.0, 3.0]]), dims=(1,), correction=2).tolist() == [[INF]]
    assert where.run(ops.var, np.array([1.0, 3.0]), dims=(), correction=0).tolist() == [0, 0]
    variance, mean = where.run(ops.var_mean, np.array([[3.0]]), dims=(1,), correction=1)
    assert np.isnan(variance).all()
    assert mean.tolist() == [[3]]
    grads = gradients(where, ops.var, (np.array([3.0]),), [np.ones(1)], dims=(0,), correction=1)
    assert np.isnan(grads[0]).all()


@everywhere
def test_no_axes_reduce_nothing(where: Where, seed: np.random.Generator) -> None:
    x = seed.normal(size=(2, 3))
    for row in (ops.sum, ops.mean, ops.prod, ops.amax, ops.amin, ops.logsumexp):
        np.testing.assert_array_equal(where.run(row, x, dims=()), x, err_msg=row.name)
        grads = gradients(where, row, (x,), [2 * x], dims=())
        np.testing.assert_array_equal(grads[0], 2 * x, err_msg=row.name)
    assert where.run(ops.any, x, dims=()).tolist() == [[True] * 3] * 2


# -- products and zeros ------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_gradient_of_product_is_exact_at_zeros(where: Where, dims: tuple[int, ...], zeros: int) -> None:
    x = np.random.default_rng(zeros).uniform(0.5, 1.5, (2, 3, 2))
    x.reshape(-1)[[0, 2, 7][:zeros]] = 0
    check_gradients(where, ops.prod, x, dims=dims)


FACTORS = np.array([[300.0, 300.0, 0.01, 0.5, 0.1]], np.float16)


@everywhere
@pytest.mark.parametrize("dims", [(1,), (0, 1)])
def test_gradient_of_product_of_halves_whose_first_factors_overflow(where: Where, dims: tuple[int, ...]) -> None:
    grads = gradients(where, ops.prod, (FACTORS,), [np.ones((1, 1), np.float16)], dims=dims)
    wide = FACTORS.astype(np.float64)
    np.testing.assert_allclose(grads[0], wide.prod() / wide, rtol=1e-3)


@everywhere
def test_gradient_of_product_with_zeros_equals_that_of_torch(where: Where) -> None:
    x = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [1.0, 4.0, 2.0]])
    g = np.array([[1.0], [2.0], [3.0]])
    theirs = torch.from_numpy(x).requires_grad_()
    (expected,) = torch.autograd.grad(theirs.prod(1, keepdim=True), theirs, torch.from_numpy(g))
    grads = gradients(where, ops.prod, (x,), [g], dims=(1,))
    assert grads[0].tolist() == expected.tolist() == [[0, 6, 0], [0, 0, 0], [24, 6, 12]]


# -- ties ----------------------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize(("row", "extreme"), [("amax", 3.0), ("amin", -3.0)])
def test_equal_extremes_share_the_gradient_evenly(where: Where, row: str, extreme: float) -> None:
    x = np.array([[extreme, 0, extreme], [0, extreme, 1]])
    grads = gradients(where, ops.REGISTRY[row], (x,), [np.array([[6.0]])], dims=(0, 1))
    assert grads[0].tolist() == [[2, 0, 2], [0, 2, 0]]


@everywhere
def test_indices_name_the_first_of_equal_extremes(where: Where) -> None:
    x = np.array([[1.0, 5.0, 5.0, -2.0, -2.0]])
    assert where.run(ops.argmax, x, dim=1).tolist() == [[1]]
    assert where.run(ops.argmin, x, dim=1).tolist() == [[3]]
    assert where.run(ops.max_with_indices, x, dim=1)[1].tolist() == [[1]]
    assert where.run(ops.min_with_indices, x, dim=1)[1].tolist() == [[3]]
    grads = gradients(where, ops.max_with_indices, (x,), [np.array([[7.0]]), None], dim=1)
    assert grads[0].tolist() == [[0, 7, 0, 0, 0]]


@everywhere
@pytest.mark.parametrize("dtype", [DType.I64, DType.I32, DType.U8, DType.F32])
def test_many_ties_name_the_first(where: Where, dtype: DType) -> None:
    x = np.ones((3, 1000), dtype.numpy)  # long enough for the vector units to split the line
    for row in (ops.argmax, ops.argmin):
        assert where.run(row, x, dim=1).tolist() == [[0]] * 3
    for row in (ops.max_with_indices, ops.min_with_indices):
        assert where.run(row, x, dim=1)[1].tolist() == [[0]] * 3


# -- NaN and infinities ---------------------------------------------------------------------------------------
@everywhere
def test_extremes_pass_nan_on(where: Where) -> None:
    x = np.array([[1.0, NAN, 3.0, NAN], [1.0, 2.0, 3.0, 0.0]])
    for row in (ops.amax, ops.amin):
        assert np.isnan(where.run(row, x, dims=(1,))).ravel().tolist() == [True, False]
        grads = gradients(where, row, (x,), [np.ones((2, 1))], dims=(1,))
        assert np.isnan(grads[0]).any(axis=1).tolist() == [True, False]
    for row in (ops.argmax, ops.argmin):
        assert where.run(row, x, dim=1)[0].tolist() == [1]
    for row in (ops.max_with_indices, ops.min_with_indices):
        values, indices = where.run(row, x, dim=1)
        assert np.isnan(values).ravel().tolist() == [True, False]
        assert indices[0].tolist() == [1]


@everywhere
def test_nan_is_true(where: Where) -> None:
    assert where.run(ops.any, np.array([0.0, NAN]), dims=(0,)).tolist() == [True]
    assert where.run(ops.all, np.array([1.0, NAN]), dims=(0,)).tolist() == [True]
    assert where.run(ops.any, np.array([0.0, -0.0]), dims=(0,)).tolist() == [False]


@everywhere
def test_logsumexp_at_infinities(where: Where) -> None:
    x = np.array([[-INF, -INF, -INF], [INF, 0.0, -INF], [-INF, 1.0, 1.0], [1e300, 1e300, 0.0], [NAN, 0.0, INF]])
    y = where.run(ops.logsumexp, x, dims=(1,))
    expected = torch.logsumexp(torch.from_numpy(x), 1, keepdim=True).numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-15)
    grads = gradients(where, ops.logsumexp, (x[:1],), [np.ones((1, 1))], dims=(1,))
    assert grads[0].tolist() == [[0, 0, 0]]  # torch: NaN
    grads = gradients(where, ops.logsumexp, (x[2:4],), [np.ones((2, 1))], dims=(1,))
    np.testing.assert_allclose(grads[0], np.array([[0, 0.5, 0.5], [1, 1, 0]]))  # at 1e300 log(2) is lost in rounding


# -- element types -----------------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I16, DType.I32, DType.I64])
def test_integers_wrap_around_and_keep_their_type(where: Where, dtype: DType) -> None:
    info = np.iinfo(dtype.numpy)
    x = np.array([info.max, 1, 1], dtype.numpy)
    y = where.run(ops.sum, x, dims=(0,))
    assert (y.dtype, y.tolist()) == (dtype.numpy, [info.min + 1])
    y = where.run(ops.prod, np.array([info.max, 2], dtype.numpy), dims=(0,))
    assert (y.dtype, y.tolist()) == (dtype.numpy, [-2 if info.min else info.max - 1])
    assert where.run(ops.amax, x, dims=(0,)).tolist() == [info.max]
    assert where.run(ops.argmax, x, dim=0).dtype == np.int64


@everywhere
@pytest.mark.parametrize("dtype", [DType.U8, DType.I32, DType.F32, DType.U16, DType.BOOL])
def test_truth_is_bool_for_every_type(where: Where, dtype: DType) -> None:
    x = np.array([[0, 2], [0, 0]], dtype.numpy)
    for row, expected in ((ops.any, [[True], [False]]), (ops.all, [[False], [False]])):
        y = where.run(row, x, dims=(1,))
        assert (y.dtype, y.tolist()) == (np.bool_, expected)


@everywhere
def test_half_sums_in_more_than_half(where: Where) -> None:
    x = np.full(4096, 1.0, np.float16)  # one by one in f16 this stops at 2048
    assert where.run(ops.sum, x, dims=(0,)).tolist() == [4096]
    assert where.run(ops.mean, x, dims=(0,)).tolist() == [1]


# -- creation ----------------------------------------------------------------------------------------------------
@everywhere
def test_ranges_round_once(where: Where) -> None:
    y = where.run(ops.arange, 0.1, 0.1, length=1000, dtype=DType.F32)
    np.testing.assert_array_equal(y, (np.arange(1000) * 0.1 + 0.1).astype(np.float32))
    assert where.run(ops.arange, 5, -2, length=4, dtype=DType.I32).tolist() == [5, 3, 1, -1]
    assert where.run(ops.arange, 255, -1, length=256, dtype=DType.U8).tolist()[-2:] == [1, 0]
    assert where.run(ops.arange, 2, 0, length=3, dtype=DType.I64).tolist() == [2, 2, 2]


@everywhere
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.I8, DType.U32, DType.BOOL])
def test_identity_of_every_type(where: Where, dtype: DType) -> None:
    y = where.run(ops.eye, size=2, dtype=dtype)
    assert (y.dtype, y.tolist()) == (dtype.numpy, [[1, 0], [0, 1]])
    assert where.run(ops.eye, size=0, dtype=dtype).shape == (0, 0)


@everywhere
def test_cross_product_against_torch(where: Where, seed: np.random.Generator) -> None:
    x, y = seed.normal(size=(2, 3, 1)), seed.normal(size=(1, 3, 4))
    expected = torch.linalg.cross(torch.from_numpy(x), torch.from_numpy(y), dim=1).numpy()
    np.testing.assert_allclose(where.run(ops.cross, x, y, dim=1), expected, rtol=1e-14, atol=1e-15)
    check_gradients(where, ops.cross, x, y, dim=1)


# -- messages -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("row", "specs", "attrs", "parts"),
    [
        ("sum", [spec(2, 3)], {"dims": (2,)}, ("sum: dim 2 is out of range", "given", "0 to 1", "count axes")),
        ("mean", [spec(2, 3)], {"dims": (-1,)}, ("mean: dim -1", "given", "from the front", "negative axes")),
        ("prod", [spec(2, 3)], {"dims": (1, 1)}, ("name an axis twice", "given", "distinct", "once")),
        ("amax", [spec(2, 0)], {"dims": (1,)}, ("amax: axis 1 is empty", "given", "at least one", "emptiness")),
        ("argmin", [spec(0)], {"dim": 0}, ("argmin: axis 0 is empty", "given", "at least one", "emptiness")),
        ("max_with_indices", [spec()], {"dim": 0}, ("dim 0", "given", "at least one axis", "mend")),
        (
            "full",
            [1],
            {"shape": (2, -1), "dtype": DType.F32, "place": "cpu"},
            ("negative size", "given", "0 or", "mend"),
        ),
        ("eye", [], {"size": -1, "dtype": DType.F32, "place": "cpu"}, ("negative size", "given", "0 or more", "mend")),
        ("cross", [spec(2, 3), spec(3)], {"dim": 0}, ("numbers of axes", "given", "as many", "unsqueeze")),
        ("cross", [spec(2, 3), spec(2, 3)], {"dim": 0}, ("three elements", "given", "size 3 on axis 0", "dim")),
        ("cross", [spec(2, 3), spec(4, 3)], {"dim": 1}, ("do not broadcast", "given", "equal or 1", "mend")),
    ],
)
def test_misfits_are_reported_in_three_parts(
    row: str, specs: list[Any], attrs: dict[str, Any], parts: tuple[str, ...]
) -> None:
    fed = [NUMBER_SPECS[type(x)] if isinstance(x, int) else x for x in specs]
    with pytest.raises(ShapeError, match=one_message(*parts)):
        ops.REGISTRY[row].bind(fed, attrs)


def test_wrong_types_are_reported_in_three_parts() -> None:
    with pytest.raises(DTypeError, match=one_message("mean: x has an element type", "i32", "float", "cast")):
        ops.mean.bind([spec(2, dtype=DType.I32)], {"dims": (0,)})
    with pytest.raises(
        DTypeError, match=one_message("amax: x has an element type", "bool", "float or integer", "cast")
    ):
        ops.amax.bind([spec(2, dtype=DType.BOOL)], {"dims": (0,)})
    numbers = [NUMBER_SPECS[float], NUMBER_SPECS[int]]
    with pytest.raises(
        DTypeError, match=one_message("start is a float number for a range of i64", "given", "whole", "ask")
    ):
        ops.arange.bind(numbers, {"length": 3, "dtype": DType.I64, "place": "cpu"})
    with pytest.raises(DTypeError, match=one_message("arange: a range of bool", "given", "float or integer", "cast")):
        ops.arange.bind(numbers, {"length": 3, "dtype": DType.BOOL, "place": "cpu"})
